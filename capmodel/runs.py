"""The runs table: one row per measured configuration; its columns, units and checks.

`RUNS` is the one place that says how each column is typed, checked and read. Every problem of
a table is reported at once, by row, column, value and reason.
"""

import difflib
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from capmodel.arguments import instance
from capmodel.cells import hashable_cells, number_cells, text_cells
from capmodel.dtypes import kv_dtype_name, weight_dtype_name
from capmodel.engines import known_engine
from capmodel.gpus import implausible
from capmodel.own_entries import own_entry_problems
from capmodel.problems import RunsError, problem_table
from capmodel.words import one_line

__all__ = [
    "GPU_COLUMNS",
    "PREFILL_INSIDE",
    "RUNS",
    "SHAPE_COLUMNS",
    "STEP_TIME_DEFINITIONS",
    "RunColumn",
    "RunsError",
    "problem_table",
    "validate_runs",
]


@dataclass(frozen=True, slots=True)
class RunColumn:
    """One column. kind: "text", "number" or "integer". Bounds are inclusive, None = open."""

    name: str
    kind: str
    unit: str
    meaning: str
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    default: str | float | None = None


def _text(name: str, meaning: str, **more: object) -> RunColumn:
    return RunColumn(name, "text", "", meaning, **more)  # type: ignore[arg-type]


def _count(name: str, unit: str, meaning: str, **more: object) -> RunColumn:
    return RunColumn(name, "integer", unit, meaning, **{"minimum": 1, "maximum": 1e12, **more})  # type: ignore[arg-type]


def _number(name: str, unit: str, meaning: str, **more: object) -> RunColumn:
    return RunColumn(name, "number", unit, meaning, **more)  # type: ignore[arg-type]


_TINY = 1e-9  # a time of zero or less is no time; nothing measured here is under a nanosecond

RUNS: tuple[RunColumn, ...] = (
    _text("run_id", "unique name of the row; numbered where absent"),
    _text("source", "where the row comes from; the file name where absent"),
    _text("engine", "serving engine", required=True),
    _text("model", "catalogue name, or any name where the shape columns are given", required=True),
    _text("gpu", "catalogue name, or any name where the GPU columns are given", required=True),
    _count("tp", "GPUs", "tensor parallel degree", default=1),
    _text("weight_dtype", "stored weights", required=True),
    _text("kv_dtype", "stored cache", required=True),
    _number("batch_size", "sequences", "decoded together in the step (admitted, not offered)",
            required=True, minimum=1e-3, maximum=1e6),
    _number("context_len", "tokens", "mean cached tokens per sequence during the step",
            required=True, minimum=1, maximum=1e9),
    _number("step_time_s", "s", "one decode step; the target", minimum=_TINY, maximum=1e5),
    _number("throughput_tok_s", "tokens/s", "batch_size / step_time_s",
            minimum=_TINY, maximum=1e12),
    _text("engine_version", "version of the engine"),
    _count("pp", "stages", "layer split over that many GPUs", default=1),
    _count("dp", "ranks", "attention data parallel degree", default=1),
    _count("ep", "GPUs", "expert parallel degree", default=1),
    _count("n_gpus", "GPUs", "GPUs of the deployment"),
    _number("input_len", "tokens", "prompt", minimum=0, maximum=1e9),
    _number("output_len", "tokens", "generated", minimum=1, maximum=1e9),
    _number("prefill_chunk", "tokens", "prompt tokens per prefill pass; absent = one pass"),
    _number("distinct_prompts", "prompts", "different ones decoded together; absent = batch_size",
            minimum=1, maximum=1e9),
    _number("concurrency", "requests", "offered by the client", minimum=0, maximum=1e9),
    _number("ttft_s", "s", "time to first token", minimum=0, maximum=1e7),
    _number("tpot_s", "s", "(E2E - TTFT) / (output - 1)", minimum=0, maximum=1e5),
    _number("e2e_s", "s", "request sent to last token", minimum=0, maximum=1e7),
    _number("requested", "requests", "sent by the client", minimum=0, maximum=1e12),
    _number("completed", "requests", "that came back whole", minimum=0, maximum=1e12),
    _number("duration_s", "s", "length of the measurement", minimum=0, maximum=1e9),
    _number("output_throughput_tok_s", "tokens/s", "all output over the duration",
            minimum=0, maximum=1e12),
    _number("target_output_len", "tokens", "mean output asked for", minimum=0, maximum=1e9),
    _number("itl_s", "s", "mean gap between streamed chunks", minimum=0, maximum=1e5),
    _number("itl_median_s", "s", "median gap between streamed chunks", minimum=0, maximum=1e5),
    _number("accepted_tokens", "tokens", "per verified step of speculative decoding", minimum=0,
            maximum=1e6),
    _number("prefix_hit_share", "", "prompt tokens from a warm cache, fraction", minimum=0,
            maximum=1),
    _number("weight_bits", "bit", "stored bits per weight, where no dtype says it", minimum=0.1,
            maximum=64),
    _text("step_time_definition", "how step_time_s was derived", default="decode_step"),
    _text("flags", "named doubts about the row, comma separated", default=""),
    _count("n_layers", "", "shape: layers"),
    _count("hidden_size", "", "shape: model width"),
    _count("n_heads", "", "shape: query heads"),
    _count("n_kv_heads", "", "shape: KV heads"),
    _count("head_dim", "", "shape: width of a head"),
    _count("intermediate_size", "", "shape: width of the MLP or of one expert"),
    _count("vocab_size", "", "shape: vocabulary"),
    _number("n_params", "", "shape: parameters", minimum=1, maximum=1e15),
    _count("n_experts", "", "shape: experts per MoE layer"),
    _count("n_experts_per_token", "", "shape: experts a token is routed to"),
    _number("memory_bytes", "byte", "GPU: marketed memory"),
    _number("bandwidth_bytes_per_s", "byte/s", "GPU: datasheet bandwidth"),
    _number("flops_per_s", "FLOP/s", "GPU: dense peak of the matmul"),
)  # fmt: skip

