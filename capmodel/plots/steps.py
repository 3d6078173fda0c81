"""One decode step over the batch: how long it takes, what it yields, what the time goes to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from capmodel.plots.style import BAND_ALPHA, INK, fill, label_ends, level_line, plain_number, series

# Batches named along the axis: more collide in half a page's width.
_MOST_TICKS = 8
# A band that rises this many times over the lines presses them flat.
_FLAT = 4.0


@dataclass(frozen=True, slots=True)
class StepCurve:
    """Steps of one deployment at one context length, batch sizes ascending; arrays of one length.

    `low_s` and `high_s` [s] bound the step time (None: no interval is known). `fits` says which
    batches the memory holds.
    """

    label: str
    batch_size: np.ndarray
    step_time_s: np.ndarray
    fits: np.ndarray
    low_s: np.ndarray | None = None
    high_s: np.ndarray | None = None


def draw_step_time(axes: Axes, curves: Sequence[StepCurve], slo_s: float | None = None) -> Axes:
    """Step time [ms] over batch [sequences], a line a curve, its band around it.

    What memory does not hold is drawn faint with hollow markers; `slo_s` [s] is a level line. The
    axis is logarithmic where a band on a plain one would press the lines flat.
    """
    ends = []
    for index, curve in enumerate(curves):
        milliseconds = 1e3 * curve.step_time_s
        if curve.low_s is not None and curve.high_s is not None:
            _band(axes, curve, 1e3 * curve.low_s, 1e3 * curve.high_s, index)
        _line(axes, curve, milliseconds, index)
        ends.append((curve, milliseconds, index))
    if wide_band(curves):
        axes.set_yscale("log")
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.set_ylim(bottom=0)
    if slo_s is not None:
        axes.set_ylim(top=max(axes.get_ylim()[1], 1.08e3 * slo_s))
        level_line(axes, 1e3 * slo_s, "promised")
    _finish(axes, ends, "Step time [ms]")
    return axes


def wide_band(curves: Sequence[StepCurve]) -> bool:
    """Whether some step may take more than `_FLAT` times the longest that is expected."""
    highs = [curve.high_s.max() for curve in curves if curve.high_s is not None]
    steps = [curve.step_time_s.max() for curve in curves]
    return bool(highs) and bool(max(highs) > _FLAT * max(steps))


def draw_tokens_per_s(
    axes: Axes,
    curves: Sequence[StepCurve],
    crossover: Sequence[float | None] = (),
    marks: Mapping[str, float] | None = None,
) -> Axes:
    """Tokens per second over batch [sequences], a line a curve, its band around it.

    `crossover[i]` is the batch from which curve i reads more KV than weights: a tick on its line.
    `marks` are named batches, each an upright line.
    """
    ends = []
    for index, curve in enumerate(curves):
        rate = curve.batch_size / curve.step_time_s
        if curve.low_s is not None and curve.high_s is not None:
            low, high = curve.batch_size / curve.high_s, curve.batch_size / curve.low_s
            _band(axes, curve, low, high, index)
        _line(axes, curve, rate, index)
        ends.append((curve, rate, index))
    axes.set_ylim(bottom=0)
    for index, (curve, batch) in enumerate(zip(curves, crossover, strict=False)):
        if batch is not None:
            _crossover(axes, curve, batch, index)
    lines = [(curve.batch_size, curve.batch_size / curve.step_time_s) for curve in curves]
    for level, (name, batch) in enumerate(sorted((marks or {}).items(), key=lambda m: m[1])):
        _upright(axes, batch, name, level, lines)
    _finish(axes, ends, "Tokens per second")
    return axes


def draw_terms(
    axes: Axes, batch_size: Sequence[float], terms_s: dict[str, Sequence[float]]
) -> Axes:
    """Stacked bars: the seconds of each term at each batch, drawn in ms, named beside the last bar.

    `terms_s[name]` has one value [s] a batch, all non-negative.
    """
    places = np.arange(len(batch_size))
    base = np.zeros(len(batch_size))
    ends = []
    for index, (name, seconds) in enumerate(terms_s.items()):
        heights = 1e3 * np.asarray(seconds, dtype=float)
        style = fill(index)
        axes.bar(places, heights, bottom=base, width=0.72, **style)
        ends.append(
            (len(places) - 0.6, float(base[-1] + heights[-1] / 2), name, style["facecolor"])
        )
        base = base + heights
    axes.set_xticks(places, [f"{batch:,.0f}" for batch in batch_size])
    axes.set_xlim(-0.6, len(places) - 0.4)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("Batch [sequences]")
    axes.set_ylabel("Step time [ms]")
    label_ends(axes, ends)
    return axes


def _band(axes: Axes, curve: StepCurve, low: np.ndarray, high: np.ndarray, index: int) -> None:
    colour = series(index)["color"]
    axes.fill_between(curve.batch_size, low, high, color=colour, alpha=BAND_ALPHA, linewidth=0)


def _line(axes: Axes, curve: StepCurve, values: np.ndarray, index: int) -> None:
    look = series(index)
    inside = curve.fits.astype(bool)
    axes.plot(curve.batch_size[inside], values[inside], label=curve.label, **look)
    if inside.all():
        return
    beyond = np.flatnonzero(~inside)
    bridge = np.union1d(beyond, np.flatnonzero(inside)[-1:])
    axes.plot(
        curve.batch_size[bridge], values[bridge], color=look["color"], alpha=0.45, linewidth=0.8
    )
    axes.plot(
        curve.batch_size[beyond],
        values[beyond],
        color=look["color"],
        alpha=0.6,
        linestyle="",
        marker=look["marker"],
        markerfacecolor="white",
    )


def _crossover(axes: Axes, curve: StepCurve, batch: float, index: int) -> None:
    rate = np.interp(batch, curve.batch_size, curve.batch_size / curve.step_time_s)
    axes.plot([batch], [rate], marker="|", markersize=13, markeredgewidth=1.6, color=INK)


def _upright(
    axes: Axes, batch: float, text: str, level: int, lines: Sequence[tuple[np.ndarray, np.ndarray]]
) -> None:
    """An upright line at `batch`; its name beside it, where it covers none of `lines`.

    lines: batch and value of every curve. Names stand `level` lines from the bottom or the top.
    """
    axes.axvline(batch, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    batches = np.concatenate([b for b, _ in lines] or [np.array([batch])])
    first, last = np.log2(batches.min()), np.log2(max(batches.max(), 2 * batches.min()))
    place, wide, tall = (np.log2(batch) - first) / (last - first), 0.023 * len(text) + 0.02, 0.09
    height = axes.get_ylim()[1]

    def free(left: float, low: float) -> bool:
        if left < 0 or left + wide > 1.02:
            return False
        across = 2 ** (first + (last - first) * np.linspace(left, left + wide, 9))
        values = [np.interp(across, b, v, left=np.nan, right=np.nan) / height for b, v in lines]
        return not any(((v > low - 0.03) & (v < low + tall)).any() for v in values)

    spots = [
        (before, low)
        for low in (0.02 + 0.08 * level, 0.9 - 0.08 * level)
        for before in (True, False)
    ]
    found = (spot for spot in spots if free(place - wide if spot[0] else place, spot[1]))
    before, low = next(found, (place > 0.5, spots[0][1]))
    axes.annotate(
        text,
        (batch, low),
        xycoords=("data", "axes fraction"),
        xytext=(-3 if before else 3, 0),
        textcoords="offset points",
        ha="right" if before else "left",
        fontsize=7,
        color=INK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6},
    )


def _finish(axes: Axes, ends: Sequence[tuple[StepCurve, np.ndarray, int]], quantity: str) -> None:
    batches = np.concatenate([curve.batch_size for curve, _, _ in ends] or [np.ones(1)])
    if batches.min() < batches.max():
        axes.set_xscale("log", base=2)
    first, last = np.log2(batches.min()), np.log2(batches.max())
    powers = np.arange(np.ceil(first), np.floor(last) + 1)
    axes.set_xticks(2.0 ** powers[:: 1 + len(powers) // (_MOST_TICKS + 1)])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel("Batch [sequences]")
    axes.set_ylabel(quantity)
    # All names right of the longest line: one beside a shorter line would cover the others.
    label_ends(
        axes,
        [
            (float(batches.max()), float(values[-1]), curve.label, series(index)["color"])
            for curve, values, index in ends
            if len(curve.batch_size)
        ],
    )
