"""Results as JSON: numpy as lists, what is no number as null, nothing else guessed."""

import json
import math
from dataclasses import asdict, is_dataclass
from typing import Any

_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def plain(value: Any) -> Any:
    """`value` as dicts, lists, texts, numbers, flags and None; NaN and infinity become None."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


def json_bytes(value: Any) -> bytes:
    """`value` as compact UTF-8 JSON."""
    try:
        text = _ENCODER.encode(value)
    except (TypeError, ValueError):  # it is not plain yet
        text = _ENCODER.encode(plain(value))
    return text.encode("utf-8", "replace")
