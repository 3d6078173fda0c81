"""Tokens spell their text back; unknown characters and ids are errors, never replacements."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capmodel.lab.retrieval import make_copies, make_retrieval
from capmodel.lab.tokenizer import N_SYMBOLS, SPECIALS, Tokenizer, merge_pair, split_words

ALPHABET = "\n abcdet,"
# "ab" is 9 (ids of a and b are 2 and 3), "abc" 10, " abc" 11.
TOKENIZER = Tokenizer(ALPHABET, ((2, 3), (9, 4), (1, 10)))


def test_merges_apply_in_the_order_they_were_learned() -> None:
    assert TOKENIZER.encode("abc abc") == [10, 11]
    assert TOKENIZER.encode("abd, bc") == [9, 5, 8, 1, 3, 4]
    assert TOKENIZER.vocab_size == 9 + 3 + len(SPECIALS)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=ALPHABET, max_size=60))
def test_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text
    assert "".join(split_words(text)) == text


def test_overlapping_pairs_merge_left_to_right() -> None:
    assert merge_pair([2, 2, 2, 5, 2, 2], (2, 2), 9) == [9, 2, 5, 9]


def test_unknown_characters_and_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="Got character 'é' at position 3, but expected one of"):
        TOKENIZER.encode("abcé")
    with pytest.raises(ValueError, match="Got token id 999, but expected 0 to"):
        TOKENIZER.decode([2, 999])
    with pytest.raises(ValueError, match="Got special '<pad>'"):
        TOKENIZER.special("<pad>")


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.integers(1, 10), st.integers(0, 30), st.integers(0, 1000))
def test_every_answer_is_the_value_its_key_was_given(
    n_facts: int, n_questions: int, before: int, seed: int
) -> None:
    text = np.arange(2, 9).repeat(30)
    length = 2 + before + 2 * n_facts + 2 * n_questions + 7
    made = make_retrieval(TOKENIZER, text, 3, length, n_facts, n_questions, before, seed)
    assert made.tokens.shape == (3, length)
    facts = made.tokens[:, before + 1 : before + 1 + 2 * n_facts].reshape(3, n_facts, 2)
    for row, known in zip(made.tokens, facts, strict=True):
        table = dict(known.tolist())
        assert len(table) == n_facts
        asked = row[length - 2 * n_questions :].reshape(-1, 2)
        assert all(table[key] == value for key, value in asked.tolist())
    assert made.answers.sum() == 3 * n_questions
    answered = made.tokens[:, 1:][made.answers[:, :-1]]
    assert (answered >= TOKENIZER.value(0)).all()
    assert (made.tokens[:, 1:][made.text[:, :-1]] < 9).all()


def test_without_repeats_every_fact_is_asked_for_once() -> None:
    text = np.arange(2, 9).repeat(30)
    made = make_retrieval(TOKENIZER, text, 4, 60, 6, 6, 0, 3, repeat=False)
    asked = made.tokens[:, -12::2]
    assert all(len(set(row)) == 6 for row in asked.tolist())


def test_copies_repeat_and_mark_what_can_be_known() -> None:
    made = make_copies(TOKENIZER, np.arange(2, 9), 2, 21, seed=1)
    assert (made.tokens[:, 1:10] == made.tokens[:, 11:20]).all()
    assert (made.tokens[:, 1:][made.answers[:, :-1]] == made.tokens[:, 11:20].ravel()).all()


def test_parts_that_do_not_fit_are_refused() -> None:
    text = np.arange(2, 9).repeat(30)
    with pytest.raises(ValueError, match="Got length=20, but expected at least 32 tokens"):
        make_retrieval(TOKENIZER, text, 1, 20, 10, 5, 0, 0)
    with pytest.raises(ValueError, match=f"Got n_facts=33, but expected 1 to {N_SYMBOLS}"):
        make_retrieval(TOKENIZER, text, 1, 200, 33, 5, 0, 0)
    with pytest.raises(ValueError, match="Got n_questions=5 without repeats"):
        make_retrieval(TOKENIZER, text, 1, 60, 3, 5, 0, 0, repeat=False)
    with pytest.raises(ValueError, match="Got 7 tokens of text"):
        make_retrieval(TOKENIZER, np.arange(7), 1, 40, 3, 3, 0, 0)
