"""Byte-pair tokens over a known alphabet, plus reserved symbols for keys, values and marks.

Ids run: alphabet, merges, specials. A character outside the alphabet is an error, never a
replacement token: a perplexity over replaced text would mean nothing.
"""

import re
from dataclasses import dataclass, field
from itertools import pairwise

from capmodel.words import shown

BOS, FACTS, ASK, COPY = "<bos>", "<facts>", "<ask>", "<copy>"
N_SYMBOLS = 32
SPECIALS = (
    BOS,
    FACTS,
    ASK,
    COPY,
    *(f"<k{i}>" for i in range(N_SYMBOLS)),
    *(f"<v{i}>" for i in range(N_SYMBOLS)),
)
_WORD = re.compile(r" ?[A-Za-z]+| ?[^A-Za-z\s]|\s")


def split_words(text: str) -> list[str]:
    """Cut text into the pieces merges stay inside: a word with its space, a mark, a newline."""
    return _WORD.findall(text)


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """`alphabet` holds every known character, `merges` the pairs of ids in the order learned."""

    alphabet: str
    merges: tuple[tuple[int, int], ...]
    _ranks: dict[tuple[int, int], int] = field(default_factory=dict, compare=False, repr=False)
    _cache: dict[str, tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._ranks.update({pair: rank for rank, pair in enumerate(self.merges)})

    @property
    def vocab_size(self) -> int:
        """Alphabet, merges and specials."""
        return len(self.alphabet) + len(self.merges) + len(SPECIALS)

    def special(self, name: str) -> int:
        """Id of a reserved symbol such as `"<facts>"`. Raises ValueError for an unknown one."""
        if name not in SPECIALS:
            raise ValueError(
                f"Got special {name!r}, but expected one of {', '.join(SPECIALS[:6])}, ..."
            )
        return len(self.alphabet) + len(self.merges) + SPECIALS.index(name)

    def key(self, index: int) -> int:
        """Id of key symbol `index`, 0 to 31."""
        return self.special(f"<k{index}>")

    def value(self, index: int) -> int:
        """Id of value symbol `index`, 0 to 31."""
        return self.special(f"<v{index}>")

    def encode(self, text: str) -> list[int]:
        """Ids of `text`. Raises ValueError naming the first character outside the alphabet."""
        if not isinstance(text, str):
            raise ValueError(f"Got {shown(text)} to encode, but expected a text")
        for position, character in enumerate(text):
            if character not in self.alphabet:
                raise ValueError(
                    f"Got character {character!r} at position {position}, but expected one of the "
                    f"{len(self.alphabet)} the model was trained on: {self.alphabet!r}; "
                    "leave it out or spell it with these"
                )
        return [token for word in split_words(text) for token in self._encode_word(word)]

    def decode(self, tokens: list[int]) -> str:
        """Text of ids; specials print as their names. Raises ValueError for an unknown id."""
        spelled = self._spellings()
        known = range(len(spelled))
        bad = [token for token in tokens if token not in known]
        if bad:
            raise ValueError(f"Got token id {shown(bad[0])}, but expected 0 to {len(spelled) - 1}")
        return "".join(spelled[token] for token in tokens)

    def _spellings(self) -> list[str]:
        spelled = list(self.alphabet)
        for left, right in self.merges:
            spelled.append(spelled[left] + spelled[right])
        return [*spelled, *SPECIALS]

    def _encode_word(self, word: str) -> tuple[int, ...]:
        known = self._cache.get(word)
        if known is not None:
            return known
        ids = [self.alphabet.index(character) for character in word]
        while len(ids) > 1:
            ranks = [self._ranks.get(pair, len(self.merges)) for pair in pairwise(ids)]
            best = min(ranks)
            if best == len(self.merges):
                break
            ids = merge_pair(ids, self.merges[best], len(self.alphabet) + best)
        self._cache[word] = tuple(ids)
        return self._cache[word]


def merge_pair(ids: list[int], pair: tuple[int, int], merged: int) -> list[int]:
    """Replace each occurrence of `pair` in `ids` by `merged`, left to right."""
    out: list[int] = []
    i = 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(merged)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out
