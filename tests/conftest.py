"""Fixtures shared by every test."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real runs, logs and configs beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("../shared/data is not beside this checkout; it holds the real runs")
    return SHARED_DATA
