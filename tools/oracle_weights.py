"""Count parameters and cache bytes with PyTorch and Transformers, and compare with capmodel.

Models are built on PyTorch's meta device (shapes without memory), so the largest cost nothing,
and one real forward pass of 96 tokens fills a real `DynamicCache`. Run by `make oracle`.

    python tools/oracle_weights.py                  compare tests/shapes/family_configs.json
    python tools/oracle_weights.py --update         write that file anew from Transformers' defaults
    python tools/oracle_weights.py --configs DIR    compare the config.json files of a folder

Exit code 1 when a count differs by more than 0.1 %, or cache bytes at all.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import AutoModelForSpeechSeq2Seq

from capmodel.kvcache import cache_pieces
from capmodel.shapes import ModelShape, load_shape
from capmodel.shapes.config.families import FAMILIES
from capmodel.weights import parameter_count

FIGURES = Path(__file__).parents[1] / "tests" / "shapes" / "family_configs.json"
WRAPPERS = ("qwen3_vl", "qwen2_5_vl", "gemma3", "gemma4", "llama4", "step3p7", "kimi_k25")
TOKENS = 96  # below every family's default window, so that windowed layers keep all of them
# What a family's default config lacks or gets wrong, filled with a published checkpoint's values.
OVERRIDES: dict[str, dict[str, Any]] = {
    "nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "ministral": {"head_dim": 128},
    "glm4_moe": {"head_dim": 128, "num_hidden_layers": 46, "use_qk_norm": True},
    "deepseek_v2": {"num_experts_per_tok": 6, "n_routed_experts": 160, "first_k_dense_replace": 1,
                    "n_shared_experts": 2, "moe_intermediate_size": 1536, "hidden_size": 5120,
                    "intermediate_size": 12288, "num_attention_heads": 128},
    "hunyuan_v1_dense": {"head_dim": 128},
    "nemotron_h": {"hybrid_override_pattern": "MEMEM*EM-E", "num_hidden_layers": 10},
    "bamba": {"attn_layer_indices": [9, 18, 27], "num_hidden_layers": 32, "mamba_n_heads": 128,
              "mamba_d_state": 128},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 16, "mamba_n_heads": 128},
    "lfm2": {"full_attn_idxs": [2, 5, 8, 10, 12, 14], "num_hidden_layers": 16},
    "lfm2_moe": {"layer_types": ["conv", "conv", "full_attention", "conv"] * 6,
                 "num_hidden_layers": 24},
    "step3p7": {"text_config": {
        "model_type": "step3p5", "sliding_window": 512, "num_sliding_attention_heads": 96,
        "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"],
    }},
    "gpt_bigcode": {"multi_query": True},
    "bloom": {"hidden_size": 1024, "n_head": 16, "n_layer": 24, "vocab_size": 250880},
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--configs", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    if arguments.update:
        return update()
    if arguments.configs:
        cases = {
            file.stem: json.loads(file.read_text()) for file in arguments.configs.glob("*.json")
        }
    else:
        cases = {name: case["config"] for name, case in json.loads(FIGURES.read_text()).items()}
    return 1 if sum(not agrees(name, config) for name, config in sorted(cases.items())) else 0


def agrees(name: str, config: dict[str, Any]) -> bool:
    """Print both counts of one config; whether they agree (one that Transformers lacks does)."""
    found = oracle(config)
    if found is None:
        print(f"{name:45} not in Transformers {transformers.__version__}")
        return True
    parameters, cache = found
    shape = load_shape(config)
    ours, ours_cache = parameter_count(shape), cache_bytes(shape)
    off = ours / parameters - 1
    same = cache is None or abs(cache - ours_cache) < 0.5
    note = "no cache of its own" if cache is None else f"cache {cache:,} / {ours_cache:,.0f}"
    print(f"{name:45} {parameters:>15,} / {ours:>15,} {off:+.4%}  {note}{'' if same else ' !'}")
    return abs(off) < 1e-3 and same


def update() -> int:
    """Write each family's default config, reduced to what is read, with the figures found."""
    cases = {}
    for name in (*FAMILIES, *WRAPPERS):
        try:
            config = AutoConfig.for_model(name, **OVERRIDES.get(name, {})).to_dict()
        except ValueError:
            continue
        config = json.loads(json.dumps(config, default=str))
        config["model_type"] = name
        found = oracle(config)
        if found is None:
            continue
        parameters, cache = found
        cases[name] = {
            "config": reduced(config), "parameters": parameters, "cache_bytes": cache,
        }  # fmt: skip
        print(name, parameters, cache)
    FIGURES.write_text(json.dumps(cases, indent=1) + "\n")
    return 0


