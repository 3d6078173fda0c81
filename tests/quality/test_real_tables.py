"""What leaves the two real tables, by rule; no good row may."""

from pathlib import Path

from capmodel.ingest import read_files, read_runs
from capmodel.quality import noise_floor_mape, screen_runs


def test_argonne_rows_that_leave(shared_data: Path) -> None:
    screened = screen_runs(read_runs(shared_data / "argonne_llm_inference_bench.csv"))
    assert len(screened.used) + len(screened.aside) == 4286
    assert len(screened.used) >= 3900
    counts = screened.counts
    assert counts["no_bandwidth"] == 41  # SN40L
    assert counts["below_floor"] == 12  # early stops of TensorRT-LLM on H100 at 2,048 tokens
    assert 60 <= counts["over_memory"] <= 80
    # 24 max-1550 rows that repeat others with 17-20 s more, one there without a twin, and the
    # first runs of 11 MI300X series.
    assert counts["warm_up"] == 36
    assert counts["fixed_time"] == 12  # of the same max-1550 series, without a twin
    assert set(counts) == {"no_bandwidth", "below_floor", "over_memory", "warm_up", "fixed_time"}
    slow = screened.aside[screened.aside["rule"].isin(["warm_up", "fixed_time"])]
    assert set(slow["gpu"]) == {"max-1550", "mi300x"}
    assert 0.005 < (noise_floor_mape(screened.used) or 0) < 0.015


def test_measured_serving_rows_that_leave(shared_data: Path) -> None:
    found = read_files([shared_data / "measured_serving_runs.csv"])
    screened = screen_runs(found.runs, found.file_of_row)
    assert len(screened.used) + len(screened.aside) + len(found.aside) == 2518
    assert set(screened.counts) == {"copied", "over_memory", "below_floor"}
    assert 0.005 < (noise_floor_mape(screened.used) or 0) < 0.03
