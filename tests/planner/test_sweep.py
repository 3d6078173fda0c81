"""Sweeps: every row is what the step time says, in blocks and on a cluster alike."""

import numpy as np
import pandas as pd
import pytest

from capmodel.distributed import in_order
from capmodel.features import FEATURES, add_features
from capmodel.planner.grid import grid_axes, roofline_setting
from capmodel.planner.sweep import sweep
from capmodel.shapes import load_shape

MODEL, GPUS = "llama-3.1-8b", ["h100", "a100-80gb"]
ONE = {"tp": 1, "weight_dtype": "bf16", "kv_dtype": ["bf16", "fp8"]}


def swept(path, **changes):
    arguments = {"batch": [1, 8, 64, 500], "context": [1, 500, 8192], **ONE, **changes}
    return sweep(MODEL, GPUS, path, setting=roofline_setting(), **arguments)


def test_rows_are_what_the_step_time_says(tmp_path):
    seen = []
    result = swept(
        tmp_path / "grid.parquet", progress=lambda done, total: seen.append((done, total))
    )
    table = pd.read_parquet(result.path)
    assert result.rows == len(table) == 2 * 2 * 4 * 3
    assert seen[-1] == (48, 48)
    row = table.query("deployment == 3 and batch == 64 and context == 500").iloc[0]
    candidate = result.deployments[3]
    step_time = roofline_setting().calibration.step_time(
        load_shape(MODEL), candidate.gpu, tp=1,
        weight_dtype="bf16", kv_dtype=candidate.kv_dtype,
    )  # fmt: skip
    assert row["step_time_s"] == pytest.approx(step_time.seconds(64, 64 * 500), rel=1e-9)
    assert row["tokens_per_s"] == pytest.approx(64 / row["step_time_s"])


def test_fit_is_whole_blocks_within_the_pool(tmp_path):
    """500 sequences of 8,192 tokens at 131,072 bytes a token are 537 GB; one fits anywhere."""
    table = pd.read_parquet(swept(tmp_path / "grid.parquet").path)
    assert not table.query("batch == 500 and context == 8192")["fits"].any()
    assert table.query("batch == 1")["fits"].all()


def test_small_blocks_give_the_same_rows(tmp_path):
    whole = pd.read_parquet(swept(tmp_path / "whole.parquet").path)
    parts = pd.read_parquet(swept(tmp_path / "parts.parquet", block_rows=3).path)
    pd.testing.assert_frame_equal(whole, parts)


def test_grid_axes_make_the_rows_asked_for():
    batch, context = grid_axes(MODEL, GPUS, 512, 32768, 400_000, **ONE)
    assert len(np.unique(batch)) == len(batch)
    assert len(np.unique(context)) == len(context)
    assert 4 * len(batch) * len(context) == pytest.approx(400_000, rel=0.05)
    assert (batch[0], batch[-1], context[0], context[-1]) == (1, 512, 1, 32768)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch": []}, r"batch=\[\]"),
        ({"batch": [0]}, "batch=0"),
        ({"context": [1.5]}, "context=1.5"),
        ({"context": [float("nan")]}, "context=nan"),
        ({"weight_dtype": "fp32", "tp": 1, "batch": [1]}, None),
    ],
)
def test_impossible_grids_are_refused_and_leave_no_file(tmp_path, changes, message):
    path = tmp_path / "grid.parquet"
    if message is None:
        with pytest.raises(ValueError, match="No deployment of llama-3-70b"):
            sweep("llama-3-70b", "l4", path, setting=roofline_setting(), context=[1], **changes)
    else:
        with pytest.raises(ValueError, match=message):
            swept(path, **changes)
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_is_not_there_is_named():
    pytest.importorskip("dask.distributed", reason="dask is not installed")
    with pytest.raises(ValueError, match="No Dask scheduler answers"):
        list(in_order(abs, [1], "tcp://127.0.0.1:1"))


def test_two_workers_give_the_same_rows(tmp_path):
    """The sweep and `add_features`, unchanged, on a local cluster of two processes."""
    distributed = pytest.importorskip("dask.distributed", reason="dask is not installed")
    from capmodel.datasets import make_runs

    runs = make_runs(600, seed=1)
    parts = [runs.iloc[start : start + 200] for start in range(0, 600, 200)]
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        far = pd.read_parquet(swept(tmp_path / "far.parquet", block_rows=3, dask=address).path)
        features = pd.concat(in_order(add_features, parts, address))
    near = pd.read_parquet(swept(tmp_path / "near.parquet").path)
    pd.testing.assert_frame_equal(near, far)
    pd.testing.assert_frame_equal(features, add_features(runs))
    assert set(FEATURES) <= set(features.columns)
