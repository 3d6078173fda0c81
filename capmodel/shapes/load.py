"""`load_shape`: one door for every way of naming a model."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from capmodel.arguments import flag
from capmodel.shapes.catalogue import find_shape, in_catalogue
from capmodel.shapes.config import is_config, shape_from_config
from capmodel.shapes.entry import shape_from_entry
from capmodel.shapes.files import read_table
from capmodel.shapes.model import ModelShape
from capmodel.words import one_line, shown

ModelLike = ModelShape | str | Path | Mapping[str, Any]
_EXPECTED = "a name, the path of a config.json, a dict or a ModelShape"


def load_shape(x: ModelLike, download: bool = False) -> ModelShape:
    """What the model `x` is made of.

    x: catalogue name, alias or Hugging Face id; path of a `config.json`, of its folder or of an
    entry of our own (TOML, JSON); a dict of either form; or a ModelShape, returned as it is.
    download: fetch the config of an id outside the catalogue; the network is not touched else.

    Raises ValueError for unknown or ambiguous names, unreadable files and unknown architectures.
    """
    if download is not False:
        flag("download", download)
    if isinstance(x, ModelShape):
        return x
    if isinstance(x, str):
        if not x.strip():
            raise ValueError(f"Got model={x!r}, but expected {_EXPECTED}")
        if in_catalogue(x):
            return find_shape(x)
        path = _as_path(x)
        if path is not None:
            return _from_path(path)
        if download and x.count("/") == 1:
            from capmodel.shapes.download import fetch_config

            return shape_from_config(fetch_config(x), name=x)
        return find_shape(x)  # raises, with the nearest names
    if isinstance(x, Path):
        return _from_path(x)
    if isinstance(x, Mapping):
        return shape_from_table(x, name="")
    raise ValueError(f"Got model={shown(x)}, but expected {_EXPECTED}")


def shape_from_table(table: Mapping[str, Any], name: str) -> ModelShape:
    """A shape from a Hugging Face config or an entry of our own, told apart by their keys."""
    name = one_line(name)
    if "groups" in table or "base" in table:
        base = find_shape(str(table["base"])) if "base" in table else None
        return shape_from_entry({"name": name or "unnamed", **table}, base)
    if is_config(table):
        return shape_from_config(table, name=name or None)
    raise ValueError(
        "Got a table that is neither a Hugging Face config (it has no `model_type` or "
        "`architectures`) nor an entry of our own (it has no `groups`)"
    )


def _as_path(text: str) -> Path | None:
    """The path `text` means, or None where it is a name."""
    looks = text.endswith((".json", ".toml")) or text.startswith((".", "/", "~"))
    path = Path(text).expanduser()
    try:
        exists = bool(text) and "\0" not in text and path.exists()
    except OSError:
        exists = False
    return path if looks or exists else None


def _from_path(path: Path) -> ModelShape:
    file = path / "config.json" if path.is_dir() else path
    name = file.parent.name if file.name == "config.json" else file.stem
    try:
        shape = shape_from_table(_with_quantization(read_table(file), file), name)
    except ValueError as error:
        raise ValueError(f"{error} (in {one_line(file)})") from None
    if in_catalogue(shape.name) and not shape.alike(find_shape(shape.name)):
        return replace(shape, name=f"{shape.name} (own)")  # measured rows of that name are another
    return shape


def _with_quantization(table: dict[str, Any], file: Path) -> dict[str, Any]:
    """The config with modelopt's `hf_quant_config.json` beside it, which older exports write."""
    beside = file.with_name("hf_quant_config.json")
    if file.name != "config.json" or "quantization_config" in table or not beside.is_file():
        return table
    return {**table, "quantization_config": {"quant_method": "modelopt", **read_table(beside)}}


def catalogue_name(model: object) -> str:
    """The catalogue's name of a model, its own where the catalogue has none."""
    name = str(model)
    try:
        known = in_catalogue(name) or Path(name).exists()
        return load_shape(name).name if known else name
    except (ValueError, OSError):
        return name
