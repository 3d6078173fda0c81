"""A fit that cannot tell one coefficient from another says so, and which runs would."""

import numpy as np
import pytest

from capmodel.calibration import fit
from capmodel.datasets import make_runs
from capmodel.evaluation import used_rows
from capmodel.identifiability import unsure_of
from capmodel.roofline import COLUMNS, PRIOR, fit_coefficients


def steps(**columns: np.ndarray) -> np.ndarray:
    """Terms with the named columns, others zero."""
    n = len(next(iter(columns.values())))
    return np.column_stack([columns.get(name, np.zeros(n)) for name in COLUMNS])


def fitted(**columns: np.ndarray):
    terms = steps(**columns)
    noise = np.random.default_rng(0).lognormal(0, 0.05, len(terms))
    return fit_coefficients(terms, terms @ PRIOR * noise)


RNG = np.random.default_rng(1)
LAYERS = RNG.integers(16, 80, 200).astype(float)
WEIGHTS = RNG.uniform(1e-4, 4e-3, 200)
CACHE = RNG.uniform(1e-5, 4e-3, 200)
FLOP = RNG.uniform(1e-6, 3e-3, 200)


def test_varied_rows_tell_everything() -> None:
    assert unsure_of(fitted(layers=LAYERS, weight_s=WEIGHTS, kv_s=CACHE, flop_s=FLOP)) == ()


def test_one_model_does_not_tell_weights_from_layers() -> None:
    """Layers and weight bytes are the same in every row of one model."""
    told = " ".join(unsure_of(fitted(
        layers=np.full(200, 32.0), weight_s=np.full(200, 5e-4), kv_s=CACHE, flop_s=FLOP
    )))  # fmt: skip
    assert "fixed time per layer is not told" in told or "weights and layers" in told
    assert "runs" in told


@pytest.mark.parametrize(
    ("absent", "said"),
    [("kv_s", "long context"), ("flop_s", "batch 256"), ("weight_s", "models of other sizes")],
)
def test_a_term_no_row_has(absent: str, said: str) -> None:
    columns = {"layers": LAYERS, "weight_s": WEIGHTS, "kv_s": CACHE, "flop_s": FLOP}
    del columns[absent]
    told = unsure_of(fitted(**columns))
    assert len(told) == 1
    assert said in told[0]


def test_a_calibration_says_it_by_engine_and_gpu() -> None:
    rows = used_rows(make_runs(n=6000, seed=0))
    pair = (rows["engine"].iloc[0], rows["gpu"].iloc[0])
    mine = rows[(rows["engine"] == pair[0]) & (rows["gpu"] == pair[1])]
    one_model = mine[mine["model"] == mine["model"].value_counts().index[0]]
    assert len(one_model) >= 12
    told = fit(one_model.reset_index(drop=True), name="one model").unsure
    assert " on ".join(pair) in told
