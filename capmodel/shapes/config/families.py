"""What an architecture fixes that its config does not write.

Facts from the model code of Transformers 5.24 (`configuration_*.py`, `modeling_*.py`) unless a
comment names another source; `make oracle` counts the parameters of each against it.
"""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """Facts of one architecture.

    mixer: "softmax", "latent" (MLA) or "compressed" (DeepSeek-V4).
    state: kind of its state layers, "" = none.
    windows: which layers are windowed where no `layer_types` says it: "all" (once a
        `sliding_window` is set), "qwen" (from `max_window_layers` on, if switched on),
        "alternate" (even layers), "every" (all but each `global_every`-th), "" = none.
    tied: `tie_word_embeddings` where it is absent.
    qkv_bias, out_bias, mlp_bias: None = as the config's flag says.
    qk_norm: "", "head" or "full" (over all heads); "flag" = per head if `use_qk_norm`.
    n_matrices: 3 gated, 2 plain.
    position_offset: learned positions, that many rows beyond the context; None = rotary or ALiBi.
    mtp_tables: vocabulary tables a checkpoint stores again with its MTP layers.
    """

    mixer: str = "softmax"
    state: str = ""
    windows: str = ""
    global_every: int = 0
    tied: bool = False
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    mlp_bias: bool | None = None
    qk_norm: str = ""
    n_matrices: int = 3
    n_norms: int = 2
    norm_bias: bool = False
    head_bias: bool = False
    position_offset: int | None = None
    output_gate: bool = False
    head_gate: bool = False
    sinks: bool = False
    indexer: bool = False
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    mtp_tables: int = 0
    mtp_norms: int = 3


LLAMA = Family(out_bias=None)
QWEN2 = Family(windows="qwen", qkv_bias=True, out_bias=False)
QWEN3 = Family(windows="qwen", qk_norm="head")
DEEPSEEK = Family(mixer="latent", router_bias=True, mtp_tables=2)
QWEN_NEXT = Family(state="gated_delta_net", qk_norm="head", output_gate=True, shared_gate=True)
CLASSIC = Family(norm_bias=True, n_matrices=2)  # layer norms and a plain MLP
BIASED = replace(CLASSIC, qkv_bias=True, out_bias=True, mlp_bias=True)
GEMMA = Family(tied=True)

FAMILIES: dict[str, Family] = {
    "llama": LLAMA,
    "aquila": LLAMA,  # BAAI's remote code, a LLaMA with another vocabulary
    "baichuan": Family(qkv_bias=False, out_bias=False, mlp_bias=False),
    "internlm3": LLAMA,
    "smollm3": replace(LLAMA, tied=True),
    "granite": LLAMA,
    "helium": LLAMA,
    "seed_oss": Family(qkv_bias=None, out_bias=False),
    "arcee": Family(n_matrices=2),
    "nemotron": Family(n_matrices=2, norm_bias=True),
    "mistral": Family(windows="all"),
    "ministral": Family(windows="all"),
    "ministral3": Family(windows="all"),
    "mixtral": Family(windows="all"),
    "qwen2": QWEN2,
    "qwen2_moe": replace(QWEN2, shared_gate=True, qkv_bias=None),
    "mimo": QWEN2,  # Xiaomi's remote code: Qwen2 with MTP layers
    "qwen3": QWEN3,
    "qwen3_moe": QWEN3,
    "qwen3_vl_text": QWEN3,
    "qwen3_vl_moe_text": QWEN3,
    "qwen2_5_vl_text": QWEN2,
    "qwen2_vl_text": QWEN2,
    "qwen3_next": QWEN_NEXT,
    "qwen3_5_text": QWEN_NEXT,
    "qwen3_5_moe_text": QWEN_NEXT,
    "gemma": GEMMA,
    "gemma2": replace(GEMMA, windows="alternate", n_norms=4),
    "gemma3_text": replace(GEMMA, windows="every", global_every=6, n_norms=4, qk_norm="head"),
    "gemma3n_text": replace(GEMMA, windows="every", global_every=5, n_norms=5, qk_norm="head"),
    "gemma4_text": replace(GEMMA, windows="every", global_every=6, n_norms=4, qk_norm="head"),
    "phi": replace(BIASED, n_norms=1, head_bias=True),
    "phi3": Family(windows="all", qkv_bias=False, out_bias=False),
    "phimoe": Family(windows="all", norm_bias=True),
    "starcoder2": replace(CLASSIC, windows="all", tied=True),
    "opt": replace(BIASED, tied=True, position_offset=2),
    "bloom": replace(BIASED, tied=True),
    "gpt2": replace(BIASED, tied=True, position_offset=0),
    "gpt_bigcode": replace(BIASED, tied=True,
                          position_offset=0),
    "gptj": replace(BIASED, qkv_bias=False, out_bias=False, n_norms=1, head_bias=True),
    "gpt_neox": replace(CLASSIC, mlp_bias=True),
    "stablelm": Family(out_bias=False, norm_bias=True),
    "cohere": Family(tied=True, n_norms=1),
    "cohere2": Family(tied=True, n_norms=1, windows="every", global_every=4),
    "olmo": Family(n_norms=0),
    "olmo2": Family(qk_norm="full"),
    "olmo3": Family(qk_norm="full", windows="every", global_every=4),
    "olmoe": Family(qk_norm="full"),
    "exaone4": Family(qk_norm="head", windows="every", global_every=4),
    "glm": Family(out_bias=False),
    "glm4": Family(out_bias=False, n_norms=4),
    "glm4_moe": Family(out_bias=False, qk_norm="flag", router_bias=True, mtp_tables=2),
    "ernie4_5": Family(tied=True),
    "ernie4_5_moe": Family(tied=True, router_bias=True),
    "hunyuan_v1_dense": Family(qk_norm="head"),
    "dots1": Family(qk_norm="head", windows="qwen", router_bias=True),
    "granitemoe": LLAMA,
    "llama4_text": Family(windows="chunk", global_every=4),
    "gpt_oss": Family(windows="alternate", sinks=True, router_bias=True, expert_bias=True),
    "minimax_m2": Family(qk_norm="full", router_bias=True),
    "minimax_m3_vl_text": Family(qk_norm="head", router_bias=True),
    "step3p5": Family(qk_norm="head", head_gate=True, router_bias=True),
    "laguna": Family(qk_norm="head", router_bias=True),
    "mimo_v2_flash": Family(windows="every", global_every=6, sinks=True, router_bias=True),
    "deepseek_v2": replace(DEEPSEEK, router_bias=False),
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK,
    "deepseek_v32": replace(DEEPSEEK, indexer=True),
    "glm_moe_dsa": replace(DEEPSEEK, indexer=True, mtp_tables=0),
    "glm4_moe_lite": DEEPSEEK,
    "deepseek_v4": Family(mixer="compressed", router_bias=True),
    "jamba": Family(state="mamba1", qkv_bias=False, out_bias=False),
    "nemotron_h": Family(state="mamba2", n_matrices=2, n_norms=1, router_bias=True),
    "bamba": Family(state="mamba2"),
    "granitemoehybrid": Family(state="mamba2"),
    "falcon_h1": Family(state="mamba2"),
    "lfm2": Family(state="short_conv", tied=True, qk_norm="head", qkv_bias=False, out_bias=False),
    "lfm2_moe": Family(state="short_conv", tied=True, qk_norm="head", qkv_bias=False,
                       out_bias=False, router_bias=True),
    "kimi_linear": Family(mixer="latent", state="kimi_delta", router_bias=True),
    # From a reading of the released files (JustVugg/colibri, kimi_k3.md): both kinds gate outputs.
    "kimi_k3": Family(mixer="latent", state="kimi_delta", router_bias=True, output_gate=True),
    "nemotron_nas": LLAMA,  # NVIDIA's remote code: blocks of LLaMA parts, some left out
    "deci": LLAMA,  # Deci's remote code: LLaMA with KV heads per layer
    "whisper": replace(BIASED, tied=True, n_norms=3,
                      position_offset=0),
}  # fmt: skip

