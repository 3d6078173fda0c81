"""`quantization_config` of every method, as real checkpoints write it."""

import pytest

from capmodel.shapes import CheckpointQuantization, load_shape
from capmodel.shapes.model import UNREADABLE

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
}  # fmt: skip


def stored(config: dict) -> CheckpointQuantization | None:
    return load_shape({**LLAMA, "quantization_config": config}).quantization


def scheme(**weights: object) -> dict:
    return {"quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": weights}}}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "dtype", "group", "zero"),
    [
        # Qwen3-32B-FP8, DeepSeek-V3: one fp32 scale per block of 128 x 128
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 16384, False),
        ({"quant_method": "fp8"}, "fp8", None, False),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, "fp8", None, False),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4", 128,
         True),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False}, "int4", 64,
         False),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, "int4", 128, True),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", None, True),
        ({"quant_method": "mxfp4"}, "mxfp4", 32, False),  # gpt-oss
        # Kimi-K2-Thinking and K2.5: int4 in groups of 32, symmetric
        (scheme(num_bits=4, type="int", group_size=32, symmetric=True), "int4", 32, False),
        (scheme(num_bits=4, type="int", group_size=128, symmetric=False), "int4", 128, True),
        (scheme(num_bits=8, type="float"), "fp8", None, False),
        # Laguna-XS.2-FP8: blocks
        (scheme(num_bits=8, type="float", block_structure=[128, 128]), "fp8", 16384, False),
        (scheme(num_bits=8, type="int"), "int8", None, False),
        (scheme(num_bits=4, type="float", group_size=16), "nvfp4", 16, False),
        (scheme(num_bits=4, type="float", group_size=32), "mxfp4", 32, False),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 16, False),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8", None, False),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8", 16384, False),
        ({"quantization": {"quant_algo": "INT4_AWQ", "group_size": 128}}, "int4", 128, False),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 64, False),
    ],
)  # fmt: skip
def test_methods(config: dict, dtype: str, group: int | None, zero: bool) -> None:
    found = stored(config)
    assert found is not None
    assert (found.dtype, found.group_size, found.zero_points) == (dtype, group, zero)


@pytest.mark.parametrize(
    "config",
    [{"quant_method": "torchao"}, {"quant_method": "quark"}, {"quant_method": "new"},
     {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, {}],
)  # fmt: skip
def test_storage_that_is_not_told_stays_untold(config: dict) -> None:
    """The shape is read all the same: caches do not depend on it (see tests/weights)."""
    found = stored(config)
    assert found is not None
    assert found.dtype == UNREADABLE


def test_a_list_of_layers_is_counted_per_module() -> None:
    """As nvidia/DeepSeek-V3-0324-NVFP4 writes it: attention of every layer, and the MTP layer."""
    found = stored({
        "quant_method": "modelopt", "quant_algo": "NVFP4",
        "exclude_modules": [
            "lm_head", "model.layers.0.self_attn*", "model.layers.1.self_attn*",
            "model.layers.3.self_attn*", "model.layers.2.mlp.gate", "model.layers.4*",
        ],
    })  # fmt: skip
    assert found is not None
    assert found.kept == ("lm_head", "mtp")
    assert dict(found.kept_in_layers) == {
        "model.layers.*.self_attn*": 3,
        "model.layers.*.mlp.gate": 1,
    }


def test_a_quantization_inside_the_text_part_is_found() -> None:
    """moonshotai/Kimi-K2.5 writes it there."""
    inner = {**LLAMA, "quantization_config": {"quant_method": "fp8"}}
    wrapped = load_shape({"model_type": "llava", "text_config": inner})
    assert wrapped.quantization is not None
    assert wrapped.quantization.dtype == "fp8"


def test_plain_checkpoints_have_none() -> None:
    assert load_shape(LLAMA).quantization is None
