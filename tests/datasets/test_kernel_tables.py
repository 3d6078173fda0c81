"""Looking kernel times up and putting a step together, on tables small enough to add by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from capmodel.datasets.kernel_tables import (
    BATCHES,
    CONTEXTS,
    KernelTables,
    checked_folder,
    read_tables,
)
from capmodel.datasets.silicon_build import Deployment, _steps
from capmodel.datasets.silicon_steps import step_parts
from capmodel.shapes import shape_from_columns

FOLDERS = ("gemm", "attention", "moe", "comm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of an H100 under vLLM whose times follow laws that logarithms interpolate exactly."""
    root = tmp_path_factory.mktemp("systems")
    m, n, k = (a.ravel() for a in np.meshgrid(BATCHES, [32, 1024, 65_536], [32, 1024, 65_536]))
    gemm = pd.DataFrame({"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k})
    gemm["latency"] = 1e-6 * gemm["n"] * gemm["k"] * gemm["m"] ** 0.1  # [ms]
    batch, step = (a.ravel() for a in np.meshgrid(BATCHES, CONTEXTS - 1))
    attention = pd.DataFrame(
        {"kv_cache_dtype": "bfloat16", "head_dim": 128, "num_heads": 8, "num_key_value_heads": 2,
         "batch_size": batch, "step": step, "window_size": 0}
    )  # fmt: skip
    attention["latency"] = 1e-6 * batch * (step + 1)
    moe = pd.concat([_moe_rows(dtype, tp, ms) for dtype, tp, ms in MOE_CURVES], ignore_index=True)
    size = 2 ** np.arange(7, 30)
    reduce = pd.DataFrame(
        {"num_gpus": 2, "message_size": size, "latency": 1e-5 * size**0.5, "backend": "vllm_graph"}
    )
    eager = reduce.assign(latency=1e-9, backend="vllm_eager")
    tables = {
        "gemm/vllm/0.24.0/gemm_perf": gemm,
        "attention/vllm/0.24.0/generation_attention_perf": attention,
        "moe/vllm/0.24.0/moe_perf": moe,
        "comm/vllm/0.24.0/custom_allreduce_perf": pd.concat([reduce, eager]),
    }
    for name, table in tables.items():
        path = root / "h100_sxm" / f"{name}.parquet"
        path.parent.mkdir(parents=True)
        table.to_parquet(path)
    return root


# dtype, tp, latency [ms]: fp8 at tp 1 loses to 16 bits, 16 bits at tp 4 loses to tp 2.
MOE_CURVES = (
    ("bfloat16", 1, 1.0), ("fp8", 1, 1.5), ("bfloat16", 2, 0.6), ("fp8", 2, 0.4),
    ("bfloat16", 4, 0.9),
)  # fmt: skip


def _moe_rows(dtype: str, tp: int, ms: float) -> pd.DataFrame:
    return pd.DataFrame(
        {"moe_dtype": dtype, "hidden_size": 1024, "inter_size": 512, "topk": 2, "num_experts": 8,
         "moe_tp_size": tp, "moe_ep_size": 1, "distribution": "power_law_1.01",
         "num_tokens": BATCHES, "kernel_source": "some_kernel", "latency": ms}
    )  # fmt: skip


@pytest.fixture(scope="module")
def tables(folder: Path) -> KernelTables:
    return read_tables(folder, "h100-sxm", "vllm")


def test_folders_and_names_that_hold_no_tables_are_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"without a100_sxm, h200_sxm, .* but expected"):
        checked_folder(folder)
    with pytest.raises(ValueError, match="Got folder=3, but expected the path"):
        checked_folder(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Got GPU 'h100', but expected one of a100-80gb-sxm"):
        read_tables(folder, "h100", "vllm")
    with pytest.raises(ValueError, match="Got engine 'tgi', but expected one of tensorrt-llm"):
        read_tables(folder, "h100-sxm", "tgi")


def test_between_measured_sizes_logarithms_are_interpolated(tables: KernelTables) -> None:
    # t = 1e-9 s * n * k * m**0.1, a power law, so interpolating logarithms is exact.
    expected = 1e-9 * 3000 * 200 * BATCHES**0.1
    np.testing.assert_allclose(tables.gemm_time("bfloat16", 3000, 200), expected, rtol=1e-9)


@pytest.mark.parametrize(("n", "k"), [(16, 1024), (1024, 70_000), (65_537, 32)])
def test_nothing_is_extrapolated(tables: KernelTables, n: int, k: int) -> None:
    assert np.isnan(tables.gemm_time("bfloat16", n, k)).all()


def test_unmeasured_dtype_is_not_guessed(tables: KernelTables) -> None:
    assert np.isnan(tables.gemm_time("int4_wo", 1024, 1024)).all()


def test_all_reduce_takes_graphs_and_stays_in_range(tables: KernelTables) -> None:
    elements = np.array([64.0, 4096.0, 2.0**30])
    found = tables.all_reduce_time(2, elements)
    assert np.isnan(found[[0, 2]]).all()
    assert found[1] == pytest.approx(1e-8 * 64)  # 1e-5 ms * sqrt(4096), not the eager time
    np.testing.assert_array_equal(tables.all_reduce_time(1, elements), 0.0)


def test_kernels_that_no_engine_would_run_are_left_out(tables: KernelTables) -> None:
    kept = {(key[0], key[-1]) for key in tables.moe}
    assert kept == {("bfloat16", 1), ("bfloat16", 2), ("fp8", 2)}


def test_a_step_is_the_sum_of_its_kernels(tables: KernelTables) -> None:
    """Two layers at tp 1, added up by hand from the laws of the tables."""
    shape = shape_from_columns(2, 1024, 8, 2, 128, 2048, 32_000)
    parts = step_parts(shape, tables, "bf16", "bf16", tp=1)
    found = sum(np.broadcast_to(part.seconds, (len(BATCHES), len(CONTEXTS))) for part in parts)
    elements = (
        2
        * (
            1024 * (8 + 2 * 2) * 128  # q, k, v
            + 1024 * 8 * 128  # o
            + 1024 * 2 * 2048  # gate and up
            + 2048 * 1024  # down
        )
        + 1024 * 32_000
    )  # LM head
    gemm = 1e-9 * elements * BATCHES**0.1
    attention = 2 * 1e-9 * np.outer(BATCHES, CONTEXTS)
    np.testing.assert_allclose(found, gemm[:, None] + attention, rtol=1e-9)


def test_two_gpus_take_half_of_every_matrix_and_two_all_reduces_a_layer(
    tables: KernelTables,
) -> None:
    # Twice the heads, width and vocabulary on two GPUs are the kernels of the step above on each.
    one = shape_from_columns(2, 1024, 8, 2, 128, 2048, 32_000)
    two = shape_from_columns(2, 1024, 16, 4, 128, 4096, 64_000)
    alone, split = (
        sum(part.seconds for part in step_parts(shape, tables, "bf16", "bf16", tp))
        for shape, tp in ((one, 1), (two, 2))
    )
    reduces = 2 * 2 * 1e-8 * np.sqrt(BATCHES * 1024.0)  # 1e-5 ms * sqrt(elements) each
    np.testing.assert_allclose(split, alone + reduces[:, None], rtol=1e-9)


def test_a_wide_head_is_cut_into_measured_slices(tables: KernelTables) -> None:
    # 128,256 columns are two slices of 64,128; the law is linear in n, so the sum is unchanged.
    shape = shape_from_columns(1, 1024, 8, 2, 128, 2048, 128_256)
    head = next(p for p in step_parts(shape, tables, "bf16", "bf16", 1) if p.name == "head")
    np.testing.assert_allclose(head.seconds[:, 0], 1e-9 * 1024 * 128_256 * BATCHES**0.1, rtol=1e-9)


def test_unmeasured_heads_make_the_step_unmeasured(tables: KernelTables) -> None:
    shape = shape_from_columns(1, 1024, 8, 4, 128, 2048, 32_000)
    parts = step_parts(shape, tables, "bf16", "bf16", tp=1)
    assert any(np.isnan(part.seconds).all() for part in parts)


def test_steps_that_a_cache_served_are_left_out(tables: KernelTables) -> None:
    """Attention timed four times faster: less than memory allows, more of it in longer steps."""
    quick = replace(
        tables,
        attention={key: t / 4 for key, t in tables.attention.items()},
        gemm={key: (n, k, t - np.log(30)) for key, (n, k, t) in tables.gemm.items()},
    )
    shape = shape_from_columns(2, 1024, 8, 2, 128, 2048, 32_000)
    steps = _steps(Deployment("two layers", shape, "bf16", "bf16", 1), quick)
    assert steps is not None
    tokens = np.outer(BATCHES, CONTEXTS)
    matrices = sum(part.seconds for part in step_parts(shape, quick, "bf16", "bf16", 1)) - (
        2 * 0.25e-9 * tokens
    )
    # 2 KV heads of 128, K and V in 16 bits: 1,024 bytes a token and layer at 3.35 TB/s.
    hidden = 2 * (1024 / 3.35e12 - 0.25e-9) * tokens
    share = hidden / (matrices + 2 * 0.25e-9 * tokens)
    fits = tokens <= 2**24  # 34 GB of cache beside 0.2 GB of weights
    assert (share[fits] > 0.02).sum() > 5
    np.testing.assert_array_equal(np.isfinite(steps.seconds)[fits], share[fits] <= 0.02)
    # 275 GB of cache are more than the GPU has.
    assert np.isnan(steps.seconds[-1, -1])
