"""Reports: a dict is summarised into a `Document`, and that is rendered as PDF or HTML."""

import os
from collections.abc import Mapping
from typing import Any

from capmodel.report.files import write_whole


def write_run_pdf(summary: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write the capacity plan of one `capmodel run` to `path`, whole or not at all.

    `summary` is the plain dict the run gathers (see `capmodel.report.run`). Equal summaries give
    equal bytes. Raises `ValueError` for a summary that lacks a part or a path that is no file.
    """
    from capmodel.report.pdf import render_pdf
    from capmodel.report.run import run_document

    write_whole(path, render_pdf(run_document(summary)))