SHAPE_COLUMNS = ("n_layers", "hidden_size", "n_heads", "n_kv_heads", "head_dim",
                 "intermediate_size", "vocab_size", "n_params", "n_experts",
                 "n_experts_per_token")  # fmt: skip
GPU_COLUMNS = ("memory_bytes", "bandwidth_bytes_per_s", "flops_per_s")

# What step_time_s may be, and whether the prefill of others is inside it.
STEP_TIME_DEFINITIONS = {
    "decode_step": "one decode step, nothing else inside",
    "differenced": "difference of two runs that differ in output length, over the extra tokens",
    "e2e_over_output": "end-to-end latency of one static batch / output tokens; prefill inside",
    "tpot": "(E2E - TTFT) / (output - 1), the prefill of other requests inside",
    "tpot_decode_only": "(E2E - TTFT) / (output - 1) on a decode-only worker; no prefill inside",
    "itl_median": "median gap between streamed tokens; close to the step",
}
PREFILL_INSIDE = ("e2e_over_output", "tpot")

_BY_NAME = {column.name: column for column in RUNS}


def validate_runs(runs: pd.DataFrame, where: str = "runs table") -> pd.DataFrame:
    """A checked copy of `runs`: canonical dtypes, defaults filled, `step_time_s` present.

    Columns outside the schema are kept as they are. Raises RunsError with every problem,
    ValueError for what is no table.
    """
    runs_table(runs)
    _check_layout(runs, where)
    runs = runs.reset_index(drop=True)
    checked: dict[str, pd.Series] = {}
    problems: list[pd.DataFrame] = []
    for column in RUNS:
        if column.name in runs:
            series, found = _check_column(runs[column.name], column)
            checked[column.name] = series
            problems.extend(found)
        elif column.default is not None:
            checked[column.name] = pd.Series(column.default, index=runs.index)
    extra = {str(name): hashable_cells(runs[name]) for name in runs if name not in _BY_NAME}
    table = pd.DataFrame({**checked, **extra}, index=runs.index).reset_index(drop=True)
    problems += _check_across(table)
    if not any(map(len, problems)):
        problems += own_entry_problems(table, SHAPE_COLUMNS, GPU_COLUMNS)
    found = [frame for frame in problems if len(frame)]
    if found:
        raise RunsError(pd.concat(found).sort_values("row", kind="stable"), where)
    return _complete(table, where)


