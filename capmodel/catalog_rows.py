"""The catalogue as rows: what is known of each model and GPU, and searching it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from capmodel.gpus import gpu_entries
from capmodel.kvcache import fixed_bytes, growth_bytes_per_token, kv_bytes_per_token
from capmodel.shapes import (
    CompressedAttention,
    LatentAttention,
    ModelShape,
    MoeMlp,
    SoftmaxAttention,
    load_shape,
    shape_names,
)
from capmodel.shapes.catalogue import spelling
from capmodel.weights import parameter_count


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model. parameters: all, active_parameters: those of one token. attention: in words.

    kv_bytes_per_token: bf16, tp 1, while no window is full; growth_bytes_per_token: past every
    window; fixed_bytes: what a request keeps whatever its length [byte].
    """

    name: str
    parameters: int
    active_parameters: int
    layers: int
    attention: str
    kv_bytes_per_token: float
    growth_bytes_per_token: float
    fixed_bytes: float
    max_context: int | None
    weight_dtype: str
    aliases: tuple[str, ...]
    source: str
    notes: str


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU; the fields are those of `capmodel.gpus.Gpu`, dense peaks [FLOP/s]."""

    name: str
    vendor: str
    memory_bytes: float
    memory_reported_bytes: float | None
    bandwidth_bytes_per_s: float | None
    bf16_flops_per_s: float | None
    fp16_flops_per_s: float | None
    fp8_flops_per_s: float | None
    link_bytes_per_s: float | None
    aliases: tuple[str, ...]
    assumption: str
    source: str
    notes: str


Row = TypeVar("Row", bound=ModelRow | GpuRow)


def model_rows() -> list[ModelRow]:
    """All catalogued models by name. Raises ValueError for an own entry that cannot be."""
    return [_model_row(load_shape(name)) for name in shape_names()]


def gpu_rows() -> list[GpuRow]:
    """All catalogued GPUs by name. Raises ValueError for an own entry that cannot be."""
    return [GpuRow(*(getattr(gpu, name) for name in GpuRow.__slots__)) for gpu in gpu_entries()]


def searched(rows: Iterable[Row], text: str) -> list[Row]:
    """Rows in which every word of `text` occurs; the one row alone that is called so."""
    words, whole = text.lower().split(), spelling(text)
    hits: list[Row] = []
    for row in rows:
        if whole in [spelling(name) for name in (row.name, *row.aliases)]:
            return [row]
        said = _words(row)
        if all(word in said for word in words):
            hits.append(row)
    return hits


def _words(row: ModelRow | GpuRow) -> str:
    kind = row.attention if isinstance(row, ModelRow) else row.vendor
    said = " ".join((row.name, *row.aliases, kind, row.source)).lower()
    return f"{said} {spelling(said)}"


def _model_row(shape: ModelShape) -> ModelRow:
    return ModelRow(
        name=shape.name,
        parameters=parameter_count(shape),
        active_parameters=parameter_count(shape, active=True),
        layers=shape.n_layers,
        attention=_attention(shape),
        kv_bytes_per_token=kv_bytes_per_token(shape),
        growth_bytes_per_token=growth_bytes_per_token(shape),
        fixed_bytes=fixed_bytes(shape),
        max_context=shape.max_context,
        weight_dtype=shape.quantization.dtype if shape.quantization else "",
        aliases=shape.aliases,
        source=shape.source,
        notes=shape.notes,
    )


def _attention(shape: ModelShape) -> str:
    """`GQA 64/8`, `GQA 64/8 window 128 (18 of 36 layers)`, `MLA`, `states (30 of 40 layers)`."""
    counts: dict[str, int] = {}
    for group in shape.groups:
        for kind in (_kind(group.attention), "states" if group.state is not None else ""):
            if kind:
                counts[kind] = counts.get(kind, 0) + group.count
    whole = shape.n_layers
    said = [
        name if count == whole else f"{name} ({count} of {whole} layers)"
        for name, count in counts.items()
    ]
    if any(isinstance(group.mlp, MoeMlp) for group in shape.groups):
        said.append("MoE")
    return ", ".join(said)


def _kind(attention: object) -> str:
    match attention:
        case SoftmaxAttention():
            heads, kept = attention.n_heads, attention.n_kv_heads
            kind = "MHA" if kept == heads else "MQA" if kept == 1 else "GQA"
            name = f"{kind} {heads}" if kept == heads else f"{kind} {heads}/{kept}"
            if attention.window:
                return f"{name} window {attention.window:,}"
            return f"{name} chunk {attention.chunk:,}" if attention.chunk else name
        case LatentAttention():
            return "MLA latent" + (" with indexer" if attention.indexer is not None else "")
        case CompressedAttention():
            ratio = f" 1:{attention.ratio}" if attention.ratio else ""
            return f"compressed{ratio} window {attention.window:,}"
    return ""
