"""What a file lacks: given as flags, or in a TOML file beside it.

A sidecar is `FILE.toml` (run.json.toml or run.toml for run.json), or `capmodel.toml` for a whole
folder. Its keys are columns of RUNS (gpu = "h100-sxm", tp = 2, kv_dtype = "fp8"); the tables
[models] and [gpus] translate names. Flags come before FILE.toml, which comes before capmodel.toml.
Given values fill gaps and replace names that no catalogue knows; they never overwrite a figure.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from capmodel.gpus import load_gpu
from capmodel.ingest.documents import refuse
from capmodel.runs import RUNS, RunsError, problem_table
from capmodel.shapes import ModelShape, load_shape

Value = str | float

FOLDER_FILE = "capmodel.toml"
GIVABLE = ("model", "gpu", "engine", "engine_version", "tp", "pp", "dp", "ep", "n_gpus",
           "weight_dtype", "kv_dtype", "batch_size", "input_len", "output_len", "concurrency",
           "target_output_len", "prefill_chunk", "source")  # fmt: skip
ASKED = ("model", "gpu", "engine", "weight_dtype", "kv_dtype")
_KINDS = {column.name: column.kind for column in RUNS}


@dataclass(frozen=True, slots=True)
class Given:
    """Facts that a file lacks. values: column -> value; models, gpus: name in the file -> ours."""

    values: Mapping[str, Value] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, str] = field(default_factory=dict)

    def over(self, other: "Given") -> "Given":
        """These facts, and those of `other` where these say nothing."""
        return Given(
            {**other.values, **self.values},
            {**other.models, **self.models},
            {**other.gpus, **self.gpus},
        )


def given_for(path: Path, flags: Given) -> Given:
    """All facts for one file: flags, its sidecar, its folder's. Raises RunsError for a bad TOML."""
    found = flags
    own = [path.with_name(path.name + ".toml"), path.with_suffix(".toml")]
    for sidecar in [*own, path.parent / FOLDER_FILE]:
        if sidecar.is_file() and sidecar != path:
            found = found.over(_read_sidecar(sidecar))
    return found


def _read_sidecar(path: Path) -> Given:
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise refuse(path, "file", "it is no UTF-8 text, as TOML is; save it as UTF-8") from error
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise refuse(path, "file", f"it is no TOML: {error}; mend that place") from error
    tables = {name: entries.pop(name, {}) for name in ("models", "gpus")}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise refuse(path, name, "expected a table of names", table)
    for name, value in entries.items():
        if name not in GIVABLE:
            raise refuse(path, name, f"unknown key; expected one of {', '.join(GIVABLE)}", value)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise refuse(path, name, "expected a text or a number", value)
    names = {key: {str(k): str(v) for k, v in table.items()} for key, table in tables.items()}
    return Given(entries, names["models"], names["gpus"])


def complete(
    runs: pd.DataFrame, given: Given, path: Path, needs: Sequence[str] = ASKED
) -> pd.DataFrame:
    """`runs` with gaps filled and names as the catalogue has them.

    needs: columns that must have no gaps. Raises RunsError naming every fact
    that is still missing, and how to give it.
    """
    filled = runs.copy()
    for name, value in given.values.items():
        if _KINDS.get(name) == "text":
            filled[name] = _filled_text(filled, name, str(value))
        else:
            filled[name] = _filled_number(filled, name, value, path)
    if "gpu" in filled and "memory_bytes" not in filled:
        filled["gpu"] = _known(filled["gpu"], given.gpus, given.values.get("gpu"), _gpu_name)
    if "model" in filled and "n_layers" not in filled:
        _check_shapes(filled["model"], given.models, path)
        filled["model"] = _known(
            filled["model"], given.models, given.values.get("model"), _shape_name
        )
    missing = [name for name in needs if _has_gaps(filled, name)]
    if missing:
        flags = " ".join(_flag(name) for name in missing)
        them = "them" if len(missing) > 1 else "it"
        reason = (
            f"the file does not say {them}; give {flags}, or write {them} into "
            f"{path.name}.toml or {FOLDER_FILE} beside it"
        )
        raise RunsError(problem_table([(None, ", ".join(missing), None, reason)]), str(path))
    return filled


def _flag(name: str) -> str:
    return {"batch_size": "--batch"}.get(name, "--" + name.replace("_", "-"))


def _filled_text(runs: pd.DataFrame, name: str, value: str) -> pd.Series:
    if name not in runs:
        return pd.Series(value, index=runs.index)
    present = runs[name].fillna("").astype(str).str.strip()
    return present.where(present != "", value)


def _filled_number(runs: pd.DataFrame, name: str, value: Value, path: Path) -> pd.Series:
    try:
        number = float(value)
    except ValueError as error:
        raise refuse(path, name, "expected a number", value) from error
    if name not in runs:
        return pd.Series(number, index=runs.index)
    return runs[name].fillna(number)


def _has_gaps(runs: pd.DataFrame, name: str) -> bool:
    if name not in runs:
        return True
    values = runs[name]
    return bool((values.isna() | (values.astype(str).str.strip() == "")).any())


def _known(
    names: pd.Series,
    translation: Mapping[str, str],
    given: Value | None,
    lookup: Callable[[str], str],
) -> pd.Series:
    """Names as the catalogue has them; an unknown one becomes the given one, if there is one."""
    table = {}
    for name in names.dropna().unique():
        ours = translation.get(str(name), str(name))
        found = lookup(ours)
        table[name] = found or (lookup(str(given)) or str(given) if given else ours)
    return names.map(table).fillna("")


def _gpu_name(name: str) -> str:
    try:
        return load_gpu(name).name
    except ValueError:
        return ""


_QUANTISED = re.compile(
    r"[-_.](fp8|fp4|nvfp4|mxfp4|int8|int4|awq|gptq|w4a16|w8a8|w8a16|quantized|dynamic|block)\b.*$",
    re.IGNORECASE,
)


def _check_shapes(names: pd.Series, translation: Mapping[str, str], path: Path) -> None:
    """Raise RunsError where two names of a file mean models of one name and unlike layers."""
    seen: dict[str, tuple[str, ModelShape]] = {}
    for name in names.dropna().unique():
        shape = _shape(translation.get(str(name), str(name)))
        if shape is None:
            continue
        before, other = seen.setdefault(shape.name, (str(name), shape))
        if not shape.alike(other):
            reason = f"it is called {shape.name} as {before} is, but has other layers; rename one"
            raise refuse(path, "model", reason, str(name))


def _shape_name(name: str) -> str:
    """The shape's name in the catalogue, an empty one where it is unknown."""
    shape = _shape(name)
    return shape.name if shape is not None else ""


def _shape(name: str) -> ModelShape | None:
    """The shape of a name; a quantised copy has the shape of its original."""
    bare = name.rstrip("/").rsplit("/", 1)[-1]
    for candidate in (name, bare, _QUANTISED.sub("", bare)):
        try:
            return load_shape(candidate)
        except ValueError:
            continue
    return None
