"""Reference runs: `load_*` is bundled, `fetch_*` downloaded and checked, `make_*` generated."""

from capmodel.datasets.fetched import fetch_argonne_runs, fetch_file, fetch_serving_runs
from capmodel.datasets.generated import make_runs
from capmodel.datasets.silicon import load_silicon_runs

__all__ = [
    "fetch_argonne_runs",
    "fetch_file",
    "fetch_serving_runs",
    "load_silicon_runs",
    "make_runs",
]
