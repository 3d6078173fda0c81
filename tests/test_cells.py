"""Cells of any kind as text and numbers: what a date, a list, a bool or bytes are taken for."""

import datetime
import decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capmodel.cells import number_cells, text_cells
from capmodel.ingest import read_files, read_runs
from capmodel.runs import RunsError, validate_runs

ROWS = {"engine": "vllm", "model": "llama-3.1-8b", "gpu": "h100", "weight_dtype": "bf16",
        "kv_dtype": "bf16", "batch_size": [8, 16], "context_len": 1000,
        "step_time_s": [0.010, 0.012]}  # fmt: skip


def table(**changes: object) -> pd.DataFrame:
    return pd.DataFrame(ROWS).assign(**changes)


@pytest.mark.parametrize(
    ("column", "cells", "reason"),
    [
        ("model", [["a"], ["b"]], "expected a text, but it is a list"),
        ("gpu", [{"a": 1}, {"a": 2}], "expected a text, but it is a record"),
        ("engine", [b"vllm", b"\xff\xfe"], "its bytes are no UTF-8"),
        ("weight_dtype", [["bf16"], ["bf16"]], "expected a text, but it is a list"),
        ("step_time_definition", [["tpot"], ["tpot"]], "expected a text, but it is a list"),
        ("batch_size", [[1], [2]], "expected a number, but it is a list"),
        ("batch_size", [{"n": 1}, {"n": 2}], "expected a number, but it is a record"),
        ("tp", [True, False], "expected a number, but it is a bool"),
        ("step_time_s", pd.to_datetime(["2020", "2021"]), "expected a number, but it is a date"),
        ("step_time_s", [datetime.time(1), datetime.time(2)], "it is a date"),
        ("batch_size", pd.to_timedelta(["1s", "2s"]), "it is a span of time"),
        ("batch_size", ["8", "x"], "not a number"),
        ("model", ["llama\n3", "llama-3"], "is a quote left open"),
        ("gpu", ["h100\x1b[31m", "h100"], "is a quote left open"),
    ],
)
def test_what_is_no_text_or_number_is_a_problem_in_frames_and_files(
    tmp_path: Path, column: str, cells: object, reason: str
) -> None:
    frame = table(**{column: cells})
    path = tmp_path / "runs.parquet"
    frame.to_parquet(path)
    for read in (lambda: validate_runs(frame), lambda: read_runs(path)):
        with pytest.raises(RunsError, match=reason) as error:
            read()
        assert set(error.value.problems["column"]) == {column}
        assert str(error.value).isprintable()
    assert read_files([path]).files[0].status == "refused"


@pytest.mark.parametrize(
    ("column", "cells", "meant"),
    [
        ("step_time_s", pd.to_timedelta(["10ms", "12ms"]), [0.010, 0.012]),
        ("step_time_s", [decimal.Decimal("0.010"), decimal.Decimal("0.012")], [0.010, 0.012]),
        ("batch_size", pd.Categorical([8, 16]), [8.0, 16.0]),
        ("batch_size", np.array([8, 16], dtype="float16"), [8.0, 16.0]),
        ("batch_size", pd.array([8, 16], dtype="Int64"), [8.0, 16.0]),
        ("batch_size", [8, "16"], [8.0, 16.0]),
        ("gpu", pd.Categorical(["h100", "a100-80gb"]), ["h100", "a100-80gb"]),
        ("model", [b"llama-3.1-8b", b"qwen3-8b"], ["llama-3.1-8b", "qwen3-8b"]),
        ("flags", [None, None], ["", ""]),
    ],
)
def test_what_means_a_text_or_number_is_read(column: str, cells: object, meant: object) -> None:
    assert validate_runs(table(**{column: cells}))[column].tolist() == meant


def test_arrow_types_in_a_file(tmp_path: Path) -> None:
    plain = pa.Table.from_pandas(table(), preserve_index=False)
    place = {name: number for number, name in enumerate(plain.schema.names)}
    changes = {
        "model": plain["model"].dictionary_encode(),
        "gpu": pa.array([b"h100", b"h100"]),
        "batch_size": pa.array([8, 16], pa.decimal128(10, 2)),
        "step_time_s": pa.array([10, 12], pa.duration("ms")),
    }
    for name, cells in changes.items():
        plain = plain.set_column(place[name], name, cells)
    path = tmp_path / "runs.parquet"
    pq.write_table(plain, path)
    read = read_runs(path)
    assert read["step_time_s"].tolist() == [0.010, 0.012]
    assert read["batch_size"].tolist() == [8.0, 16.0]
    assert set(read["model"]) == {"llama-3.1-8b"}


def test_an_index_that_pandas_kept_apart_is_a_column(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    table().set_index("engine").to_parquet(path)
    assert set(read_runs(path)["engine"]) == {"vllm"}


def test_lists_outside_the_schema_are_written_out(tmp_path: Path) -> None:
    path = tmp_path / "runs.parquet"
    table(note=[["a"], ["b"]]).to_parquet(path)
    assert read_runs(path)["note"].map(type).eq(str).all()


def test_numbers_that_pandas_would_guess() -> None:
    odd = pd.Series([True, pd.Timestamp("2020"), 10**400, "1_0", "0x10", 1 + 2j], dtype=object)
    numbers, absent, reasons = number_cells(odd)
    assert numbers.isna().all()
    assert not absent.any()
    assert reasons is not None
    assert (reasons != "").all()


def test_gaps_are_neither_text_nor_wrong() -> None:
    gaps = pd.Series([None, np.nan, "", "  ", pd.NA, pd.NaT], dtype=object)
    text, why = text_cells(gaps)
    numbers, absent, reasons = number_cells(gaps)
    assert (text == "").all()
    assert absent.all()
    assert why is None
    assert reasons is None
    assert numbers.isna().all()
