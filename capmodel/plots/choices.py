"""What to choose and what moves it: cost against latency, and how far each assumption swings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from capmodel.plots.style import INK, MUTED, PALETTE, plain_number


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve: latency [s], cost [$/hour], and whether it meets what was asked."""

    label: str
    latency_s: float
    dollars_per_hour: float
    feasible: bool
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Swing:
    """An assumption moved down and up, and the result at either end."""

    label: str
    low: float
    high: float
    low_note: str = ""
    high_note: str = ""


def draw_cost_latency(
    axes: Axes, candidates: Sequence[Candidate], latency: str, slo_s: float | None = None
) -> Axes:
    """Cost [$/hour] over latency [s], a mark a candidate; the front of the best is a line.

    `latency` names the axis. Marks off the front are small and grey, infeasible ones hollow; the
    chosen one is ringed and named, and so are the others on the front, as far as there is room.
    `slo_s` [s] is an upright line.
    """
    x = np.array([candidate.latency_s for candidate in candidates])
    y = np.array([candidate.dollars_per_hour for candidate in candidates])
    feasible = np.array([candidate.feasible for candidate in candidates], dtype=bool)
    front = pareto_front(x, y, feasible)
    off = feasible.copy()
    off[front] = False
    quiet: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 3, "color": MUTED}
    axes.plot(x[off], y[off], alpha=0.6, markeredgewidth=0, **quiet)
    axes.plot(x[~feasible], y[~feasible], markerfacecolor="white", **quiet)
    axes.plot(x[front], y[front], color=PALETTE[0], linewidth=0.9, marker="o", markersize=4.5)
    axes.set_ylim(0, 1.12 * max(y, default=1.0) or 1.0)
    axes.set_xlim(0, 1.25 * max([*x, slo_s or 0], default=1.0))
    if slo_s is not None:
        axes.axvline(slo_s, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            "promised",
            (slo_s, 0),
            xycoords=("data", "axes fraction"),
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=7,
        )
    chosen = [i for i, candidate in enumerate(candidates) if candidate.chosen]
    axes.plot(
        x[chosen],
        y[chosen],
        linestyle="",
        marker="o",
        markersize=9,
        markerfacecolor="none",
        color=PALETTE[3],
    )
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel(f"{latency} [s]")
    axes.set_ylabel("Cost [$/hour]")
    rest = [i for i in front if i not in chosen]
    names = [(float(x[i]), float(y[i]), candidates[i].label, i in chosen) for i in chosen + rest]
    _name_points(axes, names, [(float(x[i]), float(y[i])) for i in {*chosen, *front}])
    return axes


# Where a name may stand from its mark [points], the first without a collision is taken.
_PLACES = ((7.0, 4.0), (7.0, -10.0), (-7.0, 6.0), (-7.0, -12.0))


def _name_points(
    axes: Axes,
    names: Sequence[tuple[float, float, str, bool]],
    marks: Sequence[tuple[float, float]],
) -> None:
    """Names beside their points, where they cover no mark, no other name and stay in the frame.

    `names` are (x, y, text, bold): the bold ones stand in any case. `marks` are (x, y).
    """
    point = axes.figure.dpi / 72
    spots = [axes.transData.transform(mark) for mark in marks]
    (left, low), (right, high) = axes.transAxes.transform([(0, 0), (1, 1)])
    taken: list[tuple[float, float, float, float]] = []
    for x, y, text, bold in names:
        at = axes.transData.transform((x, y))
        wide, tall = (4.9 if bold else 4.3) * point * len(text), 8 * point
        found = None
        for dx, dy in _PLACES:
            start = at[0] + dx * point - (wide if dx < 0 else 0)
            box = (start, at[1] + dy * point, start + wide, at[1] + dy * point + tall)
            inside = box[0] >= left and box[2] <= right and box[1] >= low and box[3] <= high
            hit = any(box[0] <= u <= box[2] and box[1] <= v <= box[3] for u, v in spots)
            if inside and not hit and not any(_overlap(box, other) for other in taken):
                found = (dx, dy, box)
                break
        if found is None and bold:
            dx, dy = _PLACES[0]
            found = (dx, dy, (at[0], at[1], at[0] + wide, at[1] + tall))
        if found is None:
            continue
        dx, dy, box = found
        taken.append(box)
        axes.annotate(
            text,
            (x, y),
            xytext=(dx, dy),
            textcoords="offset points",
            ha="left" if dx > 0 else "right",
            fontsize=7,
            fontweight="bold" if bold else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )


def _overlap(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def pareto_front(x: np.ndarray, y: np.ndarray, allowed: np.ndarray) -> list[int]:
    """Indices, by rising x, of the allowed points that no other beats in both x and y."""
    front: list[int] = []
    for i in np.lexsort((y, x)):
        if allowed[i] and (not front or y[i] < y[front[-1]]):
            front.append(int(i))
    return front


def draw_tornado(axes: Axes, swings: Sequence[Swing], centre: float, x_label: str) -> Axes:
    """How far the result moves with each assumption, widest first, from `centre` to either side.

    Each end is named with what was assumed there.
    """
    ordered = sorted(swings, key=lambda swing: -abs(swing.high - swing.low))
    places = np.arange(len(ordered))
    lows = np.array([swing.low for swing in ordered])
    highs = np.array([swing.high for swing in ordered])
    axes.barh(places, lows - centre, left=centre, height=0.55, color=PALETTE[0])
    axes.barh(
        places,
        highs - centre,
        left=centre,
        height=0.55,
        facecolor=PALETTE[1],
        hatch="////",
        edgecolor="white",
        linewidth=0,
    )
    axes.axvline(centre, color=INK, linewidth=0.8)
    for place, swing in zip(places.tolist(), ordered, strict=True):
        ends = sorted(((swing.low, swing.low_note), (swing.high, swing.high_note)))
        _note(axes, min(ends[0][0], centre), place, ends[0][1], left=True)
        _note(axes, max(ends[1][0], centre), place, ends[1][1], left=False)
    axes.set_yticks(places, [swing.label for swing in ordered])
    axes.set_ylim(max(len(ordered), 1) - 0.5, -0.5)
    span = max([*np.abs(lows - centre), *np.abs(highs - centre)], default=0.0) or 1.0
    axes.set_xlim(centre - 1.45 * span, centre + 1.45 * span)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel(x_label)
    return axes


def _note(axes: Axes, x: float, place: float, text: str, *, left: bool) -> None:
    axes.annotate(
        text,
        (x, place),
        xytext=(-3 if left else 3, 0),
        textcoords="offset points",
        ha="right" if left else "left",
        va="center",
        fontsize=6.5,
        color=MUTED,
    )
