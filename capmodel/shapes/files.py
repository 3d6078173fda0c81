"""Reading a JSON or TOML table from disk, with limits on what is accepted."""

import json
import tomllib
from pathlib import Path
from typing import Any

MAX_BYTES = 8 * 2**20  # the largest config.json seen is 0.4 MB (per-layer quantization lists)


def read_table(path: Path) -> dict[str, Any]:
    """The table in `path` (JSON, or TOML by its suffix).

    Raises ValueError for a missing, oversized, binary, malformed or too deeply nested file, and
    for one whose top level is not a table.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise ValueError(
                f"Got {path.name} of {size:,} bytes, but expected a model's config of at most "
                f"{MAX_BYTES:,}"
            )
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"Got {path.name}, but it is not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"Got {str(path)!r}, but it cannot be read: {error.strerror}") from None
    return parse_table(text, path.name, toml=path.suffix == ".toml")


def parse_table(text: str, name: str, toml: bool = False) -> dict[str, Any]:
    """The table written in `text`; `name` stands in error messages. Raises as `read_table`."""
    try:
        table = tomllib.loads(text) if toml else json.loads(text)
    except RecursionError:
        raise ValueError(f"Got {name}, but it is nested too deeply for a model's config") from None
    except ValueError as error:
        kind = "TOML" if toml else "JSON"
        raise ValueError(f"Got {name}, but it is not {kind}: {error}") from None
    if not isinstance(table, dict):
        raise ValueError(
            f"Got {name} with a {type(table).__name__} at its top, but expected a table of fields"
        )
    return table
