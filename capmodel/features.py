"""Bytes read, FLOP and floor of one decode step, for every row of a runs table.

`add_features` never reads the target. Work is done once per distinct deployment and then spread
over the rows, so a million rows cost about a second.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.dtypes import kv_dtype_name, weight_dtype_name
from capmodel.engines import WAIT_FOR_ROUTING, known_engine
from capmodel.gpus import Gpu, load_gpu
from capmodel.runs import GPU_COLUMNS, PREFILL_INSIDE, SHAPE_COLUMNS, runs_table
from capmodel.shapes import ModelShape, load_shape, shape_from_columns
from capmodel.traffic import Growth, StepTraffic, step_traffic

Array = npt.NDArray[np.float64]
Found = TypeVar("Found")

# Columns that `add_features` adds, per GPU and decode step.
FEATURES = {
    "layers": "layers of the model; with prefill passes inside the step, their layers too",
    "kv_bytes_per_token": "cache bytes one more token costs while no window is full [byte]",
    "weight_read_bytes": "weights read, experts as touched on average under uniform routing [byte]",
    "kv_read_bytes": "cache read, windows and selected tokens counted [byte]",
    "flop": "matmul and attention FLOP [FLOP]",
    "attention_flop": "the attention's share of flop [FLOP]",
    "attention_s": "attention_flop / dense peak [s]",
    "arithmetic_intensity": "flop / (weight_read_bytes + kv_read_bytes) [FLOP/byte]",
    "weight_s": "weight_read_bytes / datasheet bandwidth [s]",
    "expert_s": "the routed experts' share of weight_s [s]",
    "kv_s": "kv_read_bytes / datasheet bandwidth [s]",
    "flop_s": "flop / dense peak of the matmul [s]",
    "floor_s": "bytes that must be read, top-k experts only, / datasheet bandwidth [s]",
    "all_reduces": "all-reduces per step, 0 at tp 1",
    "all_reduce_s": "all-reduce bytes / link bandwidth, over links of a GPU's own [s]",
    "all_reduce_rounds": "all_reduces times (tp - 1)",
    "all_reduce_bus_s": "all-reduce bytes / bus bandwidth times tp / 2, where GPUs share one [s]",
    "all_reduce_cross_s": "the same times tp**2 / 4, as where each pair crosses a bridge [s]",
    "quantised_layers": "layers whose weights are stored in fewer than 16 bits",
    "hops": "stage boundaries a token crosses (pp - 1)",
    "prefill_tokens": "prompt tokens processed per step, 0 where no prefill is inside",
    "prefill_s": "their FLOP / dense peak [s]",
    "requests": "requests begun per step and sequence (1 / output), where their start is inside",
    "prefill_passes": "prefill passes over the weights per step, split over stages that overlap",
    "sequences": "sequences per attention rank",
    "weight_stored_bytes": "weights resident [byte]",
    "kv_stored_bytes": "cache resident when the requests end [byte]",
    "routed": "1 where the model routes tokens to experts",
    "gpu_memory_bytes": "marketed memory [byte]",
    "gpu_bandwidth": "datasheet bandwidth [byte/s]",
    "gpu_peak_flops": "dense peak of the matmul [FLOP/s]",
}


def add_features(runs: pd.DataFrame) -> pd.DataFrame:
    """`runs` with the columns of FEATURES added; one row in, one row out.

    runs: a checked runs table (`capmodel.runs.validate_runs`), or at least its columns model,
    gpu, weight_dtype, kv_dtype, batch_size and context_len. Raises ValueError naming a model or
    GPU that is in no catalogue and comes without shape or GPU columns.
    """
    keys = _deployment_keys(runs_table(runs))
    codes, first = _row_codes(runs, keys)
    traffic, gpus, peaks = _deployments(runs, keys, first)
    added = _evaluate(runs, codes, traffic, gpus, peaks)
    return runs.assign(**added)


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model as served: what all its rows share."""

    shape: ModelShape
    gpu: Gpu
    weight_dtype: str
    kv_dtype: str
    tp: int
    dp: int


def deployments(runs: pd.DataFrame) -> tuple[list[Deployment], npt.NDArray[np.intp]]:
    """The distinct deployments of `runs`, and which of them each row is of, (rows,)."""
    keys = _deployment_keys(runs_table(runs))
    codes, first = _row_codes(runs, keys)
    return _distinct(runs, keys, first), codes


