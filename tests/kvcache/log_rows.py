"""From a row of `engine_kv_logs.csv` to the arguments of `replay`.

Only what was known before the engine laid its cache out is read: the model's figures, dtypes,
parallel degrees, version, block size, lengths and the available memory. Logged tokens,
concurrency, block counts and `implied_*` are the answer and are read by the test alone.
"""

import re
from dataclasses import dataclass

from capmodel.kvcache import EngineSettings
from capmodel.shapes import (
    CrossAttention,
    LatentAttention,
    LayerGroup,
    ModelShape,
    ShortConv,
    SoftmaxAttention,
    SparseIndexer,
)
from capmodel.units import GIB

# vLLM's newest release in a month, for rows dated instead of numbered (forks, nightly images).
VLLM_OF_MONTH = {"2025-04": "0.8", "2026-05": "0.21", "2026-06": "0.22"}


@dataclass(frozen=True)
class Row:
    """Arguments of `replay` for one log. decimals: of the available GiB as the log printed it."""

    shape: ModelShape
    engine: str
    settings: EngineSettings
    available_bytes: float | None
    rounding_bytes: float
    max_model_len: int


def read_row(row: dict[str, str]) -> Row:
    """The arguments of `replay` that the row carries."""
    engine, tp = row["engine"], int(row["tp"] or 1)
    available = row["available_kv_gib"]
    decimals = len(available.partition(".")[2])
    block_size = int(row["block_size"]) if row["block_size"] else None
    settings = EngineSettings(
        version=_version(row),
        kv_dtype=_kv_dtype(row["kv_cache_dtype"]),
        tp=tp,
        pp=int(row["pp"] or 1),
        context_parallel=_number(r"(?:decode-context-parallel|DCP) (\d+)", row["cfg_other"], 1),
        block_size=block_size,
        max_num_batched_tokens=_batched_tokens(row),
        prefix_caching=_prefix_caching(row),
    )
    if engine == "llama.cpp":
        return Row(_shape(row, tp), engine, settings, None, 0.0, int(row["n_ctx"]))
    return Row(
        shape=_shape(row, tp),
        engine=engine,
        settings=settings,
        available_bytes=float(available) * GIB,
        # Figures with more than four decimals were not rounded to them.
        rounding_bytes=0.5 * 10.0**-decimals * GIB if decimals <= 4 else 0.0,
        # Where the row has no length any whole number of blocks gives the same tokens.
        max_model_len=int(row["max_model_len"] or 4096),
    )


def _version(row: dict[str, str]) -> str | None:
    if row["engine"] in ("llama.cpp", "sglang", "tensorrt-llm", "sglang+kvcached"):
        return None
    month = re.search(r"\d{4}-\d\d", row["engine_version"])
    return VLLM_OF_MONTH[month.group()] if month else row["engine_version"]


def _kv_dtype(text: str) -> str:
    """`"q8_0 K / f16 V"` is a pair; the others are names."""
    pair = re.fullmatch(r"(\w+) K / (\w+) V", text)
    return f"{pair.group(1)},{pair.group(2)}" if pair else text


def _batched_tokens(row: dict[str, str]) -> int:
    """vLLM's own default of `vllm serve`: 8,192 from 70 GiB of memory up, 2,048 below."""
    return 8192 if re.search(r"H100|H200|80GB|9[0-9]GB|1\d\dGB", row["gpu"]) else 2048


def _prefix_caching(row: dict[str, str]) -> bool | None:
    """Hybrid models from 0.20 on were started with prefix caching.

    A flag of the start command (vLLM keeps it off for hybrid models until 0.28), which the table
    has no column for. The public logs behind L142, L144 (vLLM 0.20.0) and L149 (club-3090 issue
    652) show `--enable-prefix-caching`, and "Mamba cache mode is set to 'align'"; for the other
    hybrid rows from 0.20 on it is taken to be the same. Without it eight rows miss by 2 to 12 %.
    """
    number = re.match(r"0\.(\d+)", row["engine_version"])
    if row["attn_kind"].startswith("hybrid") and number and int(number.group(1)) >= 20:
        return True
    return None


def _number(pattern: str, text: str, default: int = 0) -> int:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else default


def _shape(row: dict[str, str], tp: int) -> ModelShape:
    layers, other = int(row["cfg_layers"]), row["cfg_other"]
    kind = "plain" if row["engine"] == "llama.cpp" else row["attn_kind"]
    attention = _attention(row, tp)
    groups = [LayerGroup(layers, attention, None)]
    if kind.startswith("hybrid"):
        full = _number(r"(\d+) (?:full|attn|attention)", other)
        states = _number(r"(\d+) (?:GDN|mamba2|linear|short-conv)", other)
        # The table has no state sizes: the block size, which it has, is what they decide.
        state = ShortConv(width=tp, kernel=2)
        groups = [
            LayerGroup(full, attention, None),
            LayerGroup(states, None, None, state=state),
        ]
    elif kind == "sliding+full" and "sliding" in other:
        window = _number(r"sliding\((\d+)\)", other)
        windowed = _attention(row, tp, window)
        groups = [
            LayerGroup(_number(r"(\d+) full", other), attention, None),
            LayerGroup(_number(r"(\d+) sliding", other), windowed, None),
        ]
    elif kind == "encoder-decoder":
        heads = int(row["cfg_kv_heads"])
        cross = CrossAttention(heads, heads, int(row["cfg_head_dim"]), source_len=1500)
        groups = [LayerGroup(layers, attention, None, cross=cross)]
    return ModelShape(row["id"], 1, 1, tuple(groups))


def _attention(
    row: dict[str, str], tp: int, window: int | None = None
) -> SoftmaxAttention | LatentAttention:
    kind, other = row["attn_kind"], row["cfg_other"]
    both = re.search(r"K (\d+)(?:, V| \+ V) (\d+)", other)
    if both:  # llama.cpp's older forms of MLA: K and V apart, per head or once
        heads = _number(r"(\d+) heads", other, 1)
        return SoftmaxAttention(heads, heads, int(both.group(1)), int(both.group(2)))
    if kind in ("mla", "mla-dsa"):
        indexer = SparseIndexer(64, 128, 2048) if kind == "mla-dsa" else None
        return LatentAttention(8 * tp, None, 512, 128, 64, 128, indexer=indexer)
    heads, head_dim = int(row["cfg_kv_heads"]), int(row["cfg_head_dim"])
    return SoftmaxAttention(heads * tp, heads, head_dim, head_dim, window=window)
