"""Configs and files that are not what they should be: one clear ValueError, never another error."""

import json
import math
import sys
import types
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.shapes import ModelShape, load_shape
from capmodel.shapes.files import MAX_BYTES
from capmodel.weights import parameter_count

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
}  # fmt: skip
MOE = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
MLA = {**LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 16, "qk_nope_head_dim": 8,
       "qk_rope_head_dim": 4, "v_head_dim": 8}  # fmt: skip


@pytest.mark.parametrize(
    "field", [k for k in LLAMA if k not in ("model_type", "num_key_value_heads")]
)
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        load_shape({k: v for k, v in LLAMA.items() if k != field})


@pytest.mark.parametrize(
    "field", ["kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"]
)
def test_a_missing_latent_field_is_named(field: str) -> None:
    with pytest.raises(ValueError, match=f"DeepSeek|deepseek.*{field}"):
        load_shape({k: v for k, v in MLA.items() if k != field})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 3}, "must divide"),
        ({"hidden_size": 66}, "add `head_dim`"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0"),
        ({"num_hidden_layers": -3}, "num_hidden_layers=-3"),
        ({"num_hidden_layers": 10**7}, "at most 10000"),
        ({"hidden_size": 10**15}, "hidden_size=1000000000000000"),
        ({"hidden_size": "64"}, "whole number"),
        ({"hidden_size": True}, "whole number"),
        ({"hidden_size": 64.5}, "whole number"),
        ({"vocab_size": math.nan}, "whole number"),
        ({"vocab_size": math.inf}, "whole number"),
        ({"intermediate_size": [96, 96]}, "2 items.*num_hidden_layers=4"),
        ({"layer_types": ["full_attention"] * 3}, "3 items.*num_hidden_layers=4"),
        ({"layer_types": ["full_attention"] * 3 + ["quantum"]}, "'quantum'"),
        ({"layer_types": ["sliding_attention"] * 4}, "without `sliding_window`"),
        ({"layer_types": "full_attention"}, "expected a list"),
        ({"tie_word_embeddings": "yes"}, ""),
        ({"attention_bias": "maybe"}, "true or false"),
        ({"quantization_config": "fp8"}, "expected a table"),
        ({"quantization_config": {"quant_method": "awq", "bits": "four"}}, "whole number"),
        ({"text_config": {"model_type": "llama"}}, "hidden_size|num_hidden_layers"),
    ],
)
def test_contradictions_and_wrong_kinds_name_the_field(change: dict, message: str) -> None:
    config = {**LLAMA, **change}
    if change == {"tie_word_embeddings": "yes"}:
        assert load_shape(config).tied_embeddings is False  # not a flag, so the architecture's
        return
    with pytest.raises(ValueError, match=message):
        load_shape(config)


def test_more_experts_per_token_than_experts() -> None:
    with pytest.raises(ValueError, match="9 experts per token of 8"):
        load_shape({**MOE, "num_experts_per_tok": 9})


def test_an_unknown_architecture_is_refused_by_name() -> None:
    config = {**LLAMA, "model_type": "lama", "architectures": ["LamaForCausalLM"]}
    with pytest.raises(ValueError, match=r"LamaForCausalLM.*nearest known are.*llama.*Needed are"):
        load_shape(config)
    with pytest.raises(ValueError, match="neither a Hugging Face config"):
        load_shape({k: v for k, v in LLAMA.items() if k != "model_type"})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"not json", "not JSON"),
        (b"[1, 2]", "a list at its top"),
        (b"7", "a int at its top"),
        (b"null", "a NoneType at its top"),
        (b"\x00\xff\xfe\x80binary", "not UTF-8"),
        (b'{"a": 1}', "neither a Hugging Face config"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"model_type":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_001, "nested too deeply"),
    ],
)
def test_files_that_are_no_configs(tmp_path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_shape(file)


def test_a_huge_file_is_refused_unread(tmp_path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as handle:
        handle.truncate(100 * 2**20)
    with pytest.raises(ValueError, match=f"at most {MAX_BYTES:,}"):
        load_shape(file)


def test_absent_files_and_folders(tmp_path) -> None:
    for path in (tmp_path, tmp_path / "absent.json", tmp_path / "absent"):
        with pytest.raises(ValueError, match="cannot be read"):
            load_shape(path)


def test_download_says_how_to_install_the_hub_client(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without_hub(name: str, *rest: Any, **kwargs: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *rest, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_hub)
    with pytest.raises(ValueError, match="pip install huggingface_hub"):
        load_shape("someone/some-model", download=True)


def test_download_reads_what_the_hub_gives(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the hub client: its file is read, its failures are one line."""
    hub, errors = types.ModuleType("huggingface_hub"), types.ModuleType("huggingface_hub.errors")

    class RefusedError(Exception):
        pass

    def download(model_id: str, name: str) -> str:
        if model_id == "org/absent":
            raise RefusedError("404 not found\nand more")
        (tmp_path / name).write_text(json.dumps(LLAMA))
        return str(tmp_path / name)

    hub.hf_hub_download = download  # type: ignore[attr-defined]
    errors.HfHubHTTPError = errors.HFValidationError = RefusedError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    assert load_shape("org/model", download=True).name == "org/model"
    with pytest.raises(ValueError, match=r"could not be fetched: 404 not found$"):
        load_shape("org/absent", download=True)
    assert load_shape("llama-3-8b", download=True).name == "llama-3-8b"  # catalogued: no fetch


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 300), st.integers(), st.floats(), st.text(max_size=6)
)
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=5),
                   st.dictionaries(st.text(max_size=4), SCALARS, max_size=3))  # fmt: skip
FIELDS = [
    *LLAMA, *MOE, *MLA, "head_dim", "layer_types", "sliding_window", "quantization_config",
    "text_config", "vision_config", "architectures", "q_lora_rank", "num_nextn_predict_layers",
    "mlp_layer_types", "moe_layer_freq", "block_configs", "hybrid_override_pattern",
    "linear_attn_config", "num_attention_heads_per_layer", "compress_ratios", "indexer_types",
    "attention_other_setting", "tie_word_embeddings", "_name_or_path", "moe_layers_enum",
]  # fmt: skip


@given(base=st.sampled_from([LLAMA, MOE, MLA]),
       change=st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=3))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_any_mutation_reads_or_raises_value_error(base: dict, change: dict) -> None:
    try:
        shape = load_shape({**base, **change})
    except ValueError:
        return
    assert isinstance(shape, ModelShape)
    assert parameter_count(shape) > 0
