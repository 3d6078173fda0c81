"""The baseline the lab's model has to beat: interpolated Kneser-Ney over the same tokens."""

import math
from collections import defaultdict

import numpy as np

Context = tuple[int, ...]


def best_ngram(
    text: np.ndarray,
    held_out: np.ndarray,
    vocab: int,
    orders: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8),
) -> tuple[int, float]:
    """Order and loss [nat/token] of the best n-gram on `held_out`; prints every order.

    Picking the order on the held-out text itself favours the baseline.
    """
    model = KneserNey(text.tolist(), max(orders), vocab)
    best = (0, math.inf)
    for order in orders:
        nats = float(model.losses(held_out.tolist(), order).mean())
        print(f"{order}-gram: {nats:.4f} nat/token, perplexity {math.exp(nats):.1f}")
        best = min(best, (order, nats), key=lambda pair: pair[1])
    return best


class KneserNey:
    """Interpolated Kneser-Ney with one discount per order, estimated as n1 / (n1 + 2 n2)."""

    def __init__(self, text: list[int], order: int, vocab: int) -> None:
        self.vocab = vocab
        self.raw: list[dict[Context, dict[int, int]]] = []
        self.continuation: list[dict[Context, dict[int, int]]] = []
        for n in range(1, order + 1):
            counts: dict[Context, dict[int, int]] = defaultdict(lambda: defaultdict(int))
            preceded: dict[Context, dict[int, int]] = defaultdict(lambda: defaultdict(int))
            for gram in set(zip(*(text[i:] for i in range(n + 1)), strict=False)):
                preceded[gram[1:-1]][gram[-1]] += 1
            for gram in zip(*(text[i:] for i in range(n)), strict=False):
                counts[gram[:-1]][gram[-1]] += 1
            self.raw.append(counts)
            self.continuation.append(preceded)

    def losses(self, tokens: list[int], order: int) -> np.ndarray:
        """Negative log probability [nat] of each of `tokens` under the order-`order` model."""
        tables = [*self.continuation[: order - 1], self.raw[order - 1]]
        discounts = [_discount(table) for table in tables]
        sums = [{c: (sum(f.values()), len(f)) for c, f in table.items()} for table in tables]
        found = np.empty(len(tokens))
        for i, token in enumerate(tokens):
            p = 1.0 / self.vocab
            for n in range(1, min(order, i + 1) + 1):
                context = tuple(tokens[i - n + 1 : i])
                if context not in sums[n - 1]:
                    break
                mass, kinds = sums[n - 1][context]
                d = discounts[n - 1]
                count = tables[n - 1][context].get(token, 0)
                p = (max(count - d, 0.0) + d * kinds * p) / mass
            found[i] = -math.log(p)
        return found


def _discount(table: dict[Context, dict[int, int]]) -> float:
    ones = sum(count == 1 for followers in table.values() for count in followers.values())
    twos = sum(count == 2 for followers in table.values() for count in followers.values())
    return ones / (ones + 2 * twos) if ones else 0.5
