"""Figures of a workload and its simulation: what is drawn is what was given."""

import numpy as np
import pytest

from capmodel.plots.plan import draw_latency, draw_load, draw_waste
from capmodel.plots.style import figure


def test_load_is_requests_over_time():
    """600 requests in 10 minutes: one per second, in every bin."""
    with figure() as fig:
        axes = draw_load(fig.subplots(), np.arange(600.0), bins=10)
        heights = axes.patches[0].get_data().values
        assert heights == pytest.approx(np.ones(10), rel=0.02)
        assert axes.get_xlabel() == "Time [min]"
        assert any(text.get_text() == "mean 1" for text in axes.texts)


def test_latency_lines_reach_all_requests_and_name_the_fleets():
    times = {"slow": np.linspace(1, 3, 50), "fast": np.append(np.linspace(0, 1, 50), np.nan)}
    with figure() as fig:
        axes = draw_latency(fig.subplots(), times, "Time to the first token", promise_s=2.0)
        assert [line.get_ydata()[-1] for line in axes.lines[:2]] == [100, 100]
        said = [text.get_text() for text in axes.texts]
        assert {"slow", "fast", "promised"} <= set(said)
        assert axes.get_xlim()[1] >= 2.0


def test_waste_bars_are_percent_in_the_order_given():
    with figure() as fig:
        axes = draw_waste(fig.subplots(), ["slots", "paged"], [0.7, 0.02])
        assert [bar.get_width() for bar in axes.patches] == pytest.approx([70, 2])
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels == ["slots", "paged"]
        assert axes.patches[0].get_y() > axes.patches[1].get_y()
