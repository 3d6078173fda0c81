"""Checks of rows against each other: disturbed runs, fixed time, repeats and their noise.

No fit is needed. More work cannot take less time, so a run that is slower than a larger one of
the same configuration was disturbed: a first run that loads, compiles or warms up.
"""

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.quality.hits import Array, Hit, Mask, column, text
from capmodel.quality.thresholds import FLAG, SET_ASIDE, Thresholds

_SAME = ("engine", "engine_version", "model", "gpu", "weight_dtype", "kv_dtype",
         "step_time_definition")  # fmt: skip
_SAME_NUMBERS = ("tp", "pp", "dp", "ep", "n_gpus", "prefill_chunk")
_COPIED = ("engine", "model", "gpu", "batch_size", "context_len")
# One batch, timed as a whole: only there does more work surely take longer.
_NOISES = 12  # a ratio this many noise floors above 1 is no noise
Groups = npt.NDArray[np.int64]

_COMPOSED = "composed from"
_STATIC = ("decode_step", "differenced", "e2e_over_output")


def warm_up(featured: pd.DataFrame, limits: Thresholds, sound: Mask) -> list[Hit]:
    """A run much slower than a larger one, or than its own repeat.

    sound: (rows,) rows that physics allows; only they are compared with. Where repeats show the
    table to be noisy the limit is raised, so that noise alone accuses no row.
    """
    time, least = _time_and_least(featured, sound)
    ratio = time / least
    noise = noise_floor_mape(featured[sound], limits) or 0.0
    mask = ratio > max(limits.slower_than_larger, 1.0 + _NOISES * noise)
    reason = (
        "{time_s} is {ratio} times the {least_s} that a run of the same configuration with as "
        "much or more work took: a first run that loaded or warmed up"
    )
    return [
        Hit("warm_up", SET_ASIDE, mask, reason, {"time_s": time, "least_s": least, "ratio": ratio})
    ]


def fixed_time(featured: pd.DataFrame, limits: Thresholds, sound: Mask) -> list[Hit]:
    """Time that does not grow with the lengths: warm-up, loading or client time in every run.

    Compared within runs of one configuration and batch whose input and output grow together: of
    latencies e1, e2 at lengths in the ratio k, (k e1 - e2) / (k - 1) does not grow. Where growth
    is more than linear this is too small, never too large. The least over all longer runs counts.
    """
    whole = (text(featured, "step_time_definition") == "e2e_over_output").to_numpy()
    time, fixed = _latency(featured), np.full(len(featured), np.nan)
    chosen = np.flatnonzero(whole & sound & ~np.isnan(time) & (column(featured, "input_len") > 0))
    if len(chosen):
        rows = featured.iloc[chosen]
        fixed[chosen] = _fixed_of(
            _group(rows, [_ratio(rows), column(rows, "batch_size")]),
            column(rows, "output_len"),
            time[chosen],
        )
    share = fixed / time
    figures = {"time_s": time, "fixed_s": fixed, "fixed_share": share}
    reason = "{fixed_s} of the latency of {time_s} ({fixed_share}) do not grow with the output"
    aside = share > limits.fixed_time_share
    flag = ~aside & (share > limits.fixed_time_flag)
    return [
        Hit("fixed_time", SET_ASIDE, aside, reason + ": loading or warm-up, not decode", figures),
        Hit("fixed_time", FLAG, flag, reason, figures),
    ]


