"""What to choose and what moves it: cost against latency, and how far each assumption swings."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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
    _name_points(axes, names, np.column_stack([x, y]), np.column_stack([x[front], y[front]]))
    return axes


# Where a name may stand from its mark [points]: the first place that covers nothing is taken.
_PLACES = (
    *((7.0, 4.0), (7.0, -10.0), (-7.0, 6.0), (-7.0, -12.0)),
    *((14.0, 14.0), (14.0, -20.0), (-14.0, 14.0), (-14.0, -20.0)),
    *((14.0, 26.0), (-14.0, 26.0), (14.0, -32.0), (-14.0, -32.0), (14.0, 38.0), (-14.0, 38.0)),
    *((14.0, 52.0), (-14.0, 52.0), (14.0, 66.0), (-14.0, 66.0)),
)
_NEAR = 8  # of these, those close enough for names that need not stand
_Box = tuple[float, float, float, float]


def _name_points(
    axes: Axes, names: Sequence[tuple[float, float, str, bool]], marks: np.ndarray, line: np.ndarray
) -> None:
    """Names beside their points, where they cover no mark, no line, no name and stay in the frame.

    `names` are (x, y, text, bold): the bold ones stand in any case, where they cover least.
    `marks` and `line` are (x, y) a row.
    """
    point = axes.figure.dpi / 72
    spots = axes.transData.transform(np.vstack([marks, _along(line)]))
    frame = axes.transAxes.transform([(0, 0), (1, 1)])
    taken: list[_Box] = []
    for x, y, text, bold in names:
        at = axes.transData.transform((x, y))
        size = np.array([(4.9 if bold else 4.3) * len(text), 8.0]) * point
        places = _PLACES if bold else _PLACES[:_NEAR]
        boxes = [_box(at, point * np.array(place), size) for place in places]
        covered = [_covered(box, spots, frame, taken, 2.5 * point) for box in boxes]
        best = int(np.argmin(covered))
        if covered[best] and not bold:
            continue
        taken.append(boxes[best])
        dx, dy = places[best]
        tie = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 3}
        axes.annotate(
            text,
            (x, y),
            xytext=(dx, dy),
            textcoords="offset points",
            ha="left" if dx > 0 else "right",
            fontsize=7,
            fontweight="bold" if bold else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            arrowprops=tie if abs(dy) > 12 else None,
        )


def _along(line: np.ndarray) -> np.ndarray:
    """Points along a line through `line`, 24 a piece."""
    share = np.linspace(0, 1, 24)[:, None]
    pieces = [a + share * (b - a) for a, b in pairwise(line)]
    return np.vstack([line, *pieces])


def _box(at: np.ndarray, offset: np.ndarray, size: np.ndarray) -> _Box:
    left = at[0] + offset[0] - (size[0] if offset[0] < 0 else 0)
    low = at[1] + offset[1]
    return float(left), float(low), float(left + size[0]), float(low + size[1])


def _covered(
    box: _Box, spots: np.ndarray, frame: np.ndarray, taken: Sequence[_Box], pad: float
) -> int:
    """How much a name in `box` would cover; names and the frame's edge weigh most."""
    u, v = spots.T
    across = (box[0] - pad <= u) & (u <= box[2] + pad)
    hit = int((across & (box[1] - pad <= v) & (v <= box[3] + pad)).sum())
    (left, low), (right, high) = frame
    outside = box[0] < left or box[2] > right or box[1] < low + pad or box[3] > high
    # Layout moves the points a little yet: names keep a gap.
    wide = (box[0] - pad, box[1] - 2 * pad, box[2] + pad, box[3] + 2 * pad)
    return hit + 1000 * outside + 100 * sum(_overlap(wide, other) for other in taken)


def _overlap(one: _Box, other: _Box) -> bool:
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
    reach = max(1.45, _reach_of_notes(axes, ordered, centre, span))
    axes.set_xlim(centre - reach * span, centre + reach * span)
    if centre - reach * span < 0 <= min([*lows, *highs], default=-1.0):
        # Room for the notes alone: nothing of this kind lies below zero.
        axes.set_xticks([tick for tick in axes.get_xticks() if 0 <= tick <= centre + reach * span])
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel(x_label)
    return axes


def _reach_of_notes(axes: Axes, swings: Sequence[Swing], centre: float, span: float) -> float:
    """How many `span` the axis must go to either side for the notes at the bars' ends to fit."""
    names = max((len(swing.label) for swing in swings), default=0)
    room = max(1.25 * axes.bbox.width * 72 / axes.figure.dpi - 4.2 * names - 25, 60.0)
    ends = [end for s in swings for end in ((s.low, s.low_note), (s.high, s.high_note))]
    shares = [(abs(x - centre) / span, (4 * len(note) + 6) / room) for x, note in ends]
    return max((far / (1 - 2 * share) for far, share in shares if share < 0.4), default=0.0)


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
