"""Schemathesis against the API's own description: no 500, no status it does not name."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from capmodel.service.app import create_app
from capmodel.service.settings import Settings

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

pytestmark = pytest.mark.slow

schema = schemathesis.openapi.from_asgi(
    "/openapi.json", create_app(Settings(jobs=1, fit_timeout_s=60.0))
)


@schema.parametrize()
@settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)  # fmt: skip
def test_the_description_holds(case: Any) -> None:
    case.call_and_validate(
        checks=[schemathesis.checks.not_a_server_error, checks.status_code_conformance]
    )
