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


# Files whose fixtures are fits that take longer than their tests: one worker makes them once.
_TOGETHER = ("test_adaptation.py", "test_prediction.py", "test_mainjob.py")


@pytest.hookimpl(tryfirst=True)  # before the workers read the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test begins first, so that nobody waits for it in the end."""
    for item in items:
        if item.path.name in _TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=lambda item: item.path.name != "test_wheel.py")
