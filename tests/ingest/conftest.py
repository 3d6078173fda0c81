"""Fixtures of every tool's output: written by hand in each tool's structure, figures invented."""

from pathlib import Path

import pytest

FORMATS = Path(__file__).resolve().parents[1] / "data" / "formats"


@pytest.fixture(scope="session")
def formats() -> Path:
    """The folder of hand-written outputs, one of each tool."""
    return FORMATS
