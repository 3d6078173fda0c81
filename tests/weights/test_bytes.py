"""Bytes of weights per GPU: dtypes, checkpoints, tensor parallelism."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capmodel.shapes import load_shape, shape_from_columns, shape_names
from capmodel.weights import (
    element_bytes,
    matrices,
    parameter_count,
    stored_bytes,
    stored_matrix_bytes,
    weight_bytes,
)

GIB = 2**30


@pytest.mark.parametrize(
    ("model", "expected", "origin"),
    [
        ("gpt-oss-120b", 60.8 * GIB, "model card: checkpoint of 60.8 GiB"),
        ("gpt-oss-20b", 12.8 * GIB, "model card: checkpoint of 12.8 GiB"),
        ("kimi-k3", 1.56e12, "JustVugg/colibri: source of 1.56 TB, latent MXFP4 experts"),
        ("kimi-k2.5", 595e9, "safetensors of 595 GB on the hub, int4 experts"),
        (
            "deepseek-v3",
            673e9,
            "fp8 blocks; 688.6 GB on the hub with 15.4 GB of MTP and its tables",
        ),
    ],
)
def test_checkpoints_as_stored(model: str, expected: float, origin: str) -> None:
    assert weight_bytes(model, "checkpoint") == pytest.approx(expected, rel=0.003), origin
    assert weight_bytes(model, None) == weight_bytes(model, "checkpoint")


def test_a_dtype_the_checkpoint_has_means_the_checkpoint() -> None:
    """`weight_dtype="mxfp4"` for gpt-oss is its own storage: attention in 16 bits."""
    assert weight_bytes("gpt-oss-120b", "mxfp4") == weight_bytes("gpt-oss-120b", None)
    assert weight_bytes("gpt-oss-120b", "bf16") == 2 * parameter_count("gpt-oss-120b")
    assert weight_bytes("deepseek-v3", "fp8") == weight_bytes("deepseek-v3", None)


@pytest.mark.parametrize(
    ("dtype", "group", "zero", "expected"),
    [
        ("int4", 128, False, 0.5 + 2 / 128),  # PHYSICS section 3
        ("int4", 128, True, 0.5 + 2.5 / 128),
        ("int4", 32, False, 0.5 + 2 / 32),
        ("nvfp4", 16, False, 9 / 16),
        ("mxfp4", 32, False, 4.25 / 8),
        ("fp8", 16384, False, 1 + 4 / 16384),
        ("fp8", None, False, 1.0),
        ("int8", None, False, 1.0),
        ("bf16", None, False, 2.0),
    ],
)
def test_bytes_per_element(dtype: str, group: int | None, zero: bool, expected: float) -> None:
    assert element_bytes(dtype, group, zero) == expected


def test_tables_norms_and_routers_stay_in_16_bits() -> None:
    shape = load_shape("mixtral-8x7b")
    kept = [m for m in matrices(shape) if not m.quantised]
    assert {m.part for m in kept} == {"norm", "embedding", "head", "router"}
    for matrix in kept:
        assert stored_matrix_bytes(matrix, shape, "int4") == 2 * matrix.total
    assert weight_bytes(shape, "fp32") == 4 * parameter_count(shape)


def test_nameplate_is_parameters_times_flat_bytes() -> None:
    """PHYSICS section 4: int4 = 0.5, so a 70B model takes 35.3 GB."""
    assert weight_bytes("llama-3-70b", "int4", mode="nameplate") == 70_553_706_496 * 0.5
    assert weight_bytes("llama-3-70b", "bf16", tp=8, mode="nameplate") == 70_553_706_496 * 2 / 8
    assert weight_bytes("gpt-oss-120b", None, mode="nameplate") == 116_829_156_672 * 0.5


def test_tensor_parallelism_by_matrix() -> None:
    """llama-3-70b at tp 16: its 8 KV heads are held by two GPUs each."""
    shape = load_shape("llama-3-70b")
    kv = 2 * 80 * 2 * 8192 * 8 * 128
    norms = 2 * (2 * 80 + 1) * 8192
    whole = weight_bytes(shape)
    assert whole == 2 * parameter_count(shape)
    assert weight_bytes(shape, tp=8) == pytest.approx((whole - norms) / 8 + norms)
    assert weight_bytes(shape, tp=16) == pytest.approx((whole - norms - kv) / 16 + kv / 8 + norms)


def test_latent_projections_are_replicated() -> None:
    """MLA's down projections are whole on every GPU: 61 layers of 7168 x (1536 + 576), fp8."""
    down = 61 * 7168 * (1536 + 576) * (1 + 4 / 16384)
    spread = weight_bytes("deepseek-v3", "fp8", tp=8) * 8 - weight_bytes("deepseek-v3", "fp8")
    assert spread > 7 * down


