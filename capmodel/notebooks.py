"""The bundled notebooks: copied to be edited, or run on one's own runs into HTML.

A notebook is a Jupytext percent file; its cell tagged `parameters` assigns what a caller may
change. Running needs the extra `notebooks`; copying as `.py` does not.
"""

import ast
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from capmodel.bundled import bundled_path
from capmodel.report.files import write_whole

# Called with what is running, the cells done, and all cells.
Progress = Callable[[str, int, int], None]

_INSTALL = "pip install 'capmodel[notebooks]'"
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


def find_notebooks(folder: str | Path | None = None, names: Sequence[str] = ()) -> list[Path]:
    """Percent notebooks of `folder` (the bundled ones where None), in order of their names.

    names: which ones, by number (`05`) or by name (`05_capacity_plan`); empty for all. Raises
    ValueError for a folder without notebooks and for unknown names, listing the known ones.
    """
    where = bundled_path("README.md", "notebooks").parent if folder is None else Path(folder)
    found = sorted(where.glob("[0-9]*.py"))
    if not found:
        raise ValueError(
            f"Got {where}, but expected a folder of notebooks such as 01_main_job.py; "
            "`capmodel notebooks copy DIR` makes one"
        )
    chosen: list[Path] = []
    for name in names:
        own = [path for path in found if name in (path.name, path.stem, path.stem.split("_")[0])]
        if not own:
            known = ", ".join(path.stem for path in found)
            raise ValueError(f"Got notebook {name!r}, but expected one of {known}")
        chosen += own
    return sorted(set(chosen)) if names else found


def notebook_title(path: Path) -> str:
    """The first heading of a notebook, or its name."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# # "):
            return line.removeprefix("# # ")
    return path.stem


def notebook_parameters(path: Path) -> dict[str, Any]:
    """What the cell tagged `parameters` assigns, with its default values.

    Raises ValueError where a default is not a plain literal.
    """
    found: dict[str, Any] = {}
    for cell in _cells(path.read_text(encoding="utf-8")):
        if "parameters" not in cell.partition("\n")[0]:
            continue
        for statement in ast.parse(cell).body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                try:
                    found[name] = ast.literal_eval(statement.value)
                except ValueError as error:
                    raise ValueError(
                        f"{path.name}: parameter {name} must be a plain number, text or list"
                    ) from error
    return found


def _cells(text: str) -> list[str]:
    """Code cells of a percent file, each with its `# %%` line first."""
    parts = ("\n" + text).split("\n# %%")[1:]
    return ["# %%" + part for part in parts if not part.lstrip().startswith("[markdown]")]


def copy_notebooks(
    folder: str | Path, *, as_ipynb: bool = False, overwrite: bool = False
) -> list[Path]:
    """Copy the bundled notebooks into `folder`, to be edited, and return their paths.

    as_ipynb: as Jupyter's own files (needs the extra `notebooks`), else as they are kept, percent
    scripts that Jupytext, VS Code and PyCharm open. Raises ValueError where a file is there
    already and overwrite is not given; then nothing is written.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"Got {target}, which is a file; name a folder")
    sources = find_notebooks()
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources}
    if as_ipynb:
        jupytext = _tool("jupytext")
        texts = {
            Path(name).with_suffix(".ipynb").name: jupytext.writes(
                jupytext.reads(text, fmt="py:percent"), fmt="ipynb"
            )
            for name, text in texts.items()
        }
    taken = [name for name in texts if (target / name).exists()]
    if taken and not overwrite:
        raise ValueError(
            f"{target} already holds {', '.join(taken)}; name another folder, or overwrite them"
        )
    _made(target)
    for name, text in texts.items():
        write_whole(target / name, text.encode())
    return [target / name for name in texts]


def run_notebooks(
    paths: Sequence[Path],
    out: str | Path,
    parameters: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[NotebookRun]:
    """Run notebooks one after the other and write each as self-contained HTML into `out`.

    parameters: values for parameters, by name; a notebook takes those it has. A notebook that
    stops with an error is written as far as it got, with the error in it, and the rest are run.
    progress: called with a notebook's name, the cells done of all notebooks, and all their cells.
    Raises ValueError for a parameter that no notebook has or of another kind than its default, for
    a folder that cannot be made, and where the extra is missing.
    """
    jupytext = _tool("jupytext")
    given = dict(parameters or {})
    known = {path: notebook_parameters(path) for path in paths}
    unknown = sorted(set(given) - {name for own in known.values() for name in own})
    if unknown:
        names = ", ".join(sorted({name for own in known.values() for name in own}))
        raise ValueError(f"Got parameters {', '.join(unknown)}, but expected some of {names}")
    for path, own in known.items():
        for name in given.keys() & own.keys():
            _check_kind(name, given[name], own[name], path.stem)
    books = {path: jupytext.read(path, fmt="py:percent") for path in paths}
    for path, book in books.items():
        _inject(book, {name: value for name, value in given.items() if name in known[path]})
    total = sum(len(book.cells) for book in books.values())
    folder = _made(Path(out))
    done, runs = 0, []
    for path, book in books.items():
        before = done

        def count(index: int, name: str = path.stem, start: int = before) -> None:
            if progress is not None:
                progress(name, start + index, total)

        runs.append(_run(path, book, folder, count))
        done += len(book.cells)
        count(len(book.cells))
    return runs


def _made(folder: Path) -> Path:
    """The folder, made where it is not there. Raises ValueError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ValueError(f"Got {folder}, but it cannot be made ({why}): name another") from error
    return folder


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
    nbformat = _tool("nbformat")
    place = next(
        number for number, cell in enumerate(book.cells)
        if "parameters" in cell.metadata.get("tags", ())
    )  # fmt: skip
    lines = [f"{name} = {value!r}" for name, value in values.items()]
    cell = nbformat.v4.new_code_cell("# Given for this run\n" + "\n".join(lines))
    cell.metadata["tags"] = ["injected-parameters"]
    book.cells.insert(place + 1, cell)


def _run(path: Path, book: Any, folder: Path, count: Callable[[int], None]) -> NotebookRun:
    nbclient = _tool("nbclient")
    _tool("ipykernel")
    start, error = time.perf_counter(), None
    # Sockets in a folder of one's own, where the system has such, instead of open local ports.
    place = tempfile.mkdtemp(prefix="capmodel-")
    own = {"transport": "ipc", "connection_file": f"{place}/kernel.json"}
    config = _tool("traitlets.config").Config({"KernelManager": own} if os.name == "posix" else {})
    client = nbclient.NotebookClient(
        book, config=config, kernel_name="python3", timeout=None, startup_timeout=180,
        on_cell_start=lambda cell, cell_index: count(cell_index),
        resources={"metadata": {"path": str(Path.cwd())}},
    )  # fmt: skip
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as failure:
        error = f"{failure.ename}: {failure.evalue}"
    except nbclient.exceptions.DeadKernelError:
        error = "the kernel died, perhaps for lack of memory"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    html = write_whole(folder / f"{path.stem}.html", _html(book, notebook_title(path)).encode())
    return NotebookRun(path.stem, html, time.perf_counter() - start, error)


def _html(book: Any, title: str) -> str:
    book.metadata["title"] = title
    exporter = _tool("nbconvert").HTMLExporter(raw_template=_OFFLINE)
    body, _ = exporter.from_notebook_node(book)
    return str(body)


def _tool(name: str) -> Any:
    """An optional package. Raises ValueError with the install command where it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"running notebooks needs {error.name}, which is not installed: {_INSTALL}"
        ) from error
