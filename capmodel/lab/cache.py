"""What a decoder keeps of its past: per layer, arrays that grow by one token a step.

A store decides what it keeps; the decoder only appends and attends to what comes back.
`nbytes` is always the size of the arrays that hold tokens, never a formula.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from capmodel.lab.arithmetic import Array
from capmodel.lab.config import ToyConfig
from capmodel.lab.sizes import MOST_TOKENS, named, whole
from capmodel.shapes.attention import SoftmaxAttention


@dataclass(frozen=True, slots=True)
class Held:
    """arrays [..., tokens, width] to attend to, and the `positions` [tokens] they came from.

    positions None: everything held is in the past of every new token (one token a step).
    """

    arrays: tuple[Array, ...]
    positions: Array | None


class LayerStore(Protocol):
    """One layer's past. `before_rope`: keys arrive unturned and are turned when read."""

    before_rope: bool

    @property
    def nbytes(self) -> int:
        """[byte] of the arrays that hold tokens now."""
        ...

    def append(self, positions: Array, arrays: tuple[Array, ...]) -> Held:
        """Keep the new tokens' `arrays` [..., new, width]; return all there is to attend to."""
        ...

    def observe(self, weights: Array) -> None:
        """See the attention weights [batch, kv_heads, queries, held] of the step just done."""
        ...


DTYPES = ("float16", "float32", "float64")


class FullStore:
    """Every token, in order, in buffers that double when they are full.

    dtype: one of DTYPES to round to and keep, None = as the arrays come. Raises ValueError for
    another.
    """

    before_rope = False

    def __init__(self, dtype: str | None = None) -> None:
        self._dtype = None if dtype is None else named("cache dtype", dtype, DTYPES)
        self._buffers: tuple[Array, ...] = ()
        self._length = 0

    @property
    def nbytes(self) -> int:
        """[byte] of the filled part of the buffers."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def allocated_nbytes(self) -> int:
        """[byte] of the buffers, empty places included."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def append(self, positions: Array, arrays: tuple[Array, ...]) -> Held:
        """Write behind what is there; return views of all of it."""
        end = self._length + arrays[0].shape[-2]
        if not self._buffers or end > self._buffers[0].shape[-2]:
            self._grow(arrays, max(end, 2 * self._length))
        for buffer, array in zip(self._buffers, arrays, strict=True):
            buffer[..., self._length : end, :] = array
        self._length = end
        held = tuple(
            filled.astype(array.dtype, copy=False)
            for filled, array in zip(self.arrays, arrays, strict=True)
        )
        return Held(held, np.arange(end))

    def observe(self, weights: Array) -> None:
        """Nothing to learn from: everything stays."""

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Views [..., tokens, width] of what is held."""
        return tuple(buffer[..., : self._length, :] for buffer in self._buffers)

    def _grow(self, like: tuple[Array, ...], capacity: int) -> None:
        old = self.arrays
        self._buffers = tuple(
            np.empty((*array.shape[:-2], capacity, array.shape[-1]), self._dtype or array.dtype)
            for array in like
        )
        for buffer, array in zip(self._buffers, old, strict=False):
            buffer[..., : self._length, :] = array


class WindowStore:
    """The last `window` tokens, and the first `sink_tokens`. Raises ValueError for window < 1."""

    before_rope = False

    def __init__(self, window: int, sink_tokens: int = 0) -> None:
        self.window = whole("window", window, 1, MOST_TOKENS)
        self.sink_tokens = whole("sink_tokens", sink_tokens, 0, MOST_TOKENS)
        self._arrays: tuple[Array, ...] = ()
        self._positions: Array = np.arange(0)

    @property
    def nbytes(self) -> int:
        """[byte] of the tokens kept."""
        return sum(array.nbytes for array in self._arrays)

    def append(self, positions: Array, arrays: tuple[Array, ...]) -> Held:
        """Return what the new tokens see, old and new, then let go of what no later token sees."""
        if self._arrays:
            self._keep(self._positions, self._arrays, int(positions[0]))
            joined = zip(self._arrays, arrays, strict=True)
            arrays = tuple(np.concatenate(pair, axis=-2) for pair in joined)
        positions = np.concatenate([self._positions, positions])
        self._keep(positions, arrays, int(positions[-1]))
        return Held(arrays, positions)

    def observe(self, weights: Array) -> None:
        """Nothing to learn from: age alone decides."""

    def _keep(self, positions: Array, arrays: tuple[Array, ...], newest: int) -> None:
        """Of these tokens those that a token at `newest` sees."""
        kept = (positions > newest - self.window) | (positions < self.sink_tokens)
        self._arrays = tuple(array[..., kept, :] for array in arrays)
        self._positions = positions[kept]


class KVCache:
    """One store per layer, and how many tokens each row has seen.

    config: the decoder it is for; None takes any, on the caller's word. filled_with: rows and
    dtype of the passes so far.
    """

    def __init__(self, layers: Sequence[LayerStore], config: ToyConfig | None = None) -> None:
        self.layers = tuple(layers)
        self.config = config
        self.length = 0
        self.filled_with: tuple[int, str] | None = None

    @classmethod
    def contiguous(cls, config: ToyConfig) -> "KVCache":
        """Full or windowed stores, as each layer of `config` asks."""
        return cls(
            [
                WindowStore(layer.window, config.sink_tokens)
                if isinstance(layer, SoftmaxAttention) and layer.window is not None
                else FullStore()
                for layer in config.layers
            ],
            config,
        )

    @property
    def nbytes(self) -> int:
        """[byte] held over all layers and rows."""
        return sum(layer.nbytes for layer in self.layers)
