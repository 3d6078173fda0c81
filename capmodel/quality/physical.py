"""Checks against physics: what the datasheet and the memory do not allow."""

import numpy as np
import pandas as pd

from capmodel.gpus import is_shipped
from capmodel.quality.hits import Array, Hit, Mask, column, text
from capmodel.quality.thresholds import FLAG, SET_ASIDE, Thresholds
from capmodel.runs import GPU_COLUMNS, RunsError, problem_table
from capmodel.units import format_bytes

# Work outside the kernels' traffic: about what a layer costs to launch [s].
_LAUNCH_S = 2e-5
# A step under this share of the bare floor is no early stop where most rows are such.
_MUCH_TOO_SHORT = 1 / 30

_SLIPS = (
    (1e9, "nanoseconds"),
    (1e6, "microseconds"),
    (1e3, "milliseconds"),
)


def no_bandwidth(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """The GPU has no bandwidth figure: there is no floor and there are no features."""
    mask = np.isnan(column(featured, "floor_s"))
    reason = "no source gives the bandwidth of this GPU, so the row has no floor to stand on"
    return [Hit("no_bandwidth", SET_ASIDE, mask, reason, {})]


def below_floor(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """A step faster than its bytes can be read, or than its FLOP can be done."""
    step, floor = column(featured, "step_time_s"), physical_floor(featured)
    mask = step < limits.floor_share * floor
    reason = (
        "a step of {step_s} is {floor_share} of the {floor_s} that its bytes at the datasheet's "
        "bandwidth and its FLOP at the dense peak take: early stop, wrong unit, mislabelled or "
        "unreached batch, warm prefix cache, or several tokens a step"
    )
    figures = {"step_s": step, "floor_s": floor, "floor_share": step / floor}
    return _by_whose(featured, "below_floor", mask, reason, figures)


def physical_floor(featured: pd.DataFrame) -> Array:
    """Least time of what `step_time_s` holds [s], (rows,).

    Bytes at datasheet bandwidth (top-k experts only) and FLOP at dense peak may overlap, so the
    larger counts. In a static batch prefill ran before decode and adds to it; among requests in
    flight each step carries the prompt tokens that feed its batch, and their FLOP overlap too.
    """
    words = text(featured, "step_time_definition")
    floor = column(featured, "floor_s")
    decode, prefill = (column(featured, name, 0.0) for name in ("flop_s", "prefill_s"))
    whole = (words == "e2e_over_output").to_numpy()
    mixed = (words == "tpot").to_numpy()
    return np.where(
        whole,
        np.fmax(floor, decode) + prefill,
        np.where(np.isnan(floor), np.nan, np.fmax(floor, decode + np.where(mixed, prefill, 0.0))),
    )


def below_expected(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """A mixture of experts that reads less than random prompts would make it read."""
    step, floor = column(featured, "step_time_s"), physical_floor(featured)
    usual = column(featured, "weight_s") + column(featured, "kv_s")
    mask = (step < usual) & ~(step < limits.floor_share * floor)
    reason = (
        "a step of {step_s} is less than the {usual_s} that reading the cache and the experts "
        "random prompts touch takes: alike prompts, or fewer sequences than named"
    )
    figures = {"step_s": step, "usual_s": usual}
    return [Hit("below_expected", FLAG, mask, reason, figures)]


def over_memory(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """Weights and cache beyond the memory: the batch named did not run as one batch."""
    weights = column(featured, "weight_stored_bytes")
    cache = column(featured, "kv_stored_bytes") * _resident_share(featured)
    memory = column(featured, "gpu_memory_bytes")
    alone = weights > limits.memory_share * memory
    share = (weights + cache) / memory
    both = ~alone & (share > limits.memory_share)
    nearly = ~alone & ~both & (share > limits.full_share)
    figures = {"weights_bytes": weights, "cache_bytes": cache, "memory_bytes": memory,
               "used_share": share}  # fmt: skip
    return [
        Hit("over_memory", SET_ASIDE, alone,
            "weights of {weights_bytes} a GPU do not fit its {memory_bytes}: the row did not run "
            "on the GPUs it names", figures),
        Hit("over_memory", SET_ASIDE, both,
            "weights of {weights_bytes} and a cache of {cache_bytes} are {used_share} of the "
            "GPU's {memory_bytes}: the batch named was never resident as one", figures),
        Hit("nearly_full", FLAG, nearly,
            "weights of {weights_bytes} and a cache of {cache_bytes} fill {used_share} of the "
            "GPU's {memory_bytes}: part of the batch may have waited", figures),
    ]  # fmt: skip


def _resident_share(featured: pd.DataFrame) -> Array:
    """Cache held on average, of that at the end: a static batch ends together, others do not."""
    static = text(featured, "step_time_definition").isin(
        ["e2e_over_output", "differenced", "decode_step"]
    )
    end = column(featured, "input_len") + column(featured, "output_len")
    mean = np.minimum(1.0, column(featured, "context_len") / end)
    return np.where(static | np.isnan(mean), 1.0, mean)


def unit_slip(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """A step some 1,000 or 1e6 times what it can take: another unit."""
    step, least = column(featured, "step_time_s"), _least_time(featured)
    ratio = step / least
    hits, above = [], np.inf
    for factor, unit in _SLIPS:
        mask = (ratio >= limits.unit_ratio * factor / 1e3) & (ratio < above)
        above = limits.unit_ratio * factor / 1e3
        reason = (
            "a step of {step_s} is {ratio} times the {least_s} of its traffic and launches: "
            f"the figure is most likely in {unit}"
        )
        figures = {"step_s": step, "least_s": least, "ratio": ratio}
        hits += _by_whose(featured, "unit_slip", mask, reason, figures)
    return [*hits, _batch_slip(featured, limits)]


def _batch_slip(featured: pd.DataFrame, limits: Thresholds) -> Hit:
    """A batch, derived as throughput x time, of hundreds of times what was offered.

    Where the time is in another unit the batch is too, and with it the traffic: the step alone
    would not show it.
    """
    batch, offered = column(featured, "batch_size"), column(featured, "concurrency")
    ratio = batch / np.where(offered > 0, offered, np.nan)
    return Hit(
        "unit_slip", SET_ASIDE, ratio >= limits.unit_ratio,
        "throughput x time per token makes {batch} sequences, {ratio} times the {offered} offered: "
        "the time is most likely in another unit, a thousand times smaller or more",
        {"batch": batch, "ratio": ratio, "offered": offered},
    )  # fmt: skip


def _by_whose(
    featured: pd.DataFrame, rule: str, mask: Mask, reason: str, figures: dict[str, Array]
) -> list[Hit]:
    """Hits apart where the GPU's figures are the user's own, which are as open to doubt."""
    own = own_gpu(featured) if mask.any() else np.zeros(len(featured), dtype=bool)
    doubt = "; or the GPU's own figures are in another unit: {bandwidth_bytes} and {peak} FLOP a s"
    figured = figures | {
        "bandwidth_bytes": column(featured, "gpu_bandwidth"),
        "peak": column(featured, "gpu_peak_flops"),
    }
    return [
        Hit(rule, SET_ASIDE, mask & ~own, reason, figures),
        Hit(rule, SET_ASIDE, mask & own, reason + doubt, figured),
    ]


def own_gpu(featured: pd.DataFrame) -> Mask:
    """(rows,) true where a GPU's figures are the user's: in the row, or in an own entry."""
    brought = np.any([~np.isnan(column(featured, name)) for name in GPU_COLUMNS], axis=0)
    names = text(featured, "gpu")
    shipped = {name: is_shipped(str(name)) for name in names.unique()}
    return np.asarray(brought | ~names.map(shipped).to_numpy(dtype=bool))


def check_units(
    featured: pd.DataFrame, limits: Thresholds | None = None, where: str = "runs table"
) -> None:
    """Raises RunsError, naming the likely unit, where most rows are off by one and the same factor.

    featured: output of `add_features`. One error instead of a file set aside row by row.
    """
    limits = limits or Thresholds()
    ratio = column(featured, "step_time_s") / _least_time(featured)
    ratio = ratio[np.isfinite(ratio)]
    if not len(ratio):
        return
    name = "step_time_s"
    for factor, unit in _SLIPS:
        share = float(np.mean(ratio >= limits.unit_ratio * factor / 1e3))
        if share > 0.5:
            reason = (
                f"{share:.0%} of {len(ratio):,} rows are some {factor:,.0f} times longer than a "
                f"step can take (median {np.median(ratio):,.0f}): the column is most likely in "
                f"{unit}; divide it by {factor:,.0f}{_suspect_gpus(featured)}"
            )
            raise RunsError(problem_table([(None, name, None, reason)]), where)
    short = column(featured, "step_time_s") / physical_floor(featured)
    short = short[np.isfinite(short)]
    share = float(np.mean(short < _MUCH_TOO_SHORT)) if len(short) else 0.0
    if share > 0.5:
        reason = (
            f"{share:.0%} of {len(short):,} rows are far below what reading the weights takes "
            f"(median {np.median(short):.2g} of it): the column was most likely in seconds "
            f"already and was divided by 1,000; multiply it by 1,000{_suspect_gpus(featured)}"
        )
        raise RunsError(problem_table([(None, name, None, reason)]), where)


def suspect_files(featured: pd.DataFrame, files: pd.Series, limits: Thresholds) -> list[str]:
    """Files most of whose rows `check_units` may refuse, found in one pass over all of them.

    files: the file of each row.
    """
    step = column(featured, "step_time_s")
    ratio, short = step / _least_time(featured), step / physical_floor(featured)
    odd = pd.DataFrame(
        {
            "long": np.where(np.isfinite(ratio), ratio >= limits.unit_ratio, np.nan),
            "short": np.where(np.isfinite(short), short < _MUCH_TOO_SHORT, np.nan),
        }
    )
    share = odd.groupby(files.to_numpy(object), sort=False).mean().max(axis=1)
    return [str(name) for name in share.index[share > 0.5]]


def _suspect_gpus(featured: pd.DataFrame) -> str:
    """The figures of GPUs that are the user's own, as a second suspect; empty without any."""
    own = featured[own_gpu(featured)].drop_duplicates("gpu")
    if not len(own):
        return ""
    told = [
        f"{name} with {format_bytes(width)} a s, {peak:.3g} FLOP a s and {format_bytes(memory)}"
        for name, width, peak, memory in zip(
            own["gpu"].head(3), column(own, "gpu_bandwidth"), column(own, "gpu_peak_flops"),
            column(own, "gpu_memory_bytes"), strict=False,
        )
    ]  # fmt: skip
    return f". Or the GPU's own figures are in another unit: check {'; '.join(told)}"


def _least_time(featured: pd.DataFrame) -> Array:
    """Traffic, FLOP and launches of a step, generously [s], (rows,)."""
    return (
        column(featured, "floor_s")
        + column(featured, "flop_s", 0.0)
        + column(featured, "prefill_s", 0.0)
        + _LAUNCH_S * column(featured, "layers", 0.0)
    )