def _deployment_keys(runs: pd.DataFrame) -> list[str]:
    needed = ["model", "gpu", "weight_dtype", "kv_dtype", "batch_size", "context_len"]
    missing = [name for name in needed if name not in runs]
    if missing:
        raise ValueError(f"add_features needs the columns {', '.join(missing)} of the runs table")
    optional = ["tp", "dp", *SHAPE_COLUMNS, *GPU_COLUMNS]
    given = [name for name in optional if name in runs and runs[name].notna().any()]
    return ["model", "gpu", "weight_dtype", "kv_dtype", *given]


def _row_codes(
    runs: pd.DataFrame, keys: list[str]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Number of each row's deployment, and the first row of each."""
    combined = np.zeros(len(runs), dtype=np.int64)
    for name in keys:
        codes, uniques = pd.factorize(runs[name], use_na_sentinel=False)
        combined = combined * max(len(uniques), 1) + codes
        if combined.max(initial=0) > 2**40:
            combined = pd.factorize(combined)[0]
    numbers, distinct = pd.factorize(combined)
    first = np.empty(len(distinct), dtype=np.intp)
    first[numbers[::-1]] = np.arange(len(runs) - 1, -1, -1)  # the last write is the first row
    return numbers, first


def _deployments(
    runs: pd.DataFrame, keys: list[str], first: npt.NDArray[np.intp]
) -> tuple[list[StepTraffic], list[Gpu], Array]:
    found = _distinct(runs, keys, first)
    traffic = [step_traffic(d.shape, d.weight_dtype, d.kv_dtype, d.tp, d.dp) for d in found]
    peaks = [d.gpu.matmul_flops_per_s(d.weight_dtype) for d in found]
    return traffic, [d.gpu for d in found], np.array(peaks)


def _distinct(runs: pd.DataFrame, keys: list[str], first: npt.NDArray[np.intp]) -> list[Deployment]:
    rows = {name: runs[name].iloc[first].tolist() for name in keys}
    for name in {*SHAPE_COLUMNS, *GPU_COLUMNS} & set(keys):
        rows[name] = [None if value != value else value for value in rows[name]]
    gpus = _each(rows, ["gpu", *GPU_COLUMNS], _gpu_of)
    dtypes = _each(rows, ["weight_dtype"], lambda row: weight_dtype_name(str(row["weight_dtype"])))
    for gpu, dtype in zip(gpus, dtypes, strict=True):
        gpu.matmul_flops_per_s(dtype)  # a GPU without a peak for it is named before anything else
    caches = _each(rows, ["kv_dtype"], lambda row: kv_dtype_name(str(row["kv_dtype"])))
    shapes = _each(rows, ["model", *SHAPE_COLUMNS], shape_of_row)
    plain = [1] * len(first)
    tp, dp = ([int(n or 1) for n in rows.get(name, plain)] for name in ("tp", "dp"))
    return list(map(Deployment, shapes, gpus, dtypes, caches, tp, dp))


def _each(
    rows: dict[str, list[Any]], names: list[str], find: Callable[[dict[str, Hashable]], Found]
) -> list[Found]:
    """What `find` makes of those columns of each row, asked once for rows that are equal there."""
    given = [name for name in names if name in rows]
    asked: dict[tuple[Hashable, ...], Found] = {}
    found = []
    for values in zip(*(rows[name] for name in given), strict=True):
        if values not in asked:
            asked[values] = find(dict(zip(given, values, strict=True)))
        found.append(asked[values])
    return found


def shape_of_row(row: dict[str, Hashable]) -> ModelShape:
    """The model of one runs-table row: its shape columns where given, else the catalogue."""
    given = {
        n: row[n] for n in SHAPE_COLUMNS if n in row and row[n] == row[n] and row[n] is not None
    }
    if "n_layers" not in given:
        return load_shape(str(row["model"]))
    missing = [name for name in SHAPE_COLUMNS[:7] if name not in given]
    if missing:
        raise ValueError(
            f"model {row['model']!r} has shape columns, but lacks {', '.join(missing)}; "
            "give all of them or none"
        )
    whole = {name: int(value) for name, value in given.items()}  # type: ignore[call-overload]
    return _shape_from(str(row["model"]), tuple(whole.items()))


@lru_cache(maxsize=4096)
def _shape_from(name: str, columns: tuple[tuple[str, int], ...]) -> ModelShape:
    return shape_from_columns(name=name, **dict(columns))


def _gpu_of(row: dict[str, Hashable]) -> Gpu:
    given = {n: row[n] for n in GPU_COLUMNS if n in row and row[n] == row[n] and row[n] is not None}
    if len(given) < len(GPU_COLUMNS):
        return load_gpu(str(row["gpu"]))
    flops = float(given["flops_per_s"])  # type: ignore[arg-type]
    entry: dict[str, object] = {f"{dtype}_flops_per_s": flops for dtype in ("bf16", "fp8", "fp4")}
    entry |= {name: given[name] for name in ("memory_bytes", "bandwidth_bytes_per_s")}
    return load_gpu({"name": row["gpu"], **entry})


def _evaluate(
    runs: pd.DataFrame,
    codes: npt.NDArray[np.intp],
    traffic: list[StepTraffic],
    gpus: list[Gpu],
    peaks: Array,
) -> dict[str, Array]:
    def spread(values: list[float | None]) -> Array:
        return np.array([np.nan if v is None else v for v in values], dtype=float)[codes]

    batch = runs["batch_size"].to_numpy(float)
    context = runs["context_len"].to_numpy(float)
    sequences = batch / _column(runs, "dp", 1.0)
    bandwidth = spread([gpu.bandwidth_bytes_per_s for gpu in gpus])
    peak = peaks[codes]

    dense = spread([t.dense_bytes for t in traffic])
    distinct = np.minimum(batch, _column(runs, "distinct_prompts", np.inf))
    touched, chosen = _expert_bytes(traffic, codes, distinct)
    kv_read = sequences * (
        _growth([t.kv_read for t in traffic], codes, context)
        + spread([t.kv_fixed_read for t in traffic])
    )
    attention = _growth([t.attention_flop for t in traffic], codes, context)
    flop = sequences * (spread([t.flop_per_token for t in traffic]) + attention)
    routed = spread([float(bool(t.experts)) for t in traffic])
    pp = _column(runs, "pp", 1.0)
    stages = np.where(_waits_for_routing(runs) & (routed > 0), 1.0, pp)
    prefill_tokens, passes, prompt, starts = _prefill(runs, batch, stages)
    prefill_flop = prefill_tokens * (
        spread([t.prefill_flop_per_token for t in traffic])
        + spread([t.prefill_attention_flop for t in traffic]) * prompt
    )
    tp = _column(runs, "tp", 1.0)
    link = spread([gpu.link_bytes_per_s for gpu in gpus])
    in_pass, _ = _expert_bytes(
        traffic, codes, np.minimum(_column(runs, "prefill_chunk", 1.0), prompt)
    )
    # Prompts that go through beside decoding touch experts together with it, in the steps that
    # hold any; in passes of their own they touch theirs again.
    share = prefill_tokens / np.maximum(starts, 1e-12) * (distinct / np.maximum(batch, 1e-12))
    beside, _ = _expert_bytes(traffic, codes, distinct + np.where(passes > 0, 0.0, share))
    touched = touched + starts * (beside - touched)
    weight_read = dense + touched + passes * (dense + in_pass)
    reduce_bytes = spread([t.all_reduce_bytes for t in traffic]) * (sequences + prefill_tokens)
    reduce_s = np.nan_to_num(reduce_bytes / link)
    bus_s = np.where(spread([float(gpu.shares_bus) for gpu in gpus]) > 0, reduce_s, 0.0)
    at_end = np.where(prompt > 0, prompt + _column(runs, "output_len", 0.0), context)
    return {
        "layers": spread([t.layers for t in traffic]) * (1.0 + passes),
        "kv_bytes_per_token": spread([t.kv_bytes_per_token for t in traffic]),
        "weight_read_bytes": weight_read,
        "kv_read_bytes": kv_read,
        "flop": flop,
        "attention_flop": sequences * attention,
        "attention_s": sequences * attention / peak,
        "arithmetic_intensity": flop / (weight_read + kv_read),
        "weight_s": weight_read / bandwidth,
        "expert_s": (touched + passes * in_pass) / bandwidth,
        "kv_s": kv_read / bandwidth,
        "flop_s": flop / peak,
        "floor_s": (dense + chosen + kv_read) / bandwidth,
        "all_reduces": spread([t.all_reduces for t in traffic]) * (1.0 + passes),
        "all_reduce_s": reduce_s - bus_s,
        "all_reduce_rounds": spread([t.all_reduces for t in traffic]) * (1.0 + passes) * (tp - 1.0),
        "all_reduce_bus_s": bus_s * tp / 2,
        "all_reduce_cross_s": bus_s * tp**2 / 4,
        "quantised_layers": spread([t.quantised_layers for t in traffic]) * (1.0 + passes),
        "hops": pp - 1.0,
        "prefill_tokens": prefill_tokens,
        "prefill_s": prefill_flop / peak,
        "prefill_passes": passes,
        "requests": np.where(prefill_tokens > 0, prefill_tokens / np.maximum(batch * prompt, 1), 0),
        "sequences": sequences,
        "weight_stored_bytes": spread([t.weight_stored_bytes for t in traffic]) / pp,
        "kv_stored_bytes": sequences
        * (
            _growth([t.kv_stored for t in traffic], codes, at_end)
            + spread([t.kv_fixed_stored for t in traffic])
        )
        / pp,
        "routed": routed,
        "gpu_memory_bytes": spread([gpu.memory_bytes for gpu in gpus]),
        "gpu_bandwidth": bandwidth,
        "gpu_peak_flops": peak,
    }


def _growth(pieces: list[tuple[Growth, ...]], codes: npt.NDArray[np.intp], tokens: Array) -> Array:
    """Sum of slope * min(tokens, limit) per row. tokens: (rows,)."""
    total = np.zeros(len(codes))
    for place in range(max((len(own) for own in pieces), default=0)):
        slope = np.array([own[place].slope if place < len(own) else 0.0 for own in pieces])
        limit = np.array([own[place].limit if place < len(own) else np.inf for own in pieces])
        total += slope[codes] * np.minimum(tokens, limit[codes])
    return total


def _expert_bytes(
    traffic: list[StepTraffic], codes: npt.NDArray[np.intp], tokens: Array
) -> tuple[Array, Array]:
    """Bytes of the experts that `tokens` routed tokens touch on average, and at the very least.

    Uniform routing touches `N * (1 - (1 - k/N)**tokens)` of N experts (PHYSICS section 5).
    """
    touched, least = np.zeros(len(codes)), np.zeros(len(codes))
    for place in range(max((len(t.experts) for t in traffic), default=0)):
        has = [t.experts[place] if place < len(t.experts) else None for t in traffic]
        n = np.array([e.n_experts if e else 1.0 for e in has])
        k = np.array([e.top_k if e else 0.0 for e in has])
        each = np.array([e.bytes_each if e else 0.0 for e in has])
        missed = np.log1p(-np.minimum(k / n, 1 - 1e-15))
        touched += (n * each)[codes] * -np.expm1(missed[codes] * tokens)
        least += (k * each)[codes]
    return touched, least


def _waits_for_routing(runs: pd.DataFrame) -> npt.NDArray[np.bool_]:
    if "engine" not in runs:
        return np.zeros(len(runs), dtype=bool)
    names = [name for name in runs["engine"].unique() if isinstance(name, str) and name.strip()]
    waiting = [name for name in names if known_engine(name) in WAIT_FOR_ROUTING]
    return np.asarray(runs["engine"].isin(waiting), dtype=bool)


def _prefill(runs: pd.DataFrame, batch: Array, stages: Array) -> tuple[Array, Array, Array, Array]:
    """Prompt tokens and weight passes per decode step, prompt length [tokens], share of starts.

    In a static batch, and in a steady closed loop, each sequence's prompt is processed once per
    `output_len` steps. With `prefill_chunk` the prompt goes through in passes of that many
    tokens, spread over the stages that work at once. Requests of a static batch begin together,
    once in `output_len` steps; those of a closed loop one by one, in `batch` steps of as many.
    """
    if "input_len" not in runs or "output_len" not in runs:
        none = np.zeros(len(runs))
        return none, none, none, none
    prompt = _column(runs, "input_len", 0.0)
    output = _column(runs, "output_len", 1.0)
    definition = runs.get("step_time_definition", pd.Series("decode_step", index=runs.index))
    inside = definition.isin(PREFILL_INSIDE).to_numpy() & (prompt > 0)
    tokens = np.where(inside, batch * prompt / output, 0.0)
    chunk = _column(runs, "prefill_chunk", np.inf)
    chunked = inside & np.isfinite(chunk)
    passes = np.where(chunked, np.ceil(prompt / chunk) / output / stages, 0.0)
    together = (definition == "e2e_over_output").to_numpy()
    starts = np.where(inside, np.minimum(np.where(together, 1.0, batch) / output, 1.0), 0.0)
    return tokens, passes, prompt, starts


def _column(runs: pd.DataFrame, name: str, absent: float) -> Array:
    if name not in runs:
        return np.full(len(runs), absent)
    return np.asarray(runs[name].astype(float).fillna(absent), dtype=np.float64)
