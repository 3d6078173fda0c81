"""What a model is made of, and where to find it."""

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
    StateKind,
)
from capmodel.shapes.catalogue import find_shape, shape_names
from capmodel.shapes.columns import shape_from_columns
from capmodel.shapes.entry import entry_from_shape, shape_from_entry
from capmodel.shapes.load import ModelLike, catalogue_name, load_shape
from capmodel.shapes.model import (
    CheckpointQuantization,
    DenseMlp,
    LayerGroup,
    MlpKind,
    ModelShape,
    MoeMlp,
    Tower,
)

__all__ = [
    "AttentionKind",
    "CheckpointQuantization",
    "CompressedAttention",
    "CrossAttention",
    "DenseMlp",
    "GatedDeltaNet",
    "KimiDelta",
    "LatentAttention",
    "LayerGroup",
    "Mamba1",
    "Mamba2",
    "MlpKind",
    "ModelLike",
    "ModelShape",
    "MoeMlp",
    "ShortConv",
    "SoftmaxAttention",
    "SparseIndexer",
    "StateKind",
    "Tower",
    "catalogue_name",
    "entry_from_shape",
    "find_shape",
    "load_shape",
    "shape_from_columns",
    "shape_from_entry",
    "shape_names",
]
