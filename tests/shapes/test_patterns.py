"""Which layers are windowed, keep a state or hold experts, where the config does not list them."""

import pytest

from capmodel.shapes import ModelShape, load_shape
from capmodel.shapes.attention import GatedDeltaNet, KimiDelta, LatentAttention, Mamba2
from capmodel.shapes.model import DenseMlp, MoeMlp

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 12, "vocab_size": 100,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
}  # fmt: skip


def read(**change: object) -> ModelShape:
    return load_shape({**LLAMA, **change})


def windows(shape: ModelShape) -> dict[int | None, int]:
    return {a.window: count for count, a in shape.attention_layers()}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "mistral", "sliding_window": 32}, {32: 12}),
        ({"model_type": "mistral", "sliding_window": None}, {None: 12}),
        ({"model_type": "mistral"}, {None: 12}),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": False,
          "max_window_layers": 4}, {None: 12}),
        ({"model_type": "qwen2", "sliding_window": 32, "use_sliding_window": True,
          "max_window_layers": 4}, {None: 4, 32: 8}),
        ({"model_type": "gemma2", "sliding_window": 32}, {32: 6, None: 6}),
        ({"model_type": "gemma3_text", "sliding_window": 32}, {32: 10, None: 2}),
        ({"model_type": "gemma3_text", "sliding_window": 32, "sliding_window_pattern": 4},
         {32: 9, None: 3}),
        ({"model_type": "cohere2", "sliding_window": 32}, {32: 9, None: 3}),
        ({"model_type": "exaone4", "sliding_window": 32, "sliding_window_pattern": "LLLG"},
         {32: 9, None: 3}),
        ({"layer_types": ["sliding_attention", "full_attention"] * 6, "sliding_window": 16},
         {16: 6, None: 6}),
        ({"layer_types": ["sliding_attention"] * 12, "sliding_window": 16,
          "use_sliding_window": False}, {None: 12}),
    ],
)  # fmt: skip
def test_windows(config: dict, expected: dict) -> None:
    assert windows(read(**config)) == expected


def test_llama4_chunks_every_fourth_layer_global() -> None:
    shape = read(model_type="llama4_text", attention_chunk_size=64, num_local_experts=4,
                 num_experts_per_tok=1, interleave_moe_layer_step=2,
                 intermediate_size_mlp=128)  # fmt: skip
    chunks = {None: 0, 64: 0}
    for count, a in shape.attention_layers():
        chunks[a.chunk] += count
    assert chunks == {64: 9, None: 3}
    assert sum(g.count for g in shape.groups if isinstance(g.mlp, MoeMlp)) == 6
    assert {g.mlp.intermediate for g in shape.groups if isinstance(g.mlp, DenseMlp)} == {128}


def test_jamba_period_and_offset() -> None:
    """Attention where layer % 8 == 4, experts where layer % 2 == 1 (ai21's config)."""
    shape = read(model_type="jamba", attn_layer_period=8, attn_layer_offset=4, num_experts=4,
                 num_experts_per_tok=2, expert_layer_period=2, expert_layer_offset=1,
                 mamba_d_state=16, num_hidden_layers=16)  # fmt: skip
    assert sum(g.count for g in shape.groups if g.attention) == 2
    assert sum(g.count for g in shape.groups if isinstance(g.mlp, MoeMlp)) == 8


def test_hybrids_without_a_list_of_layers() -> None:
    linear = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
              "linear_value_head_dim": 8}  # fmt: skip
    shape = read(model_type="qwen3_next", full_attention_interval=3, **linear)
    assert sum(g.count for g in shape.groups if isinstance(g.state, GatedDeltaNet)) == 8
    kimi = read(model_type="kimi_linear", kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4,
                v_head_dim=8, linear_attn_config={"full_attn_layers": [4, 8, 12], "num_heads": 4,
                                                  "head_dim": 8, "kda_layers": []})  # fmt: skip
    assert sum(g.count for g in kimi.groups if isinstance(g.state, KimiDelta)) == 9
    assert sum(g.count for g in kimi.groups if isinstance(g.attention, LatentAttention)) == 3


