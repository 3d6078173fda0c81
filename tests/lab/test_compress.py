"""Measured costs: tiny for many bits, large where the answer was thrown away, with intervals."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from capmodel.lab.breaking import breaking_points
from capmodel.lab.compress import Exam, Outcome, _change, evictions, full_cache, measure, treatments
from capmodel.lab.entropy import code_cache, held_entries
from capmodel.lab.evict import POLICIES
from capmodel.lab.language_model import load_language_model, token_losses
from capmodel.lab.steps import decode_steps
from capmodel.plots.lab import draw_held, draw_perplexity, draw_retrieval, draw_work
from capmodel.plots.style import figure

CHOSEN = (
    "float32",
    "float16",
    "int8 per head, post-RoPE",
    "int4 per token, post-RoPE",
    "sliding window, 128 tokens",
    "sliding window, 16 tokens",
    "heavy hitters, 128 tokens",
)


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    chosen = [t for t in treatments() if t.name in CHOSEN]
    found = measure(load_language_model(), chosen, text_rows=8, question_rows=6)
    return {outcome.name: outcome for outcome in found}


def test_the_table_covers_what_it_promises() -> None:
    names = [t.name for t in treatments()]
    # 2 full, 4 formats x 3 granularities x 2 sides of RoPE, 4 policies x 4 budgets.
    assert len(names) == len(set(names)) == 2 + 24 + 16


def test_shares_by_hand(outcomes: dict[str, Outcome]) -> None:
    # Heads of 32: int8 + a 4-byte scale is 36 bytes where 16 bits take 64; int4 per token half a
    # byte + 8 bytes over 2 x 32 elements; windows keep 128 and 16 of 256 tokens.
    shares = {name: outcome.bytes_share for name, outcome in outcomes.items()}
    assert shares == {
        "float32": 2.0,
        "float16": 1.0,
        "int8 per head, post-RoPE": 36 / 64,
        "int4 per token, post-RoPE": (32 + 8) / 128,
        "sliding window, 128 tokens": 0.5,
        "sliding window, 16 tokens": 0.0625,
        "heavy hitters, 128 tokens": 0.5,
    }


def test_perplexity_is_that_of_the_second_half_of_each_window(
    outcomes: dict[str, Outcome],
) -> None:
    model = load_language_model()
    windows = model.windows(8)
    losses = token_losses(model.decoder.forward(windows[:, :-1]), windows[:, 1:])
    second = losses[:, model.context // 2 :]
    assert second.shape == (8, 128)
    assert outcomes["float32"].perplexity == pytest.approx(np.exp(second.mean()), rel=1e-5)


def test_sixteen_and_eight_bits_cost_next_to_nothing(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["float32"].change == 0.0
    assert abs(outcomes["float16"].change) < 1e-3
    assert abs(outcomes["int8 per head, post-RoPE"].change) < 5e-3
    assert outcomes["int8 per head, post-RoPE"].retrieval >= outcomes["float32"].retrieval - 0.05


def test_text_forgives_what_questions_do_not(outcomes: dict[str, Outcome]) -> None:
    full, short = outcomes["float32"], outcomes["sliding window, 16 tokens"]
    assert full.retrieval >= 0.9
    # Facts stand about 190 tokens back: a window of 128 has none of them, its text is nearly whole.
    assert outcomes["sliding window, 128 tokens"].retrieval < 0.3
    assert outcomes["sliding window, 128 tokens"].change < 0.2
    assert short.change_low > 0.02


def test_intervals_hold_the_estimate_and_cover_the_truth() -> None:
    # Differences of known mean 0.02: the 90 % interval should hold it about 9 times in 10.
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        differences = 0.02 + 0.1 * rng.normal(size=(30, 4))
        change, low, high = _change(differences)
        assert low <= change <= high
        held += low <= np.expm1(0.02) <= high
    assert abs(held - 180) <= 3 * (200 * 0.9 * 0.1) ** 0.5


@pytest.mark.parametrize("rows", [2, 5, 20])
def test_few_windows_make_wide_intervals_not_confident_ones(rows: int) -> None:
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        _, low, high = _change(0.02 + 0.1 * rng.normal(size=(rows, 1)))
        held += low <= np.expm1(0.02) <= high
    assert abs(held - 900) <= 4 * (1000 * 0.9 * 0.1) ** 0.5


def test_one_window_has_no_interval() -> None:
    with pytest.raises(ValueError, match="Got text_rows=1, but expected a whole number from 2"):
        measure(load_language_model(), [full_cache()], text_rows=1)


def test_the_seed_reaches_what_is_forgotten_at_random() -> None:
    model = load_language_model()

    def outcomes(seed: int, *policies: str) -> list[float]:
        chosen = [t for t in evictions((16,), seed) if t.policy in policies]
        return [o.perplexity for o in measure(model, chosen, 2, 1, seed=0)]

    window, first = outcomes(0, "sliding window", "random")
    same, second = outcomes(1, "sliding window", "random")
    assert window == same
    assert first != second
    assert outcomes(1, "random") == [second]


def test_the_same_seed_gives_the_same_exam() -> None:
    model = load_language_model()
    first, second = (Exam.of(model, 3, 2, seed=4) for _ in range(2))
    assert (first.tokens == second.tokens).all()
    assert (Exam.of(model, 3, 2, seed=5).tokens[3:] != first.tokens[3:]).any()


def _outcome(policy: str | None, budget: int | None, low: float, retrieval: float) -> Outcome:
    return Outcome(
        "evicted", "", 0.5, 20.0, low + 0.05, low, low + 0.1, retrieval, 0, policy, budget
    )


def test_where_it_breaks() -> None:
    rows = [
        _outcome(None, None, 0.0, 1.0),
        _outcome("a", 64, 0.001, 0.95),
        _outcome("a", 32, 0.03, 0.5),
        _outcome("a", 16, 0.30, 0.1),
        _outcome("b", 64, 0.0, 0.95),
    ]
    a, b = breaking_points(rows, 1.0)
    assert (a.policy, a.text_budget, a.retrieval_budget) == ("a", 32, 32)
    assert (b.policy, b.text_budget, b.retrieval_budget) == ("b", None, None)


def test_every_policy_is_offered_at_every_budget() -> None:
    names = [(t.policy, t.budget) for t in evictions((32, 8))]
    assert names == [(policy, budget) for policy in POLICIES for budget in (32, 8)]
    assert full_cache().policy is None


def test_the_models_own_cache_shrinks_a_little_without_loss() -> None:
    entries = held_entries(load_language_model(), 4)
    assert entries.shape == (4, 3 * 2 * 2, 256, 32)
    coding = code_cache(entries, "bf16")
    # Exponents are predictable, mantissas are not: more than 1.2, far from 4.
    assert 1.2 < coding.bound < coding.bound_channel < 2.5
    assert coding.plane_bits[0] > 7.9


def test_figures_draw_every_treatment(outcomes: dict[str, Outcome]) -> None:
    codings = [code_cache(held_entries(load_language_model(), 2), d) for d in ("bf16", "fp32")]
    model = load_language_model()
    steps = decode_steps(model.decoder, model.held_out[:5], True)
    with figure(7.2, 6.0) as drawing:
        axes = drawing.subplots(2, 2).ravel()
        draw_perplexity(axes[0], list(outcomes.values()), codings)
        draw_retrieval(axes[1], list(outcomes.values()))
        draw_work(axes[2], steps, decode_steps(model.decoder, model.held_out[:5], False))
        draw_held(axes[3], {"gqa": steps})
        FigureCanvasAgg(drawing).draw()
    shown = [line.get_label() for line in axes[1].get_lines()]
    assert shown == ["sliding window", "heavy hitters", "int8", "int4"]
    x, y = axes[1].get_lines()[0].get_data()
    assert np.asarray(x).tolist() == [0.0625, 0.5]
    assert np.asarray(y)[1] == 100 * outcomes["sliding window, 128 tokens"].retrieval
    assert [t.get_text() for t in axes[0].texts] == ["bf16, zstd"]
    assert axes[3].get_lines()[0].get_ydata()[-1] == steps[-1].cache_bytes / 1e3


def test_every_budget_is_inside_the_figure(outcomes: dict[str, Outcome]) -> None:
    smallest = min(outcomes.values(), key=lambda o: o.bytes_share)
    few = replace(smallest, bytes_share=6 / 256)
    with figure(4, 3) as drawing:
        axes = drawing.subplots()
        draw_perplexity(axes, [*outcomes.values(), few])
    assert axes.get_xlim()[0] < few.bytes_share
    assert axes.get_xticks()[0] <= 2 * few.bytes_share
