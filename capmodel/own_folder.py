"""The folder of a user's own models and GPUs, and when what was read of it is out of date."""

import os

from capmodel.words import shown

VARIABLE = "CAPMODEL_CATALOG"

# The folder's whole path, and of each file its name, time of change and size.
State = tuple[str, tuple[tuple[str, int, int], ...]]
NONE: State = ("", ())


def own_folder() -> State:
    """The folder CAPMODEL_CATALOG names as it is now, NONE where it names none.

    Caches of what was read keep it as their key: another folder of the same relative name, a file
    that was edited, added or taken away is another state. Raises ValueError for what is no folder.
    """
    named = os.environ.get(VARIABLE, "")
    if not named:
        return NONE
    whole = os.path.abspath(os.path.expanduser(named))
    try:
        found = [*_files(whole, ""), *_files(os.path.join(whole, "models"), "models/", True)]
    except OSError:
        raise ValueError(
            f"Got {VARIABLE}={shown(named)}, but expected a folder of TOML or JSON entries"
        ) from None
    return whole, tuple(sorted(found))


def _files(folder: str, prefix: str, may_lack: bool = False) -> list[tuple[str, int, int]]:
    if may_lack and not os.path.isdir(folder):
        return []
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".toml", ".json")) and entry.is_file():
                about = entry.stat()
                found.append((prefix + entry.name, about.st_mtime_ns, about.st_size))
    return found
