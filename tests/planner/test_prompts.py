"""What prompts take, where the calibration's rows tell it and where the engine's runs stand in."""

from dataclasses import replace

import pytest

from capmodel.gpus import load_gpu
from capmodel.planner.candidate import candidates
from capmodel.planner.prompts import (
    MEASURED,
    PRIOR,
    PromptCost,
    prompt_cost_of,
    prompt_parts,
    with_prompt_seconds,
    with_prompts,
)
from capmodel.roofline import TERMS
from capmodel.shapes import load_shape
from capmodel.steptime import FamilyCost, StepTime
from capmodel.traffic import step_traffic

SHAPE, H100 = load_shape("llama-3-70b"), load_gpu("h100")
CANDIDATE = next(candidates(SHAPE, "h100", 4, "bf16", "bf16"))
TRAFFIC = step_traffic(SHAPE, "bf16", "bf16", 4)
PARTS = prompt_parts(TRAFFIC, H100, "bf16")


def decoding(*costs):
    """A step of 10 ms, whatever it decodes, and what `costs` add."""
    return StepTime((FamilyCost("fixed", fixed_s=0.01), *costs), "mine", "by hand")


def test_the_parts_of_a_token_at_datasheet_rates():
    """2 x 68.5e9 weights (no embedding, no LM head) over 4 GPUs of 989.5 TFLOP/s: 35 us; attention
    4 x 8,192 x 80 FLOP a pair of tokens: 0.66 ns."""
    assert PARTS.layers == 80
    assert PARTS.matmul_s == pytest.approx(2 * 68.45e9 / 4 / 989.5e12, rel=0.01)
    assert PARTS.attention_s == pytest.approx(4 * 8192 * 80 / 4 / 989.5e12, rel=0.01)


def test_a_prompt_is_the_sum_of_its_parts():
    token, before = PromptCost(2.0, 3.0, 1e-7, 0.5).seconds(PARTS)
    assert token == pytest.approx(2 * PARTS.matmul_s + 80e-7 + 0.5 * PARTS.link_s)
    assert before == pytest.approx(3 * PARTS.attention_s)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_measured_prompts_are_between_a_tenth_of_the_peak_and_all_of_it(engine):
    """Also on the engines whose kernels are told by their layers: no prompt beats the peak."""
    step, prompts = with_prompts(decoding(), SHAPE, CANDIDATE, engine)
    assert 0.1 < prompts.peak_share <= 1
    assert not prompts.own
    taken = step.seconds(0.0, 0.0, 1000.0) - step.seconds(0.0, 0.0, 0.0)
    assert taken == pytest.approx(1000 * PARTS.matmul_s / prompts.peak_share)
    # Attention costs as much as the rest of a token within what models hold.
    assert 1e3 < prompts.attention_tokens < 1e6


def test_rows_that_tell_of_prompts_are_believed_and_others_are_not():
    slow = FamilyCost("prefill", prefill_s=3 * PARTS.matmul_s, prompt_s=1e-9)
    step, prompts = with_prompts(decoding(slow), SHAPE, CANDIDATE, "vllm")
    assert prompts.own
    assert prompts.peak_share == pytest.approx(1 / 3)
    assert step.seconds(0.0, 0.0, 100.0, 5000.0) == pytest.approx(0.01 + 300 * PARTS.matmul_s)
    assert next(term.prior for term in TERMS if term.coefficient == "c_prefill") == PRIOR
    for times in (0.3, PRIOR, 16.0):  # faster than the peak, a fit's prior, no prompt anywhere
        other = replace(slow, prefill_s=times * PARTS.matmul_s)
        assert not with_prompts(decoding(other), SHAPE, CANDIDATE, "vllm")[1].own


def test_prompts_take_the_place_of_what_was_fitted_and_nothing_of_decoding():
    link = FamilyCost("communication", sequence_s=1e-5, prefill_s=1e-5)
    step = with_prompt_seconds(decoding(FamilyCost("prefill", prefill_s=1e-3), link), 2e-6)
    assert step.seconds(8.0, 800.0, 500.0) == pytest.approx(0.01 + 8e-5 + 1e-3)
    assert step.seconds(8.0, 800.0) == pytest.approx(0.01 + 8e-5)


def test_an_engine_that_was_not_measured_takes_vllms():
    assert prompt_cost_of(None) == prompt_cost_of("llama.cpp") == MEASURED["vllm"]
    assert prompt_cost_of("trtllm") == MEASURED["tensorrt-llm"]
    with pytest.raises(ValueError, match="matmul=-1"):
        PromptCost(-1.0)
