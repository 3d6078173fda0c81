"""Coding against a guess: lengths that a real coder could have, shorter the better the guess."""

import numpy as np
import pytest

from capmodel.lab import predicted
from capmodel.lab.entropy import as_bf16_words
from capmodel.lab.language_model import load_language_model
from capmodel.lab.predicted import as_bf16, code_bits, code_given_twin


def test_rounding_to_bf16_is_exact_and_stays() -> None:
    x = np.array([1.0, -2.5, 3.1415927, 1e-30], np.float32)
    once = as_bf16(x)
    assert (as_bf16(once) == once).all()
    assert (as_bf16_words(once) == as_bf16_words(x)).all()
    assert once[2] == 3.140625


@pytest.mark.parametrize(("guess", "spread"), [(0.0, 1.0), (1.0, 0.01), (-300.0, 2.0), (5.0, 50.0)])
def test_code_lengths_fit_into_one_code(guess: float, spread: float) -> None:
    # Kraft: 2**-bits over all finite bf16 numbers is at most 1, and nearly 1 for an ideal code.
    words = np.array([w for w in range(2**16) if w & 0x7F80 != 0x7F80], np.uint32)
    every = (words << 16).view(np.float32)
    total = (2.0 ** -code_bits(every, np.float64(guess), np.float64(spread))).sum()
    assert 0.998 < total <= 1.0 + 1e-6


def test_a_sure_and_right_guess_is_short_and_a_wrong_one_is_no_disaster() -> None:
    true = np.array([1.0], np.float32)
    assert code_bits(true, 1.0, 1e-6)[0] < 0.01
    # The escape: 16 bits of word and ten to say so.
    assert code_bits(true, 50.0, 1e-6)[0] == pytest.approx(16 + np.log2(1000), abs=0.01)


def test_a_better_twin_codes_shorter() -> None:
    model = load_language_model()
    fine, coarse = (code_given_twin(model, twin, 4) for twin in ("int8", "int4"))
    assert fine.bits < coarse.bits < 16
    assert fine.ratio == pytest.approx(16 / fine.bits)
    with pytest.raises(ValueError, match="Got rows=1"):
        code_given_twin(model, "int8", 1)


def test_spreads_come_from_rows_that_are_not_coded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Guesses of 0, off by 1 in the first half of the rows and by 4 in the second, which is coded.
    true = np.repeat(np.float32([1, 4]), 2)[:, None, None, None] * np.ones((4, 2, 3, 5), np.float32)
    entries = iter([np.zeros_like(true), true])
    monkeypatch.setattr(predicted, "held_entries", lambda model, rows: next(entries))
    found = predicted.code_given_twin(load_language_model(), "int8", 4)
    spread = np.full((1, 2, 1, 5), 1 / np.log(4))
    expected = code_bits(true[2:], np.zeros_like(true[2:]), spread).mean()
    assert found.bits == pytest.approx(expected)
