"""What a client is told when a request cannot be answered: the field, and what was expected."""

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from capmodel.runs import RunsError

_LONGEST = 600
_FIELD = re.compile(r"\bGot (?:an? )?([a-z_][a-z0-9_]*)(?:=|\[)", re.IGNORECASE)
_MISSING = re.compile(r"\bGot [^;]*?\b([a-z_]+)=None\b[^;]*, but expected both")
_NAMED = re.compile(
    r"\b[Gg]ot (?:an? |the )?(model|GPU|trace|calibration|method|weight dtype|KV dtype)\b"
)
_EXPECTED = re.compile(r"but expected (.+)", re.DOTALL)


class Problem(BaseModel):
    """One thing to mend. field: a name of the body, "" for the whole of it."""

    field: str = Field(examples=["batch_size"])
    expected: str = Field(examples=["a positive number"])
    message: str


class Problems(BaseModel):
    """The body of every error answer."""

    detail: list[Problem]


class Refused(Exception):
    """A request that is answered with `status` and problems instead of a result."""

    def __init__(self, status: int, problems: Sequence[Problem], retry_s: int | None = None):
        super().__init__(problems[0].message if problems else "refused")
        self.status = status
        self.problems = list(problems)
        self.retry_s = retry_s

    def __reduce__(self) -> tuple[Any, ...]:
        return Refused, (self.status, self.problems, self.retry_s)


def problem(field: str, expected: str, message: str | None = None) -> Problem:
    """A problem; the message is made of the expectation where none is given."""
    said = message or f"{field or 'the body'}: expected {expected}"
    return Problem(field=field, expected=_cut(expected), message=_cut(said))


def refused_by_package(error: Exception, field: str = "") -> Refused:
    """The answer to a ValueError of the package, whose message names value and expectation."""
    if isinstance(error, RunsError):
        rows: list[Any] = error.problems.head(20).to_dict("records")
        return Refused(422, [_row_problem(row) for row in rows] or [problem("runs", str(error))])
    if isinstance(error, RecursionError | OverflowError):
        text = "a number or a nesting that is not too large to read"
        return Refused(422, [problem(field, text, f"too large: {error}")])
    if isinstance(error, UnicodeError):
        return Refused(422, [problem(field, "text in UTF-8")])
    message = str(error) or type(error).__name__
    if not field:
        for pattern in (_MISSING, _FIELD, _NAMED):
            if found := pattern.search(message):
                field = found.group(1).lower().replace(" ", "_")
                break
        field = field or next((name for words, name in _SAID_OF.items() if words in message), "")
    found = _EXPECTED.search(message)
    expected = found.group(1) if found else EXPECTED_OF.get(field, message)
    return Refused(422, [problem(field, expected, message)])


# Words of the package's messages that name no field -> the field.
_SAID_OF = {"exceed the context limit": "input_len", "No price is known": "price"}
# What a field is, where the package's message says only what is wrong with it.
NO_SUCH_FIELD = "no such field"
EXPECTED_OF = {
    "runs": "the output of a benchmark tool, or a runs table",
    "test": "the output of a benchmark tool, or a runs table",
    "price": "dollars per GPU-hour, or an object of them by the names of GPUs",
    "input_len": "requests that the model's context takes, prompt and answer together",
    "trace": "lists of one length, with arrivals that never fall",
    "weight_dtype": "a dtype that the model's weights can have",
    "kv_dtype": "a dtype that the model's cache can have",
    "model": "a name of the catalogue (GET /v1/models), or the content of a config.json",
    "gpu": "a name of the catalogue (GET /v1/gpus), or the GPU's fields as an object",
    "calibration": "the content of a file that capmodel fit or POST /v1/fit has written",
}


def _row_problem(row: dict[str, Any]) -> Problem:
    place = f"row {int(row['row'])}, " if row["row"] == row["row"] and row["row"] else ""
    message = f"{place}{row['column']}: {row['reason']}"
    told = repr(str(row["value"])) in message
    if row["value"] is not None and row["value"] == row["value"] and not told:
        message += f" (it is {str(row['value'])[:80]!r})"
    return problem("runs", str(row["reason"]), message)


def validation_problems(errors: Sequence[Any]) -> list[Problem]:
    """Pydantic's errors, those of one field's alternatives put together."""
    merged: dict[str, list[str]] = {}
    for error in errors:
        place = "" if error["type"] == "json_invalid" else _place(error["loc"])
        merged.setdefault(place, []).append(_expectation(error))
    return [
        _merged(field, list(dict.fromkeys(texts)))
        for field, texts in merged.items()
        if not any(other.startswith(f"{field}.") for other in merged if field)
    ][:20]


def _merged(field: str, texts: list[str]) -> Problem:
    """One problem of a field's alternatives; what another says more exactly is left out."""
    if texts == [NO_SUCH_FIELD]:
        return problem(field, NO_SUCH_FIELD, f"{field}: there is no such field")
    exact = [one for one in texts if not any(other.startswith(f"{one} ") for other in texts)]
    return problem(field, " or ".join(exact))


_EXPECTATIONS = {
    "missing": "a value, it is needed",
    "extra_forbidden": NO_SUCH_FIELD,
    "finite_number": "a finite number",
    "json_invalid": "JSON",
    "model_attributes_type": "a JSON object, sent as application/json",
    "model_type": "a JSON object",
    "int_parsing": "a whole number",
    "float_parsing": "a number",
    "string_unicode": "a text in UTF-8",
    "bool_parsing": "true or false",
    "string_pattern_mismatch": "a day such as 2026-12-31",
    "dict_type": "an object",
    "list_type": "a list",
    "float_type": "a number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "a text",
    "bool_type": "true or false",
}


def _expectation(error: Any) -> str:
    known = _EXPECTATIONS.get(error["type"])
    if known:
        return known
    text = str(error["msg"]).partition(" after validation, not ")[0]
    for begin, ours in _BEGINNINGS.items():
        if text.startswith(begin):
            return ours + text.removeprefix(begin)
    return text[:1].lower() + text[1:]


# How pydantic's sentences begin -> how an expectation reads.
_BEGINNINGS = {
    "Value error, ": "",
    "Input should be greater than or equal to": "a number of at least",
    "Input should be less than or equal to": "a number of at most",
    "Input should be greater": "a number greater",
    "Input should be less": "a number less",
    "Input should be ": "",
    "String should have ": "a text of ",
    "List should have ": "a list of ",
    "Dictionary should have ": "an object of ",
}


def _place(loc: Sequence[Any]) -> str:
    parts = [part for part in loc if part not in ("body", "query")]
    names = [str(part) for part in parts if isinstance(part, int) or _is_name(str(part))]
    return ".".join(names)


def _is_name(part: str) -> bool:
    """Whether a part of pydantic's place is a field, not the tag of an alternative."""
    tags = {"float", "int", "str", "dict", "bool", "list"}
    return re.fullmatch(r"[a-z_][a-z0-9_]*", part) is not None and part not in tags


def _cut(text: str) -> str:
    text = "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