# Names under which configs point at a family above.
_ALIASES = {
    "code_llama": "llama", "yi": "llama", "internlm2": "llama", "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text", "qwen3_vl": "qwen3_vl_text", "qwen2_vl": "qwen2_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen2_5_vl": "qwen2_5_vl_text",
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_text", "gemma4_unified_text": "gemma4_text",
    "llama4": "llama4_text", "minimax_m3": "minimax_m3_vl_text",
    "minimax_m3_vl": "minimax_m3_vl_text", "step3p7": "step3p5", "step3p5_text": "step3p5",
    "kimi_k25": "kimi_k2", "decilm": "deci", "gpt_j": "gptj", "minimaxm2": "minimax_m2",
    "mimo_v2": "mimo_v2_flash", "deepseekv3": "deepseek_v3", "glm5": "glm_moe_dsa",
}  # fmt: skip


def family_of(fields_table: Mapping[str, Any], outer: Mapping[str, Any]) -> tuple[str, Family]:
    """The family a config names by `model_type` or, failing that, by `architectures`.

    Raises ValueError that names the unknown architecture and says what would be needed.
    """
    names = [fields_table.get("model_type"), outer.get("model_type")]
    for table in (fields_table, outer):
        listed = table.get("architectures")
        names += listed if isinstance(listed, list) else []
    texts = [name for name in names if isinstance(name, str)]
    if "DeciLMForCausalLM" in texts and "block_configs" in fields_table:
        return "nemotron_nas", FAMILIES["nemotron_nas"]
    if any(_key(text).startswith("kimi_k3") for text in texts):  # its text part says kimi_linear
        return "kimi_k3", FAMILIES["kimi_k3"]
    for text in texts:
        for key in (_key(text), _key(f"{_key(text)}_text")):
            key = _ALIASES.get(key, key)
            if key in FAMILIES:
                return key, FAMILIES[key]
    raise ValueError(_unknown(texts))


def _key(name: str) -> str:
    """`DeepseekV3ForCausalLM` and `deepseek-v3` both as `deepseek_v3`."""
    name = re.sub(r"(ForCausalLM|ForConditionalGeneration|LMHeadModel|Model)$", "", name)
    if name != name.lower():
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    key = name.lower().replace("-", "_").replace(".", "_")
    squeezed = key.replace("_", "")
    return next((known for known in FAMILIES if known.replace("_", "") == squeezed), key)


def _unknown(texts: list[str]) -> str:
    if not texts:
        return (
            "Got a config without `model_type` and `architectures`; one of them must say which "
            "architecture it is"
        )
    near = difflib.get_close_matches(_key(texts[0]), FAMILIES, n=3)
    hint = f" The nearest known are {', '.join(near)}." if near else ""
    return (
        f"Got architecture {' / '.join(dict.fromkeys(texts))}, which is not known, so its layers "
        f"cannot be told from the config.{hint} Needed are its attention kind, which layers are "
        "windowed or keep a state, MLP matrices, biases, norms and whether embeddings are tied: "
        "write them as an entry of your own (groups of layers, see capmodel.shapes.entry) in the "
        "folder CAPMODEL_CATALOG names, or add a row to capmodel/shapes/config/families.py"
    )
