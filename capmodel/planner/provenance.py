"""What a plan was made from: the files it read, and the day."""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from capmodel.arguments import text
from capmodel.ingest import file_sha256
from capmodel.shapes.catalogue import in_catalogue
from capmodel.words import shown


def inputs_of(model: Any, gpu: Any, trace: Any, calibration: Any) -> tuple[dict[str, str], ...]:
    """Name and sha256 of every file among these arguments of `plan`, each once.

    What is no file (a catalogue name, an object) is part of the package or of the command.
    """
    named = isinstance(model, str) and in_catalogue(model)
    gpus = gpu if isinstance(gpu, list | tuple) else [gpu]
    paths = [one for one in gpus if isinstance(one, str | os.PathLike)]
    own = [one for one in paths if str(one).lower().endswith(".toml")]
    found = {}
    for value in (None if named else model, *own, trace, calibration):
        for path in _files(value):
            found[path] = {"name": path.name, "sha256": file_sha256(path)}
    return tuple(found.values())


def _files(value: Any) -> Iterator[Path]:
    if not isinstance(value, str | os.PathLike):
        return
    path = Path(value)
    inside = path / "config.json"
    if path.is_file():
        yield path
    elif inside.is_file():
        yield inside


def kind_of(sources: Iterable[str]) -> str:
    """What rows of these `source` texts are: "measured", or the least sure of what they say."""
    said = " ".join(sources).lower()
    if "synthetic" in said:
        return "generated"
    return "composed" if "composed" in said else "measured"


def day(given: str | None) -> str:
    """An ISO day: `given`, that of SOURCE_DATE_EPOCH, or today.

    Raises ValueError for what is no day.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if given is None:
        now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now()
        return now.date().isoformat()
    expected = "a day such as 2026-12-31"
    try:
        return date.fromisoformat(text("date", given, expected)).isoformat()
    except ValueError as error:
        raise ValueError(f"Got date={shown(given)}, but expected {expected}") from error
