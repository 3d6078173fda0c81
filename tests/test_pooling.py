"""Pooled coefficients and the shared correction of tables that mix engine versions."""

import json

import numpy as np
import pytest

import capmodel as cm
from capmodel.calibration import CalibrationError
from capmodel.estimators import Corrected
from capmodel.evaluation import cross_validate, used_rows
from capmodel.features import shape_of_row
from capmodel.loading import calibration_from
from capmodel.pooling import pooled_coefficients, versions_mixed


def mixed(n=700, seed=3, factor=1.6):
    """Generated runs of which every second deployment ran on a version slower by `factor`."""
    runs = cm.make_runs(n=n, seed=seed)
    names = ["model", "gpu", "tp", "weight_dtype", "kv_dtype"]
    old = runs.groupby(names).ngroup() % 2 == 0
    seconds = runs["step_time_s"] * np.where(old, factor, 1.0)
    versions = np.where(old, "1.0", "2.0")
    return used_rows(
        runs.drop(columns="throughput_tok_s").assign(step_time_s=seconds, engine_version=versions)
    )


@pytest.fixture(scope="module")
def rows():
    return mixed()


@pytest.fixture(scope="module")
def calibration(rows):
    return cm.fit(rows)


def test_versions_are_told_apart_where_one_is_slower(rows, calibration):
    assert versions_mixed(rows)
    assert calibration.estimator.shared is not None
    known = cross_validate(rows, splits=["deployment"], estimators=["roofline", "regressor"])
    untold = cross_validate(
        rows.drop(columns="engine_version"), splits=["deployment"], estimators=["regressor"]
    )
    error = known.table.set_index("estimator")["mape"]
    assert error["regressor"] < 0.8 * error["roofline"]
    assert error["regressor"] < 0.8 * untold.table["mape"][0]


def test_tables_without_mixed_versions_keep_pairs_apart(rows):
    one = rows.assign(engine_version="1.0")
    seconds = one["step_time_s"].to_numpy()
    assert not versions_mixed(one)
    assert not versions_mixed(rows.drop(columns="engine_version"))
    assert Corrected().fit(one, seconds).shared is None


def test_pooling_is_refused_where_held_out_deployments_lose_by_it(rows):
    """Two engines of different physics, each with rows enough, and versions that do not differ."""
    half = rows.assign(engine_version=np.where(np.arange(len(rows)) % 2, "1", "2"))
    scale = np.where(half["gpu"].str.startswith("h"), 6.0, 1.0)
    seconds = (half["flop_s"] * 3 + half["weight_s"] * scale + half["kv_s"] * 1.2).to_numpy()
    apart = Corrected().fit(half.assign(step_time_s=seconds), seconds)
    assert versions_mixed(half)
    assert apart.shared is None


def test_pairs_lean_on_their_engine_and_no_coefficient_is_negative(rows):
    found = pooled_coefficients(rows, rows["step_time_s"].to_numpy())
    pairs = [fit for key, fit in found.items() if len(key) == 2]
    assert pairs
    assert {key[:1] for key in found if len(key) == 2} <= set(found)
    assert all(min(fit.values) >= 0 for fit in pairs)


def test_a_file_keeps_every_prediction(rows, calibration):
    back = calibration_from(json.loads(json.dumps(calibration.to_dict())))
    assert back.calibration_id == calibration.calibration_id
    # Coordinates are kept to six decimals.
    np.testing.assert_allclose(back.predict(rows), calibration.predict(rows), rtol=1e-4)


@pytest.mark.parametrize("part", ["weights", "engines", "landmarks"])
def test_a_shared_correction_cut_short_is_refused(calibration, part):
    content = json.loads(json.dumps(calibration.to_dict()))
    content["shared"][part] = content["shared"][part][:-1]
    with pytest.raises(CalibrationError, match="lacks a part or holds a wrong one"):
        calibration_from(content)


def test_a_step_is_what_rows_of_an_untold_version_are_predicted(rows, calibration):
    some = rows.iloc[::29].assign(engine_version="")
    for (_, row), expected in zip(some.iterrows(), calibration.predict(some), strict=True):
        step = calibration.step_time(
            shape_of_row(row.to_dict()), row["gpu"], tp=int(row["tp"]),
            weight_dtype=row["weight_dtype"],
            kv_dtype=row["kv_dtype"], engine=row["engine"],
        )  # fmt: skip
        found = step.seconds(float(row["batch_size"]), row["batch_size"] * row["context_len"])
        # What rises with batch and context is lifted, never lowered.
        assert found > expected * (1 - 1e-6)
        if step.rising is None:
            assert found == pytest.approx(expected, rel=1e-6)


def test_adapting_one_pair_leaves_the_versions_of_others_told_apart(rows, calibration):
    pair = calibration.pairs[0]
    own = ((rows["engine"] == pair[0]) & (rows["gpu"] == pair[1])).to_numpy()
    mine = rows[own]
    slower = {"step_time_s": 1.5 * mine["step_time_s"], "throughput_tok_s": np.nan}
    new = calibration.adapt(mine.assign(**slower).iloc[:8])
    assert (new.predict(rows)[~own] == calibration.predict(rows)[~own]).all()
    assert np.median(new.predict(mine) / calibration.predict(mine)) > 1.2
    again = calibration_from(json.loads(json.dumps(new.to_dict())))
    assert again.calibration_id == new.calibration_id
    assert again.predict(rows) == pytest.approx(new.predict(rows), rel=1e-5)
