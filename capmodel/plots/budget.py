"""Memory of one GPU: what fills it."""

from collections.abc import Mapping

from matplotlib.axes import Axes

from capmodel.plots.style import INK, fill
from capmodel.units import GIB


def draw_memory(axes: Axes, parts_bytes: Mapping[str, float], total_bytes: float) -> Axes:
    """One stacked bar: each part [byte] of a GPU's memory in GiB, named above it.

    `total_bytes` [byte] is what the driver reports, marked at the end; parts below 0.1 % of it are
    left out. Parts beyond the total run past the mark.
    """
    shown = {name: part for name, part in parts_bytes.items() if part > 1e-3 * total_bytes}
    end = max(total_bytes, sum(shown.values())) / GIB
    left, last_label = 0.0, -1.0
    level = 0
    for index, (name, part) in enumerate(shown.items()):
        width = part / GIB
        axes.barh([0], [width], left=left, height=0.5, **fill(index))
        middle = left + width / 2
        # A label takes about a hundredth of the axis a letter; one that would touch the last
        # goes a line higher.
        half = 0.0065 * end * (len(name) + 8)
        level = level + 1 if middle - half < last_label else 0
        axes.annotate(
            f"{name} {width:,.1f}",
            (min(middle, end - half), 0.26),
            xytext=(0, 3 + 9 * level),
            textcoords="offset points",
            ha="center",
            fontsize=7,
        )
        last_label = max(last_label, min(middle, end - half) + half) if level else middle + half
        left += width
    axes.axvline(total_bytes / GIB, color=INK, linewidth=1.0, ymax=0.8)
    axes.set_xlim(0, 1.01 * end)
    axes.set_ylim(-0.3, 1.1)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("Memory of one GPU [GiB]; the upright line is what the driver reports")
    return axes
