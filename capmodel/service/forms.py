"""Bodies that carry runs: JSON rows, or a form with files. Nothing of it touches a disk."""

import json
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from capmodel.service.bodies import FitBody, GradeBody
from capmodel.service.errors import Refused, problem, validation_problems
from capmodel.service.settings import Settings

_MOST_FILES = 16
_ROWS = [{"run_id": "a", "source": "mine"}]  # stands in for files while the rest is checked

Body = TypeVar("Body", bound=BaseModel)


def _form(**fields: dict[str, Any]) -> dict[str, Any]:
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    return {"type": "object", "required": ["runs"], "properties": {"runs": files, **fields}}


_FLAG = {"type": "boolean"}
_SEED = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}


def _content(body: type[BaseModel], **fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "required": True,
        "content": {
            "application/json": {"schema": _inlined(body.model_json_schema())},
            "multipart/form-data": {"schema": _form(**fields)},
        },
    }


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema that stands by itself; ours have no definitions of their own."""
    schema.pop("$defs", None)
    return schema


RUNS_CONTENT = {
    "fit": _content(
        FitBody,
        name={"type": "string", "maxLength": 80},
        grade=_FLAG,
        seed=_SEED,
        figures=_FLAG,
    ),
    "grade": _content(
        GradeBody,
        test={"type": "array", "items": {"type": "string", "format": "binary"}},
        calibration={"type": "string", "format": "binary"},
        splits={"type": "string", "description": "Names with commas."},
        estimators={"type": "string", "description": "Names with commas."},
        seed=_SEED,
        figures=_FLAG,
    ),
}


async def read_runs_body(request: Request, form: type[Body], settings: Settings) -> dict[str, Any]:
    """The fields of `form`; files as (name, bytes) under `runs` and `test`. Raises Refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        fields = _checked(form, _json(await request.body(), ""))
    elif kind == "multipart/form-data":
        fields = await _read_form(request, form, settings)
    else:
        expected = "application/json or multipart/form-data"
        raise Refused(415, [problem("", expected, f"Got {kind!r}, but expected {expected}")])
    return {**fields, "most_rows": settings.upload_rows}


def _json(text: bytes, field: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        expected = "JSON in UTF-8" if isinstance(error, UnicodeError) else "JSON"
        told = "" if isinstance(error, UnicodeError) else f": {error}"
        raise Refused(422, [problem(field, expected, f"expected {expected}{told}")]) from None


def _checked(form: type[Body], content: Any) -> dict[str, Any]:
    try:
        return form.model_validate(content).model_dump()
    except ValidationError as error:
        raise Refused(422, validation_problems(error.errors(include_input=False))) from None


async def _read_form(request: Request, form: type[Body], settings: Settings) -> dict[str, Any]:
    parser = MultiPartParser(
        request.headers, request.stream(), max_files=_MOST_FILES, max_fields=32
    )
    parser.spool_max_size = settings.upload_bytes  # stay in memory; the body is bounded
    try:
        sent = await parser.parse()
    except (MultiPartException, KeyError, ValueError) as error:
        expected = "a whole multipart/form-data body"
        raise Refused(422, [problem("", expected, f"{error}; expected {expected}")]) from None
    files: dict[str, list[tuple[str, bytes]]] = {}
    fields: dict[str, Any] = {}
    for name, value in sent.multi_items():
        if isinstance(value, UploadFile):
            content = await value.read()
            if name == "calibration":
                fields[name] = _json(content, name)
            else:
                files.setdefault(name, []).append((value.filename or "upload", content))
        else:
            fields[name] = _typed(form, name, value)
    await sent.close()
    if "runs" not in files:
        raise Refused(422, [problem("runs", "at least one file")])
    unknown = sorted(set(files) - {"runs", "test"})
    if unknown or ("test" in files and "test" not in form.model_fields):
        name = (unknown or ["test"])[0]
        expected = "files as runs" + (" and test" if "test" in form.model_fields else "")
        raise Refused(422, [problem(name[:80], expected, f"{name}: there is no such file field")])
    stand_ins = dict.fromkeys(files, _ROWS)
    return {**_checked(form, {**fields, **stand_ins}), **files}


def _typed(form: type[Body], name: str, text: str) -> Any:
    """A form's text as the type its field has."""
    spec = form.model_fields.get(name)
    if spec is None or name in ("runs", "test", "calibration"):
        return text
    if spec.annotation is bool:
        return {"true": True, "false": False, "on": True, "": False}.get(text.lower(), text)
    if name in ("splits", "estimators"):
        return [part.strip() for part in text.split(",") if part.strip()] or None
    if name == "seed" and text.isascii() and text.isdigit() and len(text) < 12:
        return int(text)
    return text
