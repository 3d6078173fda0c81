"""Our own written form of a shape: a TOML or JSON table whose keys are the dataclass fields.

    name = "llama-3-70b"
    aliases = ["meta-llama/Meta-Llama-3-70B"]
    source = "where every figure below is published"
    hidden_size = 8192
    vocab_size = 128256
    [[groups]]
    count = 80
    attention = { kind = "softmax", n_heads = 64, n_kv_heads = 8, head_dim = 128 }
    mlp = { kind = "dense", intermediate = 28672 }

A variant names its `base` entry and writes only what differs (its `quantization`, say).
"""

import difflib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, TypeVar, get_args

from capmodel.shapes.attention import (
    CompressedAttention,
    CrossAttention,
    GatedDeltaNet,
    KimiDelta,
    LatentAttention,
    Mamba1,
    Mamba2,
    ShortConv,
    SoftmaxAttention,
    SparseIndexer,
)
from capmodel.shapes.model import (
    CheckpointQuantization,
    DenseMlp,
    LayerGroup,
    ModelShape,
    MoeMlp,
    Tower,
)

ATTENTION_KINDS = {
    "softmax": SoftmaxAttention,
    "latent": LatentAttention,
    "compressed": CompressedAttention,
}
STATE_KINDS = {
    "mamba2": Mamba2,
    "mamba1": Mamba1,
    "gated_delta_net": GatedDeltaNet,
    "kimi_delta": KimiDelta,
    "short_conv": ShortConv,
}
MLP_KINDS = {"dense": DenseMlp, "moe": MoeMlp}

Part = TypeVar("Part")


def shape_from_entry(entry: Mapping[str, Any], base: ModelShape | None = None) -> ModelShape:
    """Build a shape from a table in our own form; `base` supplies what a variant leaves out.

    Raises ValueError that names the field: unknown, missing, of the wrong type or negative.
    """
    table = {key: value for key, value in entry.items() if key != "base"}
    where = f"shape {table.get('name', 'without a name')!s}"
    for key in ("groups", "extra_groups"):
        if key in table:
            table[key] = tuple(_group(row, f"{where}, {key}") for row in _rows(table, key, where))
    if "towers" in table:
        table["towers"] = tuple(
            _build(Tower, row, f"{where}, towers") for row in _rows(table, "towers", where)
        )
    if isinstance(table.get("quantization"), Mapping):
        table["quantization"] = _quantization(table["quantization"], where)
    if "aliases" in table:
        table["aliases"] = tuple(str(alias) for alias in _list(table["aliases"], where, "aliases"))
    if base is not None:
        inherited = {f.name: getattr(base, f.name) for f in fields(ModelShape)}
        inherited.update(aliases=(), notes="", name="")
        table = inherited | table
    table["name"] = str(table.get("name") or "").strip()
    shape = _build(ModelShape, table, where)
    _check(shape, where)
    return shape


def entry_from_shape(shape: ModelShape) -> dict[str, Any]:
    """The table `shape_from_entry` reads back into an equal shape; defaults are left out."""
    table = _table(shape)
    table["aliases"] = list(shape.aliases)
    return {key: value for key, value in table.items() if value not in ((), [], "")}


def _check(shape: ModelShape, where: str) -> None:
    if not shape.name:
        raise ValueError(f"Got {where}, but expected a `name`")
    if shape.hidden_size < 1 or shape.vocab_size < 1 or not shape.groups:
        raise ValueError(
            f"Got {where} with hidden_size={shape.hidden_size}, vocab_size={shape.vocab_size} and "
            f"{len(shape.groups)} layer groups, but expected at least one of each"
        )
    for group in (*shape.groups, *shape.extra_groups):
        attention = group.attention
        if isinstance(attention, SoftmaxAttention) and (
            attention.n_kv_heads < 1 or attention.n_heads % attention.n_kv_heads
        ):
            raise ValueError(
                f"Got {where} with n_heads={attention.n_heads} and n_kv_heads="
                f"{attention.n_kv_heads}, but expected KV heads that divide the heads"
            )
        mlp = group.mlp
        if isinstance(mlp, MoeMlp) and not 1 <= mlp.top_k <= mlp.n_experts:
            raise ValueError(
                f"Got {where} with top_k={mlp.top_k} of n_experts={mlp.n_experts}, "
                "but expected 1 <= top_k <= n_experts"
            )


