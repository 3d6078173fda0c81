"""Reading a Hugging Face `config.json`. (Being written: see the catalogue meanwhile.)"""

from collections.abc import Mapping
from typing import Any

from capmodel.shapes.model import ModelShape


def is_config(table: Mapping[str, Any]) -> bool:
    """Whether `table` is a Hugging Face config rather than an entry of our own."""
    return "groups" not in table and ("model_type" in table or "architectures" in table)


def config_name(table: Mapping[str, Any]) -> str:
    """The name a config gives itself, or an empty text."""
    return str(table.get("_name_or_path") or table.get("name") or "")


def shape_from_config(config: Mapping[str, Any], name: str | None = None) -> ModelShape:
    """The shape a config describes. Raises ValueError for what it cannot read."""
    raise ValueError(
        f"Got a config of model_type {config.get('model_type')!r}, but its reader is not there yet"
    )