_NO_PROBLEMS = problem_table([])


def runs_table(runs: object) -> pd.DataFrame:
    """`runs`, a table. Raises ValueError for anything else, as a file's name."""
    said = "a DataFrame; read_runs makes one of files"
    return cast(pd.DataFrame, instance("runs", runs, pd.DataFrame, said))


def _check_layout(runs: pd.DataFrame, where: str) -> None:
    if not len(runs.columns) or not len(runs):
        raise RunsError(problem_table([(None, "table", None, "it holds no rows")]), where)
    doubled = sorted(set(runs.columns[runs.columns.duplicated()].astype(str)))
    missing = [column.name for column in RUNS if column.required and column.name not in runs]
    found: list[tuple[int | None, str, object, str]] = [
        (None, name, None, "the column occurs twice; keep one") for name in doubled
    ]
    for name in missing:
        unit = f" [{_BY_NAME[name].unit}]" if _BY_NAME[name].unit else ""
        reason = f"column is missing: {_BY_NAME[name].meaning}{unit}{_like(name, runs)}"
        found.append((None, name, None, reason))
    if "step_time_s" not in runs and "throughput_tok_s" not in runs:
        reason = "column is missing: one decode step [s]; or give throughput_tok_s"
        reason += _like("step_time_s", runs)
        found.append((None, "step_time_s", None, reason))
    if found:
        present = ", ".join(map(str, list(runs.columns)[:12]))
        found.append((None, "table", None, f"its columns are {present}"))
        raise RunsError(problem_table(found), where)


def _like(name: str, runs: pd.DataFrame) -> str:
    """The heading that may be meant by a missing column, and what to do."""
    others = {str(other).lower(): str(other) for other in runs if other not in _BY_NAME}
    near = difflib.get_close_matches(name, others, n=1, cutoff=0.7)
    unit = _BY_NAME[name].unit
    given = f" and give it in {unit}" if unit else ""
    return f"; {others[near[0]]!r} is like it: if it is that, rename it{given}" if near else ""


def _check_column(series: pd.Series, column: RunColumn) -> tuple[pd.Series, list[pd.DataFrame]]:
    series = series.reset_index(drop=True)
    if column.kind == "text":
        text, reasons = text_cells(series)
        found = _rows_by_reason(series, reasons, column.name)
        if column.required:
            nameless = text == ""
            if reasons is not None:
                nameless &= reasons == ""
            found.append(_rows(series, nameless, column.name, "a name is needed here"))
            torn = [word for word in text.unique() if one_line(word) != word]
            if torn:
                found.append(_rows(series, text.isin(torn), column.name, _TORN))
            return text, found
        return text.where(text != "", str(column.default or "")), found
    numbers, absent, reasons = number_cells(series, column.unit)
    if reasons is not None and (vague := reasons == "not a number").any():
        reasons = reasons.mask(vague, _why_no_number(series[vague]))
    found = _rows_by_reason(series, reasons, column.name)
    if column.required or column.name == "step_time_s":
        found.append(_rows(series, absent, column.name, "a number is needed here"))
    infinite = pd.Series(np.isinf(numbers), index=numbers.index)
    found.append(_rows(series, infinite, column.name, "must be finite"))
    if column.name in GPU_COLUMNS:
        return numbers, [*found, *_gpu_figures(series, numbers.mask(infinite), column.name)]
    if column.minimum is not None:
        low = numbers < column.minimum
        least = "above 0" if column.minimum <= 1e-3 else f"at least {column.minimum:g}"
        least = "0 or more" if column.minimum == 0 else least
        found.append(_rows(series, low, column.name, f"must be {least}{_unit(column)}"))
    if column.maximum is not None:
        high = (numbers > column.maximum) & ~infinite
        reason = f"must be at most {column.maximum:g}{_unit(column)}; is the unit right?"
        found.append(_rows(series, high, column.name, reason))
    if column.kind == "integer":
        broken = numbers.notna() & ~infinite & (numbers != np.floor(numbers))
        found.append(_rows(series, broken, column.name, "must be a whole number"))
    if column.default is not None:
        numbers = numbers.fillna(float(column.default))
    if column.kind == "integer" and np.isfinite(numbers).all():
        return numbers.astype("int64"), found
    return numbers, found


