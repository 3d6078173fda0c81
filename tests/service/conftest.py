"""One service for all tests of this folder, asked in the process."""

from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the extra [service] is not installed")

from starlette.testclient import TestClient

from capmodel.service.app import create_app
from capmodel.service.settings import Settings


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    settings = Settings(jobs=1, upload_rows=2000, plan_timeout_s=120.0, fit_timeout_s=300.0)
    with TestClient(create_app(settings), raise_server_exceptions=False) as found:
        yield found
