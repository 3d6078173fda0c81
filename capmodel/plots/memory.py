"""Cache against context, and context against concurrency."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from capmodel.plots.style import MUTED, label_ends, level_line, series
from capmodel.units import format_bytes, format_count


def draw_cache(
    axes: Axes,
    context_len: np.ndarray,
    kv_bytes: Mapping[str, np.ndarray],
    capacity_bytes: float | None = None,
    capacity_label: str = "free for the cache",
) -> Axes:
    """Cache of one request [byte] over context [tokens], log by log, a named line a series.

    A name that ends in `*` is drawn bold. `capacity_bytes` is a level line.
    """
    lines = []
    for index, (name, values) in enumerate(kv_bytes.items()):
        look = {**series(index), "linewidth": 2.2 if name.endswith("*") else 1.2}
        axes.plot(context_len, values, **look)
        lines.append((float(context_len[-1]), float(values[-1]), name, str(look["color"])))
    if capacity_bytes:
        level_line(axes, capacity_bytes, f"{capacity_label} {format_bytes(capacity_bytes)}")
    _token_axis(axes, context_len)
    axes.set_yscale("log")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axes.set_ylabel("Cache of one request, per GPU")
    label_ends(axes, lines)
    return axes


def draw_frontier(
    axes: Axes, context_len: np.ndarray, concurrency: Mapping[str, np.ndarray]
) -> Axes:
    """Requests that fit at once over their context [tokens], log by log; numbers at the points.

    Where nothing fits the line ends.
    """
    lines = []
    for index, (name, values) in enumerate(concurrency.items()):
        fits = values > 0
        if not fits.any():
            continue
        look = series(index)
        axes.plot(context_len[fits], values[fits], **look)
        lines.append(
            (float(context_len[fits][-1]), float(values[fits][-1]), name, str(look["color"]))
        )
        for length, count in zip(context_len[fits], values[fits], strict=True):
            axes.annotate(
                f"{count:,.0f}",
                (length, count),
                xytext=(0, 4),
                textcoords="offset points",
                ha="center",
                fontsize=6.5,
                color=MUTED,
            )
    _token_axis(axes, context_len)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high < 50 * low:  # powers of ten alone would leave one tick or none
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylabel("Requests at once")
    if len(concurrency) > 1:  # one line needs no name
        label_ends(axes, lines)
    return axes


def _token_axis(axes: Axes, context_len: np.ndarray) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(
        FuncFormatter(
            lambda value, _: f"{value / 1024:g}k" if value >= 1024 else format_count(value)
        )
    )
    axes.set_xlabel("Context [tokens]")
    low, high = float(context_len[0]), float(context_len[-1])
    axes.set_xlim(low / 1.3, high * 1.7)
