"""All checks of a runs table, and the split into rows to use and rows set aside."""

from dataclasses import replace

import numpy as np
import pandas as pd

from capmodel.quality.hits import Hit, Mask
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
from capmodel.quality.physical import (
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
    speculative,
    below_floor,
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


def check_runs(featured: pd.DataFrame, **thresholds: float) -> pd.DataFrame:
    """Every hit of every check: columns run_id, rule, action ("set_aside" or "flag"), reason.

    featured: output of `add_features`; the index of the result is the row's position in it.
    thresholds: fields of `Thresholds`. Raises RunsError where most rows are in a wrong unit.
    """
    limits = replace(Thresholds(), **thresholds)
    check_units(featured, limits)
    hits: list[Hit] = [hit for check in CHECKS for hit in check(featured, limits)]
    sound = np.ones(len(featured), dtype=bool)
    for hit in hits:
        sound &= ~(
            hit.mask & (hit.action == SET_ASIDE) & (hit.rule in ("below_floor", "unit_slip"))
        )
    for compare in COMPARISONS:
        found = compare(featured, limits, sound)
        hits += found
        sound = sound & ~_set_aside(found, len(featured))
    names = featured["run_id"] if "run_id" in featured else pd.Series(featured.index.astype(str))
    return pd.concat([hit.table(names) for hit in hits])


def split_aside(featured: pd.DataFrame, **thresholds: float) -> tuple[pd.DataFrame, pd.DataFrame]:
    """`featured` in two: rows to use and rows set aside; every row is in exactly one.

    Rows to use carry the rules that flag them in `flags`. Rows set aside carry `rule`, the first
    that set them aside, and `reason`, all reasons for it. Raises as `check_runs`.
    """
    hits = check_runs(featured, **thresholds)
    aside, flagged = hits[hits["action"] == SET_ASIDE], hits[hits["action"] == FLAG]
    gone = np.zeros(len(featured), dtype=bool)
    gone[aside.index.unique()] = True
    used = featured[~gone].copy()
    position = pd.Series(np.flatnonzero(~gone), index=used.index)
    found = position.map(_joined(flagged["rule"], ",")).fillna("").astype(str)
    before = used["flags"].fillna("").astype(str) if "flags" in used else pd.Series("", used.index)
    used["flags"] = (before + "," + found).str.strip(",")
    out = featured[gone].copy()
    where = np.flatnonzero(gone)
    first = aside.loc[~aside.index.duplicated(), "rule"]
    out["rule"] = first.reindex(where).to_numpy(object)
    out["reason"] = _joined(aside["reason"], "; ").reindex(where).to_numpy(object)
    return used, out


def _joined(words: pd.Series, mark: str) -> pd.Series:
    """Words of the same index entry in one, different ones joined by `mark`."""
    place = words.groupby(level=0).cumcount()
    joined = words[place == 0]
    for number in range(1, int(place.max() if len(place) else 0) + 1):
        more = (mark + words[place == number]).reindex(joined.index).fillna("")
        joined = joined + more
    return joined


def _set_aside(hits: list[Hit], rows: int) -> Mask:
    mask = np.zeros(rows, dtype=bool)
    for hit in hits:
        if hit.action == SET_ASIDE:
            mask |= hit.mask
    return mask
