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
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

from capmodel.shapes.attention import (
    AttentionKind,
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
from capmodel.words import one_line, shown

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

_SAID = 12  # problems of one entry that are written out
_LARGEST = 10**15  # no width, count or total comes near


def shape_from_entry(entry: Mapping[str, Any], base: ModelShape | None = None) -> ModelShape:
    """Build a shape from a table in our own form; `base` supplies what a variant leaves out.

    Raises one ValueError that names all fields that are unknown, missing, of the wrong type or
    out of range.
    """
    table = {key: value for key, value in entry.items() if key != "base"}
    table["name"] = one_line(table.get("name") or "").strip()
    where = f"shape {table['name'] or 'without a name'}"
    problems: list[str] = []
    for key, build in (("groups", _group), ("extra_groups", _group), ("towers", _tower)):
        if key in table:
            rows = _attempt(problems, _list, table[key], where, key) or []
            table[key] = tuple(
                _attempt(problems, build, row, f"{where}, {key} {place}")
                for place, row in enumerate(rows, start=1)
            )
    if isinstance(table.get("quantization"), Mapping):
        table["quantization"] = _attempt(problems, _quantization, table["quantization"], where)
    if "aliases" in table:
        aliases = _attempt(problems, _list, table["aliases"], where, "aliases") or []
        table["aliases"] = tuple(one_line(alias) for alias in aliases)
    if base is not None:
        inherited = {f.name: getattr(base, f.name) for f in fields(ModelShape)}
        inherited.update(aliases=(), notes="", name="")
        table = inherited | table
    shape = _attempt(problems, _build, ModelShape, table, where)
    if shape is not None and not problems:
        problems += _contradictions(shape, where)
    if problems or shape is None:
        more = f"; and {len(problems) - _SAID} more" if len(problems) > _SAID else ""
        raise ValueError("; ".join(problems[:_SAID]) + more)
    return shape


def _attempt(problems: list[str], build: Callable[..., Part], *arguments: Any) -> Part | None:
    """What `build` makes of its arguments; where it raises, None, and what it said is kept."""
    try:
        return build(*arguments)
    except ValueError as error:
        problems.append(str(error))
        return None


def entry_from_shape(shape: ModelShape) -> dict[str, Any]:
    """The table `shape_from_entry` reads back into an equal shape; defaults are left out."""
    table = _table(shape)
    table["aliases"] = list(shape.aliases)
    return {key: value for key, value in table.items() if value not in ((), [], "")}


def _contradictions(shape: ModelShape, where: str) -> list[str]:
    """What fields of the right type say that cannot be."""
    found = []
    if not shape.name:
        found.append(f"Got {where}, but expected a `name`")
    if shape.hidden_size < 1 or shape.vocab_size < 1 or not shape.groups:
        found.append(
            f"Got {where} with hidden_size={shape.hidden_size}, vocab_size={shape.vocab_size} and "
            f"{len(shape.groups)} layer groups, but expected at least one of each"
        )
    for group in (*shape.groups, *shape.extra_groups):
        attention = group.attention
        if isinstance(attention, SoftmaxAttention) and (
            attention.n_kv_heads < 1 or attention.n_heads % attention.n_kv_heads
        ):
            found.append(
                f"Got {where} with n_heads={attention.n_heads} and n_kv_heads="
                f"{attention.n_kv_heads}, but expected KV heads that divide the heads"
            )
        mlp = group.mlp
        if isinstance(mlp, MoeMlp) and not 1 <= mlp.top_k <= mlp.n_experts:
            found.append(
                f"Got {where} with top_k={mlp.top_k} of n_experts={mlp.n_experts}, "
                "but expected 1 <= top_k <= n_experts"
            )
    quantization = shape.quantization
    if quantization is not None and quantization.group_size == 0:
        found.append(f"Got {where} with group_size=0, but expected at least 1, or none")
    return found


def _group(row: Any, where: str) -> LayerGroup:
    table = dict(_mapping(row, where))
    problems: list[str] = []
    attention = table.get("attention")
    if attention is not None:
        table["attention"] = _attempt(problems, _attention, attention, where)
    for key, kinds in (("mlp", MLP_KINDS), ("state", STATE_KINDS)):
        if table.get(key) is not None:
            table[key] = _attempt(problems, _kind, kinds, table[key], f"{where}, {key}")
    if table.get("cross") is not None:
        table["cross"] = _attempt(
            problems, _build, CrossAttention, table["cross"], f"{where}, cross"
        )
    group = _attempt(problems, _build, LayerGroup, table, where)
    if problems or group is None:
        raise ValueError("; ".join(problems))
    return group


def _attention(row: Any, where: str) -> AttentionKind:
    table = dict(_mapping(row, f"{where}, attention"))
    if table.get("indexer") is not None:
        table["indexer"] = _build(SparseIndexer, table["indexer"], f"{where}, indexer")
    if table.get("kind") == "softmax" and "head_dim" in table:
        table.setdefault("v_head_dim", table["head_dim"])
    return _kind(ATTENTION_KINDS, table, f"{where}, attention")


def _tower(row: Any, where: str) -> Tower:
    return _build(Tower, row, where)


def _quantization(row: Mapping[str, Any], where: str) -> CheckpointQuantization:
    table, where = dict(row), f"{where}, quantization"
    if "kept" in table:
        table["kept"] = tuple(str(name) for name in _list(table["kept"], where, "kept"))
    if "kept_in_layers" in table:
        pairs = [
            _list(pair, where, "kept_in_layers")
            for pair in _list(table["kept_in_layers"], where, "kept_in_layers")
        ]
        if any(len(pair) != 2 or type(pair[1]) is not int for pair in pairs):
            raise ValueError(
                f"Got kept_in_layers={shown(table['kept_in_layers'])} in {where}, but expected "
                "pairs of a pattern and a number of layers"
            )
        table["kept_in_layers"] = tuple((str(pattern), layers) for pattern, layers in pairs)
    return _build(CheckpointQuantization, table, where)


def _kind(kinds: Mapping[str, type[Part]], row: Any, where: str) -> Part:
    table = dict(_mapping(row, where))
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in kinds:
        raise ValueError(f"Got {where} kind {shown(kind)}, but expected one of {', '.join(kinds)}")
    return _build(kinds[kind], table, where)


def _build(part: type[Part], row: Any, where: str) -> Part:
    table = dict(_mapping(row, where))
    known: dict[str, Field[Any]] = {f.name: f for f in fields(part)}  # type: ignore[arg-type]
    problems = []
    for key in [key for key in table if key not in known]:
        near = difflib.get_close_matches(str(key), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
        problems.append(f"Got an unknown field {shown(key)} in {where}{hint}")
        del table[key]
    for name, f in known.items():
        if name not in table and f.default is MISSING and type(None) in get_args(f.type):
            table[name] = None
    missing = [
        name
        for name, f in known.items()
        if name not in table and f.default is MISSING and f.default_factory is MISSING
    ]
    if missing:
        problems.append(f"Got {where} without {', '.join(missing)}; give each a value")
    for key, value in table.items():
        _attempt(problems, _check_type, known[key], value, where)
    if problems:
        raise ValueError("; ".join(problems))
    return part(**table)


def _check_type(spec: Field[Any], value: Any, where: str) -> None:
    """Raise ValueError for a number, flag, text or part that is something else."""
    union = spec.type if isinstance(spec.type, UnionType) else None
    kinds = get_args(union) if union else (spec.type,)
    if value is None and type(None) in kinds:
        return
    for kind in (bool, int, str):
        if kind in kinds:
            if type(value) is not kind:
                raise ValueError(
                    f"Got {spec.name}={shown(value)} in {where}, but expected {kind.__name__}"
                )
            low = -_LARGEST if spec.name == "other_parameters" else 0
            if isinstance(value, int) and not low <= value <= _LARGEST:
                raise ValueError(
                    f"Got {spec.name}={shown(value)} in {where}, but expected 0 or more, up to "
                    f"{_LARGEST:.0e}"
                )
            return
    classes = tuple(get_origin(kind) or kind for kind in kinds)
    if not isinstance(value, classes):
        raise ValueError(f"Got {spec.name}={shown(value)} in {where}, but expected a table")


def _mapping(row: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise ValueError(f"Got {where} as {type(row).__name__}, but expected a table of fields")
    return row


def _list(value: Any, where: str, key: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"Got {key} of {where} as {type(value).__name__}, but expected a list")
    return list(value)


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