@given(
    tp=st.integers(1, 32),
    model=st.sampled_from(
        ["llama-3-8b", "deepseek-v3", "mixtral-8x7b", "qwen3.5-27b", "gemma-4-31b"]
    ),
    dtype=st.sampled_from(["bf16", "fp8", "int4", "nvfp4"]),
)
def test_tp_conserves_weights(tp: int, model: str, dtype: str) -> None:
    """A group of tp GPUs holds at least the model; more GPUs never hold more each."""
    here = weight_bytes(model, dtype, tp)
    assert here * tp >= weight_bytes(model, dtype) * (1 - 1e-12)
    assert weight_bytes(model, dtype, tp + 1) <= here


def test_arrays_of_tp() -> None:
    found = weight_bytes("llama-3-8b", "fp8", np.array([[1, 2], [4, 1]]))
    assert isinstance(found, np.ndarray)
    assert found.shape == (2, 2)
    assert found[0, 1] == weight_bytes("llama-3-8b", "fp8", 2)
    assert isinstance(weight_bytes("llama-3-8b", tp=np.int64(2)), float)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="at least 1 GPU"):
        weight_bytes("llama-3-8b", tp=0)
    with pytest.raises(ValueError, match=r"tp=1\.5"):
        weight_bytes("llama-3-8b", tp=np.array([1.5]))
    with pytest.raises(ValueError, match="engine, nameplate"):
        weight_bytes("llama-3-8b", mode="guess")
    with pytest.raises(ValueError, match="fp8"):
        weight_bytes("llama-3-8b", "fp9")
    base = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100,
            "num_attention_heads": 4, "intermediate_size": 96}  # fmt: skip
    untold = load_shape({**base, "quantization_config": {"quant_method": "quark"}})
    assert weight_bytes(untold, "fp8") > 0
    with pytest.raises(ValueError, match=r"'quark' does not tell it; give weight_dtype"):
        weight_bytes(untold, None)


def test_kept_modules_of_a_checkpoint() -> None:
    """A third of the layers' attention in 16 bits is a third of its bytes at two each."""
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 6, "vocab_size": 100,
              "num_attention_heads": 4, "intermediate_size": 96,
              "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": [
                  "model.layers.0.self_attn", "model.layers.5.self_attn", "lm_head"]}}  # fmt: skip
    shape = load_shape(config)
    attention = [m for m in matrices(shape) if m.part == "attention"]
    size = sum(stored_matrix_bytes(m, shape, None) for m in attention)
    assert size == pytest.approx(sum(m.total for m in attention) * (2 / 3 + 2 * 1 / 3))
    mlp = [m for m in matrices(shape) if m.part == "mlp"]
    assert sum(stored_matrix_bytes(m, shape, None) for m in mlp) == sum(m.total for m in mlp)


@pytest.mark.parametrize("model", shape_names())
def test_narrower_dtypes_are_smaller(model: str) -> None:
    sizes = [weight_bytes(model, dtype) for dtype in ("fp32", "bf16", "fp8", "nvfp4", "int4")]
    if load_shape(model).quantization is None:
        assert sizes == sorted(sizes, reverse=True)
    assert stored_bytes(load_shape(model), None, mtp=True).per_gpu(1) >= weight_bytes(model, None)


def test_a_shape_from_columns_has_bytes() -> None:
    shape = shape_from_columns(32, 4096, 32, 8, 128, 14336, 128256, 8_030_261_248)
    assert weight_bytes(shape) == pytest.approx(2 * 8_030_261_248)


# Weights an engine printed at start-up [GiB per GPU]; the rest of the rows are other models,
# other storage, or GGUF.
LOGGED = {
    "L002": ("llama-3.1-8b", "bf16"), "L006": ("qwen2.5-32b", "bf16"),
    "L007": ("llama-3-8b", "bf16"), "L013": ("qwen3-0.6b", "bf16"), "L014": ("qwen3-32b", "bf16"),
    "L019": ("qwen2.5-0.5b", "bf16"), "L021": ("llama-3.2-3b", "bf16"),
    "L026": ("phi-4-mini", "bf16"), "L027": ("qwen2.5-1.5b", "bf16"),
    "L051": ("qwen3-4b", "bf16"), "L090": ("granite-4.0-h-micro", "bf16"),
    "L109": ("mistral-7b-v0.3", "int4"), "L119": ("minimax-m2.5", "fp8"),
    "L128": ("qwen3-30b-a3b-fp8", "fp8"), "L166": ("qwen2.5-7b", "bf16"),
    "L174": ("llama-7b", "fp16"), "L195": ("qwen2.5-32b", "bf16"), "L201": ("phi-1.5", "bf16"),
}  # fmt: skip


@pytest.mark.parametrize("row", sorted(LOGGED))
def test_weights_of_start_up_logs(shared_data: Path, row: str) -> None:
    """Within 2 %: engines add buffers, and SGLang prints the fall of free memory."""
    model, dtype = LOGGED[row]
    with (shared_data / "engine_kv_logs.csv").open(newline="") as file:
        logged = {line["id"]: line for line in csv.DictReader(file)}[row]
    found = weight_bytes(model, dtype, int(logged["tp"])) / GIB
    assert found == pytest.approx(float(logged["weights_gib"]), rel=0.02)
