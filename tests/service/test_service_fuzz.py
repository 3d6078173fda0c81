"""Bodies made at random from what is right, nearly right and wrong: an answer, never a 500."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

MODELS = [
    "llama-3-8b", "deepseek-v3", "gpt-oss-120b", "jamba-1.5-mini", "whisper-large-v3", "opt-125m",
    "gemma-4-31b", "deepseek-v4-flash", "kimi-k3", "minimax-m3", "", "no-model", 5,
]  # fmt: skip
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
    "num_attention_heads": 8, "num_key_value_heads": 2, "num_hidden_layers": 4,
    "intermediate_size": 2048, "vocab_size": 1000,
}  # fmt: skip
ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
                st.lists(st.integers(-2, 9), max_size=3), st.just({}))  # fmt: skip
MODEL = st.one_of(
    st.sampled_from(MODELS),
    st.dictionaries(st.sampled_from(sorted(CONFIG)), ODD, max_size=3).map(
        lambda change: CONFIG | change
    ),
)
GPU = st.one_of(
    st.sampled_from(["h100-sxm", "a100", "mi300x", "v100", "tpu", "h100.toml"]),
    st.fixed_dictionaries(
        {"memory_bytes": st.sampled_from([8e10, 1.0, -1, "x"])},
        optional={"bandwidth_bytes_per_s": st.sampled_from([2e12, 0]), "bf16_flops_per_s": ODD},
    ),
)
DTYPE = st.sampled_from(["bf16", "fp8", "int4", "nvfp4", "fp8_ds_mla", "q8_0,f16", "q9", ",", ""])
COUNT = st.one_of(st.integers(-1, 300), st.sampled_from([10**6, 10**9, 1.5, 0.1]))
TP = st.sampled_from([1, 2, 3, 8, 64, 1000, 0])
ENGINE = st.sampled_from([None, "vllm", "llama.cpp", "SGLang", "nothing", "é\n"])

COUNTS = st.one_of(COUNT, st.lists(COUNT, max_size=4))
COMMON = {"model": MODEL, "gpu": GPU, "kv_dtype": DTYPE, "weight_dtype": DTYPE, "tp": TP}
PREDICT = {
    **COMMON, "batch_size": COUNTS, "context_len": COUNTS, "engine": ENGINE,
    "tp": st.one_of(TP, st.lists(TP, max_size=4)), "interval": st.sampled_from([None, 0.5, 0.999]),
    "method": st.sampled_from(["roofline", "regressor", "x"]),
}  # fmt: skip
KV = {
    **COMMON, "context_len": COUNTS, "mode": st.sampled_from(["nameplate", "engine"]),
    "batch_size": COUNT, "reserve_bytes": st.sampled_from([0, 1e9, 1e14, -1]),
    "block_size": st.sampled_from([1, 16, 7, 4096]),
    "max_num_batched_tokens": st.sampled_from([1, 8192, 10**7]),
}  # fmt: skip
PLAN = {
    **COMMON, "rate": st.sampled_from([0.001, 3, 1e6, None]),
    "concurrency": st.sampled_from([1, 50, 20_000]),
    "input_len": st.sampled_from([1, 500, 10_000_000, {"mean": 300, "cv": 3}]),
    "output_len": st.sampled_from([1, 200, 1.5, {"mean": 1, "cv": 0}]),
    "slo_ttft_p95": st.sampled_from([1e-6, 1.0]), "slo_tpot_p95": st.sampled_from([1e-6, 1]),
    "weight_dtype": st.one_of(DTYPE, st.lists(DTYPE, max_size=2)), "cv": st.sampled_from([0, 10]),
    "price": st.sampled_from([1, {"*": 2}, {"h100-sxm": 3}, {"x.toml": 1}]), "engine": ENGINE,
    "prefix": st.sampled_from([{"tokens": 100}, {"tokens": 10**7, "share": 0.0}]),
    "memory_fraction": st.sampled_from([1e-9, 0.5, 1]),
}  # fmt: skip


def changed(body: dict[str, Any], pools: dict[str, st.SearchStrategy[Any]]) -> Any:
    """`body` with up to three fields from their pools."""
    names = st.lists(st.sampled_from(sorted(pools)), max_size=3, unique=True)
    change = names.flatmap(lambda some: st.fixed_dictionaries({name: pools[name] for name in some}))
    return change.map(lambda fields: body | fields)


STEP = {"model": "llama-3-8b", "gpu": "h100-sxm", "batch_size": 4, "context_len": 500}
CACHE = {"model": "llama-3-8b", "context_len": 500}
LOAD = {"model": "llama-3-8b", "gpu": "h100-sxm", "rate": 1, "input_len": 99, "output_len": 9,
        "simulate": False}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "bodies", "examples"),
    [
        ("/v1/predict", changed(STEP, PREDICT), 200),
        ("/v1/kv", changed(CACHE, KV), 200),
        ("/v1/plan", changed(LOAD, PLAN), 80),
    ],
)
def test_no_body_breaks_it(
    client: TestClient, path: str, bodies: st.SearchStrategy[Any], examples: int
) -> None:
    statuses: list[int] = []

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(body=bodies)
    def asked(body: dict[str, Any]) -> None:
        try:
            answer = client.post(path, json=body)
        except ValueError:  # NaN: the client does not send it
            return
        statuses.append(answer.status_code)
        assert answer.status_code in (200, 422), (body, answer.text)
        if answer.status_code == 422:
            assert answer.json()["detail"][0]["message"]

    asked()
    assert examples / 10 < statuses.count(200) < examples
