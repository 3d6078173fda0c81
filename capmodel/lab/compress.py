"""What a smaller cache costs: perplexity and retrieval of the shipped model, measured.

Every position is scored as in decoding: it reads only what the cache holds at that step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from capmodel.arguments import instance, seeded
from capmodel.lab.arithmetic import Array
from capmodel.lab.cache import FullStore, KVCache
from capmodel.lab.evict import POLICIES, checked_budget, evicting_cache, policy_named
from capmodel.lab.formats import FORMATS
from capmodel.lab.language_model import LanguageModel, token_losses
from capmodel.lab.quantise import GRANULARITIES, GROUP, Scheme, quantised_cache
from capmodel.lab.sizes import MOST_ROWS, whole
from capmodel.lab.threads import one_thread

BUDGETS = (128, 64, 32, 16)
TEXT_ROWS, QUESTION_ROWS = 20, 12
FULL = "float32"


@dataclass(frozen=True, slots=True)
class Treatment:
    """One way to keep the cache smaller.

    feed: tokens handed to the decoder at once; what the cache returns does not depend on it.
    reference_bits: bits per element of the full cache its bytes are set against; 32 where the
    lab keeps float32 and only the number of tokens shrinks.
    """

    family: str
    name: str
    make: Callable[[LanguageModel], KVCache]
    feed: int
    reference_bits: int
    policy: str | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table.

    bytes_share: bytes after the last token over those of a full cache with 16 bits an element
    (kept tokens over all tokens where tokens are evicted; the score heavy hitters keep a token and
    head, 4 bytes beside 128, is not counted).
    perplexity: over the second half of each window. change: relative to the full cache, with a
    90 % interval (`change_low`, `change_high`): Student's t over the windows, each one's mean loss
    paired with its own under the full cache.
    retrieval: share of questions answered. nbytes: [byte] of the arrays, all rows.
    """

    family: str
    name: str
    bytes_share: float
    perplexity: float
    change: float
    change_low: float
    change_high: float
    retrieval: float
    nbytes: int
    policy: str | None = None
    budget: int | None = None


@dataclass(frozen=True, slots=True)
class Exam:
    """Rows every treatment is graded on: text windows first, then retrieval sequences.

    tokens [rows, context + 1]; answers [rows, context] marks graded retrieval positions.
    """

    tokens: Array
    n_text: int
    answers: Array

    @classmethod
    def of(cls, model: LanguageModel, text_rows: int, question_rows: int, seed: int) -> "Exam":
        """The same rows for the same seed."""
        questions = model.questions(question_rows, seed)
        tokens = np.concatenate([model.windows(text_rows), questions.tokens])
        return cls(tokens, text_rows, questions.answers[:, :-1])


def treatments(seed: int = 0) -> list[Treatment]:
    """Both full caches, every quantisation, every eviction policy at every budget.

    seed: of who is forgotten at random.
    """
    schemes = [
        Scheme(name, granularity, before)
        for name in FORMATS
        for granularity in GRANULARITIES
        for before in (False, True)
    ]
    half = Treatment("full", "float16", _half_cache, GROUP, 16)
    return [
        full_cache(),
        half,
        *(_quantised(scheme) for scheme in schemes),
        *evictions(BUDGETS, seed),
    ]


def full_cache() -> Treatment:
    """Nothing made smaller: float32, as it is computed."""
    return Treatment("full", FULL, LanguageModel.new_cache, GROUP, 16)


def evictions(budgets: Sequence[int], seed: int = 0) -> list[Treatment]:
    """Every eviction policy at each of `budgets` [token]. seed: of who is forgotten at random."""
    seed = seeded(seed)
    return [_evicted(policy, budget, seed) for policy in POLICIES for budget in budgets]


