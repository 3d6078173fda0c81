"""Prometheus figures: requests, time, what runs, what waits. Labels are few and fixed."""

import os
import time

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

REQUESTS = Counter("capmodel_requests", "Requests answered.", ["method", "path", "status"])
SECONDS = Histogram(
    "capmodel_request_seconds",
    "Time to the end of the answer [s].",
    ["path"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 15, 60, 180),
)
ACTIVE = Gauge("capmodel_requests_active", "Requests being answered.", multiprocess_mode="livesum")
JOBS = Gauge("capmodel_jobs_waiting", "Jobs running or waiting.", multiprocess_mode="livesum")

_METHODS = {"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"}


def metrics_response() -> Response:
    """The figures of this worker, or of all where several share a folder."""
    registry: CollectorRegistry = REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class Observed:
    """ASGI middleware that counts and times requests by route."""

    def __init__(self, app: ASGIApp, known: set[str], prefix: str):
        self._app = app
        self._known = known
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        start = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        ACTIVE.inc()
        try:
            await self._app(scope, receive, watched)
        finally:
            ACTIVE.dec()
            path = self._route(scope)
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            REQUESTS.labels(method, path, str(status)).inc()
            SECONDS.labels(path).observe(time.perf_counter() - start)

    def _route(self, scope: Scope) -> str:
        """The route's own path; every other path is one label."""
        path = scope["path"].removeprefix(self._prefix)
        if path.startswith("/static/"):
            return "/static"
        return path if path in self._known else "other"
