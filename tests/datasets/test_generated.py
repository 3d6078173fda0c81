"""Generated runs: the stated ranges hold, the truth is frozen, and it is not the fitted formula."""

import hashlib

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import nnls

from capmodel.datasets import generated_grid as grid
from capmodel.datasets import generated_truth as truth
from capmodel.datasets import make_runs
from capmodel.datasets.generated import frozen_sample
from capmodel.gpus import load_gpu
from capmodel.runs import validate_runs

# sha256 of the truth at every 97th feasible configuration, to nine digits.
# Frozen before any estimator was fitted; see the docstring of generated_truth.
FROZEN = "8ff480ea0e9e2105e854cf9d6f080a9840e5b4973471f8a855479f98f2e0051a"


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return make_runs(truth=True)


def test_truth_is_frozen() -> None:
    sample = frozen_sample()
    text = "\n".join(f"{value:.8e}" for value in sample)
    assert hashlib.sha256(text.encode()).hexdigest() == FROZEN


def test_stated_ranges(runs: pd.DataFrame) -> None:
    assert len(runs) == 16_000
    assert runs["model"].nunique() == 48
    assert runs["gpu"].nunique() == 5
    assert set(runs["weight_dtype"]) == {"bf16", "fp8", "int4"}
    layouts = np.select(
        [runs["n_kv_heads"] == 1, runs["n_kv_heads"] == runs["n_heads"]], ["mqa", "mha"], "gqa"
    )
    assert set(layouts) == {"mha", "gqa", "mqa"}
    throughput = runs["batch_size"] / runs["step_time_s"]
    assert throughput.max() / throughput.min() > 7_000
    assert runs["source"].str.contains("synthetic").all()
    assert not runs.duplicated(
        ["model", "gpu", "weight_dtype", "kv_dtype", "batch_size", "context_len"]
    ).any()


def test_noise_floor_is_four_percent(runs: pd.DataFrame) -> None:
    # E|exp(-s z) - 1| = s sqrt(2 / pi) to first order: 3.99 % at s = 0.05; 16,000 rows give
    # it a standard error of 0.03 %.
    ape = (runs["true_step_time_s"] / runs["step_time_s"] - 1).abs()
    assert ape.mean() == pytest.approx(0.05 * np.sqrt(2 / np.pi), abs=0.001)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_best_four_coefficients_are_three_to_seven_percent_off(seed: int) -> None:
    runs = make_runs(n=8_000, seed=seed, noise=0.0)
    columns, seconds = _formula_columns(runs), runs["step_time_s"].to_numpy()
    relative = columns / seconds[:, None]
    scale = relative.max(axis=0)
    # Least absolute relative error by reweighting: the fit that has the smallest MAPE.
    weight = np.ones(len(runs))
    for _ in range(50):
        found, _ = nnls(relative / scale * weight[:, None], weight)
        weight = 1 / np.sqrt(np.maximum(np.abs(relative / scale @ found - 1), 1e-4))
    assert (found > 0).all()
    assert 0.03 < np.abs(relative / scale @ found - 1).mean() < 0.07


def test_no_step_is_below_its_floor(runs: pd.DataFrame) -> None:
    columns = _formula_columns(runs)
    assert (runs["true_step_time_s"] > columns[:, 1] + columns[:, 2]).all()


def test_more_work_takes_longer() -> None:
    """Time rises with context, and a step of two batches is never cheaper than its half."""
    whole = len(grid.feasible_grid(grid.shapes()).shape)
    runs = make_runs(n=whole, noise=0.0)
    keys = ["model", "gpu", "weight_dtype", "kv_dtype"]
    for varied, fixed in (("context_len", "batch_size"), ("batch_size", "context_len")):
        ordered = runs.sort_values([*keys, fixed, varied])
        same = ordered[[*keys, fixed]].eq(ordered[[*keys, fixed]].shift()).all(axis=1)
        change = ordered["step_time_s"].diff()[same] / ordered["step_time_s"][same]
        # Fuller waves may save a little time as work grows, as they do on real GPUs.
        assert change.min() > -0.35
        assert (change > 0).mean() > 0.97


