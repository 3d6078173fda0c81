"""The sentence on what binds as the batch grows, checked against predictions batch by batch."""

import json
import re

import numpy as np
import pytest

import capmodel as cm
from capmodel.cli import main
from capmodel.prediction import step_time

CASES = [
    ("llama-3-70b", "h100", 4, 8192, "fp8"),
    ("llama-3-8b", "a100-80gb", 1, 512, "bf16"),
    ("gpt-oss-120b", "h200", 1, 4096, "mxfp4"),
    ("deepseek-v3", "h200", 8, 4096, "fp8"),
    ("qwen3.6-27b", "h100", 1, 2048, "bf16"),  # states of the hybrid count once a request
]


def ask(case: tuple[str, str, int, int, str], batch: object) -> cm.Prediction:
    model, gpu, tp, context, dtype = case
    return cm.predict(
        model, gpu, tp=tp, context_len=context, weight_dtype=dtype, batch_size=batch,
        method="roofline",
    )  # fmt: skip


def number_in(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found.group(1).replace(",", "")) if found else None


@pytest.mark.parametrize("case", CASES)
def test_the_sentence_agrees_with_the_predictions(case: tuple[str, str, int, int, str]) -> None:
    sentence = str(ask(case, 1).ceiling)
    most = number_in(r"memory (?:ends it at batch|does at) ([\d,]+)", sentence)
    assert most is not None, sentence
    batch = np.arange(1, most + 2)
    found = ask(case, batch)
    assert np.asarray(found.fits).tolist() == [True] * most + [False]
    assert found.ceiling == sentence  # one context: the batches asked for do not matter

    binds = number_in(r"bind(?:s)? up to batch ([\d,]+)", sentence)
    names = np.asarray(found.binding)
    if binds is not None:
        first = {"weights": "weights", "fixed": "fixed work", "kv": "the cache"}[names[0]]
        assert f" {first} bind" in sentence
        assert (names[:binds] == names[0]).all()
        assert names[binds] != names[0] or "compute from there on" in sentence

    kv, weights = (np.asarray(found.terms[name]) for name in ("kv", "weights"))
    overtakes = number_in(r"longer than the weights from batch ([\d,]+)", sentence)
    if overtakes is not None:
        assert (kv > weights)[overtakes - 1]
        assert not (kv > weights)[: overtakes - 1].any()


def test_compute_ends_it_where_flop_over_peak_takes_longest() -> None:
    """2 x 7.505e9 FLOP a token of Llama-3-8B over 312 TFLOP/s against its weights at 2.04 TB/s:
    compute takes longer from about 153 sequences on at full efficiency; fitted, a little later."""
    sentence = str(ask(("llama-3-8b", "a100-80gb", 1, 128, "bf16"), 1).ceiling)
    first = number_in(r"compute ends it from batch ([\d,]+) on", sentence)
    assert first is not None
    assert 120 <= first <= 320


def test_what_does_not_fit_is_said_and_several_contexts_have_no_sentence() -> None:
    assert "memory ends it at once" in str(ask(("llama-3-70b", "h100", 1, 4096, "bf16"), 1).ceiling)
    many = cm.predict("llama-3-8b", "h100", batch_size=1, context_len=[100, 1000])
    assert many.ceiling is None
    assert cm.predict("llama-3-8b", "h100", batch_size=1, context_len=9, tp=[1, 2]).ceiling is None


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["predict", "--model", "llama-3-8b", "--gpu", "h100", "--context", "2048"]
    for extra in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main([*arguments, *extra])
        out = capsys.readouterr().out
        text = json.loads(out)["ceiling"] if extra else out
        assert "at context 2,048" in text


@pytest.mark.parametrize(
    ("asked", "known"),
    [("trtllm", "tensorrt-llm"), ("trt-llm", "tensorrt-llm"), ("TensorRT-LLM", "tensorrt-llm"),
     ("llamacpp", "llama.cpp"), ("vLLM", "vllm"), ("SGL", "sglang")],
)  # fmt: skip
def test_engines_go_by_any_spelling(asked: str, known: str) -> None:
    step = {"model": "llama-3-8b", "gpu": "h100", "batch_size": 8, "context_len": 1000}
    found, plain = cm.predict(**step, engine=asked), cm.predict(**step, engine=known)
    assert found.step_time_s == plain.step_time_s
    assert found.basis == plain.basis
    assert not [doubt for doubt in found.extrapolation if "none of those known" in doubt]
    spelled = [f"engine {asked} is read as {known}"] if asked.lower() != known else []
    assert [note for note in found.assumptions if note.startswith("engine")] == spelled
    assert step_time("llama-3-8b", "h100", engine=asked).basis == plain.basis


def test_an_unknown_engine_is_doubted_with_the_nearest() -> None:
    step = {"model": "llama-3-8b", "gpu": "h100", "batch_size": 8, "context_len": 1000}
    doubts = cm.predict(**step, engine="vlm").extrapolation
    assert any("did you mean vllm?" in doubt for doubt in doubts)
    assert not any("engine" in doubt for doubt in cm.predict(**step, engine="vllm").extrapolation)


def test_runs_of_another_spelling_are_the_same_engine_s() -> None:
    runs = cm.make_runs(n=200, seed=3)
    own = cm.fit(runs.assign(engine="our-server"), name="own")
    found = cm.predict("llama-3-8b", "h100", batch_size=8, context_len=1000, engine="our-server",
                       calibration=own)  # fmt: skip
    assert not any("none of those known" in doubt for doubt in found.extrapolation)
    pairs = cm.fit(runs.assign(engine="TRT-LLM"), name="spelled").pairs
    assert {engine for engine, _ in pairs} == {"tensorrt-llm"}
