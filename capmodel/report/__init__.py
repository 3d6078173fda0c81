"""Reports: a dict is summarised into a `Document`, and that is rendered as PDF or HTML."""

import os
from collections.abc import Mapping
from typing import Any

from capmodel.report.files import write_whole

PathLike = str | os.PathLike[str]


def write_run_pdf(summary: Mapping[str, Any], path: PathLike) -> None:
    """Write the capacity plan of one `capmodel run` to `path`, whole or not at all.

    `summary` is the plain dict the run gathers (see `capmodel.report.run`). Equal summaries give
    equal bytes. Raises `ValueError` for a summary that lacks a part or a path that is no file.
    """
    from capmodel.report.pdf import render_pdf
    from capmodel.report.run import run_document

    write_whole(path, render_pdf(run_document(summary)))


def write_plan_pdf(plan: Mapping[str, Any], path: PathLike) -> None:
    """Write a plan (`Plan.to_dict()`) as PDF to `path`, whole or not at all.

    Equal plans give equal bytes. Raises `ValueError` for what is no plan or a path that is no file.
    """
    from capmodel.report.pdf import render_pdf
    from capmodel.report.plan import plan_document

    write_whole(path, render_pdf(plan_document(plan)))


def write_plan_html(plan: Mapping[str, Any], path: PathLike) -> None:
    """Write a plan (`Plan.to_dict()`) as one self-contained HTML page, whole or not at all.

    Raises `ValueError` for what is no plan or a path that is no file.
    """
    from capmodel.report.html import render_html
    from capmodel.report.plan import plan_document

    write_whole(path, render_html(plan_document(plan)).encode())