def oracle(config: dict[str, Any]) -> tuple[int, int | None] | None:
    """(parameters, cache bytes of TOKENS tokens in 16 bits) by Transformers, or None."""
    config = {key: value for key, value in config.items() if key != "quantization_config"}
    model_type = str(config.pop("model_type", ""))
    model_type = "deepseek_v3" if model_type == "kimi_k2" else model_type
    config.pop("auto_map", None)
    try:
        built = AutoConfig.for_model(model_type, **config)
        kind = AutoModelForSpeechSeq2Seq if model_type == "whisper" else AutoModelForCausalLM
        if hasattr(built, "text_config") and "text_config" in config:
            kind = AutoModelForImageTextToText
        with torch.device("meta"):
            model = kind.from_config(built, dtype=torch.bfloat16, attn_implementation="eager")
    except (ValueError, TypeError) as error:
        print(f"  ({model_type}: {str(error)[:90]})")
        return None
    corrections = sum(b.numel() for name, b in model.named_buffers() if "correction_bias" in name)
    parameters = sum(p.numel() for p in model.parameters()) + corrections
    return parameters, dynamic_cache_bytes(model.eval(), model_type)


def dynamic_cache_bytes(model: torch.nn.Module, model_type: str) -> int | None:
    """Bytes of the cache a forward pass leaves; conv states at kernel - 1, states in fp32."""
    if model_type in ("whisper", "deepseek_v4", "bloom") or "text_config" in str(type(model)):
        return None
    try:
        with torch.device("meta"):
            ids = torch.zeros((1, TOKENS), dtype=torch.long)
            layers = model(input_ids=ids, use_cache=True).past_key_values.layers
    except (RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError) as error:
        print(f"  ({model_type}: forward pass failed, {str(error)[:70]})")
        return None
    total = 0
    for layer in layers:
        held = vars(layer)
        for key in ("keys", "values"):
            if isinstance(held.get(key), torch.Tensor):
                total += 2 * held[key].numel()
        for state in (held.get("recurrent_states") or {}).values():
            total += 4 * state.numel() if state is not None else 0
        for conv in (held.get("conv_states") or {}).values():
            total += 2 * conv.numel() * (conv.shape[-1] - 1) // conv.shape[-1]
    return total


def cache_bytes(shape: ModelShape) -> float:
    """The same by capmodel, but for an indexer's keys, which engines store in fp8."""
    return sum(
        piece.count * (piece.fixed_bytes + piece.bytes_per_token * min(TOKENS, piece.window or 1e9))
        for piece in cache_pieces(shape)
        if piece.name != "index"
    )


def reduced(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what changes nothing: unread fields, and those that repeat a default."""
    shape = load_shape(config)
    kept = {k: v for k, v in config.items() if v is not None and not k.startswith("_")}
    for key in sorted(kept):
        trial = {k: v for k, v in kept.items() if k != key}
        try:
            if load_shape(trial) == shape and key not in ("head_dim", "model_type"):
                kept = trial
                continue
        except ValueError:
            pass
        if isinstance(kept[key], dict):
            kept = reduced_within(kept, key, shape)
    return kept


def reduced_within(config: dict[str, Any], outer: str, shape: ModelShape) -> dict[str, Any]:
    """The same for the fields of the nested table `outer`."""
    for key in sorted(config[outer]):
        inner = {k: v for k, v in config[outer].items() if k != key}
        try:
            if load_shape({**config, outer: inner}) == shape:
                config = {**config, outer: inner}
        except ValueError:
            continue
    return config


if __name__ == "__main__":
    sys.exit(main())
