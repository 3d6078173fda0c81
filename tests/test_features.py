"""Traffic features: worked numbers, laws, and independence of the target."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.features import FEATURES, add_features
from capmodel.gpus import load_gpu
from capmodel.shapes import load_shape
from capmodel.traffic import step_traffic


def runs(**columns: object) -> pd.DataFrame:
    base = {
        "engine": "vllm", "model": "llama-3.1-8b", "gpu": "h100-sxm", "weight_dtype": "bf16",
        "kv_dtype": "bf16", "batch_size": 1, "context_len": 1000, "tp": 1,
    }  # fmt: skip
    n = max((len(v) for v in columns.values() if isinstance(v, list)), default=1)
    return pd.DataFrame(
        {k: v if isinstance(v, list) else [v] * n for k, v in (base | columns).items()}
    )


def test_llama_8b_by_hand() -> None:
    row = add_features(runs(batch_size=4)).iloc[0]
    # 7.505e9 parameters without the embedding table (PHYSICS section 5), 2 bytes, 2 FLOP each.
    assert row["weight_read_bytes"] == pytest.approx(2 * 7.505e9, rel=1e-3)
    assert row["kv_read_bytes"] == 4 * 1000 * 131_072
    attention = 4 * 1000 * 32 * 2 * 32 * (128 + 128)
    assert row["attention_flop"] == attention
    assert row["flop"] == pytest.approx(4 * 2 * 7.505e9 + attention, rel=1e-3)
    assert row["weight_s"] == pytest.approx(row["weight_read_bytes"] / 3.35e12)
    assert row["floor_s"] == pytest.approx(row["weight_s"] + row["kv_s"])


@pytest.mark.parametrize(
    ("experts", "top_k", "batch", "touched"),
    # PHYSICS section 5: N * (1 - (1 - k/N)**B).
    [(8, 2, 3, 4.625), (256, 8, 32, 163.3), (256, 8, 64, 222.4)],
)
def test_experts_touched(experts: int, top_k: int, batch: int, touched: float) -> None:
    shape = dict(  # noqa: C408
        n_layers=2, hidden_size=64, n_heads=4, n_kv_heads=4, head_dim=16, intermediate_size=32,
        vocab_size=100, n_experts=experts, n_experts_per_token=top_k,
    )  # fmt: skip
    row = add_features(runs(model="mine", batch_size=batch, **shape)).iloc[0]
    one = 2 * 3 * 64 * 32 * 2  # layers x matrices x width x width x bytes
    assert row["expert_s"] * 3.35e12 / one == pytest.approx(touched, rel=1e-3)


def test_one_prompt_many_times_touches_top_k_experts_only() -> None:
    both = add_features(runs(model="mixtral-8x7b", batch_size=64, distinct_prompts=[1, np.nan]))
    assert both["expert_s"][0] / both["expert_s"][1] == pytest.approx(2 / 8, rel=1e-3)


def test_v32_reads_top_k_latents_and_the_whole_index() -> None:
    # PHYSICS section 5: DeepSeek-V3.2, fp8_ds_mla, 131,072 tokens: 1.137 GB, not 5.245.
    row = add_features(runs(
        model="deepseek-v3.2", gpu="h200-sxm", weight_dtype="fp8", kv_dtype="fp8_ds_mla",
        context_len=131_072,
    )).iloc[0]  # fmt: skip
    assert row["kv_read_bytes"] == pytest.approx(1.137e9, rel=1e-3)


def test_features_never_read_the_target() -> None:
    frame = runs(step_time_s=[0.01, 0.02, 5.0], batch_size=[1, 8, 64])
    with_target = add_features(frame)[list(FEATURES)]
    without = add_features(frame.drop(columns="step_time_s"))[list(FEATURES)]
    shuffled = add_features(frame.assign(step_time_s=[5.0, 0.01, 0.02]))[list(FEATURES)]
    pd.testing.assert_frame_equal(with_target, without)
    pd.testing.assert_frame_equal(with_target, shuffled)


def test_windows_stop_growing() -> None:
    found = add_features(runs(model="gpt-oss-120b", context_len=[128, 256, 10_000]))
    step = found["kv_read_bytes"].diff()
    # 36,864 bytes per token past the 128-token window (PHYSICS section 1).
    assert step[1] == 128 * 36_864
    assert step[2] == (10_000 - 256) * 36_864


def test_llama_cpp_prompt_passes() -> None:
    # With -b 1 the prompt goes token by token: as many passes as there are prompt tokens.
    frame = runs(engine="llama.cpp", input_len=128, output_len=128, prefill_chunk=[1, 64],
                 step_time_definition="e2e_over_output")  # fmt: skip
    found = add_features(frame)
    assert found["prefill_passes"].tolist() == [1.0, 2 / 128]
    assert found["weight_read_bytes"][0] == pytest.approx(
        2 * found["weight_read_bytes"][1], rel=0.02
    )


def test_stages_of_a_model_with_experts_wait_for_the_router_in_llama_cpp() -> None:
    # Its mul_mat_id copies the router's choice to the host and waits, so passes do not overlap.
    # Argonne's Mixtral steps take 61.3, 60.9 and 61.8 ms on 1, 2 and 4 MI300X, its Llama-2 steps
    # 28.3, 21.7 and 18.9 ms.
    given = {"input_len": 128, "output_len": 128, "prefill_chunk": 1, "pp": [1, 2, 4],
             "step_time_definition": "e2e_over_output", "weight_dtype": "fp16"}  # fmt: skip
    found = add_features(runs(model="mixtral-8x7b", engine="llama.cpp", **given))
    assert found["prefill_passes"].tolist() == [1.0, 1.0, 1.0]
    assert (found["weight_s"] == found["weight_s"][0]).all()
    spelled = add_features(runs(model="mixtral-8x7b", engine="llamacpp", **given))
    assert spelled["prefill_passes"].tolist() == [1.0, 1.0, 1.0]
    dense = add_features(runs(model="llama-2-7b", engine="llama.cpp", **given))
    assert dense["prefill_passes"].tolist() == [1.0, 0.5, 0.25]
    elsewhere = add_features(runs(model="mixtral-8x7b", engine="vllm", **given))
    assert elsewhere["prefill_passes"].tolist() == [1.0, 0.5, 0.25]


def test_own_gpu_columns() -> None:
    frame = runs(gpu="mine", memory_bytes=1e11, bandwidth_bytes_per_s=1e12, flops_per_s=1e14)
    row = add_features(frame).iloc[0]
    assert row["gpu_bandwidth"] == 1e12
    assert row["gpu_peak_flops"] == 1e14


def test_unknown_names_are_named() -> None:
    with pytest.raises(ValueError, match="no-such-model"):
        add_features(runs(model="no-such-model"))
    with pytest.raises(ValueError, match="no-such-gpu"):
        add_features(runs(gpu="no-such-gpu"))
    with pytest.raises(ValueError, match="batch_size"):
        add_features(runs().drop(columns="batch_size"))


MODELS = ["llama-3-8b", "llama-2-7b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b", "gemma-2-27b"]


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from(MODELS),
    batch=st.integers(1, 512),
    context=st.integers(1, 200_000),
    tp=st.sampled_from([1, 2, 4, 8]),
)
def test_laws(model: str, batch: int, context: int, tp: int) -> None:
    found = add_features(runs(model=model, batch_size=[batch, 2 * batch, batch, batch],
                              context_len=[context, context, context + 7, context],
                              tp=[tp, tp, tp, 1]))  # fmt: skip
    base, more, longer, one = (found.iloc[i] for i in range(4))
    assert more["kv_read_bytes"] == pytest.approx(2 * base["kv_read_bytes"])
    assert more["weight_read_bytes"] >= base["weight_read_bytes"] * (1 - 1e-12)
    assert longer["kv_read_bytes"] >= base["kv_read_bytes"]
    assert tp * base["weight_read_bytes"] >= one["weight_read_bytes"] * (1 - 1e-12)
    assert base["floor_s"] <= base["weight_s"] + base["kv_s"] + 1e-15
    assert np.isfinite(found[list(FEATURES)].to_numpy()).all()


def test_traffic_is_the_same_for_one_step_and_for_rows() -> None:
    frame = runs(model="mixtral-8x7b", batch_size=[1, 7, 300], context_len=[10, 5000, 77])
    found = add_features(frame)
    traffic = step_traffic(load_shape("mixtral-8x7b"), "bf16", "bf16", 1)
    read, flop, _ = traffic.of_batch(frame["batch_size"].to_numpy(float),
                                     frame["context_len"].to_numpy(float))  # fmt: skip
    np.testing.assert_allclose(read, found["weight_read_bytes"] + found["kv_read_bytes"])
    np.testing.assert_allclose(flop, found["flop"])


def test_half_a_shape_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"mine.*hidden_size"):
        add_features(runs(model="mine", n_layers=32))


def test_all_reduces_go_over_own_links_or_a_shared_bus() -> None:
    """NVLink's bytes are no bus's and PCIe's no link's; a bus of two is as a link of one's own."""
    found = add_features(runs(gpu=3 * ["h100-sxm"] + 3 * ["l40s"], tp=[1, 2, 8, 1, 2, 8]))
    own, bus, cross = (found[f"all_reduce{name}_s"].to_numpy() for name in ("", "_bus", "_cross"))
    assert (own > 0).tolist() == [False, True, True, False, False, False]
    assert (bus > 0).tolist() == (cross > 0).tolist() == [False, False, False, False, True, True]
    per_byte = own[1] * load_gpu("h100-sxm").link_bytes_per_s
    assert bus[4] * load_gpu("l40s").link_bytes_per_s == pytest.approx(per_byte)
    assert bus[5] / bus[4] == pytest.approx(own[2] / own[1] * 4)
    assert cross[5] / cross[4] == pytest.approx(own[2] / own[1] * 16)
