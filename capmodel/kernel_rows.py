"""Kernel curves (`capmodel.curves`) over rows of a runs table, by engine and GPU."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd

from capmodel.curves import KernelCurves, fit_curves
from capmodel.features import deployments
from capmodel.operators import operators
from capmodel.regressor import ROOFLINE, pairs_of
from capmodel.step_kernels import Steps, by_kind, kernels_at

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Pair = tuple[str, str]

# An engine and GPU with fewer rows has no curves of its own.
FEWEST_ROWS = 60
# So many engines and GPUs, evenly spread, decide whether curves win over the whole table.
CONTESTED = 3


def steady(features: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Which rows are steps of nothing but decoding, on GPUs split by tensors alone, (rows,)."""
    whole = (features["prefill_tokens"] == 0) & (features["hops"] == 0)
    return np.asarray(whole & (features["sequences"] == features["batch_size"]))


def contested(features: pd.DataFrame) -> Places:
    """Positions of the rows of some engines and GPUs that have rows enough, evenly spread."""
    large = [rows for _, rows in pairs_of(features) if len(rows) >= FEWEST_ROWS]
    if not large:
        return np.arange(0)
    chosen = np.unique(np.linspace(0, len(large) - 1, CONTESTED).round().astype(int))
    return np.sort(np.concatenate([large[place] for place in chosen]))


def curves_of(
    features: pd.DataFrame, step_time_s: Array
) -> tuple[dict[Pair, KernelCurves], Places]:
    """Curves by engine and GPU, and positions of the rows of those that have none.

    features: rows of `add_features`, all `steady`, with the column ROOFLINE [s]; step_time_s:
    (rows,) [s]. Rows of shapes without known kernels are passed over.
    """
    roofline, served = features[ROOFLINE].to_numpy(float), _Served(features)
    found, others = {}, [np.arange(0)]
    for pair, every in pairs_of(features):
        rows, steps = served.known(every)
        if len(rows) >= FEWEST_ROWS:
            found[pair] = fit_curves(steps, step_time_s[rows], roofline[rows])
        else:
            others.append(every)
    return found, np.concatenate(others)


def corrected_by(
    curves: Mapping[Pair, KernelCurves], features: pd.DataFrame, judged: bool = True
) -> tuple[Array, Array]:
    """Seconds of rows that have the column ROOFLINE, and nearness to fitted kernels, (rows,) each.

    Rows that are not `steady`, or of shapes, engines and GPUs without curves, keep the roofline.
    judged: whether nearness is asked for; it is 0 if not.
    """
    seconds, near = features[ROOFLINE].to_numpy(float).copy(), np.zeros(len(features))
    known = [(curves[pair], rows) for pair, rows in pairs_of(features) if pair in curves]
    if not known:
        return seconds, near
    whole, served = steady(features), _Served(features)
    for own, rows in known:
        rows, steps = served.known(rows[whole[rows]])
        spent, near[rows] = own.seconds(steps, len(rows), judged)
        seconds[rows] *= own.factor(spent, seconds[rows])
    return seconds, near


class _Served:
    """Kernels of the deployments of some rows, found once for all."""

    def __init__(self, features: pd.DataFrame) -> None:
        served, self.which = deployments(features)
        kernels = [operators(d.shape, d.gpu, d.weight_dtype, d.kv_dtype, d.tp) for d in served]
        self.has = np.array([bool(one) for one in kernels], dtype=bool)[self.which]
        self.owned = by_kind(kernels)
        self.batch = features["batch_size"].to_numpy(float)
        self.context_len = features["context_len"].to_numpy(float)

    def known(self, rows: Places) -> tuple[Places, Steps]:
        """Those of `rows` whose kernels are known, and their kernels."""
        kept = rows[self.has[rows]]
        own = self.which[kept], self.batch[kept], self.context_len[kept]
        return kept, kernels_at(self.owned, *own)
