"""PHYSICS section 4: the textbook's and the engine's answer, and what moves them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capmodel.gpus import load_gpu
from capmodel.kvcache import ContextWarning
from capmodel.memory import explain_fit, max_concurrency, memory_budget
from capmodel.shapes import DenseMlp, LayerGroup, ModelShape, SoftmaxAttention, load_shape
from capmodel.units import GIB

LLAMA = load_shape("llama-3.1-70b")
MHA = LLAMA.with_attention("mha")
QUESTION = {"gpu": "h100", "context_len": 32_768, "weight_dtype": "int4"}


def three_answers(**how):
    """fp16 cache, fp8 cache, and full multi-head attention in fp16."""
    return (
        max_concurrency(LLAMA, **QUESTION, kv_dtype="fp16", **how),
        max_concurrency(LLAMA, **QUESTION, kv_dtype="fp8", **how),
        max_concurrency(MHA, **QUESTION, kv_dtype="fp16", **how),
    )


def test_textbook_answer():
    # PHYSICS section 4: one 80 GB GPU at 92 %, 70B GQA, int4 weights, 32,768 tokens.
    assert three_answers() == (3, 7, 0)


@pytest.mark.parametrize(
    ("reserve_gib", "answers"),
    [
        (0.0, (3, 7, 0)), (1.05, (3, 7, 0)),
        (1.07, (3, 6, 0)), (6.05, (3, 6, 0)),
        (6.07, (2, 5, 0)), (8.0, (2, 5, 0)),
    ],
)  # fmt: skip
def test_engine_answer_by_reserve(reserve_gib, answers):
    # PHYSICS section 4: 3/7/0 below 1.06 GiB of reserve, 3/6/0 to 6.06, 2/5/0 above.
    assert three_answers(mode="engine", reserve_bytes=reserve_gib * GIB) == answers


def test_a_gpu_of_the_datasheet_s_own_figures():
    card = {"name": "a card", "memory_bytes": 80e9}
    assert max_concurrency(LLAMA, card, 32_768, weight_dtype="int4") == 3
    with pytest.raises(ValueError, match="memory a driver reports"):
        max_concurrency(LLAMA, card, 32_768, weight_dtype="int4", mode="engine")


def test_budget_parts_add_up_to_the_capacity():
    for mode in ("nameplate", "engine"):
        budget = memory_budget(LLAMA, "h100", weight_dtype="int4", mode=mode)
        assert sum(budget.parts().values()) == pytest.approx(budget.capacity_bytes)
    assert budget.capacity_bytes == pytest.approx(79.18 * GIB, rel=1e-4)


def test_weights_alone_over_memory_say_by_how_much():
    fit = explain_fit(LLAMA, "h100", 4096, weight_dtype="bf16")
    weights = memory_budget(LLAMA, "h100").weights_bytes
    assert fit.concurrency == 0
    assert fit.budget.cache_bytes == 0
    assert fit.budget.shortfall_bytes == pytest.approx(weights - 0.92 * 80e9)
    assert fit.shortfall_bytes == pytest.approx(fit.budget.shortfall_bytes + 4096 * 327_680)


def test_does_not_fit_names_every_lever_with_its_concurrency():
    fit = explain_fit(MHA, **QUESTION, kv_dtype="fp16")
    levers = {(lever.name, lever.change.split(",")[0]): lever.concurrency for lever in fit.levers}
    assert {name for name, _ in levers} == {
        "GQA", "MLA", "KV quantisation", "shorter context", "more tp", "fewer long requests",
    }  # fmt: skip
    # What each gives is what asking that question gives.
    assert levers["GQA", "8 KV heads"] == max_concurrency(LLAMA, **QUESTION, kv_dtype="fp16") == 3
    assert levers["KV quantisation", "fp8 cache"] == max_concurrency(
        MHA, **QUESTION, kv_dtype="fp8"
    )
    assert levers["more tp", "tp 2"] == max_concurrency(MHA, **QUESTION, kv_dtype="fp16", tp=2) >= 1
    quarter = {**QUESTION, "context_len": 8192}
    assert levers["fewer long requests", "only requests of 8"] == max_concurrency(
        MHA, **quarter, kv_dtype="fp16"
    )


def test_shorter_context_is_the_longest_that_fits():
    fit = explain_fit(MHA, **QUESTION, kv_dtype="fp16")
    change = next(lever.change for lever in fit.levers if lever.name == "shorter context")
    longest = int(change.split()[0].replace(",", ""))
    there = {**QUESTION, "context_len": longest}
    beyond = {**QUESTION, "context_len": longest + 1}
    assert max_concurrency(MHA, **there, kv_dtype="fp16") == 1
    assert max_concurrency(MHA, **beyond, kv_dtype="fp16") == 0


def test_nothing_is_suggested_where_it_fits():
    fit = explain_fit(LLAMA, **QUESTION)
    assert (fit.concurrency, fit.shortfall_bytes, fit.levers) == (3, 0.0, ())


def test_arrays_give_arrays_and_scalars_ints():
    contexts = np.array([[4096], [32_768]])
    counts = max_concurrency(LLAMA, "h100", contexts, weight_dtype="int4", tp=np.array([1, 2]))
    assert counts.shape == (2, 2)
    assert counts[1, 0] == 3
    assert counts[0, 1] == max_concurrency(LLAMA, "h100", 4096, weight_dtype="int4", tp=2)
    assert type(max_concurrency(LLAMA, "h100", np.int64(4096), weight_dtype="int4")) is int
    engine = max_concurrency(LLAMA, "h100", contexts, weight_dtype="int4", mode="engine")
    assert engine.dtype == np.int64


def test_windows_let_engine_mode_depend_on_the_tokens_of_a_step():
    # PHYSICS section 2: a windowed layer holds its window plus the tokens in flight.
    shape = ModelShape(
        "windowed",
        4096,
        32_000,
        (LayerGroup(32, SoftmaxAttention(32, 8, 128, 128, window=1024), DenseMlp(14336)),),
    )
    few, many = (
        max_concurrency(
            shape, "h100", 65_536, mode="engine", reserve_bytes=0, max_num_batched_tokens=tokens
        )
        for tokens in (2048, 16_384)
    )
    assert few > 2 * many


@given(st.integers(1, 120_000), st.integers(0, 10_000))
def test_longer_requests_are_never_more(tokens, more):
    for mode in ("nameplate", "engine"):
        held = [
            max_concurrency("llama-3.1-8b", "h100", length, mode=mode)
            for length in (tokens, tokens + more)
        ]
        assert held[1] <= held[0]


@given(st.integers(1, 60_000))
def test_zero_only_where_one_request_does_not_fit(tokens):
    fit = explain_fit(MHA, "h100", tokens, weight_dtype="int4")
    assert (fit.concurrency == 0) == (fit.request_bytes > fit.budget.cache_bytes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "textbook"}, "nameplate, engine"),
        ({"memory_fraction": 92}, r"memory_fraction=92.*\(0, 1\]"),
        ({"memory_fraction": 0}, "memory_fraction=0"),
        ({"reserve_bytes": -1.0}, "reserve_bytes=-1"),
        ({"tp": 3}, "divisor of the 64 attention heads"),
        ({"kv_dtype": "fp9"}, "did you mean 'fp8'"),
        ({"weight_dtype": "int5"}, "weight dtype 'int5'"),
        ({"context_len": 0}, "context_len=0"),
    ],
)
def test_bad_input(arguments, message):
    for mode in ("nameplate", "engine"):
        with pytest.raises(ValueError, match=message):
            max_concurrency(
                LLAMA,
                "h100",
                **{"context_len": 4096, "mode": mode, "reserve_bytes": 0, **arguments},
            )


def test_above_the_maximum_it_warns_once_and_computes():
    with pytest.warns(ContextWarning) as notes:
        fit = explain_fit("llama-2-7b", load_gpu("l4"), 65_536)
    assert fit.levers
    assert len(notes) == 1
