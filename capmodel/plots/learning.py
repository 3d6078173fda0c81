"""How fast a few runs teach a new engine and GPU."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from capmodel.plots.style import MUTED, label_ends, series


def draw_learning(axes: Axes, table: pd.DataFrame) -> Axes:
    """Held-out error against the number of runs: a line per engine and GPU, medians on top.

    table: columns engine, gpu, runs, choice ("none", "random", "suggested") and mape (fraction),
    as `benchmarks/few_runs.py` makes it. The median at 0 runs is that without any.
    """
    none = table[table["choice"] == "none"]
    for _, own in table[table["choice"] != "suggested"].groupby(["engine", "gpu"]):
        rows = own.sort_values("runs")
        axes.plot(rows["runs"], 100 * rows["mape"], color=MUTED, linewidth=0.5, alpha=0.5)
    ends = []
    for place, choice in enumerate(("random", "suggested")):
        middle = (
            pd.concat([none, table[table["choice"] == choice]]).groupby("runs")["mape"].median()
        )
        look = series(place)
        axes.plot(middle.index, 100 * middle, linewidth=1.8, **look)
        text = {"random": "drawn at random", "suggested": "suggested"}[choice]
        ends.append((float(middle.index[-1]), 100 * float(middle.iloc[-1]), text, look["color"]))
    axes.set_yscale("log")
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100) if _inside(tick, 100 * table["mape"])]
    axes.set_yticks(ticks, [f"{tick} %" for tick in ticks])
    axes.set_yticks([], minor=True)
    axes.set_xticks(sorted(table["runs"].unique()))
    axes.set_xlim(0, table["runs"].max() * 1.28)
    axes.set_xlabel("runs of the new engine and GPU")
    axes.set_ylabel("held-out MAPE")
    several = len(table[["engine", "gpu"]].drop_duplicates()) > 1
    axes.set_title("Thin: each engine and GPU; thick: their median" if several else "")
    label_ends(axes, ends)
    return axes


def _inside(tick: float, values: pd.Series) -> bool:
    return bool(np.min(values) / 1.5 <= tick <= np.max(values) * 1.5)
