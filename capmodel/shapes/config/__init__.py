"""Reading a Hugging Face `config.json`."""

from capmodel.shapes.config.assemble import config_name, is_config, shape_from_config
from capmodel.shapes.config.families import FAMILIES

__all__ = ["FAMILIES", "config_name", "is_config", "shape_from_config"]
