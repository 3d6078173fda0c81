"""Every architecture read from a config, against counts PyTorch and Transformers made.

`family_configs.json` holds, per architecture, a config reduced to what is read, the parameters
of its model on PyTorch's meta device and the bytes of a real `DynamicCache` after 96 tokens in
16 bits (Transformers 5.24, torch 2.13; `make oracle` compares them anew, --update writes them).
"""

import json
from pathlib import Path

import pytest

from capmodel.kvcache import cache_pieces
from capmodel.shapes import load_shape
from capmodel.weights import parameter_count

CASES = json.loads((Path(__file__).parent / "family_configs.json").read_text())
TOKENS = 96
# A correction bias is counted in every expert layer where only some have one, and Qwen2.5-VL's
# merger norm with a bias.
LOOSE = {"deepseek_v4": 1e-8, "lfm2_moe": 1e-6, "qwen2_5_vl": 1e-6}


@pytest.mark.parametrize("name", sorted(CASES))
def test_parameters_equal_those_of_the_real_model(name: str) -> None:
    shape = load_shape(CASES[name]["config"])
    found, expected = parameter_count(shape), CASES[name]["parameters"]
    assert abs(found - expected) <= LOOSE.get(name, 0) * expected


@pytest.mark.parametrize("name", sorted(n for n in CASES if CASES[n]["cache_bytes"] is not None))
def test_cache_bytes_equal_those_of_a_real_dynamic_cache(name: str) -> None:
    pieces = cache_pieces(load_shape(CASES[name]["config"]))
    found = sum(
        piece.count * (piece.fixed_bytes + piece.bytes_per_token * min(TOKENS, piece.window or 1e9))
        for piece in pieces
        if piece.name != "index"  # engines keep it in fp8, Transformers in 16 bits
    )
    assert found == CASES[name]["cache_bytes"]
