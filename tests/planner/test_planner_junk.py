"""Junk in any argument of the planner's functions: one line that names it, and nothing written.

`plan` itself is tried in tests/test_arguments.py.
"""

import numpy as np
import pytest
from rates import NameplateCalibration

import capmodel as cm
from capmodel.planner.candidate import candidates
from capmodel.planner.grid import grid_axes, roofline_setting
from capmodel.planner.sweep import sweep
from capmodel.shapes import load_shape
from capmodel.workload import Requests

JUNK = [
    None, "", "x", b"a", True, float("nan"), float("inf"), -1, 0, 2.5, 1j, 1e300, 10**400, [], {},
    object(), [None], ["x"], [[1], [2, 3]], np.array([1.5]),
]  # fmt: skip
GPU = {"gpu": "h100", "tp": 1, "weight_dtype": "bf16", "kv_dtype": "bf16"}
CASES = {
    sweep: {
        "model": "llama-3-8b", "out": "grid.parquet", "batch": [1, 2], "context": [8, 16],
        "setting": roofline_setting(), "progress": None, "dask": None, "block_rows": 100, **GPU,
    },
    grid_axes: {
        "model": "llama-3-8b", "max_batch": 8, "max_context": 64, "points": 16, **GPU,
    },
    roofline_setting: {"calibration": None, "engine": "vllm"},
}  # fmt: skip
# What None means: the whole catalogue, or the usual choices.
SLOW = {(sweep, "gpu"), (grid_axes, "gpu")}


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_junk_is_a_result_or_one_line(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = CASES[function]
    function(**good)
    for name in good:
        for junk in JUNK:
            if junk is None and (function, name) in SLOW:
                continue
            (tmp_path / "grid.parquet").unlink(missing_ok=True)
            try:
                function(**{**good, name: junk})
            except ValueError as error:
                said = str(error)
                assert len(said.splitlines()) == 1, (name, junk)
                assert said.startswith(("Got", "calibration", "No deployment", "GPU my-gpu")), (
                    name,
                    junk,
                    said,
                )
                assert not (tmp_path / "grid.parquet").exists(), (name, junk)


@pytest.mark.parametrize("junk", [True, 2.5, "x", -1, float("nan"), [None], 10**400, 1j])
def test_degrees_and_dtypes_are_what_they_are(junk):
    shape = load_shape("llama-3-8b")
    for name in ("tp", "weight_dtype", "kv_dtype", "gpu"):
        with pytest.raises(ValueError, match=r"^Got "):
            list(candidates(shape, **{**GPU, name: junk}))


@pytest.mark.parametrize(("gap_s", "odd"), [(0.5, False), (500.0, True), (1e-6, True)])
def test_a_trace_in_another_unit_is_asked_about(gap_s, odd):
    """Half a second between requests, the same taken for milliseconds, and a microsecond."""
    n = 60
    trace = Requests(np.arange(n) * gap_s, np.full(n, 200), np.full(n, 20), name="mine.csv")
    one = {"tp": 1, "weight_dtype": "bf16", "kv_dtype": "bf16", "simulate": False}
    rates = {"calibration": NameplateCalibration(), **one}
    notes = cm.plan("llama-3.1-8b", "h100", trace=trace, **rates).warnings
    assert any("unit of its times" in note and "mine.csv" in note for note in notes) == odd
    told = cm.plan("llama-3.1-8b", "h100", trace=trace, rate=2.0, **rates).warnings
    assert not any("unit of its times" in note for note in told)
