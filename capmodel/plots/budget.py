"""Memory of one GPU: what fills it."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from capmodel.plots.style import INK, fill
from capmodel.units import GIB


def draw_memory(axes: Axes, parts_bytes: Mapping[str, float], total_bytes: float) -> Axes:
    """One stacked bar: each part [byte] of a GPU's memory in GiB, named above it.

    `total_bytes` [byte] is what the driver reports, marked at the end; parts below 0.1 % of it are
    left out. Parts beyond the total run past the mark. The widest parts are named closest to the
    bar; a name that finds no room there stands higher, with a line down to its part.
    """
    shown = [
        (index, name, part / GIB)
        for index, (name, part) in enumerate(parts_bytes.items())
        if part > 1e-3 * total_bytes
    ]
    end = max(total_bytes / GIB, sum(width for _, _, width in shown))
    left, named = 0.0, []
    for index, name, width in shown:
        axes.barh([0], [width], left=left, height=0.5, **fill(index))
        named.append((width, left + width / 2, f"{name} {width:,.1f}"))
        left += width
    levels: list[list[tuple[float, float]]] = []
    for _, middle, text in sorted(named, key=lambda part: (-part[0], part[1])):
        # A letter takes about a hundredth of the axis.
        half = 0.0065 * end * (len(text) + 1)
        at = min(max(middle, half), end - half)
        level = _free_level(levels, at - half, at + half)
        axes.annotate(
            text,
            (middle, 0.26),
            xytext=(at, 0.36 + 0.24 * level),
            ha="center",
            fontsize=7,
            zorder=4 - 0.1 * level,  # a line down passes behind the names below
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4},
            arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": INK} if level else None,
        )
    axes.axvline(total_bytes / GIB, color=INK, linewidth=1.0, ymax=0.8)
    axes.set_xlim(0, 1.01 * end)
    axes.set_ylim(-0.3, 0.6 + 0.24 * max(len(levels), 2))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("Memory of one GPU [GiB]; the upright line is what the driver reports")
    return axes


def _free_level(levels: list[list[tuple[float, float]]], low: float, high: float) -> int:
    """The lowest level where no name stands between `low` and `high`, which then is taken."""
    for level, taken in enumerate(levels):
        if all(high < start or end < low for start, end in taken):
            taken.append((low, high))
            return level
    levels.append([(low, high)])
    return len(levels) - 1
