"""Notebooks as files: found by name, read for their parameters, copied to be edited."""

import ast
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from capmodel.bundled import bundled_path
from capmodel.report.files import write_whole

_INSTALL = "pip install 'capmodel[notebooks]'"


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
        jupytext = tool("jupytext")
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
    made(target)
    for name, text in texts.items():
        write_whole(target / name, text.encode())
    return [target / name for name in texts]


def made(folder: Path) -> Path:
    """The folder, made where it is not there. Raises ValueError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ValueError(f"Got {folder}, but it cannot be made ({why}): name another") from error
    return folder


def tool(name: str) -> Any:
    """An optional package. Raises ValueError with the install command where it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"running notebooks needs {error.name}, which is not installed: {_INSTALL}"
        ) from error
