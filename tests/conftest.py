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


# A file's tests run on one worker, which makes its fixtures, often fits, once. These files take
# longest and begin first, so that nobody waits for one of them in the end.
_FIRST = (
    "test_wheel.py", "test_stories.py", "test_service_browser.py", "test_adaptation.py",
    "test_docs.py", "test_batches.py", "test_evaluation.py", "test_mainjob.py",
    "test_prediction.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, the rest as they come."""
    place = {name: number for number, name in enumerate(_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
