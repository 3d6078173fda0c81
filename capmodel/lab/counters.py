"""What a pass did, counted from the arrays it used."""

from dataclasses import dataclass, fields

from capmodel.lab.arithmetic import Array


@dataclass(slots=True)
class Counters:
    """Sums over layers, rows and passes since it was made.

    key_projections: token rows turned into a key (or a latent), over all layers.
    projection_flop: FLOP [FLOP] of multiplying by weights; attention_flop: scores and mixing.
    tokens_read, cache_bytes_read: [token], [byte] that attention went over in a cache, the new
    ones included; quantised entries count as they are after widening.
    weight_bytes_read: [byte] of the matrices each pass multiplied by, once per pass.
    """

    key_projections: int = 0
    projection_flop: int = 0
    attention_flop: int = 0
    tokens_read: int = 0
    cache_bytes_read: int = 0
    weight_bytes_read: int = 0

    @property
    def flop(self) -> int:
        """Projection and attention FLOP."""
        return self.projection_flop + self.attention_flop

    def count_projection(self, x: Array, weight: Array) -> None:
        """One product of `x` [..., in] by `weight` [in, out], or one a head: [heads, in, out]."""
        self.projection_flop += 2 * x.size * weight.shape[-1]
        self.weight_bytes_read += weight.nbytes

    def count_attention(self, a: Array, b: Array) -> None:
        """One batched product of `a` [..., m, k] by `b` [..., k, n], batch axes as `a` has them."""
        self.attention_flop += 2 * a.size * b.shape[-1]

    def __sub__(self, earlier: "Counters") -> "Counters":
        return Counters(
            *(getattr(self, f.name) - getattr(earlier, f.name) for f in fields(Counters))
        )

    def copy(self) -> "Counters":
        """The figures so far, for a later difference."""
        return Counters(*(getattr(self, f.name) for f in fields(Counters)))
