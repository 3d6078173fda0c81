"""Figures of a workload and of its simulation: load over time, latency, what the cache wastes."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from capmodel.plots.style import INK, MUTED, fill, series


def draw_load(axes: Axes, arrival_s: ArrayLike, bins: int = 60) -> Axes:
    """Requests per second over time [min], in `bins` equal stretches, and their mean.

    arrival_s: arrival times [s], shape (n,).
    """
    times = np.asarray(arrival_s, dtype=float)
    counts, edges = np.histogram(times, bins=bins)
    width = edges[1] - edges[0]
    axes.stairs(counts / width, edges / 60, color=series(0)["color"], linewidth=1.2)
    mean = len(times) / (edges[-1] - edges[0])
    axes.axhline(mean, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        f"mean {mean:.3g}",
        (1, mean),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color=INK,
        annotation_clip=False,
    )
    axes.set_ylim(bottom=0)
    axes.set_xlim(edges[0] / 60, edges[-1] / 60)
    axes.set_xlabel("Time [min]")
    axes.set_ylabel("Requests per second")
    return axes


def draw_latency(
    axes: Axes, values_s: Mapping[str, ArrayLike], quantity: str, promise_s: float | None = None
) -> Axes:
    """Share of requests [%] that wait at most so long [s], a line a fleet, named at its median.

    values_s: times per fleet [s], shape (n,); NaN is left out. promise_s: an upright line.
    """
    lines = []
    for index, (name, values) in enumerate(values_s.items()):
        times = np.sort(np.asarray(values, dtype=float))
        times = times[np.isfinite(times)]
        share = 100 * (np.arange(len(times)) + 1) / len(times)
        look = {key: value for key, value in series(index).items() if key != "marker"}
        axes.plot(times, share, drawstyle="steps-post", **look)
        lines.append((times, name, look["color"]))
    lines.sort(key=lambda line: float(np.median(line[0])))
    for rank, (times, name, colour) in enumerate(lines):
        height = 20 + 60 * (rank + 1) / (len(lines) + 1)
        # The fastest is named on its left, where no other line is; the others on their right.
        left = rank == 0 and len(lines) > 1
        axes.annotate(
            name,
            (float(np.percentile(times, height)), height),
            xytext=(-5 if left else 5, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )
    longest = max((float(np.percentile(times, 99.5)) for times, _, _ in lines), default=1.0)
    axes.axhline(95, color=MUTED, linewidth=0.6, linestyle=(0, (1, 2)))
    axes.annotate(
        "95 %", (0, 95), xycoords=("axes fraction", "data"), xytext=(2, 2),
        textcoords="offset points", color=MUTED,
    )  # fmt: skip
    if promise_s is not None:
        axes.axvline(promise_s, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.annotate(
            "promised", (promise_s, 4), xytext=(3, 0), textcoords="offset points", color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
        )  # fmt: skip
        longest = max(longest, 1.15 * promise_s)
    axes.set_xlim(0, longest)
    axes.set_ylim(0, 100)
    axes.set_xlabel(f"{quantity} [s]")
    axes.set_ylabel("Requests served within [%]")
    return axes


def draw_waste(axes: Axes, names: Sequence[str], waste: ArrayLike) -> Axes:
    """Share of held cache slots without a token [%], a bar a policy, the value at its end.

    waste: fractions, shape (policies,).
    """
    shares = 100 * np.asarray(waste, dtype=float)
    places = np.arange(len(names))[::-1]
    axes.barh(places, shares, height=0.6, **fill(0))
    for place, share in zip(places, shares, strict=True):
        axes.annotate(
            f"{share:.1f} %", (share, place), xytext=(3, 0), textcoords="offset points", va="center"
        )
    axes.set_yticks(places, list(names))
    axes.set_xlim(0, max(100.0, float(shares.max())))
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("Held cache slots without a token [%]")
    return axes
