"""The decisions a scheduler takes, each a plain function.

Routing: which replica gets a request. Batching: how many prompt tokens a step may hold and
whether decoding goes on beside them. Ordering: who is admitted next. Reservation: for how
many tokens blocks are set aside at admission.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from capmodel.arguments import number
from capmodel.workload.limits import TOKENS

Route = Callable[[int, int, Sequence[int]], int]
Batching = Callable[[int, int], tuple[int, bool]]
Order = Callable[[int, int, int], float]
Reservation = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]


def round_robin(number: int, prefix: int, loads: Sequence[int]) -> int:
    """Replicas in turn. number: of the request; prefix: its first block id; loads: in system."""
    return number % len(loads)


def least_loaded(number: int, prefix: int, loads: Sequence[int]) -> int:
    """The replica with the fewest requests in the system, the first of equals."""
    return loads.index(min(loads))


def same_prefix(number: int, prefix: int, loads: Sequence[int]) -> int:
    """Requests that begin alike go to one replica, unless it has twice the mean load and more."""
    if prefix < 0:
        return least_loaded(number, prefix, loads)
    # Knuth's multiplicative hash spreads neighbouring ids.
    home = (prefix * 2654435761 & 0xFFFFFFFF) * len(loads) >> 32
    crowded = loads[home] > 4 + 2 * sum(loads) / len(loads)
    return least_loaded(number, prefix, loads) if crowded else home


def mixed(decoding: int, budget: int) -> tuple[int, bool]:
    """Chunked prefill beside decoding: each decoding sequence takes one token of the budget.

    Returns (prompt tokens allowed in the step, whether decoding goes on). vLLM, TensorRT-LLM.
    """
    return max(0, budget - decoding), True


def prefill_first(decoding: int, budget: int) -> tuple[int, bool]:
    """Prompts in steps of their own, before any decoding; SGLang's default."""
    return budget, False


def first_come(number: int, prompt_tokens: int, output_tokens: int) -> float:
    """Smaller goes first: by arrival."""
    return number


def shortest_prompt(number: int, prompt_tokens: int, output_tokens: int) -> float:
    """Smaller goes first: by prompt length."""
    return prompt_tokens


def on_demand(prompt: NDArray[np.int64], output: NDArray[np.int64]) -> NDArray[np.int64]:
    """Blocks for the prompt, then one at a time as it grows (paged attention)."""
    return prompt


def whole_request(prompt: NDArray[np.int64], output: NDArray[np.int64]) -> NDArray[np.int64]:
    """Everything the request will need, so that it is never evicted (an oracle)."""
    return prompt + output


def power_of_two(prompt: NDArray[np.int64], output: NDArray[np.int64]) -> NDArray[np.int64]:
    """Prompt + output rounded up to a power of two: contiguous, output length guessed."""
    total = (prompt + output).astype(float)
    return (2 ** np.ceil(np.log2(total))).astype(np.int64)


def context_limit(max_context: int) -> Reservation:
    """Contiguous space for the longest context allowed, whatever the request. Raises ValueError."""
    max_context = number("max_context", max_context, TOKENS)

    def reserve(prompt: NDArray[np.int64], output: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum(np.full_like(prompt, max_context), prompt + output)

    return reserve
