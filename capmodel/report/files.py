"""A file is there whole or not at all."""

import os
import uuid
from contextlib import suppress
from pathlib import Path


def write_whole(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write `data` [byte] to `path` by way of a temporary file beside it, and return the path.

    Raises `ValueError` if `path` is a folder, its folder is missing or takes no file; a write that
    fails or is stopped leaves what stood there before.
    """
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"Got the folder {target}, but expected the name of a file to write")
    if not target.parent.is_dir():
        raise ValueError(f"Got {target}, but expected its folder to exist: make it first")
    part = target.with_name(f".{uuid.uuid4().hex}.part")
    try:
        part.write_bytes(data)
        os.replace(part, target)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ValueError(
            f"Got {target}, but it cannot be written ({why}): name another place"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
    return target