def test_seed_and_noise() -> None:
    pd.testing.assert_frame_equal(make_runs(n=500, seed=3), make_runs(n=500, seed=3))
    assert not make_runs(n=500, seed=3).equals(make_runs(n=500, seed=4))
    silent = make_runs(n=500, noise=0.0, truth=True)
    np.testing.assert_array_equal(silent["step_time_s"], silent["true_step_time_s"])


def test_parameters_of_a_known_size() -> None:
    # made-8b-gqa has the figures of Llama-3.1-8B: 8,030,261,248 parameters.
    table = grid.shapes().set_index("model")
    assert table.loc["made-8b-gqa", "n_params"] == 8_030_261_248
    assert table.loc["made-70b-gqa", "n_params"] == 70_553_706_496


@pytest.mark.parametrize("name", ["n", "seed", "noise", "truth"])
@pytest.mark.parametrize("value", [-1, np.nan, np.inf, "3", None, [1], 1e30])
def test_bad_input_is_named(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"Got {name}=.*, but expected "):
        make_runs(**{"n": 5, name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"n": 0},
        {"n": True},
        {"n": 1.5},
        {"n": 10**11},
        {"seed": 0.5},
        {"noise": True},
        {"noise": 1.01},
    ],
)
def test_numbers_of_another_kind_are_refused(given: dict[str, object]) -> None:
    (name, value), *_ = given.items()
    with pytest.raises(ValueError, match=f"Got {name}={value}, but expected "):
        make_runs(**{"n": 5, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [0, 1])
def test_any_noise_it_takes_leaves_times_a_fit_can_read(noise: float) -> None:
    validate_runs(make_runs(n=2000, noise=noise))


def test_numpys_numbers_and_long_seeds_are_numbers() -> None:
    pd.testing.assert_frame_equal(make_runs(n=np.int64(5), seed=np.uint8(3)), make_runs(5, 3))
    assert len(make_runs(n=5, seed=2**70)) == 5


def _formula_columns(runs: pd.DataFrame) -> np.ndarray:
    """Columns of the four-coefficient formula, worked out here and not by capmodel.features."""
    gpu = runs["gpu"].map({name: i for i, name in enumerate(grid.GPUS)}).to_numpy()
    weight = runs["weight_dtype"].map({"bf16": 2.0, "fp8": 1.0, "int4": 0.515625}).to_numpy()
    cache = runs["kv_dtype"].map({"bf16": 2.0, "fp8": 1.0}).to_numpy()
    matrices = grid.matrix_params(runs).to_numpy(float)
    head = (runs["vocab_size"] * runs["hidden_size"]).to_numpy(float)
    tokens = (runs["batch_size"] * runs["context_len"]).to_numpy(float)
    width = (runs["n_layers"] * runs["head_dim"]).to_numpy(float)
    kv_bytes = 2 * tokens * width * runs["n_kv_heads"].to_numpy(float) * cache
    flop = 2 * runs["batch_size"].to_numpy(float) * (matrices + head)
    flop += 4 * tokens * width * runs["n_heads"].to_numpy(float)
    fp8 = (runs["weight_dtype"] == "fp8").to_numpy()
    peak = np.where(fp8, truth.PEAK_FP8[gpu], truth.PEAK_16BIT[gpu])
    bandwidth = truth.BANDWIDTH[gpu]
    return np.column_stack(
        [
            runs["n_layers"].to_numpy(float),
            (matrices * weight + 2 * head) / bandwidth,
            kv_bytes / bandwidth,
            flop / peak,
        ]
    )


def test_gpu_figures_are_those_of_the_catalogue() -> None:
    for i, name in enumerate(grid.GPUS):
        gpu = load_gpu(name)
        assert gpu.bandwidth_bytes_per_s == truth.BANDWIDTH[i]
        assert gpu.memory_bytes == grid.GPU_MEMORY_BYTES[i]
        assert gpu.matmul_flops_per_s("bf16") == truth.PEAK_16BIT[i]
        assert gpu.matmul_flops_per_s("fp8") == truth.PEAK_FP8[i]


def test_passes_the_runs_table_checks(runs: pd.DataFrame) -> None:
    checked = validate_runs(runs)
    assert len(checked) == len(runs)
