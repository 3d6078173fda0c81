"""Which modules a quantised checkpoint leaves in 16 bits."""

import re
from fnmatch import fnmatchcase
from functools import lru_cache

from capmodel.shapes.model import CheckpointQuantization
from capmodel.weights.matrix import Matrix

# Spellings of a module's first component in other architectures' checkpoints.
_SPELLINGS = {
    "self_attn": ("self_attn", "attn", "attention", "mixer"),
    "mlp": ("mlp", "block_sparse_moe", "feed_forward", "ffn", "mixer"),
    "linear_attn": ("linear_attn",),
    "mamba": ("mamba", "mixer"),
}
# Names under which a checkpoint may list what is one entry here.
_MEMBERS = {
    "mlp.gate_up_proj": ("mlp.gate_up_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.fc1"),
    "mlp.down_proj": ("mlp.down_proj", "mlp.fc2"),
    "mlp.shared_experts": ("mlp.shared_experts", "mlp.shared_expert"),
    "mlp.experts": ("mlp.experts", "mlp.experts.0.gate_proj"),
    "linear_attn.in_proj_qkvz": ("linear_attn.in_proj_qkvz", "linear_attn.in_proj_qkv"),
    "linear_attn.in_proj_ba": ("linear_attn.in_proj_ba", "linear_attn.in_proj_a"),
}

_ANY_LAYER = 7777  # stands for a layer's number; no pattern names it


def kept_share(quantization: CheckpointQuantization, matrix: Matrix, layers: int) -> float:
    """Fraction of `matrix` that stays in 16 bits; `layers` of the model hold a module so named."""
    if matrix.part == "mtp" and any(_is_mtp(pattern) for pattern in quantization.kept):
        return 1.0
    if any(_covers(pattern, matrix.name) for pattern in quantization.kept):
        return 1.0
    kept = sum(
        number for pattern, number in quantization.kept_in_layers if _covers(pattern, matrix.name)
    )
    return min(1.0, kept / layers) if layers else 0.0


def _is_mtp(pattern: str) -> bool:
    return "mtp" in pattern or "nextn" in pattern


@lru_cache(maxsize=65536)
def _covers(pattern: str, name: str) -> bool:
    """Whether `pattern` (a glob, a `re:` expression or a module's name) holds for the module."""
    return any(_matches(pattern, path) for path in _paths(name))


def _paths(name: str) -> list[str]:
    if name in ("lm_head", "embed_tokens"):
        return [name, f"model.{name}"]
    paths = []
    for member in _MEMBERS.get(name, (name,)):
        first, _, rest = member.partition(".")
        paths += [
            f"model.layers.{_ANY_LAYER}.{new}.{rest}" for new in _SPELLINGS.get(first, (first,))
        ]
    return paths


def _matches(pattern: str, path: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern[3:], path) is not None
    parts = path.split(".")
    ancestors = [".".join(parts[:end]) for end in range(len(parts), 3, -1)] or [path]
    if any(fnmatchcase(ancestor, pattern) for ancestor in ancestors):
        return True
    if any(sign in pattern for sign in "*?["):
        return False
    wanted = pattern.removeprefix("model.").split(".")
    ends = range(len(parts) - len(wanted) + 1)
    return any(parts[start : start + len(wanted)] == wanted for start in ends)
