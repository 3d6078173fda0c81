"""The routes of `/v1`: parse, call, answer. Short answers at once, long ones in a job."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from capmodel.gpus import gpu_entries
from capmodel.service import work
from capmodel.service.answers import answer_kv, answer_predict, candidates_of, check_steps
from capmodel.service.bodies import FitBody, GradeBody, KvBody, LabQuery, PlanBody, PredictBody
from capmodel.service.errors import Problems, Refused, problem
from capmodel.service.forms import RUNS_CONTENT, read_runs_body
from capmodel.service.handlers import json_response
from capmodel.service.jobs import Jobs, ending
from capmodel.service.metrics import JOBS
from capmodel.service.settings import Settings

# Deployments that a plan without simulation may look at in the worker itself, some ms each.
AT_ONCE = 24
_LABS_KEPT = 64

_ERRORS: dict[int | str, dict[str, Any]] = {
    422: {"model": Problems, "description": "What to mend: the field, and what was expected."},
    413: {"model": Problems, "description": "Too much at once."},
    415: {"model": Problems, "description": "A body of another kind, or a packed one."},
    408: {"model": Problems, "description": "The body came too slowly."},
    403: {"model": Problems, "description": "Posted by a page of another site."},
}
_LONG: dict[int | str, dict[str, Any]] = {
    **_ERRORS,
    503: {"model": Problems, "description": "Too many wait; try again."},
    504: {"model": Problems, "description": "It took too long."},
}
_FILES = {"json": "application/json", "pdf": "application/pdf", "csv": "text/csv; charset=utf-8"}


def api_routes(settings: Settings, jobs: Jobs) -> APIRouter:
    """The router of `/v1`."""
    routes = APIRouter(prefix="/v1")
    catalogue: list[bytes] = []
    labs: dict[tuple[Any, ...], bytes] = {}  # equal questions have equal answers
    planner = _Planner()

    async def elsewhere(
        request: Request, job: Callable[..., Any], body: Mapping[str, Any], seconds: float
    ) -> Any:
        JOBS.inc()
        try:
            return await _while_waited_for(request, jobs.run(job, body, seconds))
        finally:
            JOBS.dec()

    @routes.get("/models", responses=_LONG)
    async def models(request: Request) -> Response:
        """Every catalogued model: size, layers, cache bytes per token."""
        if not catalogue:
            catalogue.append(
                await elsewhere(request, work.models_json, {}, settings.plan_timeout_s)
            )
        return Response(catalogue[0], media_type=_FILES["json"])

    @routes.get("/gpus", responses=_ERRORS)
    async def gpus() -> Response:
        """Every catalogued GPU, with what its datasheet says."""
        return json_response({"gpus": gpu_entries()})

    @routes.post("/predict", responses=_LONG)
    async def predict(request: Request, body: PredictBody) -> Response:
        """One decode step, or a batch of them: seconds, interval, what binds, what fits."""
        fields = body.model_dump()
        check_steps(fields)
        if _from_catalogue(fields):
            return json_response(answer_predict(fields))
        return json_response(
            await elsewhere(request, answer_predict, fields, settings.plan_timeout_s)
        )

    @routes.post("/kv", responses=_LONG)
    async def kv(request: Request, body: KvBody) -> Response:
        """Cache bytes of requests, and how many fit on a GPU."""
        fields = body.model_dump()
        if _from_catalogue(fields):
            return json_response(answer_kv(fields))
        return json_response(await elsewhere(request, answer_kv, fields, settings.plan_timeout_s))

    @routes.post(
        "/plan",
        responses={**_LONG, 200: {"content": {_FILES["pdf"]: {}, "text/csv": {}}}},
    )
    async def plan(
        request: Request,
        body: PlanBody,
        format: Annotated[Literal["json", "pdf", "csv"], Query()] = "json",
    ) -> Response:
        """From a workload to GPUs, latency and money; infeasible plans say what comes closest."""
        fields: dict[str, Any] = {**body.model_dump(), "format": format}
        if format != "json":
            content = await elsewhere(request, work.plan_file, fields, settings.plan_timeout_s)
            name = f'attachment; filename="capacity_plan.{format}"'
            return Response(
                content, media_type=_FILES[format], headers={"Content-Disposition": name}
            )
        if jobs.busy and _is_short(fields) and planner.is_here():
            content = work.plan_json(fields)
        else:
            content = await elsewhere(request, work.plan_json, fields, settings.plan_timeout_s)
        return Response(content, media_type=_FILES["json"])

    @routes.post("/fit", responses=_LONG, openapi_extra={"requestBody": RUNS_CONTENT["fit"]})
    async def fit(request: Request) -> Response:
        """A calibration from runs, sent as rows or as files of a benchmark tool."""
        fields = await read_runs_body(request, FitBody, settings)
        content = await elsewhere(request, work.fit_json, fields, settings.fit_timeout_s)
        return Response(content, media_type=_FILES["json"])

    @routes.post("/grade", responses=_LONG, openapi_extra={"requestBody": RUNS_CONTENT["grade"]})
    async def grade(request: Request) -> Response:
        """Held-out errors of every estimator, by split."""
        fields = await read_runs_body(request, GradeBody, settings)
        content = await elsewhere(request, work.grade_json, fields, settings.fit_timeout_s)
        return Response(content, media_type=_FILES["json"])

    @routes.get("/lab", responses=_LONG)
    async def lab(request: Request, asked: Annotated[LabQuery, Query()]) -> Response:
        """The KV cache step by step, counted on arrays, and a real model's cache."""
        fields = asked.model_dump()
        key = tuple(fields.values())
        if key not in labs:
            found = await elsewhere(request, work.lab_json, fields, settings.plan_timeout_s)
            if len(labs) >= _LABS_KEPT:
                labs.pop(next(iter(labs)))
            labs[key] = found
        return Response(labs[key], media_type=_FILES["json"])

    return routes


class _Planner:
    """The planner in this process, loaded beside the answers when a queue first asks for it."""

    def __init__(self) -> None:
        self._loading: asyncio.Future[None] | None = None

    def is_here(self) -> bool:
        """Whether it is loaded; if not, it will be soon."""
        if self._loading is None:
            self._loading = asyncio.get_running_loop().run_in_executor(None, work.load_planner)
        return self._loading.done()


async def _while_waited_for(request: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """The result of `work`, which is given up when the client has gone away."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Refused(499, [problem("", "a client that waits", "the client went away")])
        return working.result()
    except asyncio.CancelledError:  # of a queue that is given up
        raise ending() from None
    finally:
        working.cancel()
        gone.cancel()


async def _gone(request: Request) -> None:
    """Return when the client has closed its connection; its body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _is_short(fields: Mapping[str, Any]) -> bool:
    """Whether a plan takes so little that the worker makes it where all its jobs are busy.

    So a queue moves on in the order it came, on all cores.
    """
    looked_at = candidates_of(fields)
    few = looked_at is not None and looked_at <= AT_ONCE
    bare = not fields["simulate"] and fields["trace"] is None
    return few and bare and _from_catalogue(fields)


def _from_catalogue(fields: Mapping[str, Any]) -> bool:
    """Whether all is named: what a client describes itself is read in a job's process."""
    gpus = fields["gpu"] if isinstance(fields["gpu"], list) else [fields["gpu"]]
    named = all(one is None or isinstance(one, str) for one in (fields["model"], *gpus))
    return named and fields.get("calibration") is None
