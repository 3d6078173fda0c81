"""The pages: the planner, the calibration page and the lab, rendered here."""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

from capmodel import __version__
from capmodel.gpus import gpu_names, load_gpu
from capmodel.prediction import shipped_calibrations
from capmodel.service.errors import Refused
from capmodel.service.named import gpu_of
from capmodel.service.settings import Settings
from capmodel.shapes.catalogue import shape_names
from capmodel.units import format_bytes

PAGES = (("/", "Planner"), ("/calibrate", "Calibrate"), ("/lab", "Lab"))

# What the planner's form holds when the address says nothing.
DEFAULTS = {
    "model": "llama-3-70b", "gpu": "h100-sxm", "engine": "", "tp": "", "weight_dtype": "",
    "kv_dtype": "", "price": "", "memory_fraction": "0.92", "load": "rate", "amount": "5",
    "input_len": "1000", "output_len": "200", "length_cv": "0", "prefix_len": "",
    "slo_ttft_p95": "2", "slo_tpot_p95": "0.08", "slo_e2e_p95": "",
}  # fmt: skip
_LONGEST = 200  # of one value of the address


def page_templates(settings: Settings) -> Environment:
    """The pages' templates, with what all of them show."""
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).resolve().parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(
        root=settings.prefix,
        version=__version__,
        pages=PAGES,
        options=_options,
        calibrations=[one.calibration_id for one in shipped_calibrations()],
        models=shape_names(),
        gpus=[_gpu(name) for name in gpu_names()],
    )

    return templates


def missing_page(templates: Environment, path: str) -> HTMLResponse:
    """What a browser is shown at a path that is none."""
    shown = templates.get_template("missing.html").render(here="", path=path[:_LONGEST])
    return HTMLResponse(shown, status_code=404)


def page_routes(settings: Settings, templates: Environment) -> APIRouter:
    """The router of the pages."""
    routes = APIRouter(include_in_schema=False)

    def page(name: str, here: str, **values: Any) -> HTMLResponse:
        return HTMLResponse(templates.get_template(name).render(here=here, **values))

    @routes.get("/")
    async def planner(request: Request) -> HTMLResponse:
        return page("planner.html", "/", q=_asked(request))

    @routes.get("/calibrate")
    async def calibrate() -> HTMLResponse:
        return page("calibrate.html", "/calibrate", upload_mib=settings.upload_bytes >> 20,
                    upload_rows=settings.upload_rows)  # fmt: skip

    @routes.get("/lab")
    async def lab() -> HTMLResponse:
        return page("lab.html", "/lab")

    return routes


def _asked(request: Request) -> dict[str, Any]:
    """The form's values: those of the address, or all defaults where it has none."""
    given = {name: value[:_LONGEST] for name, value in request.query_params.items()}
    if not set(given) & set(DEFAULTS):
        return {**DEFAULTS, "gpu": [DEFAULTS["gpu"]], "simulate": True}
    values: dict[str, Any] = {**dict.fromkeys(DEFAULTS, ""), "load": "rate", **given}
    values["gpu"] = [_known(name[:_LONGEST]) for name in request.query_params.getlist("gpu")[:64]]
    values["simulate"] = given.get("simulate", "1") != "0"
    return values


def _known(name: str) -> str:
    """The catalogue's name of a GPU; one it does not know stays, so that the plan says so."""
    try:
        return gpu_of(name).name
    except Refused:
        return name


def _options(values: list[str], chosen: str, empty: str) -> Markup:
    """The options of a select; a chosen value that is not among them is added."""
    known = values if chosen in values else [*values, chosen]
    parts = [
        Markup('<option value="{}"{}>{}</option>').format(
            value, Markup(" selected") if value == chosen else "", value or empty
        )
        for value in known
    ]
    return Markup("").join(parts)


def _gpu(name: str) -> dict[str, str]:
    return {"name": name, "memory": format_bytes(load_gpu(name).memory_bytes)}
