"""Reference runs: `load_*` is bundled, `fetch_*` downloaded and checked, `make_*` generated."""

from capmodel.datasets.generated import make_runs

__all__ = ["make_runs"]
