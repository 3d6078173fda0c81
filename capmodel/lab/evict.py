"""Forgetting: a cache of at most `budget` tokens a head, and the rules for who goes.

Each token overwrites one the policy picks once the budget is full; kept tokens keep the RoPE
position they were written with.
"""

from collections.abc import Callable

import numpy as np

from capmodel.arguments import function, seeded
from capmodel.lab.arithmetic import Array
from capmodel.lab.cache import Held, KVCache
from capmodel.lab.config import ToyConfig
from capmodel.lab.sizes import MOST_TOKENS, named, whole
from capmodel.shapes.attention import SoftmaxAttention

SINK_TOKENS = 4

# (positions, mass, rng) -> the slot to overwrite [batch, heads]; positions and mass
# [batch, heads, budget]: where each held token stood, and all attention it has received.
Policy = Callable[[Array, Array, np.random.Generator], Array]


def sliding_window(positions: Array, mass: Array, rng: np.random.Generator) -> Array:
    """The oldest goes."""
    return positions.argmin(-1)


def sinks_and_window(positions: Array, mass: Array, rng: np.random.Generator) -> Array:
    """The oldest but the first four tokens of the text (StreamingLLM, Xiao et al. 2023)."""
    return np.where(positions < SINK_TOKENS, np.inf, positions).argmin(-1)


def heavy_hitters(positions: Array, mass: Array, rng: np.random.Generator) -> Array:
    """Of the older half, the one attended to least so far (H2O, Zhang et al. 2023)."""
    return np.where(_recent(positions), np.inf, mass).argmin(-1)


def random_old(positions: Array, mass: Array, rng: np.random.Generator) -> Array:
    """Of the older half, any: what heavy hitters must beat."""
    return np.where(_recent(positions), np.inf, rng.random(positions.shape)).argmin(-1)


POLICIES: dict[str, Policy] = {
    "sliding window": sliding_window,
    "sinks + window": sinks_and_window,
    "heavy hitters": heavy_hitters,
    "random": random_old,
}


class EvictingStore:
    """Keys and values of one softmax layer in `budget` slots; takes one token at a time."""

    before_rope = False

    def __init__(self, policy: Policy, budget: int, seed: int = 0) -> None:
        self.policy, self.budget = function("policy", policy), checked_budget(budget)
        self._rng = np.random.default_rng(seeded(seed))
        self._arrays: tuple[Array, ...] = ()
        self._positions: Array = np.zeros((0, 0, self.budget))
        self._mass: Array = np.zeros((0, 0, self.budget))
        self._length = 0

    @property
    def positions(self) -> Array:
        """[batch, heads, held]: which tokens are still here."""
        return self._positions[..., : self._length]

    @property
    def nbytes(self) -> int:
        """[byte] of the filled slots."""
        return sum(array[..., : self._length, :].nbytes for array in self._arrays)

    def append(self, positions: Array, arrays: tuple[Array, ...]) -> Held:
        """Write one token into a free slot, or over the one the policy gives up."""
        if len(positions) != 1:
            raise ValueError(
                f"Got {len(positions)} tokens at once, but expected 1: "
                "who goes depends on every step"
            )
        batch, heads = arrays[0].shape[:2]
        if not self._arrays:
            self._arrays = tuple(
                np.zeros((batch, heads, self.budget, a.shape[-1]), a.dtype) for a in arrays
            )
            self._positions = np.zeros((batch, heads, self.budget))
            self._mass = np.zeros((batch, heads, self.budget))
        if self._length < self.budget:
            slot = np.full((batch, heads), self._length)
            self._length += 1
        else:
            slot = self.policy(self._positions, self._mass, self._rng)
        where = slot[..., None]
        np.put_along_axis(self._positions, where, float(positions[0]), -1)
        np.put_along_axis(self._mass, where, 0.0, -1)
        for held, new in zip(self._arrays, arrays, strict=True):
            np.put_along_axis(held, where[..., None], new, -2)
        return Held(tuple(array[..., : self._length, :] for array in self._arrays), None)

    def observe(self, weights: Array) -> None:
        """Add up the attention each held token received, over the queries that share its head."""
        self._mass[..., : self._length] += weights.sum(-2)


def evicting_cache(config: ToyConfig, policy: Policy, budget: int, seed: int = 0) -> KVCache:
    """A cache of evicting stores. Raises ValueError for layers that are not full attention."""
    for layer in config.layers:
        if not isinstance(layer, SoftmaxAttention) or layer.window is not None:
            raise ValueError(
                f"Got a {type(layer).__name__} layer with window "
                f"{getattr(layer, 'window', None)}, but expected full softmax attention"
            )
    seed = seeded(seed)
    stores = [EvictingStore(policy, budget, seed + i) for i in range(len(config.layers))]
    return KVCache(stores, config)


def policy_named(name: str) -> Policy:
    """One of `POLICIES`. Raises ValueError for another name."""
    return POLICIES[named("eviction policy", name, POLICIES)]


def checked_budget(budget: object, most: int = MOST_TOKENS) -> int:
    """`budget` [token]: the sinks, the current token and one before it, and at most `most`.

    Raises ValueError for anything else.
    """
    return whole("budget", budget, SINK_TOKENS + 2, most)


def _recent(positions: Array) -> Array:
    """True for the newest budget // 2 tokens: none of them was ever given up."""
    newest = positions.max(axis=-1, keepdims=True)
    return np.asarray(positions > newest - positions.shape[-1] // 2)
