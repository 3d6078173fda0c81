"""What a runs table holds: coverage, throughput, the roofline, what binds, what stops growth."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from capmodel.plots.style import INK, MUTED, fill, label_ends, series
from capmodel.units import format_count


def draw_coverage(axes: Axes, features: pd.DataFrame) -> Axes:
    """Rows by batch and context, one cell a power of two; a blank cell holds no row."""
    batch = np.floor(np.log2(features["batch_size"])).astype(int)
    context = np.floor(np.log2(features["context_len"])).astype(int)
    counts = pd.crosstab(batch, context)
    counts = counts.reindex(
        index=range(batch.min(), batch.max() + 1),
        columns=range(context.min(), context.max() + 1),
        fill_value=0,
    )
    shown = np.where(counts > 0, counts, np.nan)
    axes.imshow(shown, origin="lower", aspect="auto", cmap="Blues", vmin=0)
    dark = 0.6 * np.nanmax(shown)
    for row, column in np.argwhere(counts.to_numpy() > 0):
        value = counts.to_numpy()[row, column]
        colour = "white" if value > dark else INK
        axes.annotate(f"{value}", (column, row), ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(counts.shape[1]), [_tokens(2.0 ** int(i)) for i in counts.columns])
    axes.set_yticks(range(counts.shape[0]), [f"{2 ** int(i)}" for i in counts.index])
    axes.grid(False)
    axes.set_xlabel("Context [tokens], from")
    axes.set_ylabel("Batch [sequences], from")
    axes.set_title("Rows by batch and context")
    return axes


def draw_throughput(axes: Axes, features: pd.DataFrame) -> Axes:
    """Median tokens/s over batch, a line a GPU, log by log."""
    ends = []
    for index, (gpu, rows) in enumerate(features.groupby("gpu")):
        middle = rows.groupby("batch_size")["tokens_per_s"].median()
        look = series(index)
        axes.plot(middle.index, middle.to_numpy(), **look)
        ends.append((float(middle.index[-1]), float(middle.iloc[-1]), str(gpu), look["color"]))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_count(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("Batch [sequences]")
    axes.set_ylabel("Tokens/s, median of the rows")
    axes.set_title("Throughput over batch")
    label_ends(axes, ends)
    return axes


def draw_roofline(axes: Axes, features: pd.DataFrame, most_points: int = 4000) -> Axes:
    """Share of peak FLOP/s reached over intensity, in units of the GPU's ridge point.

    The line is the datasheet's; a step above it is wrong, and how many there are is said. At most
    `most_points` rows, every so-manieth, are drawn, those of GPUs without published figures never.
    """
    known = features[features[["flop_s", "weight_s", "kv_s"]].notna().all(axis=1)]
    rows = known.iloc[:: max(1, len(known) // most_points)]
    x = rows["flop_s"] / (rows["weight_s"] + rows["kv_s"])
    y = rows["flop_s"] / rows["step_time_s"]
    for index, (gpu, own) in enumerate(rows.groupby("gpu")):
        look = series(index)
        axes.plot(
            x[own.index], y[own.index], linestyle="none", marker=look["marker"],
            color=look["color"], markersize=2, alpha=0.45, label=str(gpu),
        )  # fmt: skip
    line = np.array([np.nanmin([*x, 1.0]), 1.0, np.nanmax([*x, 2.0])])
    axes.plot(line, np.minimum(line, 1.0), color=INK, linewidth=1.0)
    axes.annotate(
        "datasheet", (line[-1], 1.0), xytext=(0, 4), textcoords="offset points", ha="right",
        fontsize=7, color=MUTED,
    )  # fmt: skip
    _say_what_is_odd(axes, features, known)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("FLOP per byte, over the GPU's ridge (1 = compute begins to bind)")
    axes.set_ylabel("Share of peak FLOP/s")
    axes.set_title("Steps under the datasheet roofline")
    if len(rows):
        axes.legend(markerscale=2.5, loc="lower right")
    return axes


def _say_what_is_odd(axes: Axes, features: pd.DataFrame, known: pd.DataFrame) -> None:
    seconds = known[["weight_s", "kv_s"]].sum(axis=1)
    above = int((known["step_time_s"] < np.maximum(known["flop_s"], seconds)).sum())
    said = [f"{above:,} of {len(known):,} steps lie above the line"] if above else []
    bare = sorted(set(features["gpu"]) - set(known["gpu"]))
    if bare:
        said.append(f"not drawn, without published figures: {', '.join(map(str, bare))}")
    axes.annotate(
        "\n".join(said), (0.01, 0.98), xycoords="axes fraction", va="top", fontsize=6.5, color=MUTED
    )


def draw_bounds(axes: Axes, bounds: pd.DataFrame) -> Axes:
    """Share of each GPU's rows by what takes longest; the numbers are rows."""
    parts = [name for name in bounds.columns if name != "gpu"]
    total = bounds[parts].sum(axis=1)
    left = np.zeros(len(bounds))
    for index, name in enumerate(parts):
        share = (bounds[name] / total).to_numpy(float)
        axes.barh(bounds["gpu"], share, left=left, height=0.7, label=name, **fill(index))
        for place, (start, width, rows) in enumerate(zip(left, share, bounds[name], strict=True)):
            if width > 0.07:
                axes.annotate(
                    f"{rows:,}", (start + width / 2, place), ha="center", va="center", fontsize=6.5,
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                )  # fmt: skip
        left += share
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.invert_yaxis()
    axes.grid(False)
    axes.set_xlabel("Rows")
    axes.set_title("What takes longest: reading weights, reading the cache, computing")
    axes.legend(ncols=len(parts), loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return axes


def draw_ceilings(axes: Axes, counts: pd.DataFrame) -> Axes:
    """Series over the batch by what stops them; `counts` of `saturation.ceiling_counts`."""
    names = counts["ceiling"].tolist()
    axes.barh(names, counts["series"], height=0.65, **fill(0))
    columns = ("series", "flat_series", "median_knee_batch")
    for place, (number, flat, knee) in enumerate(
        zip(*(counts[name].tolist() for name in columns), strict=True)
    ):
        some = f"{flat:,} of them flat" if flat < number else "flat"
        text = f"{number:,}" + (f"  ({some} from batch {knee:g}, median)" if flat else "")
        axes.annotate(text, (number, place), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=7)  # fmt: skip
    axes.set_xlim(0, 1.35 * max(1, counts["series"].max()))
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlabel("Series of three and more batches")
    axes.set_title("Where tokens/s stops growing with batch")
    return axes


def _tokens(value: float) -> str:
    return f"{value / 1024:g}k" if value >= 1024 else f"{value:g}"
