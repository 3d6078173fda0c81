"""The shipped language model: text in, probabilities and text out."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from capmodel.lab.arithmetic import Array
from capmodel.lab.cache import KVCache
from capmodel.lab.decoder import ToyDecoder
from capmodel.lab.retrieval import RetrievalSet, make_retrieval
from capmodel.lab.sizes import whole
from capmodel.lab.threads import one_thread
from capmodel.lab.tokenizer import Tokenizer
from capmodel.lab.weights import ModelFile, read_model

Progress = Callable[[str, int, int], None]
N_FACTS, N_QUESTIONS = 16, 8  # in a sequence that asks


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A decoder with its tokenizer. held_out: ids of text it never saw. context [token]."""

    decoder: ToyDecoder
    tokenizer: Tokenizer
    held_out: Array
    characters_per_token: float
    context: int
    training: dict[str, Any]
    sha256: str

    def encode(self, prompt: str) -> Array:
        """Ids [1, tokens]. Raises ValueError for unknown characters, empty or too long prompts."""
        if not isinstance(prompt, str):
            raise ValueError(f"Got a prompt of {type(prompt).__name__}, but expected text")
        ids = self.tokenizer.encode(prompt)
        if not 1 <= len(ids) <= self.context:
            raise ValueError(
                f"Got a prompt of {len(ids)} tokens, but expected 1 to {self.context}, the length "
                "the model was trained on"
            )
        return np.array([ids])

    def complete(self, prompt: str, n_new: int, cache: KVCache | None = None) -> str:
        """Greedy continuation of `prompt`; at most `context` tokens in all.

        Raises ValueError for unknown characters and for lengths the model does not know.
        """
        ids, n_new = self.encode(prompt), whole("n_new", n_new, 1, self.context)
        if ids.shape[1] + n_new > self.context:
            raise ValueError(
                f"Got {ids.shape[1]} prompt tokens and n_new={n_new}, but expected at most "
                f"{self.context} together, the length the model was trained on"
            )
        cache = cache if cache is not None else self.new_cache()
        with one_thread():
            new = self.decoder.generate(ids, n_new, cache)
        return self.tokenizer.decode(new[0].tolist())

    def new_cache(self) -> KVCache:
        """An empty contiguous cache."""
        return self.decoder.new_cache()

    def windows(self, rows: int) -> Array:
        """`rows` cuts [rows, context + 1] spread evenly over the held-out text.

        Raises ValueError when the text is too short for that many without overlap.
        """
        room = len(self.held_out) // (self.context + 1)
        rows = whole("rows", rows, 1, room)
        starts = np.linspace(0, len(self.held_out) - self.context - 1, rows).astype(int)
        return np.asarray(self.held_out[starts[:, None] + np.arange(self.context + 1)])

    def questions(self, rows: int, seed: int = 0) -> RetrievalSet:
        """Retrieval sequences [rows, context + 1]: facts, held-out text, half the facts asked."""
        return make_retrieval(
            self.tokenizer,
            self.held_out,
            rows,
            self.context + 1,
            N_FACTS,
            N_QUESTIONS,
            16,
            seed,
            repeat=False,
        )

    def perplexity(self, stride: int = 128, progress: Progress | None = None) -> float:
        """Per token, over all held-out text: each token predicted from at least `stride` before it.

        The first window's first tokens have less. progress: called with ("perplexity", tokens
        done, tokens in all). Raises ValueError for a stride outside 1 to `context - 1`.
        """
        stride = whole("stride", stride, 1, self.context - 1)
        step = self.context - stride
        total, count = 0.0, 0
        for start in range(0, len(self.held_out) - 1, step):
            ids = self.held_out[start : start + self.context + 1]
            with one_thread():
                logits = self.decoder.forward(ids[None, :-1])
            losses = token_losses(logits, ids[None, 1:])[0]
            losses = losses if start == 0 else losses[stride:]
            total, count = total + float(losses.sum()), count + len(losses)
            if progress is not None:
                progress("perplexity", count, len(self.held_out) - 1)
            if start + self.context + 1 >= len(self.held_out):
                break
        return float(np.exp(total / count))


def token_losses(logits: Array, targets: Array) -> Array:
    """Negative log probability [nat] of `targets` [batch, n] under `logits` [batch, n, vocab]."""
    top = logits.max(-1, keepdims=True)
    log_mass = np.log(np.exp(logits - top).sum(-1)) + top[..., 0]
    return np.asarray(log_mass - np.take_along_axis(logits, targets[..., None], -1)[..., 0])


@lru_cache(maxsize=1)
def load_language_model() -> LanguageModel:
    """The bundled model. Raises ValueError when its file is missing or damaged."""
    return from_file(read_model())


def from_file(file: ModelFile) -> LanguageModel:
    """A language model from what `read_model` returned."""
    held_out = np.array(file.tokenizer.encode(file.held_out))
    return LanguageModel(
        ToyDecoder(file.config, file.parameters),
        file.tokenizer,
        held_out,
        len(file.held_out) / len(held_out),
        file.context,
        file.training,
        file.sha256,
    )


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Figures of the shipped model; `ngram_` ones were recorded when it was trained.

    perplexity, ngram_perplexity: per token of held-out text. bits_per_character: of both.
    retrieval: share of questions answered with the full cache. tokens_per_s [token/s]: decoding
    one sequence, here and now.
    """

    sha256: str
    n_parameters: int
    held_out_tokens: int
    perplexity: float
    bits_per_character: float
    ngram_order: int
    ngram_perplexity: float
    ngram_bits_per_character: float
    retrieval: float
    tokens_per_s: float


def model_card(model: LanguageModel, rows: int = 32, progress: Progress | None = None) -> ModelCard:
    """Measure `model` on all its held-out text and on `rows` retrieval sequences.

    progress: called with (what is measured, done, in all) after every window of text.
    """
    perplexity = model.perplexity(progress=progress)
    asked = model.questions(rows)
    with one_thread():
        guesses = model.decoder.forward(asked.tokens[:, :-1]).argmax(-1)
    right = (guesses == asked.tokens[:, 1:])[asked.answers[:, :-1]]
    prompt, n_new = model.held_out[:8], model.context - 8
    start = time.perf_counter()
    with one_thread():
        model.decoder.generate(prompt[None], n_new, model.new_cache())
    speed = n_new / (time.perf_counter() - start)
    ngram = model.training["ngram_perplexity"]
    return ModelCard(
        model.sha256,
        model.decoder.parameters.count(),
        len(model.held_out),
        perplexity,
        math.log2(perplexity) / model.characters_per_token,
        model.training["ngram_order"],
        ngram,
        math.log2(ngram) / model.characters_per_token,
        float(right.mean()),
        speed,
    )
