"""Sizes nobody means: refused in one line before anything is allocated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from capmodel.lab.cache import FullStore, WindowStore
from capmodel.lab.compress import evictions, full_cache, measure
from capmodel.lab.config import ToyConfig, make_config
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.entropy import entropy_bits
from capmodel.lab.evict import EvictingStore, evicting_cache, sliding_window
from capmodel.lab.language_model import load_language_model
from capmodel.lab.paging import BlockPool, serve
from capmodel.lab.paging_story import paged_requests
from capmodel.lab.proof import prove
from capmodel.lab.quantise import QuantisedStore, Scheme, quantised_cache
from capmodel.lab.retrieval import make_copies, make_retrieval
from capmodel.lab.rope import rotate
from capmodel.lab.steps import decode_steps, lab_steps

GQA = make_config("gqa")
NO_SIZE = [-1, 10**9, 10**30, True, 2.5, float("nan"), float("inf"), None, "3", [1], np.ones(2)]


def decoder(kind: str, **sizes: object) -> ToyDecoder:
    return ToyDecoder.random(make_config(kind, **sizes))  # type: ignore[arg-type]


def model_text() -> tuple[object, np.ndarray]:
    model = load_language_model()
    return model.tokenizer, model.held_out


TAKES: dict[str, Callable[..., object]] = {
    **{
        name: lambda x, name=name: decoder("mla", **{name: x})
        for name in ("n_layers", "hidden_size", "n_heads", "head_dim", "kv_lora_rank")
    },
    **{
        name: lambda x, name=name: decoder("gqa", **{name: x})
        for name in ("n_kv_heads", "intermediate", "vocab_size")
    },
    "rope_dim": lambda x: decoder("mla", rope_dim=x),
    "window of a store": lambda x: WindowStore(x),
    "sink_tokens of a store": lambda x: WindowStore(4, x),
    "n_blocks": lambda x: BlockPool(2, x, 4),
    "block_size": lambda x: BlockPool(2, 4, x),
    "layers of a pool": lambda x: BlockPool(x, 4, 4),
    "n_new": lambda x: ToyDecoder.random(GQA).generate([[1]], x),
    "story block_size": lambda x: paged_requests(x),
    "story n_new": lambda x: paged_requests(n_new=x),
    "story opening_len": lambda x: paged_requests(opening_len=x),
    "story prompt_lens": lambda x: paged_requests(prompt_lens=(x,)),
    "steps": lambda x: lab_steps(x),
    "group": lambda x: QuantisedStore(Scheme("int8", "channel"), x),
    "budget": lambda x: EvictingStore(sliding_window, x),
    "windows": lambda x: load_language_model().windows(x),
    "questions": lambda x: load_language_model().questions(x),
    "complete": lambda x: load_language_model().complete("And", x),
    "stride": lambda x: load_language_model().perplexity(x),
    "retrieval rows": lambda x: make_retrieval(*model_text(), x, 100, 4, 4, 4, 0),  # type: ignore[arg-type]
    "retrieval length": lambda x: make_retrieval(*model_text(), 1, x, 4, 4, 4, 0),  # type: ignore[arg-type]
    "facts": lambda x: make_retrieval(*model_text(), 1, 100, x, 4, 4, 0),  # type: ignore[arg-type]
    "asked": lambda x: make_retrieval(*model_text(), 1, 100, 4, x, 4, 0),  # type: ignore[arg-type]
    "before": lambda x: make_retrieval(*model_text(), 1, 100, 4, 4, x, 0),  # type: ignore[arg-type]
    "copies rows": lambda x: make_copies(*model_text(), x, 10, 0),  # type: ignore[arg-type]
    "copies length": lambda x: make_copies(*model_text(), 1, x, 0),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("value", NO_SIZE, ids=repr)
@pytest.mark.parametrize("what", TAKES)
def test_what_is_no_size_is_refused(what: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"^Got .* but expected "):
        TAKES[what](value)


@pytest.mark.parametrize("value", [v for v in NO_SIZE if type(v) is not int or v < 0], ids=repr)
@pytest.mark.parametrize(
    "take",
    [
        lambda s: ToyDecoder.random(GQA, seed=s),
        lambda s: BlockPool(1, 4, 4, s),
        lambda s: lab_steps(2, s),
        lambda s: paged_requests(seed=s),
        lambda s: EvictingStore(sliding_window, 8, s),
        lambda s: prove(s),
        lambda s: load_language_model().questions(2, s),
        lambda s: evictions((8,), s),
    ],
)
def test_what_is_no_seed_is_refused(take: Callable[..., object], value: object) -> None:
    with pytest.raises(ValueError, match=r"^Got seed=.* but expected a whole number of at least 0"):
        take(value)


def test_a_large_seed_is_one() -> None:
    assert lab_steps(1, 10**30)["n_tokens"] == 1


@pytest.mark.parametrize("name", ["rope_base", "norm_eps"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), float("inf"), True, None, "3", [1]])
def test_constants_are_positive_numbers(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"^Got {name}=.* but expected a positive"):
        replace(GQA, **{name: value})


@pytest.mark.parametrize(
    "value", [0, 2.5, float("nan"), "3", [1], np.ones(2), True, None], ids=repr
)
def test_windows_are_whole_numbers(value: object) -> None:
    with pytest.raises(ValueError, match=r"^Got window=.* but expected a whole number of at least"):
        make_config("sliding", window=value)  # type: ignore[arg-type]


def test_a_window_longer_than_the_text_and_more_sinks_than_window_are_full_attention() -> None:
    tokens = np.random.default_rng(0).integers(0, 64, (2, 9))
    full = ToyDecoder.random(GQA, 1)
    narrow = tuple(replace(layer, window=1) for layer in GQA.layers)
    wide = tuple(replace(layer, window=10**9) for layer in GQA.layers)
    for config in (replace(GQA, layers=wide), replace(GQA, layers=narrow, sink_tokens=9)):
        other = ToyDecoder(config, full.parameters)
        np.testing.assert_allclose(other.forward(tokens), full.forward(tokens), atol=1e-12)


def test_other_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="Got tied_embeddings='no', but expected True or False"):
        replace(GQA, tied_embeddings="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Got layers of NoneType, but expected a tuple"):
        ToyConfig(None, 8, 8, 8)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Got no layers"):
        ToyConfig((), 8, 8, 8)
    with pytest.raises(ValueError, match="Got cache dtype 'nope', but expected one of float16"):
        FullStore("nope")
    with pytest.raises(ValueError, match=r"Got cache format \[\], but expected one of"):
        Scheme([], "head")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Got keys_before_rope='no', but expected True or False"):
        Scheme("int8", "head", "no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Got rows of unequal lengths"):
        ToyDecoder.random(GQA).forward([[1], [1, 2]])
    with pytest.raises(ValueError, match="Got a prompt of int, but expected text"):
        load_language_model().complete(3, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "take",
    [
        lambda x: ToyDecoder.random(GQA, arithmetic=x),
        lambda x: ToyDecoder.random(GQA, absorbed=x),
        lambda x: ToyDecoder(x, ToyDecoder.random(GQA).parameters),
        lambda x: ToyDecoder(GQA, x),
        lambda x: ToyDecoder.random(GQA).forward([1], cache=x),
        lambda x: ToyDecoder.random(GQA).forward([1], counters=x),
        lambda x: ToyDecoder.random(GQA).forward([1], last_only=x),
        lambda x: decode_steps(x, np.arange(3), True),
        lambda x: decode_steps(ToyDecoder.random(GQA), x, True),
        lambda x: decode_steps(ToyDecoder.random(GQA), np.arange(3), x),
        lambda x: paged_requests(prompt_lens=x),
        lambda x: serve(x, BlockPool(2, 4, 4), [1], 1),
        lambda x: serve(ToyDecoder.random(GQA), x, [1], 1),
        lambda x: serve(ToyDecoder.random(GQA), BlockPool(2, 4, 4), x, 1),
        lambda x: serve(ToyDecoder.random(GQA), BlockPool(2, 4, 4), [1], 1, x),
        lambda x: EvictingStore(x, 8),
        lambda x: measure(x, [full_cache()], 2, 1),
        lambda x: measure(load_language_model(), [x], 2, 1),
        lambda x: measure(load_language_model(), evictions((x,)), 2, 1),
        lambda x: rotate(np.ones((2, 4)), np.arange(2), x),
        lambda x: entropy_bits(x),
        lambda x: load_language_model().tokenizer.encode(x),
        lambda x: load_language_model().tokenizer.decode([x]),
    ],
)
@pytest.mark.parametrize("value", [-1.5, b"x"], ids=repr)
def test_what_is_of_another_kind_is_refused(take: Callable[..., object], value: object) -> None:
    with pytest.raises(ValueError, match=r"^Got .* but expected "):
        take(value)


def test_a_decoder_that_would_not_fit_is_refused_though_each_size_is_modest() -> None:
    with pytest.raises(ValueError, match=r"Got a decoder of 4.31e\+09 weights, but expected at mo"):
        ToyDecoder.random(replace(GQA, hidden_size=2**16, vocab_size=2**16, intermediate=1))


@pytest.mark.parametrize("kind", ["gqa", "mla", "sinks"])
@pytest.mark.parametrize("tied", [True, False])
def test_untied_embeddings_have_a_matrix_of_their_own(kind: str, tied: bool) -> None:
    config = replace(make_config(kind), tied_embeddings=tied)
    parameters = ToyDecoder.random(config).parameters
    assert (parameters.head is None) == tied
    assert tied == np.shares_memory(parameters.output, parameters.embedding)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: d.new_cache(),
        lambda d: evicting_cache(d.config, sliding_window, 8),
        lambda d: quantised_cache(d.config, Scheme("int8", "head")),
    ],
)
@pytest.mark.parametrize(("first", "second"), [(2, 1), (1, 2)])
def test_a_cache_takes_as_many_rows_as_it_holds(
    make: Callable[..., object], first: int, second: int
) -> None:
    d = ToyDecoder.random(GQA)
    cache = make(d)
    d.forward(np.ones((first, 1), int), cache)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"Got {second} rows in float64 for a cache filled with"):
        d.forward(np.ones((second, 1), int), cache)  # type: ignore[arg-type]
    narrow = ToyDecoder.random(GQA, dtype="float32")
    with pytest.raises(ValueError, match="rows in float32 for a cache filled with"):
        narrow.forward(np.ones((first, 1), int), cache)  # type: ignore[arg-type]
