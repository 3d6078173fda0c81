"""The runs table: every problem at once, by row, column, value and reason."""

import numpy as np
import pandas as pd
import pytest

import capmodel as cm
from capmodel.runs import RUNS, RunsError, validate_runs

GOOD = {
    "engine": "vLLM", "model": "llama-3-8b", "gpu": "h100", "weight_dtype": "bfloat16",
    "kv_dtype": "auto-free", "batch_size": 8, "context_len": 1024, "step_time_s": 0.012,
}  # fmt: skip


def table(**changes: object) -> pd.DataFrame:
    return pd.DataFrame([GOOD | {"kv_dtype": "fp16"} | changes])


def test_defaults_and_canonical_names() -> None:
    runs = validate_runs(table())
    row = runs.iloc[0]
    assert (row["tp"], row["pp"], row["run_id"]) == (1, 1, "row-1")
    assert (row["engine"], row["weight_dtype"]) == ("vllm", "bf16")
    assert row["step_time_definition"] == "decode_step"


def test_throughput_gives_the_step_time() -> None:
    frame = table(throughput_tok_s=400.0).drop(columns="step_time_s")
    assert validate_runs(frame)["step_time_s"].iloc[0] == pytest.approx(8 / 400)


def test_all_problems_at_once() -> None:
    rows = [
        GOOD | {"kv_dtype": "fp16", "batch_size": -1, "step_time_s": float("nan")},
        GOOD | {"kv_dtype": "fp9", "context_len": "1.024,5", "tp": 1.5},
    ]
    with pytest.raises(RunsError) as caught:
        validate_runs(pd.DataFrame(rows))
    found = {(p.row, p.column) for p in caught.value.problems.itertuples()}
    assert {(1, "batch_size"), (1, "step_time_s"), (2, "kv_dtype"), (2, "context_len")} <= found
    assert "thousands separators" in str(caught.value)
    assert "fp9" in str(caught.value)


def test_missing_columns_are_listed_together() -> None:
    with pytest.raises(RunsError, match=r"(?s)model.*gpu.*step_time_s"):
        validate_runs(pd.DataFrame({"engine": ["vllm"], "batch_size": [1]}))


def test_duplicate_run_ids() -> None:
    frame = pd.concat([table(run_id="a"), table(run_id="a")])
    with pytest.raises(RunsError, match="more than once"):
        validate_runs(frame)


def test_an_empty_table() -> None:
    with pytest.raises(RunsError, match="no rows"):
        validate_runs(pd.DataFrame())


@pytest.mark.parametrize("value", [float("inf"), -0.5, 0.0, 1e9])
def test_impossible_times(value: float) -> None:
    with pytest.raises(RunsError, match="step_time_s"):
        validate_runs(table(step_time_s=value))


def test_columns_outside_the_schema_survive() -> None:
    assert validate_runs(table(note="kept"))["note"].iloc[0] == "kept"


def test_schema_has_every_documented_column() -> None:
    # The columns of INTERFACES, required ones first.
    names = {column.name for column in RUNS}
    assert {"run_id", "source", "engine", "model", "gpu", "tp", "weight_dtype", "kv_dtype",
            "batch_size", "context_len", "step_time_s", "throughput_tok_s", "engine_version", "pp",
            "dp", "ep", "n_gpus", "input_len", "output_len", "concurrency", "ttft_s", "tpot_s",
            "e2e_s", "step_time_definition", "flags", "n_layers", "n_params",
            "memory_bytes", "bandwidth_bytes_per_s", "flops_per_s"} <= names  # fmt: skip


def test_rows_without_optional_numbers() -> None:
    runs = validate_runs(table(input_len=np.nan, concurrency=""))
    assert np.isnan(runs["input_len"].iloc[0])
    assert np.isnan(runs["concurrency"].iloc[0])


@pytest.mark.parametrize("given", ["runs.csv", None, [1], {"model": ["a"]}])
def test_what_is_no_table_is_refused_by_name(given: object) -> None:
    from capmodel.profile import profile_runs

    for asked in (validate_runs, profile_runs, cm.fit, cm.grade, cm.add_features):
        with pytest.raises(ValueError, match=r"Got runs=.*, but expected a DataFrame; read_runs"):
            asked(given)  # type: ignore[operator]
