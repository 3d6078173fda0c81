"""How good a calibration is: errors, residuals, coverage, coefficients with their intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from capmodel.plots.style import BAND_ALPHA, INK, MUTED, PALETTE, plain_number, series

_PLAIN = FuncFormatter(plain_number)
_FAR_TICKS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)
_CLOSE_TICKS = (0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100)
_PERCENT_TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def draw_grades(
    axes: Axes,
    splits: Sequence[str],
    mape: Mapping[str, Sequence[float | None]],
    noise_floor: float | None = None,
    legend: bool = True,
) -> Axes:
    """MAPE [fraction, drawn in %] on a log axis: a row a split, a mark an estimator.

    `mape[estimator][i]` belongs to `splits[i]`; None is left out. `noise_floor` is an upright line.
    legend: whether to name the estimators above.
    """
    places = np.arange(len(splits))
    for index, (name, values) in enumerate(mape.items()):
        known = [i for i, value in enumerate(values) if value is not None and value > 0]
        look = {**series(index), "linestyle": ""}
        axes.plot([100 * (values[i] or 0) for i in known], places[known], label=name, **look)
    axes.set_xscale("log")
    axes.set_ylim(max(len(splits), 1) - 0.5, -0.5)
    axes.set_yticks(places, splits)
    axes.grid(axis="y", visible=False)
    if noise_floor:
        axes.axvline(100 * noise_floor, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            "noise",
            (100 * noise_floor, 0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=7,
            color=MUTED,
        )
    low, high = axes.get_xlim()
    if high < 2.5 * low:  # grades that hardly differ would stand apart, with a tick or none
        low, high = (low * high) ** 0.5 / 1.6, (low * high) ** 0.5 * 1.6
        axes.set_xlim(low, high)
    ticks = [tick for tick in _PERCENT_TICKS if low <= tick <= high]
    if len(ticks) > 6:
        ticks = [tick for tick in _FAR_TICKS if low <= tick <= high]
    if len(ticks) < 4:
        ticks = [tick for tick in _CLOSE_TICKS if low <= tick <= high]
    axes.set_xticks(ticks)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set_xlabel("Mean absolute error of the step time [%]")
    if mape and legend:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1),
            ncols=3 if axes.bbox.width / axes.figure.dpi > 4 else 2,
            handletextpad=0,
            columnspacing=1,
            borderaxespad=0,
        )
    return axes


def draw_predicted(
    axes: Axes, measured_s: np.ndarray, predicted_s: np.ndarray, group: Sequence[str] | None = None
) -> Axes:
    """Predicted over measured step time [ms], log by log, with the line where they are equal.

    `group` (one name a row) colours the points, at most six groups told apart.
    """
    measured, predicted = 1e3 * np.asarray(measured_s), 1e3 * np.asarray(predicted_s)
    names = np.asarray(group if group is not None else [""] * len(measured))
    ends = [*measured, *predicted]
    span = [0.8 * min(ends, default=1.0), 1.25 * max(ends, default=1.0)]
    axes.plot(span, span, color=INK, linewidth=0.8)
    for index, name in enumerate(sorted(set(names.tolist()))):
        look: dict[str, Any] = {**series(index), "linestyle": "", "markersize": 2.5, "alpha": 0.55}
        rows = names == name
        axes.plot(measured[rows], predicted[rows], label=name, rasterized=rows.sum() > 2000, **look)
    axes.set(xscale="log", yscale="log", xlim=span, ylim=span, aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        if span[1] < 50 * span[0]:  # powers of ten alone would leave one tick or none
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(_PLAIN)
        axis.set_minor_locator(NullLocator())  # labels of a range under a decade would collide
    axes.set_xlabel("Measured step [ms]")
    axes.set_ylabel("Predicted step [ms]")
    if group is not None and len(set(names.tolist())) > 1:
        axes.legend(loc="upper left", handletextpad=0.1)
    return axes


def draw_residuals(
    axes: Axes, x: np.ndarray, residual: np.ndarray, x_label: str, noise_floor: float | None = None
) -> Axes:
    """Signed relative residuals [fraction, drawn in %] over `x` on a log axis, zero marked.

    The band is the noise floor to either side: what no model could take away.
    """
    if noise_floor:
        axes.axhspan(-100 * noise_floor, 100 * noise_floor, color=MUTED, alpha=BAND_ALPHA, lw=0)
    axes.axhline(0, color=INK, linewidth=0.8)
    look: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 2.2, "alpha": 0.5}
    axes.plot(x, 100 * np.asarray(residual), color=PALETTE[0], rasterized=len(x) > 2000, **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(_PLAIN)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(x_label)
    axes.set_ylabel("Predicted − measured [%]")
    return axes


def draw_coverage(
    axes: Axes,
    splits: Sequence[str],
    inside: Mapping[str, Sequence[float | None]],
    promised: float = 0.9,
) -> Axes:
    """Share of held-out measurements inside the band [%]: a row a split, a mark an estimator.

    `inside[estimator][i]` [fraction] belongs to `splits[i]`; None is left out. `promised` is an
    upright line: left of it the band is too narrow. Marks are those of `draw_grades`.
    """
    places = np.arange(len(splits))
    lowest = 100.0 * promised
    for index, (name, values) in enumerate(inside.items()):
        known = [(100 * value, i) for i, value in enumerate(values) if value is not None]
        shares, rows = [share for share, _ in known], [places[i] for _, i in known]
        axes.plot(shares, rows, label=name, **{**series(index), "linestyle": ""})
        lowest = min(lowest, *shares, 100.0)
    axes.axvline(100 * promised, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        "promised",
        (100 * promised, 1),  # above the frame, where no mark is
        xycoords=("data", "axes fraction"),
        xytext=(0, 2),
        textcoords="offset points",
        ha="center",
        fontsize=7,
        color=MUTED,
    )
    left = min(lowest - 5, 75.0)
    axes.set_xlim(left, 101)
    axes.set_xticks([tick for tick in range(0, 101, 10 if left > 45 else 20) if tick > left])
    axes.set_ylim(max(len(splits), 1) - 0.5, -0.5)
    axes.set_yticks(places, splits)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    axes.set_xlabel(f"Measurements inside the {100 * promised:g} % band")
    return axes


def draw_intervals(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    x_label: str,
    reference: float | None = None,
    *,
    named: bool = True,
) -> Axes:
    """One coefficient with its interval for each name, top to bottom; `reference` is marked.

    named: False for a panel beside one that has the names; ticks cost more than all else here.
    """
    places = np.arange(len(names))
    if reference is not None:
        axes.axvline(reference, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.hlines(places, low, high, color=PALETTE[0], linewidth=1.4)
    axes.plot(values, places, linestyle="", marker="o", markersize=3.5, color=PALETTE[0])
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_yticks(places if named else [], names if named else [])
    axes.set_xlim(left=min(0.0, *axes.get_xlim()))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(x_label)
    return axes
