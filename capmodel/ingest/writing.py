"""Runs tables to disk, whole or not at all."""

import os
import tempfile
from pathlib import Path

import pandas as pd

PARQUET = (".parquet", ".pq")


def write_runs(runs: pd.DataFrame, path: str | Path) -> Path:
    """Write a runs table as Parquet or CSV, by the ending of `path`; replaced whole.

    Raises ValueError for another ending or a folder that is not there.
    """
    path = Path(path)
    if path.suffix.lower() not in (*PARQUET, ".csv"):
        raise ValueError(f"Got {path}, but expected a name that ends in .parquet or .csv")
    if not path.parent.is_dir():
        raise ValueError(f"Got {path}, but the folder {path.parent} is not there; make it first")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        if path.suffix.lower() in PARQUET:
            runs.to_parquet(name, index=False)
        else:
            runs.to_csv(name, index=False)
        Path(name).chmod(0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
