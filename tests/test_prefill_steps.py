"""A row with prompts inside is the mean of its steps: the row's features and `StepTime` agree."""

import numpy as np
import pandas as pd
import pytest

from capmodel.dtypes import weight_dtype_name
from capmodel.features import add_features
from capmodel.gpus import load_gpu
from capmodel.roofline import PRIOR, TERMS, design
from capmodel.shapes import load_shape
from capmodel.steptime import build_step_time
from capmodel.traffic import step_traffic

# The prior, with a cost for starting requests, which it has none of.
COEFFICIENTS = tuple(
    0.03 if term.coefficient == "c_request" else float(value)
    for term, value in zip(TERMS, PRIOR, strict=True)
)
MODELS = ("llama-3-8b", "mixtral-8x7b", "deepseek-v3")


def of_row(model, definition, batch, prompt, output, tp=8, **more):
    """The roofline's time of a runs-table row [s]."""
    row = {
        "model": model, "gpu": "h100-sxm", "engine": "vllm", "weight_dtype": "fp8", "tp": tp,
        "kv_dtype": "bf16", "batch_size": batch, "context_len": prompt + output / 2,
        "input_len": prompt, "output_len": output, "step_time_definition": definition, **more,
    }  # fmt: skip
    return float((design(add_features(pd.DataFrame([row]))) @ np.array(COEFFICIENTS))[0])


def step_of(model, tp=8):
    card, weight = load_gpu("h100-sxm"), weight_dtype_name("fp8")
    traffic = step_traffic(load_shape(model), weight, "bf16", tp, 1)
    return build_step_time(
        traffic, card, COEFFICIENTS, peak_flops_per_s=card.matmul_flops_per_s(weight), tp=tp
    )


def seconds(step, batch, context, prefill=0.0, prompt=0.0):
    return float(sum(step.terms(batch, context, prefill, prompt).values()))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("batch", [1, 16])
def test_a_static_batch_is_one_step_with_all_prompts_and_the_rest_without(model, batch):
    prompt, output = 512, 64
    step, context = step_of(model), prompt + output / 2
    first = seconds(step, batch, context, batch * prompt, prompt)
    later = seconds(step, batch, context)
    expected = (first + (output - 1) * later) / output
    assert of_row(model, "e2e_over_output", batch, prompt, output) == pytest.approx(expected)


@pytest.mark.parametrize("model", MODELS)
def test_a_closed_loop_has_one_prompt_in_batch_of_output_steps(model):
    """Starting a request counts per sequence there: each bears its own in its own token times."""
    batch, prompt, output = 8, 512, 64
    step, context = step_of(model), prompt + output / 2
    start = dict(zip((t.coefficient for t in TERMS), COEFFICIENTS, strict=True))["c_request"]
    first = seconds(step, batch, context, prompt, prompt) - start
    later = seconds(step, batch, context)
    expected = (batch * first + (output - batch) * later + start) / output
    assert of_row(model, "tpot", batch, prompt, output) == pytest.approx(expected)


@pytest.mark.parametrize("model", MODELS)
def test_chunks_that_go_through_alone_read_the_weights_again(model):
    prompt, output, chunk = 512, 64, 128
    step, context = step_of(model), prompt + output / 2
    passes = seconds(step, 0.0, context, chunk, prompt)
    expected = seconds(step, 1.0, context) + prompt / chunk * passes / output
    found = of_row(model, "e2e_over_output", 1, prompt, output, prefill_chunk=chunk)
    assert found == pytest.approx(expected)


def test_one_step_and_many_say_the_same_with_prompts_inside():
    step = step_of("mixtral-8x7b")
    batch, prefill, prompt = np.array([1.0, 8, 8, 0]), np.array([0.0, 512, 128, 700]), 512.0
    many = np.asarray(step.seconds(batch, batch * 900, prefill, prompt))
    one = [step.seconds(float(b), float(b) * 900, float(p), prompt)
           for b, p in zip(batch, prefill, strict=True)]  # fmt: skip
    np.testing.assert_allclose(many, one, rtol=1e-12)
