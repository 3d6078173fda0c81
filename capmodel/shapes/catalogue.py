"""The model catalogue: one TOML entry per model, found by name, alias or Hugging Face id.

Own entries (TOML or JSON in the folder `CAPMODEL_CATALOG` names, or its `models` folder) come
before the packaged ones.
"""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from capmodel.own_folder import VARIABLE, State, own_folder
from capmodel.shapes.config import config_name, is_config, shape_from_config
from capmodel.shapes.entry import shape_from_entry
from capmodel.shapes.files import read_table
from capmodel.shapes.model import ModelShape
from capmodel.words import one_line, shown


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Raw entries by name (packaged ones as text, read when asked for), and who answers to
    which spelling."""

    entries: dict[str, Mapping[str, Any] | str]
    spellings: dict[str, tuple[str, ...]]


def shape_names() -> tuple[str, ...]:
    """Names of all catalogued models, sorted."""
    return tuple(sorted(_catalogue(own_folder()).entries))


def find_shape(name: str) -> ModelShape:
    """The catalogued shape called `name`, whatever its case; the network is never touched.

    Raises ValueError for an unknown name (with the nearest) or an ambiguous one (with the
    candidates).
    """
    return _find(name, own_folder())


def in_catalogue(name: str) -> bool:
    """Whether `find_shape(name)` has an answer."""
    return len(_catalogue(own_folder()).spellings.get(spelling(name), ())) == 1


def spelling(name: str) -> str:
    """How names are compared: lower case, underscores and blanks as hyphens."""
    return name.strip().lower().replace("_", "-").replace(" ", "-")


@lru_cache(maxsize=4096)
def _find(name: str, folder: State) -> ModelShape:
    catalogue = _catalogue(folder)
    owners = catalogue.spellings.get(spelling(name), ())
    if len(owners) == 1:
        return _shape(owners[0], folder)
    if len(owners) > 1:
        raise ValueError(f"Got model {shown(name)}, but that names several: {', '.join(owners)}")
    raise ValueError(_unknown(name, folder))


@lru_cache(maxsize=4096)
def _shape(name: str, folder: State) -> ModelShape:
    found = _catalogue(folder).entries[name]
    entry = tomllib.loads(found) if isinstance(found, str) else found
    if is_config(entry):
        return shape_from_config(entry, name=name)
    base = _find(str(entry["base"]), folder) if "base" in entry else None
    if base is not None and spelling(base.name) == spelling(name):
        raise ValueError(f"Got model {shown(name)} as its own base; name another entry")
    return shape_from_entry(entry, base)


@lru_cache(maxsize=4096)
def _unknown(name: str, folder: State) -> str:
    """What to say of a name that is none; looking for near ones takes tens of milliseconds."""
    catalogue, wanted = _catalogue(folder), spelling(name)
    begin = sorted(
        {owner for key, owners in catalogue.spellings.items() if key.startswith(wanted + "-")
         for owner in owners}
    )  # fmt: skip
    if 1 < len(begin) <= 12:
        return f"Got model {shown(name)}, but that names several: {', '.join(begin)}"
    tail = wanted.rsplit("/", 1)[-1]
    known = {key.rsplit("/", 1)[-1]: owners[0] for key, owners in catalogue.spellings.items()}
    near = difflib.get_close_matches(tail, known, n=5, cutoff=0.6)
    near = near or difflib.get_close_matches(tail, known, n=3, cutoff=0.2)
    nearest = ", ".join(dict.fromkeys([*begin[:5], *(known[key] for key in near)]))
    hint = f"; the nearest are {nearest}" if nearest else ""
    return (
        f"Got model {shown(name)}, but the catalogue has no such name{hint}. Give the path of its "
        f"config.json, a Hugging Face id with download=True (--download), or an entry of your "
        f"own in the folder {VARIABLE} names; `capmodel catalog models` lists all"
    )


@lru_cache(maxsize=16)
def _catalogue(folder: State) -> Catalogue:
    own = _own_entries(*folder)
    texts = {
        file.name.removesuffix(".toml"): file.read_text(encoding="utf-8")
        for file in resources.files("capmodel").joinpath("catalog/models").iterdir()
        if file.name.endswith(".toml")
    }
    heads = {name: tomllib.loads(text.split("\n[", 1)[0]) for name, text in texts.items()}
    spellings: dict[str, tuple[str, ...]] = {}
    named: list[Mapping[str, Mapping[str, Any]]] = [heads, own]
    for entries in named:  # later ones take a spelling over
        fresh: dict[str, list[str]] = {}
        for name, head in entries.items():
            names = [name, *head.get("aliases", ())]
            for key in {spelling(part) for n in names for part in (n, str(n).rsplit("/", 1)[-1])}:
                fresh.setdefault(key, []).append(name)
            fresh[spelling(name)] = [name]
        for key, owners in fresh.items():
            spellings[key] = tuple(sorted(set(owners)))
    return Catalogue({**texts, **own}, spellings)


def _own_entries(
    folder: str, listed: tuple[tuple[str, int, int], ...]
) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for name, *_ in listed:
        file = Path(folder) / name
        try:
            table = read_table(file)
        except ValueError as error:
            raise ValueError(f"{error} (in the folder {VARIABLE} names)") from None
        if "groups" in table or "base" in table:
            found[one_line(table.get("name", file.stem))] = {"name": file.stem, **table}
        elif is_config(table):
            found[config_name(table) or file.stem] = table
    return found
