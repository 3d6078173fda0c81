"""The catalogue's models as `GET /v1/models` lists them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from capmodel.kvcache import kv_bytes_per_token
from capmodel.service.plain import json_bytes
from capmodel.shapes.catalogue import find_shape, shape_names
from capmodel.weights import parameter_count


def models_json(_body: Mapping[str, Any]) -> bytes:
    """The answer of `GET /v1/models`, in a job's process."""
    return _models()


@lru_cache(maxsize=1)
def _models() -> bytes:
    rows = []
    for name in shape_names():
        shape = find_shape(name)
        rows.append(
            {
                "name": name,
                "aliases": shape.aliases,
                "parameters": parameter_count(shape),
                "active_parameters": parameter_count(shape, active=True),
                "layers": shape.n_layers,
                "max_context": shape.max_context,
                "kv_bytes_per_token": kv_bytes_per_token(shape),
                "stored_dtype": None if shape.quantization is None else shape.quantization.dtype,
            }
        )
    return json_bytes({"models": rows})
