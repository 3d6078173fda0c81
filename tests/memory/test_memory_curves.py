"""Curves and the frontier: their numbers, their figures, their speed."""

import numpy as np
import pytest

from capmodel.gpus import load_gpu
from capmodel.kvcache import EngineSettings, kv_bytes, kv_bytes_per_token, replay, request_blocks
from capmodel.memory import cache_curves, concurrency_curves, context_axis, max_concurrency
from capmodel.plots.memory import draw_cache, draw_frontier
from capmodel.plots.style import figure
from capmodel.shapes import load_shape


def test_context_axis_ends_where_asked():
    assert context_axis(8192).tolist() == [1024, 2048, 4096, 8192]
    assert context_axis(163_840).tolist()[-2:] == [131_072, 163_840]
    assert context_axis(300).tolist() == [300]
    with pytest.raises(ValueError, match="longest=0, but expected a whole number of at least 1"):
        context_axis(0)


def test_cache_curves_hold_the_worked_numbers():
    curves = cache_curves("llama-3.1-70b", np.array([32_768, 131_072]))
    assert list(curves.series) == ["MHA", "GQA 8*", "MQA", "MLA", "GQA 8 fp8", "GQA 8 int4"]
    # PHYSICS section 1: 10.74 GB and 42.95 GB; 343.6 GB with 64 KV heads.
    assert curves.series["GQA 8*"] == pytest.approx([10.74e9, 42.95e9], rel=1e-3)
    assert curves.series["MHA"][1] == pytest.approx(343.6e9, rel=1e-3)
    assert curves.series["MLA"][1] == 131_072 * 80 * 1152
    hybrid = cache_curves("qwen3.5-27b", np.array([1024]))
    assert sum(name.endswith("*") for name in hybrid.series) == 1


def test_figures_show_every_series():
    axis = context_axis(131_072)
    with figure(4, 3) as drawing:
        left, right = drawing.subplots(1, 2)
        curves = cache_curves("llama-3.1-70b", axis)
        draw_cache(left, axis, curves.series, capacity_bytes=38e9)
        assert len(left.get_lines()) == len(curves.series) + 1
        frontier = concurrency_curves("llama-3.1-70b", "h100", axis, weight_dtype="int4")
        draw_frontier(right, axis, frontier.series)
        texts = {text.get_text() for text in right.texts}
        assert {"bf16", "fp8", "int4", "114", "3"} <= texts
        # 131,072 tokens in bf16 do not fit: that line ends before.
        assert right.get_lines()[0].get_xdata()[-1] == 65_536


@pytest.mark.parametrize("name", ["llama-3.1-70b", "mimo-v2-flash", "qwen3.5-27b", "deepseek-v3.2"])
def test_speed_of_each_answer(name, benchmark):
    # Issue 3, "Speed": under 50 us each once the shape is loaded; printed by
    # `pytest tests/memory --benchmark-enable -n 0`, where one round asks all six.
    shape, gpu = load_shape(name), load_gpu("h200")
    settings = EngineSettings()

    def ask_all():
        return (
            kv_bytes_per_token(shape),
            kv_bytes(shape, 4096, 8),
            request_blocks(shape, 4096, settings=settings),
            max_concurrency(shape, gpu, 4096, weight_dtype="fp8"),
            max_concurrency(shape, gpu, 4096, weight_dtype="fp8", mode="engine"),
            replay(shape, 20e9, 4096, settings=settings),
        )

    assert all(answer is not None for answer in benchmark(ask_all))


def test_a_million_points_at_once():
    rng = np.random.default_rng(0)
    contexts, batches = rng.integers(1, 131_072, 10**6), rng.integers(1, 512, 10**6)
    shape, gpu = load_shape("mimo-v2-flash"), load_gpu("h200")
    cache = kv_bytes(shape, contexts, batches)
    held = max_concurrency(shape, gpu, contexts, weight_dtype="fp8", tp=8, mode="engine")
    assert cache.shape == held.shape == (10**6,)
    assert (held >= 0).all()
