"""Element types of weights and caches: canonical names, aliases and stored bytes."""

import difflib

from capmodel.words import shown

# Flat bytes per element: what a number of this type takes, scales left out.
ELEMENT_BYTES = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "nvfp4": 0.5,
    "mxfp4": 0.5,
}

# Bytes per element as checkpoints store them: int4 with one 16-bit scale per 128 elements,
# NVFP4 one fp8 scale per 16, MXFP4 one 8-bit exponent per 32 (PHYSICS section 3).
STORED_WEIGHT_BYTES = {
    **ELEMENT_BYTES,
    "int4": 0.5 + 2 / 128,
    "nvfp4": 9 / 16,
    "mxfp4": 4.25 / 8,
}

# Bytes per cache element; q8_0 and q4_0 are llama.cpp blocks of 32 with a 16-bit scale.
# NVFP4 caches hold one fp8 scale per 16 elements.
KV_ELEMENT_BYTES = {
    **ELEMENT_BYTES,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 4.25 / 8,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "fp8_ds_mla": 1.0,
    "fp8_per_token_head": 1.0,
    "int8_per_token_head": 1.0,
}

# Caches with one fp32 scale per token and head, for K and for V (vLLM).
PER_TOKEN_HEAD_DTYPES = frozenset({"fp8_per_token_head", "int8_per_token_head"})

_ALIASES = {
    "float32": "fp32", "f32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16", "f16": "fp16", "half": "fp16", "16": "fp16",
    "float8": "fp8", "e4m3": "fp8", "e5m2": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
    "fp8_e4m3fn": "fp8", "float8_e4m3fn": "fp8", "float8_e4m3": "fp8", "float8_e5m2": "fp8",
    "fp8_block": "fp8", "w8a8_fp8": "fp8", "fp8_inc": "fp8",
    "w8a8": "int8", "w8a16": "int8", "int8_wo": "int8",
    "w4a16": "int4", "int4_wo": "int4", "awq": "int4", "gptq": "int4", "u4": "int4",
    "fp4": "nvfp4", "nvfp4_w4a4": "nvfp4", "w4a16_mxfp4": "mxfp4", "w4a8_mxfp4_mxfp8": "mxfp4",
}  # fmt: skip


def weight_dtype_name(dtype: str) -> str:
    """Canonical weight dtype. Raises ValueError with the nearest names for an unknown one."""
    return _canonical(dtype, STORED_WEIGHT_BYTES, "weight dtype")


def kv_dtype_names(dtype: str) -> tuple[str, str]:
    """Canonical dtypes of K and V; `"q8_0,f16"` names them apart.

    Raises ValueError for an unknown dtype or more than two.
    """
    if not isinstance(dtype, str):
        return _canonical(dtype, KV_ELEMENT_BYTES, "KV dtype"), ""  # raises
    parts = [part.strip() for part in dtype.split(",")]
    if len(parts) > 2:
        raise ValueError(
            f"Got KV dtype {shown(dtype)}, but expected one dtype or a pair (K, V) as 'q8_0,f16'"
        )
    names = [_canonical(part, KV_ELEMENT_BYTES, "KV dtype") for part in parts]
    return names[0], names[-1]


def kv_dtype_name(dtype: str) -> str:
    """Canonical spelling of a KV dtype: one name, or `"k,v"` where they differ."""
    key, value = kv_dtype_names(dtype)
    return key if key == value else f"{key},{value}"


def _canonical(dtype: str, known: dict[str, float], what: str) -> str:
    if not isinstance(dtype, str):
        raise ValueError(f"Got {what} {shown(dtype)}, but expected one of {', '.join(known)}")
    name = dtype.strip().lower().removeprefix("torch.")
    name = _ALIASES.get(name, name)
    if name in known:
        return name
    near = difflib.get_close_matches(name, [*known, *_ALIASES], n=3, cutoff=0.4)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    extra = (
        " (a GGUF mixture is not int4: give its bits per weight through its reader)"
        if "_k" in name
        else ""
    )
    raise ValueError(
        f"Got {what} {shown(dtype)}, but expected one of {', '.join(known)}{hint}{extra}"
    )
