"""Names, globs and folders into files, each of them once."""

import glob
from collections.abc import Iterable
from pathlib import Path

SUFFIXES = (".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".md", ".parquet", ".pq",
            ".yaml", ".yml")  # fmt: skip


def expand_paths(paths: Iterable[str | Path]) -> list[tuple[Path, bool]]:
    """Files of names, globs and folders, each with whether it was named itself.

    A file that is reached twice, by another spelling or a link, is there once. Raises ValueError
    for an empty name, which would be the folder one stands in.
    """
    found: dict[Path, tuple[Path, bool]] = {}
    for given in paths:
        for path, named in _files_of(given):
            place = _place(path)
            shown, before = found.get(place, (path, False))
            found[place] = (shown, named or before)
    return list(found.values())


def _files_of(given: str | Path) -> list[tuple[Path, bool]]:
    if not str(given).strip():
        raise ValueError("Got an empty name among the files to read; an unset variable, perhaps?")
    path = Path(given)
    try:
        if path.is_dir():
            inside = sorted(item for item in path.rglob("*") if item.suffix.lower() in SUFFIXES)
            return [(f, False) for f in inside if f.is_file() and not f.name.startswith(".")]
        if not path.exists() and glob.has_magic(str(given)):
            matches = sorted(Path(match) for match in glob.glob(str(given), recursive=True))
            files = [match for match in matches if not match.is_dir()]
            return [(match, False) for match in files] or [(path, True)]
    except (OSError, ValueError):  # no name that the system takes; opening it says why
        pass
    return [(path, True)]


def _place(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, or no name at all
        return path.absolute()
