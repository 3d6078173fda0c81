"""The same model with another attention, for what-ifs about the cache."""

from collections.abc import Callable
from dataclasses import replace

from capmodel.shapes import LatentAttention, ModelShape, SoftmaxAttention

# DeepSeek-V2 and V3's latent: 512 + 64 elements a token for all heads.
LATENT_RANK, LATENT_ROPE = 512, 64


def attention_variants(shape: ModelShape) -> dict[str, ModelShape]:
    """`shape` with MHA, GQA, MQA and MLA in its attention layers, as far as each exists.

    One of them is the model itself: it is `shape`. A GQA model keeps its own number of KV heads,
    which is in the name ("GQA 8"); the others get 8. Softmax models keep their windows, but not
    as MLA. A latent model as MHA keeps whole keys and values of each of its heads. Models that
    mix kinds have no variants.
    """
    kinds = {type(attention) for _, attention in shape.attention_layers()}
    if kinds == {LatentAttention}:
        return {"MHA": _with(shape, LatentAttention, _expanded, "mha"), "MLA": shape}
    if kinds != {SoftmaxAttention}:
        return {}
    heads = {(a.n_heads, a.n_kv_heads) for a in _softmax(shape)}
    full, single = all(kv == n for n, kv in heads), all(kv == 1 for _, kv in heads)
    variants = {"MHA": shape if full else shape.with_attention("mha")}
    if not full and not single:
        counts = sorted({kv for _, kv in heads}, reverse=True)
        variants[f"GQA {'/'.join(map(str, counts))}"] = shape
    elif all(n % 8 == 0 and n > 8 for n, _ in heads):
        variants["GQA 8"] = shape.with_attention("gqa", n_kv_heads=8)
    variants["MQA"] = shape if single else shape.with_attention("mqa")
    variants["MLA"] = _with(shape, SoftmaxAttention, _latent, "mla")
    return variants


def _softmax(shape: ModelShape) -> list[SoftmaxAttention]:
    return [a for _, a in shape.attention_layers() if isinstance(a, SoftmaxAttention)]


def _with(
    shape: ModelShape,
    kind: type,
    change: Callable[..., SoftmaxAttention | LatentAttention],
    name: str,
) -> ModelShape:
    groups = tuple(
        replace(group, attention=change(group.attention))
        if isinstance(group.attention, kind)
        else group
        for group in shape.groups
    )
    return replace(shape, groups=groups, name=f"{shape.name} as {name}")


def _latent(attention: SoftmaxAttention) -> LatentAttention:
    return LatentAttention(attention.n_heads, None, LATENT_RANK, 128, LATENT_ROPE, 128)


def _expanded(attention: LatentAttention) -> SoftmaxAttention:
    head_dim = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    return SoftmaxAttention(attention.n_heads, attention.n_heads, head_dim, attention.v_head_dim)
