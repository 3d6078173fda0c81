"""The bundled notebooks: copied to be edited, or run on one's own runs into HTML.

A notebook is a Jupytext percent file; its cell tagged `parameters` assigns what a caller may
change. Running needs the extra `notebooks`; copying as `.py` does not.
"""

from capmodel.notebooks.run import NotebookRun, run_notebooks
from capmodel.notebooks.stories import (
    copy_notebooks,
    find_notebooks,
    notebook_parameters,
    notebook_title,
)

__all__ = [
    "NotebookRun", "copy_notebooks", "find_notebooks", "notebook_parameters", "notebook_title",
    "run_notebooks",
]  # fmt: skip
