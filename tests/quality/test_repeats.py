"""Disturbed runs, fixed time, copies, and the noise that repeats show."""

import numpy as np
import pandas as pd
import pytest
from rows import Table

from capmodel.quality import check_runs, noise_floor_mape, split_aside


def static(sound: Table, latencies: dict[tuple[float, float], float]) -> pd.DataFrame:
    """Static batches: (batch, length) -> latency [s], input and output of one length."""
    keys = list(latencies)
    length = np.array([length for _, length in keys])
    return sound(
        len(keys),
        step_time_definition="e2e_over_output",
        batch_size=[batch for batch, _ in keys],
        input_len=length,
        output_len=length,
        context_len=1.5 * length,
        step_time_s=np.array(list(latencies.values())) / length,
        floor_s=1e-4,
    )


def hit(table: pd.DataFrame, rule: str) -> list[str]:
    hits = check_runs(table)
    return list(hits.loc[hits["rule"] == rule, "run_id"])


def test_a_run_slower_than_a_larger_one_was_disturbed(sound: Table) -> None:
    """MI300X, Qwen2-7B: 2.99 s for batch 1, 1.45 s for batch 16 at the same length."""
    table = static(sound, {(1, 128): 2.99, (16, 128): 1.45, (1, 256): 1.94, (16, 256): 3.04})
    assert hit(table, "warm_up") == ["r0"]


def test_a_repeat_several_times_slower_than_its_twin_was_disturbed(sound: Table) -> None:
    table = static(sound, {(1, 128): 2.01, (1, 256): 3.68})
    slow = table.iloc[[0]].assign(run_id="slow", step_time_s=18.7 / 128)
    assert hit(pd.concat([table, slow], ignore_index=True), "warm_up") == ["slow"]


def test_growth_with_batch_and_length_is_no_disturbance(sound: Table) -> None:
    times = {(b, n): 0.01 * n * (1 + 0.02 * b) for b in (1, 16, 64) for n in (128, 256, 512)}
    assert check_runs(static(sound, times)).empty


def test_time_that_does_not_grow_is_found_without_a_fit(sound: Table) -> None:
    """17 s in every run and 13.8 ms a token: 90 % of the shortest, 38 % of the longest."""
    times = {(1, n): 17.0 + 0.0138 * n for n in (128, 256, 512, 1024, 2048)}
    used, aside = split_aside(static(sound, times))
    assert list(aside["rule"]) == ["fixed_time"] * 4  # 17 of 31.1 s at 1,024 are 55 %
    assert "17 s of the latency of 18.8 s (90.6 %)" in aside["reason"].iloc[0]
    assert list(used["flags"]) == ["fixed_time"]  # 17 of 45.3 s


def test_an_early_stop_accuses_no_other_row(sound: Table) -> None:
    """H100, TensorRT-LLM, Qwen2-7B: the runs of 2,048 tokens stopped at once."""
    table = static(sound, {(1, 512): 3.5, (1, 1024): 7.0, (1, 2048): 0.0517})
    used, aside = split_aside(table)
    assert list(aside["rule"]) == ["below_floor"]
    assert len(used) == 2


def test_noise_of_many_repeats_accuses_no_row(sound: Table) -> None:
    rng = np.random.default_rng(0)
    n = 4000
    table = sound(n, context_len=1000.0, step_time_s=0.02 * np.exp(0.08 * rng.standard_normal(n)))
    assert hit(table, "warm_up") == []


def test_copies_leave_and_repeats_stay(sound: Table) -> None:
    table = sound(3, context_len=1000.0, step_time_s=[0.0212345678, 0.0212345678, 0.0213345678])
    used, aside = split_aside(table)
    assert list(aside["run_id"]) == ["r1"]
    assert list(aside["rule"]) == ["copied"]
    assert list(used["flags"]) == ["repeated", "repeated"]


def test_equal_round_figures_are_no_copies(sound: Table) -> None:
    assert hit(sound(2, context_len=1000.0, step_time_s=0.0212), "copied") == []


def test_noise_floor_is_known_without_repeats_to_be_unknown(sound: Table) -> None:
    assert noise_floor_mape(sound(5)) is None


@pytest.mark.parametrize("sigma", [0.005, 0.02, 0.05])
def test_noise_floor_finds_the_noise(sigma: float, sound: Table) -> None:
    """The mean absolute deviation of a normal is sigma x sqrt(2 / pi); pairs show it unbiased."""
    rng = np.random.default_rng(1)
    n = 6000
    table = sound(
        n,
        context_len=np.repeat(np.arange(n // 2), 2) + 1.0,
        step_time_s=0.02 * np.exp(sigma * rng.standard_normal(n)),
    )
    assert noise_floor_mape(table) == pytest.approx(sigma * np.sqrt(2 / np.pi), rel=0.04)


def test_noise_floor_leaves_disturbed_twins_out(sound: Table) -> None:
    table = sound(4, context_len=[1.0, 1.0, 2.0, 2.0], step_time_s=[0.02, 0.0202, 0.02, 0.4])
    # |20 - 20.1| / 20 and |20.2 - 20.1| / 20.2, times sqrt(2)
    assert noise_floor_mape(table) == pytest.approx(np.mean([0.1 / 20, 0.1 / 20.2]) * np.sqrt(2))
