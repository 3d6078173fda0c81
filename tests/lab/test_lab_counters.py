"""One decode step's counters by hand, per attention kind: 9 tokens held, the tenth comes."""

from dataclasses import fields

import numpy as np
import pytest

from capmodel.lab.config import KINDS, make_config
from capmodel.lab.counters import Counters
from capmodel.lab.decoder import ToyDecoder

MLP = 3 * 32 * 48
OUTPUT = 32 * 64


def tenth_step(kind: str, absorbed: bool = False, rows: int = 1) -> Counters:
    decoder = ToyDecoder.random(make_config(kind), 0, "float32", absorbed=absorbed)
    cache, counters = decoder.new_cache(), Counters()
    decoder.forward(np.ones((rows, 9), int), cache)
    decoder.forward(np.ones((rows, 1), int), cache, counters)
    return counters


@pytest.mark.parametrize(
    ("kind", "kv_heads", "read"),
    # 4 heads of 8, two layers; `sliding` and `sinks` keep 4 tokens (and 2 sinks) in one of them.
    [
        ("mha", 4, (10, 10)),
        ("gqa", 2, (10, 10)),
        ("mqa", 1, (10, 10)),
        ("sliding", 2, (4, 10)),
        ("sinks", 2, (6, 10)),
    ],
)
def test_softmax_attention(kind: str, kv_heads: int, read: tuple[int, int]) -> None:
    found = tenth_step(kind)
    matrices = 2 * (2 * 32 * 32 + 2 * 32 * kv_heads * 8 + MLP) + OUTPUT
    assert found == Counters(
        key_projections=2,
        projection_flop=2 * matrices,
        # PHYSICS 5: 2 * heads * (d_k + d_v) * min(context, window).
        attention_flop=2 * 4 * (8 + 8) * sum(read),
        tokens_read=sum(read),
        cache_bytes_read=sum(read) * 2 * kv_heads * 8 * 4,
        weight_bytes_read=4 * matrices,
    )


@pytest.mark.parametrize("absorbed", [True, False])
def test_latent_attention(absorbed: bool) -> None:
    # 4 heads, content 8, rope 4, values 8, rank 12: q 32x48, down 32x12, rope key 32x4, o 32x32,
    # and per head up_key, up_value 12x8.
    found = tenth_step("mla", absorbed)
    plain = 32 * (48 + 12 + 4 + 32) + MLP
    ups = 4 * 2 * 12 * 8
    # Absorbed, the up-projections meet one query; expanded, each of the 10 latents.
    times = 1 if absorbed else 10
    # PHYSICS 5: absorbed 2 * heads * (2 * rank + rope) * context; expanded as full heads.
    width = 2 * 12 + 4 if absorbed else 8 + 4 + 8
    assert found == Counters(
        key_projections=2,
        projection_flop=2 * (2 * (plain + times * ups) + OUTPUT),
        attention_flop=2 * 2 * 4 * width * 10,
        tokens_read=20,
        cache_bytes_read=2 * 10 * (12 + 4) * 4,
        weight_bytes_read=4 * (2 * (plain + ups) + OUTPUT),
    )


@pytest.mark.parametrize("absorbed", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_three_rows_are_three_times_the_work_over_the_same_weights(
    kind: str, absorbed: bool
) -> None:
    one, three = tenth_step(kind, absorbed), tenth_step(kind, absorbed, rows=3)
    counted = {field.name for field in fields(Counters)} - {"weight_bytes_read"}
    assert {name: getattr(three, name) for name in counted} == {
        name: 3 * getattr(one, name) for name in counted
    }
    assert three.weight_bytes_read == one.weight_bytes_read


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_projects_every_token_of_every_row_once_a_layer(kind: str) -> None:
    decoder, counters = ToyDecoder.random(make_config(kind, n_layers=3)), Counters()
    decoder.forward(np.ones((2, 7), int), decoder.new_cache(), counters)
    assert counters.key_projections == 3 * 2 * 7
