"""Shapes and GPUs that rows bring themselves: one name, one meaning; figures that can be."""

from pathlib import Path

import pandas as pd
import pytest

from capmodel.features import add_features
from capmodel.gpus import is_shipped, load_gpu
from capmodel.ingest import read_files
from capmodel.quality import check_runs, check_units, screen_runs
from capmodel.runs import RunsError, validate_runs

ROW = {"engine": "vllm", "model": "ours", "gpu": "mine", "weight_dtype": "bf16",
       "kv_dtype": "bf16", "batch_size": 8.0, "context_len": 1000.0, "step_time_s": 0.02,
       "n_layers": 32, "hidden_size": 4096, "n_heads": 32, "n_kv_heads": 8, "head_dim": 128,
       "intermediate_size": 14336, "vocab_size": 128256, "memory_bytes": 80e9,
       "bandwidth_bytes_per_s": 2e12, "flops_per_s": 300e12}  # fmt: skip


def table(*changes: dict[str, object]) -> pd.DataFrame:
    return pd.DataFrame([ROW | change for change in changes])


@pytest.mark.parametrize(
    ("column", "value"),
    [("n_kv_heads", 32), ("n_layers", 33), ("vocab_size", 32000), ("memory_bytes", 40e9),
     ("bandwidth_bytes_per_s", 1.5e12), ("flops_per_s", 150e12)],
)  # fmt: skip
def test_one_name_with_two_meanings_is_a_problem(column: str, value: float) -> None:
    with pytest.raises(RunsError, match=r"row 1 gives .* for the same") as error:
        validate_runs(table({}, {}, {column: value}))
    problem = error.value.problems.iloc[0]
    assert (problem["row"], problem["column"], problem["value"]) == (3, column, value)


def test_names_of_their_own_and_other_peaks_are_fine() -> None:
    other = {"model": "ours-b", "n_kv_heads": 32}
    # The peak is that of the matmul, so fp8 weights may have another one.
    quick = {"weight_dtype": "fp8", "flops_per_s": 600e12}
    assert len(validate_runs(table({}, other, quick))) == 3


def test_two_files_that_contradict_each_other(tmp_path: Path) -> None:
    table({}).to_csv(tmp_path / "a.csv", index=False)
    table({"n_kv_heads": 32}).to_csv(tmp_path / "b.csv", index=False)
    found = read_files([tmp_path])
    assert [report.status for report in found.files] == ["read", "refused"]
    assert "a.csv gives 8 for the same model 'ours'" in found.files[1].reason


def test_some_figures_of_a_gpu_are_too_few() -> None:
    few = table({"bandwidth_bytes_per_s": None, "flops_per_s": None})
    with pytest.raises(RunsError, match="it lacks bandwidth_bytes_per_s, flops_per_s; give all"):
        validate_runs(few)


def test_half_a_shape_and_one_that_cannot_be() -> None:
    with pytest.raises(RunsError, match="its shape lacks head_dim, vocab_size; give all of it"):
        validate_runs(table({"head_dim": None, "vocab_size": None}))
    with pytest.raises(RunsError, match=r"row 2, model: .*5"):
        validate_runs(table({}, {"model": "other", "n_kv_heads": 5}))


def test_rows_whose_bytes_cannot_be_counted_are_set_aside_and_the_others_used() -> None:
    # A stated number of parameters that its own layers exceed.
    screened = screen_runs(validate_runs(table({}, {"model": "tiny", "n_params": 4096})))
    assert len(screened.used) == 1
    assert screened.counts == {"no_features": 1}
    assert "n_params=4,096" in screened.aside["reason"].iloc[0]


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        ({"memory_bytes": 80}, "80 GB are written 80e9"),
        ({"bandwidth_bytes_per_s": 2000}, "3.35 TB/s are written 3.35e12"),
        ({"flops_per_s": 300}, "989 TFLOP/s are written 989e12"),
        ({"flops_per_s": 300e9}, "one of the two is in another unit"),
        ({"bandwidth_bytes_per_s": 2e15}, "one of the two is in another unit"),
    ],
)
def test_figures_in_another_unit(change: dict[str, float], remedy: str) -> None:
    with pytest.raises(RunsError, match=remedy):
        validate_runs(table(change))


def test_an_own_entry_names_all_that_is_wrong_at_once() -> None:
    entry = {"name": "mine", "bandwidth_bytes_per_s": 3350, "bf16_flop": 9e14, "tdp_w": -1}
    with pytest.raises(ValueError, match="unknown field 'bf16_flop'") as error:
        load_gpu(entry)
    for said in ("memory_bytes is missing", "3.35 TB/s are written", "tdp_w is -1",
                 "bf16_flops_per_s, which step times need"):  # fmt: skip
        assert said in str(error.value)


def test_a_gpu_without_peak_and_bandwidth_asks_for_both() -> None:
    with pytest.raises(ValueError, match=r"bf16_flops_per_s,? and bandwidth_bytes_per_s"):
        load_gpu({"name": "mine", "memory_bytes": 80e9}).matmul_flops_per_s("bf16")


def test_the_catalogue_is_told_from_own_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = "memory_bytes = 80e9\nbandwidth_bytes_per_s = 3e12\nbf16_flops_per_s = 900e12\n"
    (tmp_path / "h100-sxm.toml").write_text(entry)
    assert is_shipped("h100")
    assert not is_shipped("mine")
    monkeypatch.setenv("CAPMODEL_CATALOG", str(tmp_path))
    assert not is_shipped("h100-sxm")
    assert is_shipped("a100-80gb")


def test_a_suspect_own_gpu_is_named_beside_the_step_time() -> None:
    # Bandwidth 40 times and peak 80 times too high: all steps are far under their floor.
    quick = {"bandwidth_bytes_per_s": 80e12, "flops_per_s": 24e15, "step_time_s": 1e-6}
    featured = add_features(validate_runs(table(quick, quick | {"batch_size": 9.0})))
    with pytest.raises(RunsError, match="the GPU's own figures are in another unit") as error:
        check_units(featured)
    assert "mine with 80 TB a s" in str(error.value)
    slow = add_features(validate_runs(table(*[{"context_len": 1000.0 + i} for i in range(9)],
                                            {"step_time_s": 1e-3})))  # fmt: skip
    hits = check_runs(slow)
    below = hits[hits["rule"] == "below_floor"]["reason"]
    assert below.str.contains("the GPU's own figures").all()
    assert len(below) == 1
