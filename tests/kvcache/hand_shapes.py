"""Models written by hand, from the figures of PHYSICS section 1 and the published configs."""

from capmodel.shapes import (
    CrossAttention,
    GatedDeltaNet,
    KimiDelta,
    LatentAttention,
    LayerGroup,
    ModelShape,
    SoftmaxAttention,
    SparseIndexer,
)


def model(name: str, *groups: LayerGroup, **facts: int) -> ModelShape:
    return ModelShape(name, 1024, 32000, groups, **facts)


def softmax(kv_heads: int, head_dim: int, heads: int = 0, **facts: object) -> SoftmaxAttention:
    v_head_dim = facts.pop("v_head_dim", head_dim)
    return SoftmaxAttention(heads or kv_heads, kv_heads, head_dim, v_head_dim, **facts)


def latent(indexer: bool = False, shares: bool = False) -> LatentAttention:
    index = SparseIndexer(64, 128, 2048) if indexer else None
    return LatentAttention(128, 1536, 512, 128, 64, 128, indexer=index, shares_indexer=shares)


# 50 windowed and 10 global layers; a window of 1,024 tokens, 16 heads of 256 and 4 of 512.
GEMMA_4_31B = model(
    "gemma-4-31b",
    LayerGroup(50, softmax(16, 256, 32, window=1024), None),
    LayerGroup(10, softmax(4, 512, 32, k_eq_v=True), None),
    max_context=262144,
)
# gemma-4-12b as two llama.cpp logs show it: 40 windowed layers of 8 x 256, 8 global of 1 x 512.
GEMMA_4_12B = model(
    "gemma-4-12b",
    LayerGroup(40, softmax(8, 256, 16, window=1024), None),
    LayerGroup(8, softmax(1, 512, 16), None),
    max_context=131072,
)
GLM_5_2 = model(
    "glm-5.2",
    LayerGroup(21, latent(indexer=True), None),
    LayerGroup(57, latent(indexer=True, shares=True), None),
)
STEP_3_7_FLASH = model(
    "step-3.7-flash",
    LayerGroup(12, softmax(8, 128, 64), None),
    LayerGroup(33, softmax(8, 128, 64, window=512), None),
)
KIMI_K3 = model(
    "kimi-k3",
    LayerGroup(24, latent(), None),
    LayerGroup(69, None, None, state=KimiDelta(96, 128, 4)),
)
MINIMAX_M3 = model(
    "minimax-m3",
    LayerGroup(57, softmax(4, 128, 64, index_key_dim=128), None),
    LayerGroup(3, softmax(4, 128, 64), None),
)
WHISPER = model(
    "whisper-large-v3",
    LayerGroup(32, softmax(20, 64), None, cross=CrossAttention(20, 20, 64, 1500)),
)
# Hybrid shapes whose vLLM block size the logs of engine_kv_logs.csv print.
QWEN_3_5_9B = model(
    "qwen3.5-9b",
    LayerGroup(8, softmax(4, 256, 16), None),
    LayerGroup(24, None, None, state=GatedDeltaNet(16, 32, 128, 128, 4)),
)
QWEN_3_6_35B = model(
    "qwen3.6-35b-a3b",
    LayerGroup(10, softmax(2, 256, 16), None),
    LayerGroup(30, None, None, state=GatedDeltaNet(16, 32, 128, 128, 4)),
)
