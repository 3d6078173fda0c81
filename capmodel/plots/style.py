"""One style for all figures: quiet axes, direct labels, readable in grey and by the colour-blind.

Series differ in three ways at once (lightness, dash, marker), so a black-and-white print tells
them apart. Figures are made without pyplot: no global figure list, safe in a service.
"""

import io
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import TightLayoutEngine

INK = "#1a1a1a"
MUTED = "#6b6b6b"
GRID = "#dddddd"

# Okabe and Ito's colours (2008), so ordered that the first three differ in grey (L* 46, 71, 58).
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P")
HATCHES = ("", "////", "||||", "xxxx", "\\\\\\\\", "----")  # dots are paths of 250 kB
BAND_ALPHA = 0.18

STYLE: Any = {
    "figure.dpi": 100,
    "savefig.dpi": 150,
    "figure.autolayout": True,  # one pass; constrained layout takes twice the time of the drawing
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 7.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE),
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.visible": False,
    "ytick.minor.visible": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.hashsalt": "capmodel",
    "svg.fonttype": "path",
}

_RC_LOCK = threading.RLock()


def apply_style() -> None:
    """Make this the style of every figure of the process, as a notebook wants it."""
    mpl.rcParams.update(STYLE)


@contextmanager
def figure(width: float = 6.3, height: float = 3.2) -> Iterator[Figure]:
    """A figure of `width` by `height` [inch] in the house style, released when the block ends.

    Draw and save inside the block (`with figure() as fig: draw(fig.subplots(), ...)`).
    matplotlib keeps its settings per process, so blocks of several threads take turns.
    """
    with _RC_LOCK, mpl.rc_context(STYLE):
        # With no `rect` matplotlib measures every tick and label once, not twice.
        yield Figure(figsize=(width, height), layout=TightLayoutEngine(rect=None))  # type: ignore[arg-type]


def plain_number(value: float, _position: object = None) -> str:
    """A tick as people write it: `'10,000'`, `'0.5'`; never `1e+04`, but `1e+15`."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e12 else f"{value:.4g}"


def series(index: int) -> dict[str, Any]:
    """Colour, dash and marker of the `index`-th series, as keywords of `Axes.plot`."""
    return {
        "color": PALETTE[index % len(PALETTE)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def fill(index: int) -> dict[str, Any]:
    """Colour and hatch of the `index`-th filled piece, as keywords of `Axes.bar` and `barh`."""
    return {
        "facecolor": PALETTE[index % len(PALETTE)],
        "hatch": HATCHES[index % len(HATCHES)],
        "edgecolor": "white",
        "linewidth": 0.3,
    }


def above_panels(fig: Figure, axes: Axes, height: float, columns: int = 3) -> None:
    """One legend over all panels, of what `axes` holds. height: of the figure [inch]."""
    handles, names = axes.get_legend_handles_labels()
    lines = -(-len(names) // columns)
    fig.legend(handles, names, loc="upper left", ncols=columns, handletextpad=0, columnspacing=1)
    fig.set_layout_engine("tight", rect=(0, 0, 1, 1 - (0.06 + 0.15 * lines) / height))


def level_line(axes: Axes, value: float, text: str) -> None:
    """A dashed level line at `value` with its name above its left end."""
    axes.axhline(value, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.annotate(
        text,
        (0, value),
        xycoords=("axes fraction", "data"),
        xytext=(4, 3),
        textcoords="offset points",
        fontsize=7,
        color=INK,
    )


def label_ends(
    axes: Axes, ends: Sequence[tuple[float, float, str, str]], gap_points: float = 9.0
) -> None:
    """Write each line's name beside its last point instead of in a legend.

    `ends` are (x, y, text, colour) in data units. Call it once limits and scales are set: labels
    nearer than `gap_points` [1/72 inch] are moved apart, upward and downward alike.
    """
    if not ends:
        return
    heights = np.array([axes.transData.transform((x, y))[1] for x, y, _, _ in ends])
    gap = gap_points * axes.figure.dpi / 72
    order = np.argsort(heights, kind="stable")
    spread = heights[order].copy()
    for _ in range(50):
        overlap = gap - np.diff(spread)
        if np.all(overlap <= 1e-6):
            break
        push = np.clip(overlap, 0, None) / 2
        spread[:-1] -= push
        spread[1:] += push
    shifts = np.empty_like(heights)
    shifts[order] = spread - heights[order]
    for (x, y, text, colour), shift in zip(ends, shifts, strict=True):
        axes.annotate(
            text,
            (x, y),
            xytext=(5, shift * 72 / axes.figure.dpi),
            textcoords="offset points",
            color=_darker(colour),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )


def _darker(colour: str) -> tuple[float, float, float]:
    """The colour dark enough to read as small print."""
    red, green, blue = (0.65 * value for value in to_rgb(colour))
    return (red, green, blue)


def to_svg(fig: Figure, *, text_as_text: bool = False) -> str:
    """The figure as SVG, equal text for equal figures (no date, fixed ids).

    `text_as_text` keeps letters as letters in DejaVu Sans (searchable, needs that font where it is
    shown); otherwise they are outlines, which look the same everywhere.
    """
    buffer = io.StringIO()
    with _RC_LOCK, mpl.rc_context({"svg.fonttype": "none" if text_as_text else "path"}):
        # Straight to the canvas: savefig would lay the figure out and draw it twice.
        FigureCanvasSVG(fig).print_svg(buffer, metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
