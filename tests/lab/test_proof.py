"""The proof holds, quickly, and would not if the cache were wrong."""

import time
from dataclasses import replace

import numpy as np
import pytest

from capmodel.lab import proof
from capmodel.lab.cache import FullStore, KVCache, WindowStore
from capmodel.lab.config import make_config
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.proof_latent import absorption_gaps, order_gaps


@pytest.mark.parametrize("seed", [0, 1])
def test_every_claim_holds(seed: int) -> None:
    start = time.process_time()
    checks = proof.prove(seed)
    # The aim is 2 s of wall time for the whole command on a quiet machine; CPU time here.
    assert time.process_time() - start < 4
    assert [check.claim for check in checks if not check.holds] == []
    assert len(checks) == 18


def test_a_window_that_keeps_too_few_tokens_fails_the_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        WindowStore, "__init__", lambda self, window, sinks=0: _short(self, window, sinks)
    )
    failed = {check.claim.split(":")[0] for check in proof.prove() if not check.holds}
    assert {"sliding", "sinks"} <= failed
    assert any(claim.startswith("cached decoding equals") for claim in failed)


def test_rounding_the_cache_fails_the_equality(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        KVCache,
        "contiguous",
        classmethod(lambda cls, config: cls([FullStore("float32") for _ in config.layers])),
    )
    failed = [check for check in proof.prove() if not check.holds]
    assert any("bit for bit" in check.claim for check in failed)


def test_the_gap_is_measured_against_the_whole_pass() -> None:
    config = make_config("gqa", n_layers=1)
    decoder = ToyDecoder.random(config)
    tokens = np.random.default_rng(0).integers(0, 64, (1, 6))
    halved = replace(
        decoder, parameters=replace(decoder.parameters, embedding=decoder.parameters.embedding / 2)
    )
    assert proof.cached_gap(decoder, tokens, 2, decoder.new_cache()) < 1e-12
    assert np.abs(halved.forward(tokens) - decoder.forward(tokens)).max() > 1e-2


@pytest.mark.parametrize("seed", range(5))
def test_why_the_latent_carries_a_turned_key(seed: int) -> None:
    plain, turned = absorption_gaps(seed)
    assert plain < 1e-12
    assert turned > 1e-2
    blind, ordered = order_gaps(seed)
    assert blind < 1e-12
    assert ordered > 1e-3


def _short(store: WindowStore, window: int, sinks: int) -> None:
    # Of W tokens held, W - 1 serve the next step: two less is the first loss that shows.
    store.window, store.sink_tokens = max(window - 2, 1), sinks
    store._arrays, store._positions = (), np.arange(0)
