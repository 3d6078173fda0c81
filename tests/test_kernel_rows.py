"""Kernel curves over rows: what they share is found once, and each row gets what it gets alone."""

from collections.abc import Mapping
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

import capmodel as cm
from capmodel.curves import Curve, KernelCurves
from capmodel.datasets import load_silicon_runs
from capmodel.estimators import Corrected
from capmodel.features import add_features, deployments
from capmodel.gpus import load_gpu
from capmodel.kernel_rows import Pair, corrected_by
from capmodel.matern import FEW
from capmodel.operators import KINDS, evaluate, operators
from capmodel.regressor import OTHER_MODEL, ROOFLINE, LocalCorrection
from capmodel.shapes import load_shape
from capmodel.step_kernels import numbered


@pytest.fixture(scope="module")
def estimator() -> Corrected:
    """Of the calibration that is shipped, with curves of 15 engines and GPUs."""
    path = files("capmodel") / "calibrations" / "silicon.json"
    found = cm.load_calibration(str(path)).estimator
    assert isinstance(found, Corrected)
    return found


@pytest.fixture(scope="module")
def rows(estimator: Corrected) -> pd.DataFrame:
    """Deployments that ran, at any batch and context, and some that the curves cannot answer."""
    rng, runs = np.random.default_rng(5), load_silicon_runs()
    some = runs.sample(2500, random_state=5).reset_index(drop=True)
    some["batch_size"] = np.exp2(rng.uniform(0, 9, len(some))).round()
    some["context_len"] = np.exp2(rng.uniform(5, 17, len(some))).round()
    shapes = [name for name in some if name.startswith("n_") or name.endswith("_size")]
    unknown = some.index[::50]
    some.loc[unknown, "model"] = "jamba-1.5-mini"  # state layers: no kernel of theirs is known
    some.loc[unknown, [name for name in [*shapes, "head_dim"] if name != "batch_size"]] = np.nan
    some.loc[some.index[7::50], "engine"] = "no-such-engine"
    prompts = some.index[11::50]
    some["input_len"], some["output_len"], some["step_time_definition"] = (
        512.0,
        128.0,
        "decode_step",
    )
    some.loc[prompts, "step_time_definition"] = "tpot"  # prompts inside: not steps of decoding
    found = add_features(some)
    assert (found["prefill_tokens"] > 0).sum() == len(prompts)
    return estimator._with_roofline(found)


def _curve_by_hand(curve: Curve, kind: str, point: np.ndarray) -> tuple[float, float]:
    """Log factor and similarity at one point, from differences, in double precision."""
    scale = np.array(list(KINDS[kind].coordinates.values()))
    far = np.sqrt(5 * ((point * scale - curve.landmarks) ** 2).sum(axis=1))
    kernel = (1 + far + far**2 / 3) * np.exp(-far)
    return float(np.clip(kernel @ curve.weights + curve.level, -6, 6)), float(kernel.max())


def _by_hand(curves: Mapping[Pair, KernelCurves], row: pd.Series) -> tuple[float, float]:
    """Seconds of one row and nearness, kernel by kernel."""
    own, roofline = curves.get((row["engine"], row["gpu"])), float(row[ROOFLINE])
    shape = deployments(row.to_frame().T.infer_objects())[0][0].shape
    gpu = load_gpu(row["gpu"])
    known = operators(shape, gpu, row["weight_dtype"], row["kv_dtype"], int(row["tp"]))
    if own is None or not known or row["prefill_tokens"] > 0:
        return roofline, 0.0
    total, near = 0.0, 0.0
    for one in known:
        traits, at = np.array([one.traits]), (np.array([row["batch_size"]], float),
                                              np.array([row["context_len"]], float))  # fmt: skip
        seconds, points = evaluate(one.kind, traits, *at)
        value, close = 0.0, 0.0
        if one.kind in own.curves:
            value, close = _curve_by_hand(own.curves[one.kind], one.kind, points[0])
        spent = one.count * float(seconds[0]) * np.exp(value)
        total, near = total + spent, near + spent * close
    factor = np.clip(np.log(own.scale * total / roofline), own.low, own.high)
    return roofline * float(np.exp(factor)), near / total


