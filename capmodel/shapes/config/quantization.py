"""How a checkpoint stores its weights, from `quantization_config` (or modelopt's own file)."""

import re
from collections.abc import Mapping
from typing import Any

from capmodel.dtypes import weight_dtype_name
from capmodel.shapes.config.fields import ConfigFields
from capmodel.shapes.model import UNREADABLE, CheckpointQuantization

_LAYER = re.compile(r"layers\.(\d+)(?=\.|\*|$)")
_KEPT = ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers", "exclude")


def read_quantization(
    outer: Mapping[str, Any], text: Mapping[str, Any], n_layers: int
) -> CheckpointQuantization | None:
    """The storage of a checkpoint, or None where its weights are plain 16-bit ones.

    A method that does not say how weights are stored (torchao, quark, a mixture) leaves the dtype
    UNREADABLE: caches can be counted, the checkpoint's bytes cannot. Raises ValueError for
    malformed fields.
    """
    for table in (outer, text):
        config = ConfigFields(table, "a checkpoint").sub("quantization_config")
        if config is None and isinstance(table.get("compression_config"), Mapping):
            config = ConfigFields(table["compression_config"], "a checkpoint")
        if config is not None:
            nested = config.sub("quantization")  # modelopt's hf_quant_config.json
            if nested is not None:
                merged = {"quant_method": "modelopt", **nested.table}
                config = ConfigFields(merged, config.label)
            return _read(config, table, n_layers)
    return None


def _read(
    config: ConfigFields, table: Mapping[str, Any], n_layers: int
) -> CheckpointQuantization | None:
    method = config.text("quant_method", default="").lower().replace("_", "-")
    kept, some = _kept(config, n_layers)
    match method:
        case "fp8" | "fbgemm-fp8":
            block = config.items("weight_block_size")
            size = int(block[0]) * int(block[1]) if block and len(block) == 2 else None
            expert = str(table.get("expert_dtype") or config.text("expert_dtype") or "")
            return CheckpointQuantization(
                method, "fp8", size, kept=kept, kept_in_layers=some,
                expert_dtype=_expert_dtype(expert),
            )  # fmt: skip
        case "awq" | "gptq" | "auto-round" | "gptq-marlin" | "awq-marlin":
            bits = config.integer("bits", "w_bit", default=4)
            # GPTQ files hold zero points even where they are all alike (`sym`).
            zero = "gptq" in method or config.flag("zero_point", default="awq" in method)
            group = config.optional("group_size", "q_group_size", least=-1)
            return CheckpointQuantization(
                method, _by_bits(bits, "int"), _group(group), zero, kept,
                kept_in_layers=some,
            )  # fmt: skip
        case "mxfp4" | "gpt-oss-mxfp4":
            return CheckpointQuantization(method, "mxfp4", 32, kept=kept, kept_in_layers=some)
        case "compressed-tensors":
            return _compressed_tensors(config, kept, some)
        case "modelopt" | "modelopt-fp4" | "modelopt-mixed":
            return _modelopt(config, method, kept, some)
        case "bitsandbytes":
            four = config.flag("load_in_4bit", "_load_in_4bit")
            return CheckpointQuantization(
                method, "int4" if four else "int8", 64 if four else None, kept=kept
            )
    return CheckpointQuantization(method or "unnamed", UNREADABLE, kept=kept)


def _compressed_tensors(
    config: ConfigFields, kept: tuple[str, ...], some: tuple[tuple[str, int], ...]
) -> CheckpointQuantization | None:
    groups = config.sub("config_groups")
    schemes = [groups.sub(name) for name in groups.table] if groups is not None else []
    weights = [scheme.sub("weights") for scheme in schemes if scheme is not None]
    found = [weight for weight in weights if weight is not None]
    if not found:
        return None
    weight = found[0]
    bits = weight.integer("num_bits", default=8)
    kind = weight.text("type", default="int")
    group = _group(weight.optional("group_size", least=-1))
    if kind == "float" and bits == 4:
        mx = group == 32 or "mxfp4" in config.text("format")
        return CheckpointQuantization(
            "compressed-tensors", "mxfp4" if mx else "nvfp4", group, kept=kept,
            kept_in_layers=some,
        )  # fmt: skip
    block = weight.items("block_structure")
    if block and len(block) == 2:
        group = int(block[0]) * int(block[1])
    return CheckpointQuantization(
        "compressed-tensors",
        _by_bits(bits, kind),
        group,
        zero_points=not weight.flag("symmetric", default=True),
        kept=kept,
        kept_in_layers=some,
    )


def _modelopt(
    config: ConfigFields,
    method: str,
    kept: tuple[str, ...],
    some: tuple[tuple[str, int], ...],
) -> CheckpointQuantization:
    algorithm = config.text("quant_algo", "quant_method").upper().replace("-", "_")
    if "FP4" in algorithm:
        mx = algorithm.startswith("MX")
        return CheckpointQuantization(
            method, "mxfp4" if mx else "nvfp4", 32 if mx else 16, kept=kept, kept_in_layers=some
        )
    if "INT4" in algorithm or "W4A16" in algorithm:
        return CheckpointQuantization(
            method, "int4", _group(config.optional("group_size")), kept=kept, kept_in_layers=some
        )
    if "FP8" in algorithm:
        size = 128 * 128 if "PB" in algorithm else None
        return CheckpointQuantization(method, "fp8", size, kept=kept, kept_in_layers=some)
    return CheckpointQuantization(method, UNREADABLE, kept=kept)


def _by_bits(bits: int, kind: str) -> str:
    named = {("int", 4): "int4", ("int", 8): "int8", ("float", 8): "fp8"}
    return named.get((kind, bits), UNREADABLE)


def _expert_dtype(name: str) -> str | None:
    """DeepSeek-V4 calls its experts `fp4`: MXFP4, with one 8-bit exponent per 32."""
    if not name:
        return None
    return "mxfp4" if name.lower() in ("fp4", "mxfp4") else weight_dtype_name(name)


def _group(size: int | None) -> int | None:
    return size if size is not None and size > 0 else None


def _kept(
    config: ConfigFields, n_layers: int
) -> tuple[tuple[str, ...], tuple[tuple[str, int], ...]]:
    """Modules left in 16 bits everywhere, and (module, layers) for those left so in some."""
    everywhere: dict[str, None] = {}
    layers: dict[str, set[int]] = {}
    for name in config.items(*_KEPT) or []:
        pattern = str(name)
        numbers = _LAYER.findall(pattern)
        if not numbers or pattern.startswith("re:"):
            everywhere[pattern] = None
        elif int(numbers[0]) >= n_layers:
            everywhere["mtp"] = None  # layers past the stack are the MTP modules
        else:
            general = _LAYER.sub("layers.*", pattern)
            layers.setdefault(general, set()).add(int(numbers[0]))
    some = tuple((pattern, len(found)) for pattern, found in layers.items())
    return tuple(everywhere), some