def test_nemotron_h_pattern() -> None:
    shape = load_shape({
        "model_type": "nemotron_h", "hidden_size": 64, "vocab_size": 100, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "hybrid_override_pattern": "M-M*-ME",
        "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 2,
        "intermediate_size": 96, "n_routed_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
    })  # fmt: skip
    assert shape.n_layers == 7
    assert sum(g.count for g in shape.groups if isinstance(g.state, Mamba2)) == 3
    assert sum(g.count for g in shape.groups if g.attention) == 1
    assert all(g.n_norms == 1 for g in shape.groups)
    assert {g.mlp.n_matrices for g in shape.groups if g.mlp} == {2}  # relu2: no gate


def test_head_dim_is_read_where_given_and_divided_where_not() -> None:
    [(_, given)] = read(head_dim=48).attention_layers()
    [(_, divided)] = read().attention_layers()
    assert (given.head_dim, divided.head_dim) == (48, 16)


def test_head_dim_and_kv_heads_mean_nothing_for_mla() -> None:
    config = {"model_type": "deepseek_v3", "kv_lora_rank": 16, "qk_nope_head_dim": 8,
              "qk_rope_head_dim": 4, "v_head_dim": 8}  # fmt: skip
    assert read(**config).groups == read(**config, head_dim=999, num_key_value_heads=4).groups


def test_cross_layer_sharing_and_per_layer_heads() -> None:
    shared = read(model_type="gemma3n_text", num_kv_shared_layers=5)
    assert sum(n for n, a in shared.attention_layers() if not a.owns_cache) == 5
    heads = read(num_key_value_heads_per_layer=[4, 2, 1] * 4)
    assert {a.n_kv_heads: n for n, a in heads.attention_layers()} == {4: 4, 2: 4, 1: 4}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"n_routed_experts": 8, "first_k_dense_replace": 3}, 9),
        ({"n_routed_experts": 8, "mlp_layer_types": ["dense"] + ["sparse"] * 11}, 11),
        ({"n_routed_experts": 8, "moe_layer_freq": [0, 1] * 6}, 6),
        ({"num_experts": 8, "decoder_sparse_step": 2, "mlp_only_layers": [1, 3]}, 4),
        ({"num_experts": 8, "moe_layers_enum": "4,5,6"}, 3),
        ({"num_local_experts": 8}, 12),
        ({"num_local_experts": 0}, 0),
        ({"num_local_experts": 1}, 0),
    ],
)
def test_which_layers_hold_experts(config: dict, expected: int) -> None:
    shape = read(model_type="qwen3_moe", num_experts_per_tok=2, **config)
    assert sum(g.count for g in shape.groups if isinstance(g.mlp, MoeMlp)) == expected


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [("llama", False), ("gemma2", True), ("qwen2", False), ("opt", True), ("starcoder2", True)],
)
def test_tied_embeddings_where_the_config_is_silent(model_type: str, tied: bool) -> None:
    extra = {"max_position_embeddings": 32}
    assert read(model_type=model_type, **extra).tied_embeddings is tied
    written = read(model_type=model_type, tie_word_embeddings=not tied, **extra)
    assert written.tied_embeddings is not tied


def test_wrappers_and_names() -> None:
    inner = {k: v for k, v in LLAMA.items() if k != "model_type"}
    for key in ("text_config", "llm_config", "language_config"):
        wrapped = {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"],
                   key: {**inner, "model_type": "llama"}}  # fmt: skip
        assert load_shape(wrapped).groups == read().groups
    by_architecture = {**inner, "architectures": ["LlamaForCausalLM"]}
    assert load_shape(by_architecture).groups == read().groups
    assert load_shape({**LLAMA, "_name_or_path": "org/my-model"}).name == "org/my-model"


def test_files_and_folders(tmp_path) -> None:
    import json

    (tmp_path / "config.json").write_text("\ufeff" + json.dumps(LLAMA), encoding="utf-8")
    assert load_shape(tmp_path).groups == read().groups
    assert load_shape(str(tmp_path / "config.json")).name == tmp_path.name
    (tmp_path / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "NVFP4", "group_size": 16,
                                     "exclude_modules": ["lm_head"]}})
    )  # fmt: skip
    stored = load_shape(tmp_path).quantization
    assert stored is not None
    assert (stored.dtype, stored.kept) == ("nvfp4", ("lm_head",))