def repeated(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """One configuration measured more than once: kept, since repeats measure the noise."""
    group = repeat_group(featured)
    number: Array = np.bincount(group)[group].astype(float)
    reason = "one of {count} runs of one configuration; kept, repeats measure the noise"
    return [Hit("repeated", FLAG, number > 1, reason, {"count": number})]


def copied(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    """The same time to the last digit for one model, GPU and engine: a measurement listed twice.

    A repeat differs in its last digits and measures the noise; a copy would hide it, and stand
    on both sides of a split. The first stays. Times of under six digits may just agree.
    """
    step = column(featured, "step_time_s")
    names = [name for name in _COPIED if name in featured]
    keys = featured[names].assign(step=step, ttft=column(featured, "ttft_s", -1.0))
    mask = keys.duplicated().to_numpy() & _has_digits(step)
    reason = "a step of {step_s} stands in another row of this model and GPU, to the last digit"
    return [Hit("copied", SET_ASIDE, mask, reason, {"step_s": step})]


def _has_digits(values: Array, digits: int = 6) -> Mask:
    """True where a value needs at least `digits` significant digits."""
    size = np.floor(np.log10(np.where(values > 0, values, 1.0)))
    scaled = values * 10.0 ** (digits - 2 - size)
    return np.asarray(np.abs(scaled - np.round(scaled)) > 1e-6)


def repeat_group(runs: pd.DataFrame) -> Groups:
    """Number of each row's configuration, (rows,); repeats share it.

    What a client offered stands in for what was admitted, and nominal lengths for mean context,
    since the measured ones differ between repeats.
    """
    batch, offered = column(runs, "batch_size"), column(runs, "concurrency")
    prompt, output = column(runs, "input_len"), column(runs, "output_len")
    lengths = np.isnan(prompt) | np.isnan(output)
    return _group(
        runs,
        [
            np.where(np.isnan(offered) | (offered == 0), batch, offered),
            np.where(lengths, column(runs, "context_len"), prompt),
            np.where(lengths, -1.0, output),
        ],
    )


def noise_floor_mape(runs: pd.DataFrame, limits: Thresholds | None = None) -> float | None:
    """Error that no model can get under, from repeats: a fraction, None without repeats.

    The mean absolute relative deviation from the mean of a configuration's repeats, times
    sqrt(n / (n - 1)) for that mean being taken from the same n runs. Repeats further apart than
    `slower_than_larger` are disturbed runs, not noise, and are left out.
    """
    limits = limits or Thresholds()
    rows = pd.DataFrame({"step": column(runs, "step_time_s"), "group": repeat_group(runs)})
    none = np.zeros(len(rows))
    usual = _lower_quartile(rows["group"].to_numpy(), none, none, rows["step"].to_numpy())
    rows = rows[rows["step"] <= limits.slower_than_larger * usual]
    groups = rows.groupby("group")["step"]
    size = groups.transform("size")
    deviation = (rows["step"] - groups.transform("mean")).abs() / rows["step"]
    repeats = size > 1
    if not repeats.any():
        return None
    wider = np.sqrt(size[repeats] / (size[repeats] - 1))
    return float((deviation[repeats] * wider).mean())


def _latency(featured: pd.DataFrame) -> Array:
    """Time of the whole run where it is known, of the step elsewhere [s]."""
    whole = (text(featured, "step_time_definition") == "e2e_over_output").to_numpy()
    step = column(featured, "step_time_s")
    return np.where(whole, step * column(featured, "output_len"), step)


def _time_and_least(featured: pd.DataFrame, sound: Mask) -> tuple[Array, Array]:
    """Each run's time, and the least time of runs with as much or more work [s], (rows,)."""
    time, least = _latency(featured), np.full(len(featured), np.nan)
    static = text(featured, "step_time_definition").replace("", "decode_step").isin(_STATIC)
    # A step put together from kernels was never run, so nothing disturbed it: where it takes
    # longer than a larger one, another kernel was measured there.
    run = static & ~text(featured, "source").str.contains(_COMPOSED, regex=False)
    chosen = np.flatnonzero(run.to_numpy() & sound & ~np.isnan(time))
    if not len(chosen):
        return time, least
    rows = featured.iloc[chosen]
    whole = (text(rows, "step_time_definition") == "e2e_over_output").to_numpy()
    length = np.where(whole, column(rows, "output_len"), column(rows, "context_len"))
    prompt = np.where(whole, column(rows, "input_len"), -1.0)
    batch, own = column(rows, "batch_size"), time[chosen]
    grow = _least_of_larger(_group(rows, [np.where(whole, _ratio(rows), -1.0)]), batch, length, own)
    stay = _least_of_larger(_group(rows, [prompt]), batch, length, own)
    least[chosen] = np.minimum(grow, stay)
    return time, least


def _least_of_larger(group: Groups, batch: Array, length: Array, time: Array) -> Array:
    """Least time over the rows of a group with at least this batch and length, on a grid.

    Repeats count by their lower quartile (of two, the faster), so that noise alone, among many
    repeats, accuses no row.
    """
    least = np.empty(len(time))
    typical = _lower_quartile(group, batch, length, time)
    order = np.lexsort((-length, batch, group))
    least[order] = _running_minimum(typical[order], group[order], batch[order])
    order = np.lexsort((least, -batch, length, group))
    least[order] = _running_minimum(least[order], group[order], length[order])
    return least


def _lower_quartile(group: Groups, batch: Array, length: Array, time: Array) -> Array:
    """Lower quartile of the times of each row's cell, one of the times itself."""
    order = np.lexsort((time, length, batch, group))
    keys = (group[order], batch[order], length[order])
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    start = np.flatnonzero(fresh)
    count = np.diff(np.append(start, len(order)))
    quartile = time[order][start + (count - 1) // 4]
    result = np.empty(len(order))
    result[order] = np.repeat(quartile, count)
    return result


def _running_minimum(values: Array, group: Groups, within: Array) -> Array:
    """Least value so far, starting anew where `group` or `within` changes."""
    fresh = np.ones(len(values), dtype=bool)
    fresh[1:] = (group[1:] != group[:-1]) | (within[1:] != within[:-1])
    lowest = pd.Series(values).groupby(np.cumsum(fresh)).cummin()
    return np.asarray(lowest, dtype=np.float64)


def _fixed_of(group: Groups, length: Array, time: Array) -> Array:
    """Least fixed time against longer runs of the group; the longest takes the next shorter's."""
    order = np.lexsort((length, group))
    group, length, time = group[order], length[order], time[order]
    least = np.full(len(order), np.inf)
    against_longest = np.full(len(order), np.nan)
    for step in range(1, len(order)):
        same = group[step:] == group[:-step]
        if not same.any() or step > _NEIGHBOURS:
            break
        short, long = np.flatnonzero(same), np.flatnonzero(same) + step
        k = length[long] / length[short]
        longer = k > 1.0
        short, long, k = short[longer], long[longer], k[longer]
        fixed = (k * time[short] - time[long]) / (k - 1.0)
        np.minimum.at(least, short, fixed)
        fresh = np.isnan(against_longest[long])
        against_longest[long[fresh]] = fixed[fresh]
    result = np.empty(len(order))
    result[order] = np.where(np.isfinite(least), least, against_longest)
    return result


_NEIGHBOURS = 16  # longer runs a run is compared with


def _ratio(rows: pd.DataFrame) -> Array:
    """Input over output length, as far as rounding goes."""
    return np.round(column(rows, "input_len") / column(rows, "output_len"), 3)


def _group(rows: pd.DataFrame, more: list[Array]) -> Groups:
    """Number of each row's group: same deployment and same values of `more`, (rows,)."""
    number = np.zeros(len(rows), dtype=np.int64)
    present = [rows[name] for name in (*_SAME, *_SAME_NUMBERS) if name in rows]
    for key in [*present, *map(pd.Series, more)]:
        codes, uniques = pd.factorize(key, use_na_sentinel=False)
        if len(uniques) > 1:
            number = pd.factorize(number * len(uniques) + codes)[0].astype(np.int64)
    return number
