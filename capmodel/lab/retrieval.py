"""Synthetic sequences whose answers lie far back: facts, then text, then questions.

`text | <facts> k v k v ... | text | <ask> k v k v ...`: after `<ask>` each key is followed by
the value it had among the facts, so a model can only answer from what its cache still holds.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from capmodel.arguments import flag, seeded
from capmodel.lab.sizes import MOST_ROWS, MOST_TOKENS, whole
from capmodel.lab.tokenizer import ASK, COPY, FACTS, N_SYMBOLS, Tokenizer

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """tokens [rows, length]; `answers` [rows, length] is true where the next token is an answer.

    `text` [rows, length] is true where the next token is ordinary text.
    """

    tokens: IntArray
    answers: NDArray[np.bool_]
    text: NDArray[np.bool_]


def make_retrieval(
    tokenizer: Tokenizer,
    text: IntArray,
    rows: int,
    length: int,
    n_facts: int,
    n_questions: int,
    before: int,
    seed: int,
    repeat: bool = True,
) -> RetrievalSet:
    """`rows` sequences of `length` tokens with `n_facts` pairs and `n_questions` questions.

    before: tokens of text ahead of the facts; the rest of the room is text after them.
    repeat: a fact may be asked for again, and its earlier answer copied; False needs as many facts
    as questions.
    text: ids to cut the text from. Raises ValueError when the parts do not fit.
    """
    rows, seed = whole("rows", rows, 1, MOST_ROWS), seeded(seed)
    sizes = {"length": length, "n_facts": n_facts, "n_questions": n_questions, "before": before}
    for name, size in sizes.items():
        whole(name, size, 0, MOST_TOKENS)
    repeat = flag("repeat", repeat)
    between = length - before - 2 * n_facts - 2 * n_questions - 2
    if not 1 <= n_facts <= N_SYMBOLS:
        raise ValueError(f"Got n_facts={n_facts}, but expected 1 to {N_SYMBOLS}")
    if n_questions < 1 or before < 0 or between < 0:
        raise ValueError(
            f"Got length={length}, but expected at least {length - between} tokens for "
            f"before={before}, n_facts={n_facts}, n_questions={n_questions}, each at least "
            "1 (before: 0)"
        )
    if not repeat and n_questions > n_facts:
        raise ValueError(
            f"Got n_questions={n_questions} without repeats, but expected at most n_facts={n_facts}"
        )
    if len(text) < length:
        raise ValueError(f"Got {len(text)} tokens of text, but expected at least length={length}")
    rng = np.random.default_rng(seed)
    ranks = np.argsort(rng.random((rows, N_SYMBOLS)), axis=1)[:, :n_facts]
    keys = ranks + tokenizer.key(0)
    values = rng.integers(0, N_SYMBOLS, (rows, n_facts)) + tokenizer.value(0)
    if repeat:
        asked = rng.integers(0, n_facts, (rows, n_questions))
    else:
        asked = np.argsort(rng.random((rows, n_facts)), axis=1)[:, :n_questions]
    facts = np.stack([keys, values], axis=2).reshape(rows, -1)
    questions = np.stack(
        [np.take_along_axis(keys, asked, 1), np.take_along_axis(values, asked, 1)], axis=2
    ).reshape(rows, -1)
    marks = np.ones((rows, 1), dtype=np.int64)
    tokens = np.concatenate(
        [
            _cuts(text, rows, before, rng),
            marks * tokenizer.special(FACTS),
            facts,
            _cuts(text, rows, between, rng),
            marks * tokenizer.special(ASK),
            questions,
        ],
        axis=1,
    )
    answers = np.zeros((rows, length), dtype=bool)
    answers[:, length - 2 * n_questions : length : 2] = True
    is_text = np.zeros((rows, length), dtype=bool)
    is_text[:, : max(before - 1, 0)] = True
    start = before + 1 + 2 * n_facts
    is_text[:, start : max(start + between - 1, start)] = True
    return RetrievalSet(tokens, answers, is_text)


def make_copies(
    tokenizer: Tokenizer, text: IntArray, rows: int, length: int, seed: int
) -> RetrievalSet:
    """`<copy> x <copy> x` with x drawn token by token from `text`; the second half is answers.

    Raises ValueError for no rows and for fewer than 4 tokens a row.
    """
    rows, length = whole("rows", rows, 1, MOST_ROWS), whole("length", length, 4, MOST_TOKENS)
    rng = np.random.default_rng(seeded(seed))
    half = (length - 2) // 2
    drawn = text[rng.integers(0, len(text), (rows, half))]
    mark = np.full((rows, 1), tokenizer.special(COPY))
    tokens = np.concatenate([mark, drawn, mark, drawn], axis=1)
    tokens = np.concatenate([tokens, np.repeat(mark, length - tokens.shape[1], axis=1)], axis=1)
    answers = np.zeros((rows, length), dtype=bool)
    answers[:, half + 1 : 2 * half + 1] = True
    return RetrievalSet(tokens, answers, np.zeros_like(answers))


def _cuts(text: IntArray, rows: int, length: int, rng: np.random.Generator) -> IntArray:
    starts = rng.integers(0, len(text) - length + 1, rows)
    return np.asarray(text[starts[:, None] + np.arange(length)], dtype=np.int64)