@pytest.fixture(scope="module")
def expected(estimator: Corrected, rows: pd.DataFrame) -> pd.DataFrame:
    """Every twelfth row by hand; the step of 12 meets all sorts of rows that have no curves."""
    some = rows.iloc[::12]
    found = [_by_hand(estimator.curves, row) for _, row in some.iterrows()]
    assert 0.02 < np.mean([near == 0 for _, near in found]) < 0.2
    return pd.DataFrame(found, columns=["seconds", "near"], index=some.index)


def test_many_rows_get_what_their_kernels_say(estimator, rows, expected) -> None:
    """Small weights are read in single precision where points are many: 1e-6, see SINGLE."""
    seconds, near = corrected_by(estimator.curves, rows)
    places = expected.index.to_numpy()
    assert seconds[places] == pytest.approx(expected["seconds"].to_numpy(), rel=1e-6, abs=0)
    assert near[places] == pytest.approx(expected["near"].to_numpy(), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("n", [1, 2, 40])
def test_few_rows_are_exact(estimator, rows, expected, n: int) -> None:
    some = expected.iloc[:n]
    seconds, near = corrected_by(estimator.curves, rows.loc[some.index])
    assert seconds == pytest.approx(some["seconds"].to_numpy(), rel=1e-10, abs=0)
    assert near == pytest.approx(some["near"].to_numpy(), rel=1e-10, abs=1e-12)


def test_nearness_is_left_out_where_nobody_asks(estimator, rows) -> None:
    asked, unasked = (
        corrected_by(estimator.curves, rows[:300], judged) for judged in (True, False)
    )
    assert (asked[0] == unasked[0]).all()
    assert (unasked[1] == 0).all()


def test_no_rows(estimator, rows) -> None:
    seconds, near = corrected_by(estimator.curves, rows.iloc[:0])
    assert len(seconds) == len(near) == 0


def test_the_order_of_rows_changes_nothing(estimator, rows) -> None:
    """Nor does a table that holds every row twice; sums are taken in another order: 1e-12."""
    once, _ = corrected_by(estimator.curves, rows)
    mixed = np.random.default_rng(1).permutation(np.tile(np.arange(len(rows)), 2))
    again, _ = corrected_by(estimator.curves, rows.iloc[mixed])
    assert again == pytest.approx(once[mixed], rel=2e-6)


def test_heavy_weights_are_read_in_full() -> None:
    """Weights that cancel, as those of a fit with little ridge do: 1e-6 of a step all the same."""
    rng, scale = np.random.default_rng(2), np.array([0.08, 0.1])
    landmarks, weights = rng.uniform(0, 4, (220, 2)), rng.normal(size=220) / 3
    landmarks[1:40:2] = landmarks[:40:2] + 1e-3  # twenty pairs, side by side
    weights[:40:2], weights[1:40:2] = 300.0, -300.0
    points = np.column_stack([np.tile(np.arange(50.0), 40), np.repeat(np.arange(1.0, 41.0), 50)])
    value, near = Curve(landmarks, weights, -0.4)(points, scale, np.repeat(np.arange(40), 50))
    far = np.sqrt(5 * ((points[:, None] * scale - landmarks) ** 2).sum(axis=2))
    kernel = (1 + far + far**2 / 3) * np.exp(-far)
    within = np.abs(kernel @ weights - 0.4) < 6
    assert within.mean() > 0.5  # what is clipped shows no error
    assert value == pytest.approx(np.clip(kernel @ weights - 0.4, -6, 6), abs=1e-6)
    assert near == pytest.approx(kernel.max(axis=1), abs=1e-6)
    single = kernel.astype(np.float32) @ weights - 0.4
    assert np.abs(single - value)[within].max() > 1e-6


@pytest.mark.parametrize("n", [0, 1, 7, 1000, 2001])
def test_a_local_correction_by_hand(n: int) -> None:
    rng = np.random.default_rng(n)
    landmarks, weights = rng.normal(size=(90, 14)), rng.normal(size=90)
    points = rng.normal(size=(n, 14))
    of = rng.choice(["a", "b", ""], 90)
    local = LocalCorrection(landmarks, weights, 90, -1.0, 0.5, of)
    far = np.sqrt(5 * ((points[:, None] - landmarks) ** 2).sum(axis=2))
    kernel = (1 + far + far**2 / 3) * np.exp(-far)
    off = 1e-6 if n * len(weights) > FEW else 1e-12  # single precision for many
    models = rng.choice(["a", "c"], n)
    speaks = np.where((models[:, None] == of) | (of == ""), 1.0, OTHER_MODEL)
    for given, expected in ((None, kernel), (models, kernel * speaks)):
        value, near = local(points, given)
        assert value == pytest.approx(np.clip(expected @ weights, -1.0, 0.5), abs=off)
        assert near == pytest.approx(kernel.max(axis=1), abs=off)


@pytest.mark.parametrize("most", [30, 10**9])
def test_codes_are_numbered_in_order(most: int) -> None:
    """By a table where codes are dense, by sorting where they are not."""
    codes = np.random.default_rng(3).integers(0, most, 500)
    distinct, which = numbered(codes)
    assert distinct.tolist() == sorted(set(codes.tolist()))
    assert (distinct[which] == codes).all()
    assert [len(part) for part in numbered(codes[:0])] == [0, 0]


def test_deployments_are_those_of_each_row() -> None:
    """Shapes by name and by columns, GPUs by name and by figures, all in one table."""
    base = {"weight_dtype": "bf16", "kv_dtype": "bf16", "batch_size": 1, "context_len": 9, "tp": 1}
    shape = {"n_layers": 2, "hidden_size": 64, "n_heads": 4, "n_kv_heads": 4, "head_dim": 16,
             "intermediate_size": 32, "vocab_size": 100}  # fmt: skip
    figures = {"flops_per_s": 1e14, "memory_bytes": 8e10, "bandwidth_bytes_per_s": 1e12}
    runs = pd.DataFrame([
        base | {"model": "llama-3.1-8b", "gpu": "h100-sxm"},
        base | {"model": "mine", "gpu": "h100-sxm"} | shape,
        base | {"model": "mine", "gpu": "h100-sxm", "n_layers": 3} | shape | {"n_layers": 3},
        base | {"model": "llama-3.1-8b", "gpu": "a-card-of-mine"} | figures,
        base | {"model": "llama-3.1-8b", "gpu": "h100-sxm", "weight_dtype": "fp8", "tp": 2},
        base | {"model": "llama-3.1-8b", "gpu": "h100-sxm"},
    ])  # fmt: skip
    together, which = deployments(runs)
    assert len(together) == 5
    assert which[0] == which[5]
    for place in range(len(runs)):
        alone, _ = deployments(runs.iloc[[place]])
        assert together[which[place]] == alone[0]
    assert together[which[0]].shape == load_shape("llama-3.1-8b")


def test_curves_without_a_kind_leave_it_to_the_textbook(estimator, rows) -> None:
    """Kernels of a kind that no row of an engine and GPU had take what the datasheet says."""
    bare = {
        pair: KernelCurves({}, own.n_rows, own.low, own.high)
        for pair, own in estimator.curves.items()
    }
    some = rows.iloc[:60:5]
    seconds, near = corrected_by(bare, some)
    expected = [_by_hand(bare, row)[0] for _, row in some.iterrows()]
    assert seconds == pytest.approx(expected, rel=1e-12, abs=0)
    assert (near == 0).all()