_TORN = "a name of one line is needed, but it holds a line break or the like; is a quote left open?"


def _gpu_figures(series: pd.Series, numbers: pd.Series, name: str) -> list[pd.DataFrame]:
    """Figures that no GPU has, with how they are written."""
    reasons = {value: implausible(name, value) or "" for value in numbers.dropna().unique()}
    words = [reasons.get(value, "") for value in numbers]
    return _rows_by_reason(series, pd.Series(words, index=series.index), name)


def _rows_by_reason(
    series: pd.Series, reasons: pd.Series | None, column: str
) -> list[pd.DataFrame]:
    if reasons is None:
        return []
    different = [str(reason) for reason in reasons.unique() if reason]
    return [_rows(series, reasons == reason, column, reason) for reason in different]


def _why_no_number(values: pd.Series) -> str:
    written = values.map(str).astype(str)
    if written.str.contains(r"^[\d.,' \s]+$", regex=True).any():
        return "not a number; write it without thousands separators and with a decimal point"
    return "not a number"


def _check_across(table: pd.DataFrame) -> list[pd.DataFrame]:
    found = []
    if "run_id" in table:
        named = table["run_id"] != ""
        again = named & table["run_id"].duplicated(keep=False)
        found.append(_rows(table["run_id"], again, "run_id", "the name occurs more than once"))
    for name, canonical in (("weight_dtype", weight_dtype_name), ("kv_dtype", kv_dtype_name)):
        if name in table:
            for value in table[name].unique():
                try:
                    canonical(value)
                except ValueError as error:
                    hit = (table[name] == value) & (value != "")
                    found.append(_rows(table[name], hit, name, one_line(error)))
    known = ", ".join(STEP_TIME_DEFINITIONS)
    unknown = ~table["step_time_definition"].isin(list(STEP_TIME_DEFINITIONS))
    found.append(_rows(table["step_time_definition"], unknown, "step_time_definition",
                       f"must be one of {known}"))  # fmt: skip
    return found


def _complete(table: pd.DataFrame, where: str) -> pd.DataFrame:
    for name, canonical in (("weight_dtype", weight_dtype_name), ("kv_dtype", kv_dtype_name)):
        table[name] = table[name].map({value: canonical(value) for value in table[name].unique()})
    spelled = {name: known_engine(name) for name in table["engine"].unique()}
    table["engine"] = table["engine"].map(spelled)
    numbered = pd.Series([f"row-{number}" for number in range(1, len(table) + 1)])
    if "run_id" not in table:
        table.insert(0, "run_id", numbered)
    table["run_id"] = table["run_id"].where(table["run_id"] != "", numbered)
    if "source" not in table:
        table.insert(1, "source", where)
    if "step_time_s" not in table:
        table["step_time_s"] = table["batch_size"] / table["throughput_tok_s"]
    if table["step_time_s"].isna().any():
        bad = table["step_time_s"].isna()
        raise RunsError(
            _rows(table["step_time_s"], bad, "step_time_s", "a number is needed"), where
        )
    return table


def _rows(series: pd.Series, bad: pd.Series, column: str, reason: str) -> pd.DataFrame:
    if not bad.any():
        return _NO_PROBLEMS
    bad = bad.fillna(False).astype(bool)
    values = series[bad]
    return pd.DataFrame(
        {"row": values.index + 1, "column": column, "value": _as_objects(values),
         "reason": reason}, dtype=object)  # fmt: skip


def _as_objects(values: pd.Series) -> list[object]:
    return [None if isinstance(value, float) and value != value else value for value in values]


def _unit(column: RunColumn) -> str:
    return f" {column.unit}" if column.unit else ""
