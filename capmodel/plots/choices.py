"""What to choose and what moves it: cost against latency, and how far each assumption swings."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    """Cost [$/hour] over latency [ms], a mark a candidate; the front of the best is a line.

    `latency` names the axis. Hollow marks are infeasible; the chosen one is ringed and named, and
    so are the others on the front, as far as there is room. `slo_s` [s] is an upright line.
    """
    x = np.array([1e3 * candidate.latency_s for candidate in candidates])
    y = np.array([candidate.dollars_per_hour for candidate in candidates])
    feasible = np.array([candidate.feasible for candidate in candidates], dtype=bool)
    for mask, face in ((feasible, PALETTE[0]), (~feasible, "white")):
        axes.plot(
            x[mask],
            y[mask],
            linestyle="",
            marker="o",
            markersize=4.5,
            color=PALETTE[0] if face != "white" else MUTED,
            markerfacecolor=face,
        )
    front = pareto_front(x, y, feasible)
    axes.plot(x[front], y[front], color=PALETTE[0], linewidth=0.9)
    axes.set_ylim(0, 1.12 * max(y, default=1.0) or 1.0)
    axes.set_xlim(0, 1.25 * max([*x, 1e3 * (slo_s or 0)], default=1.0))
    if slo_s is not None:
        axes.axvline(1e3 * slo_s, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            "SLO",
            (1e3 * slo_s, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -8),
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
    taken: list[float] = []
    for i in [*chosen, *(i for i in front if i not in chosen)]:
        height = axes.transData.transform((x[i], y[i]))[1]
        if any(abs(height - other) < 10 * axes.figure.dpi / 72 for other in taken):
            continue
        taken.append(height)
        axes.annotate(
            candidates[i].label,
            (x[i], y[i]),
            xytext=(7, 4),
            textcoords="offset points",
            fontsize=7,
            fontweight="bold" if i in chosen else "normal",
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
        )
    axes.xaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.yaxis.set_major_formatter(FuncFormatter(plain_number))
    axes.set_xlabel(f"{latency} [ms]")
    axes.set_ylabel("Cost [$/hour]")
    return axes


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
