"""All checks of a runs table, and the split into rows to use and rows set aside."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.quality.hits import Hit, Mask, text
from capmodel.quality.measurement import (
    chunk_counting,
    concurrency_not_reached,
    contradiction,
    gpu_count,
    incomplete,
    short_output,
    short_run,
    speculative,
    warm_prefix,
)
from capmodel.quality.names import unknown_engine
from capmodel.quality.physical import (
    below_expected,
    below_floor,
    check_units,
    no_bandwidth,
    over_memory,
    unit_slip,
)
from capmodel.quality.repeats import copied, fixed_time, repeated, warm_up
from capmodel.quality.thresholds import FLAG, SET_ASIDE, Thresholds

# Each row by itself, then rows against each other.
CHECKS = (
    no_bandwidth,
    unit_slip,
    unknown_engine,
    speculative,
    below_floor,
    below_expected,
    over_memory,
    gpu_count,
    contradiction,
    incomplete,
    short_output,
    short_run,
    warm_prefix,
    chunk_counting,
    concurrency_not_reached,
    copied,
    repeated,
)
COMPARISONS = (warm_up, fixed_time)
_UNCOMPARABLE = ("below_floor", "unit_slip")  # their times say nothing of other rows

Words = npt.NDArray[np.object_]


def check_runs(featured: pd.DataFrame, **thresholds: float) -> pd.DataFrame:
    """Every hit of every check: columns run_id, rule, action ("set_aside" or "flag"), reason.

    featured: output of `add_features`; the index of the result is the row's position in it.
    thresholds: fields of `Thresholds`. Raises RunsError where most rows are in a wrong unit.
    """
    hits = _hits(featured, Thresholds(**thresholds))
    return pd.concat([hit.table(_names(featured)) for hit in hits])


def split_aside(featured: pd.DataFrame, **thresholds: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`featured` in two: rows to use and rows set aside; every row is in exactly one.

    Rows to use carry the rules that flag them in `flags`. Rows set aside carry `rule`, the first
    that set them aside, and `reason`, all reasons for it. Raises as `check_runs`.
    """
    hits = _hits(featured, Thresholds(**thresholds))
    aside = [hit for hit in hits if hit.action == SET_ASIDE]
    gone = np.any([hit.mask for hit in aside], axis=0)
    used, out = featured[~gone].copy(), featured[gone].copy()
    used["flags"] = _flags(featured, hits)[~gone]
    found = pd.concat([hit.table(_names(featured)) for hit in aside])
    where = np.flatnonzero(gone)
    first = found.loc[~found.index.duplicated(), "rule"]
    out["rule"] = first.reindex(where).to_numpy(object)
    out["reason"] = _joined(found["reason"], "; ").reindex(where).to_numpy(object)
    return used, out


def _hits(featured: pd.DataFrame, limits: Thresholds) -> list[Hit]:
    check_units(featured, limits)
    hits = [hit for check in CHECKS for hit in check(featured, limits)]
    sound = np.ones(len(featured), dtype=bool)
    for hit in hits:
        if hit.rule in _UNCOMPARABLE:
            sound &= ~hit.mask
    for compare in COMPARISONS:
        found = compare(featured, limits, sound)
        hits += found
        sound = sound & ~_set_aside(found, len(featured))
    return hits


def _names(featured: pd.DataFrame) -> pd.Series:
    return featured["run_id"] if "run_id" in featured else pd.Series(featured.index.astype(str))


def _flags(featured: pd.DataFrame, hits: list[Hit]) -> Words:
    """`flags` of each row, with the rules that flag it added, (rows,)."""
    words = text(featured, "flags").to_numpy(object)
    for rule in dict.fromkeys(hit.rule for hit in hits if hit.action == FLAG):
        masks = [hit.mask for hit in hits if hit.rule == rule and hit.action == FLAG]
        where = np.flatnonzero(np.any(masks, axis=0))
        held = words[where]
        words[where] = np.where(held == "", rule, held + "," + rule)
    return words


def _joined(words: pd.Series, mark: str) -> pd.Series:
    """Words of the same index entry in one, different ones joined by `mark`."""
    place = words.groupby(level=0).cumcount()
    joined = words[place == 0]
    for number in range(1, int(place.max() if len(place) else 0) + 1):
        joined = joined + (mark + words[place == number]).reindex(joined.index).fillna("")
    return joined


def _set_aside(hits: list[Hit], rows: int) -> Mask:
    mask = np.zeros(rows, dtype=bool)
    for hit in hits:
        if hit.action == SET_ASIDE:
            mask |= hit.mask
    return mask