def measure(
    model: LanguageModel,
    chosen: Sequence[Treatment],
    text_rows: int = TEXT_ROWS,
    question_rows: int = QUESTION_ROWS,
    seed: int = 0,
) -> Iterator[Outcome]:
    """Outcomes of `chosen`, one by one, against a full float32 cache measured first.

    Raises ValueError for a budget below what eviction needs or above the rows' length, and for
    fewer than two rows of text, whose spread nobody knows.
    """
    instance("model", model, LanguageModel)
    for treatment in chosen:
        instance("a treatment", treatment, Treatment)
        if treatment.policy is not None:
            checked_budget(treatment.budget, model.context)
    text_rows = whole("text_rows", text_rows, 2, MOST_ROWS)
    exam = Exam.of(model, text_rows, question_rows, seed)
    return _measured(model, chosen, exam, seed)


def _measured(
    model: LanguageModel, chosen: Sequence[Treatment], exam: Exam, seed: int
) -> Iterator[Outcome]:
    reference = model.new_cache()
    with one_thread():
        full_losses, full_right = _sit(model, exam, reference, GROUP)
    for treatment in chosen:
        if treatment.name == FULL:
            losses, right, cache = full_losses, full_right, reference
        else:
            cache = treatment.make(model)
            with one_thread():
                losses, right = _sit(model, exam, cache, treatment.feed)
        change, low, high = _change(losses - full_losses)
        yield Outcome(
            treatment.family,
            treatment.name,
            cache.nbytes / (reference.nbytes * treatment.reference_bits / 32),
            float(np.exp(losses.mean())),
            change,
            low,
            high,
            float(right.mean()),
            cache.nbytes,
            treatment.policy,
            treatment.budget,
        )


def _sit(model: LanguageModel, exam: Exam, cache: KVCache, feed: int) -> tuple[Array, Array]:
    """Losses [text rows, context / 2] and right answers [graded questions] with `cache`."""
    length = exam.tokens.shape[1] - 1
    first_scored = length // 2
    losses, right = [], []
    for start in range(0, length, feed):
        end = min(start + feed, length)
        unscored = end <= first_scored
        logits = model.decoder.forward(exam.tokens[:, start:end], cache, last_only=unscored)
        if unscored:
            continue
        targets = exam.tokens[:, start + 1 : end + 1]
        scored = slice(max(first_scored - start, 0), None)
        text = slice(None, exam.n_text)
        losses.append(token_losses(logits[text, scored], targets[text, scored]))
        asked = exam.answers[:, start:end]
        guesses = logits[exam.n_text :][asked].argmax(-1)
        right.append(guesses == targets[exam.n_text :][asked])
    return np.concatenate(losses, axis=1), np.concatenate(right)


def _change(differences: Array) -> tuple[float, float, float]:
    """Relative perplexity change and its 90 % interval from mean differences per window.

    Student's t: resampling 20 windows covers 87 % instead of 90 %, resampling two half of it.
    """
    rows = differences.mean(axis=1)
    n = len(rows)
    half = stdtrit(n - 1, 0.95) * rows.std(ddof=1) / np.sqrt(n)
    change, low, high = np.expm1([rows.mean(), rows.mean() - half, rows.mean() + half])
    return float(change), float(low), float(high)


def _half_cache(model: LanguageModel) -> KVCache:
    return KVCache([FullStore("float16") for _ in model.decoder.config.layers])


def _quantised(scheme: Scheme) -> Treatment:
    where = "pre" if scheme.keys_before_rope else "post"
    name = f"{scheme.format} per {scheme.granularity}, {where}-RoPE"

    def make(model: LanguageModel) -> KVCache:
        return quantised_cache(model.decoder.config, scheme)

    return Treatment("quantised", name, make, GROUP, 16)


def _evicted(policy: str, budget: int, seed: int) -> Treatment:
    def make(model: LanguageModel) -> KVCache:
        return evicting_cache(model.decoder.config, policy_named(policy), budget, seed)

    return Treatment("evicted", f"{policy}, {budget} tokens", make, 1, 32, policy, budget)
