"""Reference runs: `load_*` is bundled, `fetch_*` downloaded and checked, `make_*` generated."""

from capmodel.datasets.generated import make_runs
from capmodel.datasets.silicon import load_silicon_runs

__all__ = ["load_silicon_runs", "make_runs"]
