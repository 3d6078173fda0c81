"""The application: routes, pages, and what holds around them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from capmodel import __version__
from capmodel.prediction import shipped_calibrations
from capmodel.service import warm
from capmodel.service.api import api_routes
from capmodel.service.edge import Edge
from capmodel.service.errors import Refused
from capmodel.service.handlers import json_response, on_http, on_invalid, on_refused
from capmodel.service.jobs import Jobs
from capmodel.service.metrics import Observed, metrics_response
from capmodel.service.pages import missing_page, page_routes, page_templates
from capmodel.service.settings import Settings

HERE = Path(__file__).resolve().parent
DESCRIPTION = """What your GPUs will do for a language model, with a measured error bar.

Fields of a body are the keyword names of the Python functions. Bad input is answered with 422
and, for each problem, the field and what was expected."""


def create_app(settings: Settings | None = None, jobs: Jobs | None = None) -> FastAPI:
    """The ASGI application. It accepts requests once the calibrations are loaded.

    `jobs` are those of `settings`, where they were made before.
    """
    bounds = settings or Settings()
    jobs = jobs or Jobs(bounds)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await jobs.start()
        yield
        jobs.close()

    templates = page_templates(bounds)

    async def on_no_route(request: Request, error: Exception) -> Response:
        path = request.url.path.removeprefix(bounds.prefix)
        reads = "text/html" in request.headers.get("accept", "")
        if getattr(error, "status_code", 0) == 404 and reads and not path.startswith("/v1/"):
            return missing_page(templates, path)
        return await on_http(request, error)

    app = FastAPI(
        title="capmodel", version=__version__, description=DESCRIPTION, lifespan=lifespan,
        docs_url=None, redoc_url=None,
        exception_handlers={
            Refused: on_refused, RequestValidationError: on_invalid, HTTPException: on_no_route,
        },
    )  # fmt: skip
    routers = api_routes(bounds, jobs), page_routes(bounds, templates)
    for router in routers:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")

    @app.get("/healthz", tags=["service"])
    async def healthz() -> Response:
        """Whether this worker is ready, and with which calibrations it answers."""
        ids = [calibration.calibration_id for calibration in shipped_calibrations()]
        return json_response({"status": "ready" if warm.LOADED else "empty",
                              "version": __version__, "calibrations": ids})  # fmt: skip

    @app.get("/metrics", tags=["service"])
    async def metrics() -> Response:
        """Figures for Prometheus."""
        return metrics_response()

    known = {str(getattr(route, "path", "")) for router in routers for route in router.routes}
    known |= {"/healthz", "/metrics", "/openapi.json"}
    app.add_middleware(Edge, settings=bounds)
    app.add_middleware(Observed, known=known, prefix=bounds.prefix)
    return app
