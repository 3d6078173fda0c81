"""The runs that `capmodel run` takes when none are given."""

from pathlib import Path

from capmodel.bundled import bundled_path


def default_runs_path() -> Path:
    """The bundled silicon runs."""
    return bundled_path("silicon_runs.parquet")
