"""Notebooks with the parameters of a caller, run side by side and written as HTML."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from capmodel.arguments import COUNT, optional
from capmodel.notebooks.kernels import finished, played
from capmodel.notebooks.stories import made, notebook_parameters, notebook_title, tool
from capmodel.report.files import write_whole

# Called with what is running, the cells done, and all cells.
Progress = Callable[[str, int, int], None]

# The lab template without the scripts it would fetch from the network.
_OFFLINE = """{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock -%}
{%- block html_head_js_mathjax -%}{%- endblock -%}
{%- block html_head_js_mermaidjs -%}{%- endblock -%}"""


@dataclass(frozen=True, slots=True)
class NotebookRun:
    """One notebook that was run. error: what stopped it, None where it ran through."""

    name: str
    html: Path
    seconds: float
    error: str | None


def run_notebooks(
    paths: Sequence[Path],
    out: str | Path,
    parameters: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> list[NotebookRun]:
    """Run notebooks side by side, each in a process of its own, and write them into `out` as HTML
    that needs nothing else. The results come in the order of `paths`.

    parameters: values for parameters, by name; a notebook takes those it has. A notebook that
    stops with an error is written as far as it got, with the error in it, and the rest are run.
    jobs: notebooks at once, by default as many as there are processor cores; what a notebook
    writes does not depend on it. Each computes with one thread unless OMP_NUM_THREADS and the like
    are set.
    progress: called with what runs, the cells done of all notebooks, and all their cells.
    A caller that is interrupted meanwhile leaves no process and no half file.
    Raises ValueError for a parameter that no notebook has or of another kind than its default, for
    a folder that cannot be made, for jobs that are no count, and where the extra is missing.
    """
    most = optional("jobs", jobs, COUNT) or _cores()
    jupytext = tool("jupytext")
    given = dict(parameters or {})
    known = {path: notebook_parameters(path) for path in paths}
    unknown = sorted(set(given) - {name for own in known.values() for name in own})
    if unknown:
        names = ", ".join(sorted({name for own in known.values() for name in own}))
        raise ValueError(f"Got parameters {', '.join(unknown)}, but expected some of {names}")
    for path, own in known.items():
        for name in given.keys() & own.keys():
            _check_kind(name, given[name], own[name], path.stem)
    for extra in ("nbclient", "nbconvert", "ipykernel"):
        tool(extra)
    books = {path: jupytext.read(path, fmt="py:percent") for path in paths}
    for path, book in books.items():
        _inject(book, {name: value for name, value in given.items() if name in known[path]})
        for number, cell in enumerate(book.cells):
            cell["id"] = f"cell-{number}"  # else drawn at random, and with it the HTML
    folder, step = made(Path(out)), _Steps(books, progress)

    async def all_of_them() -> list[NotebookRun]:
        gate = asyncio.Semaphore(most)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_run(path, book, folder, gate, step))
                for path, book in books.items()
            ]
        return [task.result() for task in tasks]

    return finished(all_of_them())


def _cores() -> int:
    """Processor cores this process may use."""
    mine = getattr(os, "sched_getaffinity", None)
    return len(mine(0)) if mine else os.cpu_count() or 1


class _Steps:
    """Cells done of all notebooks, told to `progress` with the names of those that run."""

    def __init__(self, books: Mapping[Path, Any], progress: Progress | None) -> None:
        self._sizes = {path: len(book.cells) for path, book in books.items()}
        self._done: dict[Path, int] = {}
        self._progress = progress

    def __call__(self, path: Path, cells: int | None = None) -> None:
        """cells: done of the notebook at `path`; None for all."""
        self._done[path] = self._sizes[path] if cells is None else cells
        if self._progress is not None:
            running = [one for one, done in self._done.items() if done < self._sizes[one]] or [path]
            numbers = ", ".join(sorted(one.stem.split("_")[0] for one in running))
            label = running[0].stem if len(running) == 1 else f"notebooks {numbers}"
            self._progress(label, sum(self._done.values()), sum(self._sizes.values()))


async def _run(
    path: Path, book: Any, folder: Path, gate: asyncio.Semaphore, step: _Steps
) -> NotebookRun:
    async with gate:
        start = time.perf_counter()
        error = await played(book, lambda cells: step(path, cells))
        html = _html(book, notebook_title(path)).encode()
        written = write_whole(folder / f"{path.stem}.html", html)
        step(path)
        return NotebookRun(path.stem, written, time.perf_counter() - start, error)


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "True or False"),
    ((int, float), "a number"),
    (str, "text"),
    ((list, tuple), "a list"),
)


def _check_kind(name: str, value: Any, default: Any, where: str) -> None:
    """Raise ValueError where `value` is of another kind than the default, so that no notebook runs
    for minutes before it stops at it. None is of every kind."""
    kind = next(((types, words) for types, words in _KINDS if isinstance(default, types)), None)
    if kind is None or value is None:
        return
    types, words = kind
    if not isinstance(value, types) or isinstance(value, bool) != isinstance(default, bool):
        raise ValueError(
            f"Got {name}={value!r}, but expected {words}, such as {default!r} ({where})"
        )


def _inject(book: Any, values: Mapping[str, Any]) -> None:
    """A cell that sets `values`, after the one tagged `parameters`."""
    if not values:
        return
    nbformat = tool("nbformat")
    place = next(
        number for number, cell in enumerate(book.cells)
        if "parameters" in cell.metadata.get("tags", ())
    )  # fmt: skip
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    cell = nbformat.v4.new_code_cell("# Given for this run\n" + "\n".join(lines))
    cell.metadata["tags"] = ["injected-parameters"]
    book.cells.insert(place + 1, cell)


def _html(book: Any, title: str) -> str:
    book.metadata["title"] = title
    exporter = tool("nbconvert").HTMLExporter(raw_template=_OFFLINE)
    body, _ = exporter.from_notebook_node(book)
    return str(body)
