"""Each notebook runs from top to bottom, on the bundled data and on measured runs."""

import io
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import jupytext
import pytest
from IPython.core.interactiveshell import InteractiveShell

from capmodel.datasets import load_silicon_runs
from capmodel.lab.language_model import load_language_model
from capmodel.notebooks import find_notebooks, notebook_parameters, notebook_title

# Small enough for a test, large enough that every cell has something to show.
SMALL: dict[str, dict[str, Any]] = {
    "01_main_job": {"n_rows": 300, "splits": ["random", "gpu"],
                    "estimators": ["nearest", "roofline", "regressor"]},
    "02_profile_runs": {"n_rows": 600},
    "03_decode_with_a_cache": {"n_tokens": 8},
    "04_regressor": {"n_rows": 240, "trees": 20},
    "05_capacity_plan": {"rate": 2.0, "gpus": ["h100", "l40s"]},
    "06_cache_compression": {"text_rows": 2, "question_rows": 2, "budgets": (32,)},
    "07_new_gpu_in_ten_runs": {"n_rows": 400, "draws": 1, "n_runs": 5},
}  # fmt: skip
NOTEBOOKS = {path.stem: path for path in find_notebooks()}


def play(path: Path, **given: Any) -> tuple[dict[str, Any], str]:
    """Run the cells in this process; return the names they leave and what they print."""
    shell = InteractiveShell()
    printed = io.StringIO()
    with redirect_stdout(printed):
        for cell in jupytext.read(path, fmt="py:percent").cells:
            if cell.cell_type == "code":
                result = shell.run_cell(cell.source, store_history=False)
                result.raise_error()
                if "parameters" in cell.metadata.get("tags", ()):
                    shell.user_ns.update(given)
    return dict(shell.user_ns), printed.getvalue()


def test_every_notebook_is_tested_here() -> None:
    assert set(SMALL) == set(NOTEBOOKS)


@pytest.mark.parametrize("name", [name for name in SMALL if name[:2] not in ("01", "04")])
def test_runs_on_the_bundled_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(SMALL[name]) <= set(notebook_parameters(NOTEBOOKS[name]))
    whole = load_language_model()
    short = replace(whole, held_out=whole.held_out[:5000])  # a sixth: the card reads all of it
    monkeypatch.setattr("capmodel.lab.language_model.load_language_model", lambda: short)
    _, printed = play(NOTEBOOKS[name], **SMALL[name])
    assert "SVG object" in printed


def test_correction_is_silent_on_a_gpu_it_has_not_seen(tmp_path: Path) -> None:
    runs = load_silicon_runs()
    three = runs[(runs["engine"] == "vllm") & runs["gpu"].isin(["h100-sxm", "b200-sxm", "l40s"])]
    three.to_parquet(tmp_path / "runs.parquet")
    given = SMALL["04_regressor"] | {"runs_file": str(tmp_path / "runs.parquet")}
    left, _ = play(NOTEBOOKS["04_regressor"], **given)
    tried = left["tried"]
    physics = tried.loc["roofline per engine and GPU", "gpu"]
    assert tried.loc["kernel ridge on its residual", "gpu"] == pytest.approx(physics, rel=1e-12)
    # Three GPUs of different ages: one set of coefficients for all cannot do as well.
    assert tried.loc["one roofline", "random"] > tried.loc["roofline per engine and GPU", "random"]


def test_main_job_finds_what_was_put_into_the_runs() -> None:
    left, printed = play(NOTEBOOKS["01_main_job"], **SMALL["01_main_job"])
    assert "300 rows" in printed
    # Physics holds where a look-up of similar rows does not; on 300 scattered rows by far.
    errors = left["errors"]
    assert errors.loc["roofline", "random"] < 0.5 * errors.loc["nearest", "random"]
    # What the notebook fits is what predicts: at batch 1 the weights are most of a step.
    one = left["answers"][left["contexts"][0]]
    assert one.calibration_id.startswith("notebook-")
    assert (one.step_time_s[1:] >= one.step_time_s[:-1]).all()


def test_main_job_on_measured_runs(shared_data: Path) -> None:
    runs = shared_data / "argonne_llm_inference_bench.csv"
    given = SMALL["01_main_job"] | {"runs_file": str(runs), "n_rows": 400}
    left, _ = play(NOTEBOOKS["01_main_job"], **given)
    assert len(left["used"]) + len(left["aside"]) == 400
    assert {"vllm", "llama.cpp", "tensorrt-llm"} <= set(left["used"]["engine"])
    # Five folds of 400 rows over 14 engine-GPU pairs: the whole table scores 0.09.
    assert left["errors"].loc["roofline", "random"] < 0.2


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=NOTEBOOKS.keys())
def test_is_kept_so_that_git_can_compare_it(path: Path) -> None:
    book = jupytext.read(path, fmt="py:percent")
    tagged = [cell for cell in book.cells if "parameters" in cell.metadata.get("tags", ())]
    assert len(tagged) == 1
    assert notebook_parameters(path)
    assert notebook_title(path) != path.stem
    # What Jupytext writes back is what is there: no outputs, no stray metadata.
    again = jupytext.reads(jupytext.writes(book, fmt="py:percent"), fmt="py:percent")
    assert [cell.source for cell in again.cells] == [cell.source for cell in book.cells]