def _group(row: Any, where: str) -> LayerGroup:
    table = dict(_mapping(row, where))
    attention = table.get("attention")
    if attention is not None:
        attention = dict(_mapping(attention, where))
        if attention.get("indexer") is not None:
            attention["indexer"] = _build(SparseIndexer, attention["indexer"], f"{where}, indexer")
        if attention.get("kind") == "softmax" and "head_dim" in attention:
            attention.setdefault("v_head_dim", attention["head_dim"])
        table["attention"] = _kind(ATTENTION_KINDS, attention, f"{where}, attention")
    if table.get("mlp") is not None:
        table["mlp"] = _kind(MLP_KINDS, table["mlp"], f"{where}, mlp")
    if table.get("state") is not None:
        table["state"] = _kind(STATE_KINDS, table["state"], f"{where}, state")
    if table.get("cross") is not None:
        table["cross"] = _build(CrossAttention, table["cross"], f"{where}, cross")
    return _build(LayerGroup, table, where)


def _quantization(row: Mapping[str, Any], where: str) -> CheckpointQuantization:
    table = dict(row)
    if "kept" in table:
        table["kept"] = tuple(str(name) for name in table["kept"])
    if "kept_in_layers" in table:
        table["kept_in_layers"] = tuple((str(p), int(n)) for p, n in table["kept_in_layers"])
    return _build(CheckpointQuantization, table, f"{where}, quantization")


def _kind(kinds: Mapping[str, type[Part]], row: Any, where: str) -> Part:
    table = dict(_mapping(row, where))
    kind = table.pop("kind", None)
    if kind not in kinds:
        raise ValueError(f"Got {where} kind {kind!r}, but expected one of {', '.join(kinds)}")
    return _build(kinds[kind], table, where)


def _build(part: type[Part], row: Any, where: str) -> Part:
    table = dict(_mapping(row, where))
    known: dict[str, Field[Any]] = {f.name: f for f in fields(part)}  # type: ignore[arg-type]
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ValueError(f"Got an unknown field {key!r} in {where}{hint}")
    for name, f in known.items():
        if name not in table and f.default is MISSING and type(None) in get_args(f.type):
            table[name] = None
    missing = [
        name
        for name, f in known.items()
        if name not in table and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        raise ValueError(f"Got {where} without {', '.join(missing)}; give each a value")
    for key, value in table.items():
        _check_type(known[key], value, where)
    return part(**table)


def _check_type(spec: Field[Any], value: Any, where: str) -> None:
    """Numbers and flags are checked; nested parts were built, so their type is right already."""
    union = spec.type if isinstance(spec.type, UnionType) else None
    kinds = get_args(union) if union else (spec.type,)
    if value is None and type(None) in kinds:
        return
    for kind in (bool, int, str):
        if kind in kinds:
            if type(value) is not kind:
                raise ValueError(
                    f"Got {spec.name}={value!r} in {where}, but expected {kind.__name__}"
                )
            if isinstance(value, int) and value < 0 and spec.name != "other_parameters":
                raise ValueError(f"Got {spec.name}={value} in {where}, but expected 0 or more")
            return


def _mapping(row: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise ValueError(f"Got {where} as {type(row).__name__}, but expected a table of fields")
    return row


def _list(value: Any, where: str, key: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"Got {key} of {where} as {type(value).__name__}, but expected a list")
    return list(value)


def _rows(table: Mapping[str, Any], key: str, where: str) -> list[Any]:
    return _list(table[key], where, key)


def _table(part: Any) -> dict[str, Any]:
    """Fields that differ from their defaults, nested parts as tables with their `kind`."""
    row: dict[str, Any] = {}
    names = {part: name for kinds in (ATTENTION_KINDS, STATE_KINDS, MLP_KINDS)
             for name, part in kinds.items()}  # fmt: skip
    if type(part) in names:
        row["kind"] = names[type(part)]
    for f in fields(part):
        value = getattr(part, f.name)
        if value is None or (f.default is not MISSING and value == f.default):
            continue
        if f.name == "v_head_dim" and isinstance(part, SoftmaxAttention) and value == part.head_dim:
            continue
        row[f.name] = _plain(value)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return _table(value) if hasattr(value, "__dataclass_fields__") else value
