"""The bundled silicon runs: what the table promises, and that a rebuild gives it back."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from capmodel.bundled import bundled_path
from capmodel.datasets import load_silicon_runs
from capmodel.datasets.silicon import PART_COLUMNS, SILICON_FILE
from capmodel.datasets.silicon_draw import content_hash, drawn_deployments, six_digits
from capmodel.datasets.silicon_shapes import FIGURES, REAL, silicon_shapes
from capmodel.features import add_features
from capmodel.ingest import file_sha256, read_runs
from capmodel.quality import screen_runs
from capmodel.roofline import design, fit_coefficients
from capmodel.runs import validate_runs
from capmodel.shapes.attention import LatentAttention, SoftmaxAttention


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return load_silicon_runs(parts=True)


@pytest.fixture(scope="module")
def features(runs: pd.DataFrame) -> pd.DataFrame:
    return add_features(validate_runs(runs))


def test_size_and_spread(runs: pd.DataFrame) -> None:
    assert len(runs) >= 16_000
    assert runs["model"].nunique() >= 48
    assert set(runs["gpu"]) == {"a100-80gb-sxm", "h100-sxm", "h200-sxm", "b200-sxm", "l40s"}
    assert set(runs["tp"]) == {1, 2, 4, 8}
    assert (runs["batch_size"].min(), runs["batch_size"].max()) == (1, 512)
    assert (runs["context_len"].min(), runs["context_len"].max()) == (128, 131_072)
    throughput = runs["batch_size"] / runs["step_time_s"]
    assert throughput.max() / throughput.min() > 7_000
    assert bundled_path(SILICON_FILE).stat().st_size < 5e6


def test_weight_types_are_those_that_were_measured(runs: pd.DataFrame) -> None:
    by_gpu = runs.groupby("gpu")["weight_dtype"].agg(set)
    assert by_gpu["a100-80gb-sxm"] == {"bf16", "int4", "int8"}
    assert by_gpu["b200-sxm"] == {"bf16", "fp8", "nvfp4", "mxfp4"}
    for gpu in ("h100-sxm", "h200-sxm", "l40s"):
        assert by_gpu[gpu] == {"bf16", "fp8", "mxfp4"}
    whole = runs[runs["weight_dtype"].isin(["int4", "int8"])]
    assert set(whole["engine"]) == {"tensorrt-llm"}
    assert set(runs["kv_dtype"]) == {"bf16", "fp8"}


def test_layouts(runs: pd.DataFrame) -> None:
    shapes = [silicon_shapes()[name] for name in runs["model"].unique()]
    kinds = [kind for shape in shapes for _, kind in shape.attention_layers()]
    plain = [kind for kind in kinds if isinstance(kind, SoftmaxAttention)]
    assert {kind.n_kv_heads for kind in plain} >= {1, 2, 4, 8, 64}
    assert {kind.head_dim for kind in plain} == {64, 128, 256}
    assert any(kind.n_kv_heads == kind.n_heads for kind in plain)
    assert any(isinstance(kind, LatentAttention) for kind in kinds)


def test_nothing_claims_to_be_end_to_end(runs: pd.DataFrame) -> None:
    assert set(runs["source"]) == {"composed from measured kernels (aiconfigurator-core 0.12.0)"}
    invented = set(runs["model"]) - set(REAL) - set(FIGURES)
    assert all(name.startswith("varied-") for name in invented)


def test_parts_sum_to_the_step(runs: pd.DataFrame) -> None:
    # Each figure is rounded to six digits, so the sum is off by some 1e-5 at most.
    total = runs[list(PART_COLUMNS)].sum(axis=1)
    np.testing.assert_allclose(total, runs["step_time_s"], rtol=2e-5)
    assert not set(PART_COLUMNS) & set(load_silicon_runs().columns)


def test_no_step_beats_its_floor_or_its_memory(features: pd.DataFrame) -> None:
    # Up to 2 % of a step may have been timed in the L2 cache.
    assert (features["step_time_s"] >= 0.98 * features["floor_s"]).all()
    stored = features["weight_stored_bytes"] + features["kv_stored_bytes"]
    assert (stored <= 0.92 * features["gpu_memory_bytes"] * (1 + 1e-9)).all()


def test_no_context_past_the_models_own(runs: pd.DataFrame) -> None:
    longest = {name: shape.max_context or 131_072 for name, shape in silicon_shapes().items()}
    assert (runs["context_len"] <= runs["model"].map(longest)).all()


def test_hash_is_the_one_in_the_dictionary(runs: pd.DataFrame) -> None:
    assert content_hash(runs) == _documented_hash()


def test_the_dictionary_holds_every_files_own_sum_and_rows() -> None:
    folder = bundled_path(SILICON_FILE).parent
    text = (folder / "README.md").read_text(encoding="utf-8")
    files = [path for path in folder.iterdir() if path.suffix in (".parquet", ".npz", ".csv")]
    assert len(files) >= 2
    for path in files:
        section = text.split(f"## {path.name}")[1].split("\n## ")[0]
        assert f"`{file_sha256(path)}`" in section
    assert f"{len(load_silicon_runs()):,} rows" in text


def test_one_set_of_four_coefficients_is_as_good_as_the_dictionary_says(
    features: pd.DataFrame,
) -> None:
    one = features[features["tp"] == 1]
    found = []
    for rows in (one[one["weight_dtype"] == "bf16"], one):
        terms, seconds = design(rows), rows["step_time_s"].to_numpy()
        terms[:, 4:] = 0.0
        found.append(fit_coefficients(terms, seconds).mape)
        off = np.empty(len(rows))
        for gpu in rows["gpu"].unique():
            own = (rows["gpu"] == gpu).to_numpy()
            fitted = fit_coefficients(terms[~own], seconds[~own]).values
            off[own] = np.abs(terms[own] @ fitted / seconds[own] - 1)
        found.append(off.mean())
    text = " ".join(bundled_path("README.md").read_text(encoding="utf-8").split())
    bf16, bf16_left_out, every, every_left_out = (f"{100 * value:.1f} %" for value in found)
    assert f"at tp 1 is {bf16} off over the bf16 rows" in text
    assert f"{bf16_left_out} on a GPU left out; over all weight types" in text
    assert f"over all weight types {every} and {every_left_out}," in text


@pytest.mark.slow
def test_rebuilding_gives_the_same_content() -> None:
    pytest.importorskip(
        "aiconfigurator_core", reason="needs capmodel[silicon], the measured kernel times"
    )
    from capmodel.datasets.silicon_build import build_silicon_runs

    assert content_hash(build_silicon_runs()) == _documented_hash()


def _documented_hash() -> str:
    text = Path(bundled_path("README.md")).read_text(encoding="utf-8")
    section = text.split("## silicon_runs.parquet")[1]
    found = re.search(r"content\s+sha256\s+`([0-9a-f]{64})`", section)
    assert found is not None
    return found.group(1)


def test_draw_does_not_depend_on_order_and_follows_weights() -> None:
    names = [f"deployment-{i}" for i in range(400)]
    kept = {names[i] for i in drawn_deployments(names, [1.0] * 400)}
    turned = names[::-1]
    assert kept == {turned[i] for i in drawn_deployments(turned, [1.0] * 400)}
    heavy = [1e6 if i < 4 else 1.0 for i in range(400)]
    assert drawn_deployments(names, heavy) == [0, 1, 2, 3]


def test_parts_is_a_flag() -> None:
    with pytest.raises(ValueError, match="Got parts='no', but expected True or False"):
        load_silicon_runs(parts="no")  # type: ignore[arg-type]


def test_six_digits() -> None:
    found = six_digits(pd.Series([0.00123456789, 0.0, 3.0]))
    np.testing.assert_allclose(found, [0.00123457, 0.0, 3.0], rtol=1e-12)


def test_the_file_and_the_function_give_the_same_used_rows() -> None:
    """No check may depend on which way the bundled rows came in, and composed steps never ran."""
    loaded = screen_runs(load_silicon_runs())
    read = screen_runs(read_runs(bundled_path(SILICON_FILE)))
    assert loaded.aside["rule"].value_counts().to_dict() == {"copied": 2}
    assert read.aside["rule"].value_counts().to_dict() == {"copied": 2}
    assert list(loaded.used["run_id"]) == list(read.used["run_id"])
