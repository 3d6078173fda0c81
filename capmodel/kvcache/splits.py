"""Which tensor-parallel degrees a model can be split into."""

from functools import lru_cache

from capmodel.shapes import (
    GatedDeltaNet,
    KimiDelta,
    LatentAttention,
    Mamba2,
    ModelShape,
    SoftmaxAttention,
)


@lru_cache(maxsize=4096)
def check_tp(shape: ModelShape, tp: int) -> None:
    """Raise ValueError where `tp` GPUs cannot share the heads of `shape` evenly.

    Attention heads and state heads are split; KV heads are split or, past their number,
    replicated, so one must divide the other. The latent of MLA is never split.
    """
    if tp < 1:
        raise ValueError(f"Got tp={tp}, but expected at least 1 GPU")
    if tp == 1:
        return
    for name, heads in _split_heads(shape):
        if heads % tp:
            raise ValueError(
                f"Got tp={tp}, but expected a divisor of the {heads} {name} of {shape.name}: "
                f"{_near(shape, tp)}"
            )
    for heads in _kv_heads(shape):
        if heads % tp and tp % heads:
            raise ValueError(
                f"Got tp={tp}, but expected a divisor or a multiple of the {heads} KV heads of "
                f"{shape.name}: {_near(shape, tp)}"
            )


def _split_heads(shape: ModelShape) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for group in shape.groups:
        if isinstance(group.attention, SoftmaxAttention | LatentAttention):
            found.add(("attention heads", group.attention.n_heads))
        if isinstance(group.state, Mamba2 | KimiDelta):
            found.add(("state heads", group.state.n_heads))
        if isinstance(group.state, GatedDeltaNet):
            found |= {("state heads", group.state.k_heads), ("state heads", group.state.v_heads)}
    return found


def _kv_heads(shape: ModelShape) -> set[int]:
    softmax = (g.attention for g in shape.groups if isinstance(g.attention, SoftmaxAttention))
    cross = (group.cross for group in shape.groups if group.cross is not None)
    return {a.n_kv_heads for a in softmax} | {c.n_kv_heads for c in cross}


def _near(shape: ModelShape, tp: int) -> str:
    """The working degrees up to twice the one asked for."""
    split = {heads for _, heads in _split_heads(shape)}
    most = min(2 * tp, max(split | _kv_heads(shape), default=1))
    works = [
        degree
        for degree in range(1, most + 1)
        if not any(heads % degree for heads in split)
        and not any(heads % degree and degree % heads for heads in _kv_heads(shape))
    ]
    return "use " + ", ".join(map(str, works[-4:]))
