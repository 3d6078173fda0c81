"""Every figure: the data drawn where it belongs, units on the axes, no text beyond the edge."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from capmodel.plots.budget import draw_memory
from capmodel.plots.calibration import (
    draw_coverage,
    draw_grades,
    draw_intervals,
    draw_predicted,
    draw_residuals,
)
from capmodel.plots.choices import (
    Candidate,
    Swing,
    draw_cost_latency,
    draw_tornado,
    pareto_front,
)
from capmodel.plots.steps import StepCurve, draw_step_time, draw_terms, draw_tokens_per_s
from capmodel.plots.style import figure

BATCH = 2.0 ** np.arange(8)


def _curve(label: str = "4,096 tokens", slope: float = 1e-3) -> StepCurve:
    step = 0.010 + slope * BATCH
    return StepCurve(label, BATCH, step, BATCH <= 32, 0.9 * step, 1.1 * step)


def _beyond_edge(fig: Figure) -> list[str]:
    """Texts that the figure's edge cuts, laid out as they will be printed."""
    canvas = FigureCanvasAgg(fig)
    canvas.draw()
    edge = fig.bbox.padded(1.0)
    cut = []
    undrawn = {
        label
        for axes in fig.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    for text in set(fig.findobj(Text)) - undrawn:
        if text.get_visible() and text.get_text().strip():
            box = text.get_window_extent(canvas.get_renderer())
            inside = edge.x0 <= box.x0 and box.x1 <= edge.x1 and edge.y0 <= box.y0
            if not (inside and box.y1 <= edge.y1) and text.get_figure() is fig:
                cut.append(text.get_text())
    return cut


def _random(rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    measured = np.exp(rng.normal(-4, 1, rows))
    return measured, measured * np.exp(rng.normal(0, 0.05, rows))


DRAWINGS = {
    "step_time": lambda axes: draw_step_time(
        axes, [_curve(), _curve("131,072 tokens", 0.02)], 0.05
    ),
    "tokens": lambda axes: draw_tokens_per_s(axes, [_curve(), _curve("131,072 tokens")], [9, None]),
    "one_batch": lambda axes: draw_step_time(
        axes, [StepCurve("x", np.array([4.0]), np.array([0.01]), np.array([True]))]
    ),
    "terms": lambda axes: draw_terms(
        axes, BATCH, {"weight reads": 0.01 + 0 * BATCH, "KV reads": 1e-3 * BATCH}
    ),
    "grades": lambda axes: draw_grades(
        axes,
        ["random", "deployment", "gpu"],
        {
            "linear on raw columns": [1.9, 2.4, None],
            "boosted trees on raw columns": [0.1, 0.2, 0.48],
            "nearest measured row": [0.1, 0.2, 0.8],
            "roofline": [0.05, 0.06, 0.09],
            "traffic regressor": [0.03, 0.05, 0.08],
        },
        0.01,
    ),
    "predicted": lambda axes: draw_predicted(
        axes, *_random(), group=["a100", "h100", "mi250"] * 100
    ),
    "residuals": lambda axes: draw_residuals(
        axes, 1e3 * _random()[0], _random()[1] / _random()[0] - 1, "Measured step [ms]", 0.01
    ),
    "coverage": lambda axes: draw_coverage(
        axes, ["random", "gpu"], {"roofline": [0.91, 0.88], "traffic regressor": [0.9, None]}
    ),
    "intervals": lambda axes: draw_intervals(
        axes,
        ["vllm on a100-40gb", "llama.cpp on mi250"],
        [1.3, 1.9],
        [1.2, 1.1],
        [1.4, 2.6],
        "c_w",
        1,
    ),
    "memory": lambda axes: draw_memory(
        axes,
        {
            "weights": 35e9,
            "KV cache": 31e9,
            "activation peak": 2e9,
            "CUDA graphs": 0.8e9,
            "other": 5e8,
        },
        79.18 * 2**30,
    ),
    "memory_overfull": lambda axes: draw_memory(axes, {"weights": 141e9}, 79.18 * 2**30),
    "cost": lambda axes: draw_cost_latency(
        axes,
        [
            Candidate(f"{i} × h100-80gb tp{i} fp8", 0.1 / i, 3.0 * i, i > 1, i == 4)
            for i in range(1, 9)
        ],
        "TPOT, 95th percentile",
        0.05,
    ),
    "tornado": lambda axes: draw_tornado(
        axes,
        [Swing("Price", 10, 20, "$2", "$4"), Swing("Arrival rate", 11, 11.5, "-20 %", "+20 %")],
        15,
        "Cost [$/M output tokens]",
    ),
}


@pytest.mark.parametrize("name", DRAWINGS)
def test_axes_out_labelled_and_nothing_cut(name):
    with figure(6.7, 2.6) as fig:
        axes = fig.subplots()
        assert DRAWINGS[name](axes) is axes
        assert axes.get_xlabel()
        assert _beyond_edge(fig) == []


@pytest.mark.parametrize("draw", [draw_step_time, draw_tokens_per_s, draw_grades, draw_tornado])
def test_nothing_to_draw_is_an_empty_figure(draw):
    arguments = {draw_grades: ([], {}), draw_tornado: ([], 1.0, "x")}.get(draw, ([],))
    with figure() as fig:
        draw(fig.subplots(), *arguments)
        assert _beyond_edge(fig) == []


def test_step_time_is_drawn_in_ms_and_what_does_not_fit_is_hollow():
    with figure() as fig:
        axes = draw_step_time(fig.subplots(), [_curve()])
        inside, _, beyond = axes.lines
        # Batches 1 to 32 fit; 64 and 128 do not. 10 ms + 1 ms a sequence.
        assert inside.get_ydata().tolist() == pytest.approx([11, 12, 14, 18, 26, 42])
        assert beyond.get_ydata().tolist() == pytest.approx([74, 138])
        assert beyond.get_markerfacecolor() == "white"


def test_terms_stack_up_to_the_step():
    with figure() as fig:
        axes = draw_terms(fig.subplots(), [1, 2], {"a": [0.001, 0.002], "b": [0.003, 0.004]})
        tops = [bar.get_y() + bar.get_height() for bar in axes.patches[2:]]
        assert tops == pytest.approx([4.0, 6.0])


def test_memory_parts_end_where_the_next_begins():
    with figure() as fig:
        axes = draw_memory(fig.subplots(), {"a": 2 * 2**30, "b": 3 * 2**30}, 8 * 2**30)
        assert [bar.get_x() for bar in axes.patches] == [0, 2]
        assert [bar.get_width() for bar in axes.patches] == [2, 3]


def test_a_part_of_memory_keeps_its_colour_when_another_is_left_out():
    parts = {"weights": 30 * 2**30, "graphs": 1.0, "cache": 40 * 2**30}
    with figure() as fig:
        few = draw_memory(fig.subplots(), parts, 80 * 2**30).patches
        colour, hatch = few[-1].get_facecolor(), few[-1].get_hatch()
    with figure() as fig:
        all_parts = draw_memory(fig.subplots(), {**parts, "graphs": 2**30}, 80 * 2**30).patches
    assert len(few) == 2
    assert (all_parts[-1].get_facecolor(), all_parts[-1].get_hatch()) == (colour, hatch)


def test_wide_parts_of_memory_are_named_at_the_bar_and_no_names_overlap():
    small = {f"part outside PyTorch {i}": 2**28 for i in range(4)}
    with figure(6.7, 1.5) as fig:
        axes = draw_memory(
            fig.subplots(), {"weights": 33 * 2**30, **small, "KV cache": 40 * 2**30}, 80 * 2**30
        )
    heights = {text.get_text(): text.xyann[1] for text in axes.texts}
    assert heights["weights 33.0"] == heights["KV cache 40.0"] == min(heights.values())
    # The four stand side by side, narrower than their names: none shares a line with another.
    stacked = {text.xyann[1] for text in axes.texts if text.get_text().startswith("part")}
    assert len(stacked) == 4


def _wide(factor: float) -> StepCurve:
    plain = _curve()
    step = plain.step_time_s
    return StepCurve(plain.label, plain.batch_size, step, plain.fits, step / 2, step * factor)


def test_a_band_that_would_press_the_lines_flat_is_drawn_on_a_log_axis():
    for factor, scale in ((1.5, "linear"), (38.0, "log")):
        with figure() as fig:
            axes = draw_step_time(fig.subplots(), [_wide(factor)], 0.05)
            assert axes.get_yscale() == scale
            assert axes.get_ylim()[0] < axes.get_ylim()[1]
            assert _beyond_edge(fig) == []


@pytest.mark.parametrize("batch", [1.5, 4.0, 20.0, 60.0, 120.0])
def test_the_name_of_a_marked_batch_covers_no_part_of_the_curve(batch):
    with figure(3.3, 2.7) as fig:
        axes = draw_tokens_per_s(fig.subplots(), [_curve(slope=1e-4)], marks={"doubling": batch})
        fig.canvas.draw()
        name = next(text for text in axes.texts if text.get_text() == "doubling")
        box = name.get_window_extent()
        curve = _curve(slope=1e-4)
        points = np.column_stack([curve.batch_size, curve.batch_size / curve.step_time_s])
        assert not any(box.contains(*axes.transData.transform(point)) for point in points)


def test_pareto_front_keeps_only_the_unbeaten():
    # (1, 9) and (2, 5) stand; (3, 6) is beaten by (2, 5); (4, 1) is not allowed; (5, 5) ties.
    x, y = np.array([1, 2, 3, 4, 5]), np.array([9, 5, 6, 1, 5])
    assert pareto_front(x, y, np.array([1, 1, 1, 0, 1], dtype=bool)) == [0, 1]


def test_tornado_puts_the_widest_first():
    swings = [Swing("narrow", 9, 11), Swing("wide", 5, 20), Swing("middle", 8, 13)]
    with figure() as fig:
        axes = draw_tornado(fig.subplots(), swings, 10, "x")
        assert [label.get_text() for label in axes.get_yticklabels()] == [
            "wide",
            "middle",
            "narrow",
        ]


def test_residuals_are_signed_percent():
    with figure() as fig:
        axes = draw_residuals(fig.subplots(), np.array([1.0, 2.0]), np.array([0.1, -0.2]), "x")
        assert axes.lines[-1].get_ydata().tolist() == pytest.approx([10, -20])


def test_names_cover_no_mark_and_notes_stay_beside_the_axis():
    rng = np.random.default_rng(4)
    fleets = [
        Candidate(f"{i} × (4 × h200-sxm), fp8/fp8", 1 + 6 / i, 8.0 * i, True) for i in range(1, 7)
    ]
    fleets += [
        Candidate("other", float(x), float(y), True)
        for x, y in zip(rng.uniform(5, 9, 30), rng.uniform(12, 40, 30), strict=True)
    ]
    fleets[1] = Candidate(fleets[1].label, 4.0, 16.0, True, chosen=True)
    with figure(6.7, 2.6) as fig:
        axes = draw_cost_latency(fig.subplots(), fleets, "Mean time of a request")
        FigureCanvasAgg(fig).draw()
        marks = axes.transData.transform([(f.latency_s, f.dollars_per_hour) for f in fleets])
        boxes = {
            text.get_text(): Text.get_window_extent(text)
            for text in axes.texts
            if "×" in text.get_text()
        }
        assert fleets[1].label in boxes
        assert len(boxes) >= 3
        covered = {
            name for name, box in boxes.items() if any(box.contains(*mark) for mark in marks)
        }
        assert covered == set()


def test_a_tornado_of_costs_names_none_below_zero():
    with figure() as fig:
        far, below = (
            draw_tornado(axes, [Swing("price", low, 150.0, "- 25 %", "+ 25 %")], 52.0, "Cost")
            for axes, low in zip(fig.subplots(1, 2), (27.0, -20.0), strict=True)
        )
    assert far.get_xlim()[0] < 0 <= min(far.get_xticks())
    assert max(far.get_xticks()) >= 150
    assert min(below.get_xticks()) < 0


def test_notes_of_a_tornado_keep_off_the_names_of_its_bars():
    swings = [
        Swing("an input whose name is longer", 10, 24, "$1.99/GPU-hour", "$5.00/GPU-hour"),
        Swing("load", 13, 17, "- 25 %", "+ 25 %"),
    ]
    with figure(6.7, 1.6) as fig:
        axes = draw_tornado(fig.subplots(), swings, 15, "Cost [$/hour]")
        FigureCanvasAgg(fig).draw()
        notes = [Text.get_window_extent(text) for text in axes.texts]
        assert min(box.x0 for box in notes) > axes.bbox.x0
        assert max(box.x1 for box in notes) < axes.bbox.x1


def test_grades_that_hardly_differ_have_ticks_to_be_read_by():
    with figure(6.7, 2.6) as fig:
        axes = draw_grades(fig.subplots(), ["random", "model"], {"roofline": [0.068, 0.075]})
        assert len(axes.get_xticks()) >= 3
