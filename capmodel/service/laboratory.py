"""What the lab page shows: counted on the NumPy decoder's arrays, and the package's cache bytes."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from capmodel.kvcache import kv_bytes, kv_bytes_per_token
from capmodel.lab.config import KINDS, make_config
from capmodel.lab.paging_story import paged_requests
from capmodel.lab.steps import lab_steps
from capmodel.memory import attention_variants
from capmodel.service.named import noted, shape_of, told
from capmodel.service.plain import json_bytes, plain

DTYPES = ("fp32", "bf16", "fp8", "int4")
_TITLES = {
    "mha": "Multi-head attention: every query head has a key and value head of its own",
    "gqa": "Grouped-query attention: several query heads share a key and value head",
    "mqa": "Multi-query attention: all query heads share one key and value head",
    "mla": "Multi-head latent attention: one small latent per token for all heads",
    "sliding": "Sliding window: every second layer keeps only its window",
    "sinks": "Window with sinks: the window, and the first two tokens for ever",
}


def answer_lab(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Steps of each attention kind with and without a cache, a real model's cache, paging.

    `kinds`: as `capmodel.lab.steps.lab_steps`, and for each KV dtype the cache after each step.
    """
    with told("n_tokens"):
        steps: dict[str, Any] = dict(lab_steps(asked["n_tokens"], asked["seed"]))
    lengths = range(1, asked["n_tokens"] + 1)
    for kind in KINDS:
        shape = make_config(kind).shape
        steps["kinds"][kind] |= {
            "title": _TITLES[kind],
            "cache_bytes": {
                dtype: [kv_bytes(shape, length, 1, dtype) for length in lengths] for dtype in DTYPES
            },
            "layers": [_layer(layer) for layer in make_config(kind).layers],
        }
    with noted() as notes, told("model"):
        model = _model(asked["model"], asked["context_len"])
    return {
        **plain(steps),
        "dtypes": list(DTYPES),
        "model": plain(model),
        "paging": _paging(asked["block_size"], asked["seed"]),
        "warnings": notes,
    }


def lab_json(asked: Mapping[str, Any]) -> bytes:
    """`answer_lab` as JSON."""
    return json_bytes(answer_lab(asked))


def _layer(layer: Any) -> dict[str, Any]:
    return {
        "kv_heads": getattr(layer, "n_kv_heads", None),
        "heads": layer.n_heads,
        "latent": getattr(layer, "kv_lora_rank", None),
        "window": getattr(layer, "window", None),
    }


def _model(name: str, context_len: int) -> dict[str, Any]:
    """The cache of one request under each attention and dtype [byte]."""
    shape = shape_of(name)
    variants = attention_variants(shape) or {"as it is": shape}
    return {
        "name": shape.name,
        "context_len": context_len,
        "variants": [
            {
                "attention": kind,
                "own": variant is shape,
                "kv_bytes_per_token": {d: kv_bytes_per_token(variant, d) for d in DTYPES[1:]},
                "kv_bytes": {d: kv_bytes(variant, context_len, 1, d) for d in DTYPES[1:]},
            }
            for kind, variant in variants.items()
        ],
    }


@lru_cache(maxsize=64)
def _paging(block_size: int, seed: int) -> dict[str, Any]:
    """The same requests in a pool of blocks, with a shared prefix and without."""
    sides = {}
    for name, sharing in (("shared", True), ("alone", False)):
        requests, pool = paged_requests(block_size, prefix_sharing=sharing, seed=seed)
        filled = {
            block: min(block_size, request.tokens - place * block_size)
            for request in requests
            for place, block in enumerate(request.table)
        }
        sides[name] = {
            "requests": [asdict(request) for request in requests],
            "free_blocks": pool.free,
            "used_blocks": len(filled),
            "empty_places": len(filled) * block_size - sum(filled.values()),
        }
    return {"block_size": block_size, **plain(sides)}
