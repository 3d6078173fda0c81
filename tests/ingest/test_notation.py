"""How a table writes its numbers: thousands and decimals in either notation, or refused."""

from pathlib import Path

import pandas as pd
import pytest

from capmodel.ingest import Given, large, read_runs
from capmodel.ingest.notation import in_points
from capmodel.runs import RunsError

NAMES = ("engine", "model", "gpu", "weight_dtype", "kv_dtype", "batch_size", "context_len",
         "step_time_s")  # fmt: skip
FIRST = ("vllm", "llama-3.1-8b", "h100", "bf16", "bf16")


def written(folder: Path, rows: list[tuple[str, str, str]], delimiter: str) -> Path:
    path = folder / "runs.csv"
    lines = [delimiter.join(NAMES), *(delimiter.join([*FIRST, *row]) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# Cells of (batch, context, step) -> what they mean, for a file that shows its notation.
@pytest.mark.parametrize(
    ("delimiter", "cells", "meant"),
    [
        (";", ("8", "4.096", "0,012"), (8, 4096, 0.012)),
        (";", ("8", "1.234.567", "0,012"), (8, 1_234_567, 0.012)),
        (";", ("57,3", "4.096,5", "0,012"), (57.3, 4096.5, 0.012)),
        (";", ("8", "4 096", "0,012"), (8, 4096, 0.012)),
        (";", ("8", "4\u00a0096", "0,012"), (8, 4096, 0.012)),
        (";", ("8", "4\u202f096,5", "0,012"), (8, 4096.5, 0.012)),
        (";", ("8", "4'096", "0.012"), (8, 4096, 0.012)),
        (";", ("8", "4\u2019096.5", "0.012"), (8, 4096.5, 0.012)),
        (";", ("8", "4,096", "0.012"), (8, 4096, 0.012)),
        ("\t", ("8", "4.096", "1,2e-2"), (8, 4096, 0.012)),
        (",", ("8", '"4,096"', "0.012"), (8, 4096, 0.012)),
        (",", ("8", '"4,096.5"', "0.012"), (8, 4096.5, 0.012)),
        (",", ("8", "4.096", '"0,012"'), (8, 4096, 0.012)),
        (",", ("57.302", "4096", "1.012"), (57.302, 4096, 1.012)),
    ],
)
def test_cells_mean_what_the_file_shows(
    tmp_path: Path, delimiter: str, cells: tuple[str, str, str], meant: tuple[float, ...]
) -> None:
    row = read_runs(written(tmp_path, [cells], delimiter)).iloc[0]
    assert tuple(row[["batch_size", "context_len", "step_time_s"]]) == pytest.approx(meant)


@pytest.mark.parametrize(
    ("delimiter", "cells", "column", "remedy"),
    [
        (";", ("8", "4.096", "0.012"), "context_len", "write 4096, or 4.0960 with a point"),
        (";", ("8", "4.096", "12"), "context_len", "write 4096"),
        (";", ("57,302", "4096", "0,012"), "batch_size", "write 57302, or 57.3020 with a point"),
        (";", ("8", "4096", "1.234"), "step_time_s", "write 1234, or 1.2340 with a point"),
        (",", ("8", '"4,096"', '"0,012"'), "context_len", "write 4096"),
    ],
)
def test_what_stays_open_is_refused_by_row_column_and_value(
    tmp_path: Path, delimiter: str, cells: tuple[str, str, str], column: str, remedy: str
) -> None:
    path = written(tmp_path, [cells], delimiter)
    with pytest.raises(RunsError, match=remedy) as error:
        read_runs(path)
    problem = error.value.problems.iloc[0]
    assert (problem["row"], problem["column"]) == (1, column)
    assert problem["value"] in cells or f'"{problem["value"]}"' in cells


def test_other_cells_of_the_column_decide_first(tmp_path: Path) -> None:
    rows = [("57.302", "4.096", "0.012"), ("57.3", "4.1", "0.012")]
    runs = read_runs(written(tmp_path, rows, ";"))
    assert runs["batch_size"].tolist() == [57.302, 57.3]
    assert runs["context_len"].tolist() == [4.096, 4.1]


def test_a_column_in_two_notations_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [("8", "512", "0,012"), ("8", "512", "0.013")], ";")
    with pytest.raises(RunsError, match="with a comma here and with a point elsewhere"):
        read_runs(path)


def test_a_cell_too_many_is_not_taken_for_an_index(tmp_path: Path) -> None:
    path = written(tmp_path, [("8", "4,096", "0.012"), ("8", "1,024", "0.011")], ",")
    with pytest.raises(RunsError, match="it has 9 cells, but the header names 8 columns"):
        read_runs(path)


def test_large_files_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(str(1 + i % 64), f"{1 + i % 9}.096", f"0,01{i % 10}") for i in range(300)]
    path = written(tmp_path, rows, ";")
    small = read_runs(path)
    monkeypatch.setattr(large, "LARGE_BYTES", 2000)
    monkeypatch.setattr(large, "_BLOCK_BYTES", 4000)
    pd.testing.assert_frame_equal(read_runs(path)[small.columns], small, check_dtype=False)
    assert small["context_len"].min() == 1096


def test_a_tools_table_saved_by_a_european_spreadsheet(formats: Path, tmp_path: Path) -> None:
    point = read_runs(formats / "argonne.csv")
    lines = (formats / "argonne.csv").read_text().replace(".", "§").replace(",", ";")
    path = tmp_path / "argonne.csv"
    path.write_text(lines.replace("§", ","))
    comma = read_runs(path)
    assert comma["e2e_s"].tolist() == point["e2e_s"].tolist()
    assert comma["output_len"].tolist() == point["output_len"].tolist()


def test_words_stay_as_they_are() -> None:
    cells = pd.Series(["fast", "1.2.3", "12 ms", "", None, "1e5"], dtype=object)
    plain, problems = in_points({"x": cells}, frozenset(), ";")
    assert plain["x"].tolist() == cells.tolist()
    assert problems == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "engine,model,gpu,model,batch_size,batch_size\nvllm,a,b,c,1,2\n"),
        ("a.csv", "engine, model ,gpu,model,batch_size, batch_size\nvllm,a,b,c,1,2\n"),
        (
            "a.md",
            "| model | batch_size | model | batch_size |\n|-|-|-|-|\n|a|1|b|2|",
        ),
    ],
)
def test_a_column_that_occurs_twice_is_refused_by_name(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(RunsError) as error:
        read_runs(path, given=Given())
    assert list(error.value.problems["column"]) == ["model", "batch_size"]
    assert "occurs twice in the header; keep one" in str(error.value)


def test_a_json_name_that_occurs_twice_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"backend": "vllm", "mean_tpot_ms": 3, "mean_tpot_ms": 4}')
    with pytest.raises(RunsError, match="'mean_tpot_ms' stands twice in one object; keep one"):
        read_runs(path)
