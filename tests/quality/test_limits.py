"""Each limit of PHYSICS section 7 bites where it says: a row just within, and one just beyond."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rows import SOUND, Table

from capmodel.quality import FLAG, GLOSSES, SET_ASIDE, Thresholds, check_runs

# A serving row that agrees with itself: 4 s of decode after 0.5 s, 8 sequences of 8 offered.
SERVING = {"step_time_definition": "tpot", "tpot_s": 0.02, "ttft_s": 0.5, "input_len": 900.0,
           "output_len": 201.0, "e2e_s": 4.5, "concurrency": 8.0,
           "output_throughput_tok_s": 350.0}  # fmt: skip
STATIC = {"step_time_definition": "decode_step"}  # all of its cache is there at once
ITL = {"step_time_definition": "itl_median", "concurrency": np.nan}

# (threshold, its value, columns beside, column, just within, just beyond, rule, action)
LIMITS = [
    ("completed_share", 0.95, {"requested": 1e3}, "completed", 950, 949, "incomplete", SET_ASIDE),
    ("completed_share", 0.95, {"requested": 1e3}, "completed", 1000, 999, "incomplete", FLAG),
    # 201 tokens were generated: 95 % of 211.58
    ("output_share", 0.95, {}, "target_output_len", 211.5, 211.6, "short_output", SET_ASIDE),
    ("duration_latencies", 3.0, {}, "duration_s", 13.51, 13.49, "short_run", SET_ASIDE),
    ("concurrency_share", 0.8, {}, "concurrency", 9.99, 10.01, "concurrency_not_reached", FLAG),
    ("floor_share", 1.0, {}, "step_time_s", 0.01001, 0.00999, "below_floor", SET_ASIDE),
    # 16 GB of weights on 80 GB
    ("memory_share", 1.0, STATIC, "kv_stored_bytes", 63.9e9, 64.1e9, "over_memory", SET_ASIDE),
    ("full_share", 0.9, STATIC, "kv_stored_bytes", 55.9e9, 56.1e9, "nearly_full", FLAG),
    # floor 10 ms, FLOP 1 ms, 32 layers at 20 us: 300 times 11.64 ms
    ("unit_ratio", 300.0, {}, "step_time_s", 3.49, 3.50, "unit_slip", SET_ASIDE),
    # 8 offered; a time per token that is 300 times too long makes a batch of 2,400
    ("unit_ratio", 300.0, {}, "batch_size", 2390.0, 2410.0, "unit_slip", SET_ASIDE),
    ("prefix_hit_share", 0.05, {}, "prefix_hit_share", 0.049, 0.051, "warm_prefix", SET_ASIDE),
    ("tokens_per_chunk", 1.2, {}, "itl_s", 0.0239, 0.0241, "chunk_counting", FLAG),
    ("tokens_per_chunk", 1.2, {}, "itl_s", 0.0167, 0.0166, "chunk_counting", FLAG),
    ("tokens_per_chunk", 1.2, ITL, "itl_s", 0.0239, 0.0241, "chunk_counting", SET_ASIDE),
    ("accepted_tokens", 1.05, {}, "accepted_tokens", 1.04, 1.06, "speculative", SET_ASIDE),
    # 8 sequences a 20 ms are 400 tokens/s
    ("agreement", 0.2, {}, "throughput_tok_s", 479, 481, "contradiction", SET_ASIDE),
    ("agreement", 0.2, {}, "throughput_tok_s", 321, 319, "contradiction", SET_ASIDE),
    # 9.6 in flight for 4.5 s at 201 tokens are 428.8 tokens/s
    ("agreement", 0.2, {}, "output_throughput_tok_s", 428, 430, "contradiction", SET_ASIDE),
    ("agreement", 0.2, {}, "ttft_s", 1.39, 1.41, "contradiction", FLAG),
]  # fmt: skip


def hits_of(sound: Table, changes: dict[str, Any]) -> set[tuple[str, str]]:
    """What hits one serving row among four others of another model."""
    table = sound(5, **SERVING, engine_version=["a", "b", "c", "d", "e"])
    for name, value in changes.items():
        if name not in SOUND and name not in SERVING:
            table[name] = np.nan
        table.loc[2, name] = value
    hits = check_runs(table)
    assert set(hits.index) <= {2}
    return set(zip(hits["rule"], hits["action"], strict=True))


@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit[0]}-{limit[3]}-{limit[5]}")
def test_limit(limit: tuple[str, float, dict[str, Any], str, float, float, str, str],
               sound: Table) -> None:  # fmt: skip
    name, value, beside, column, within, beyond, rule, action = limit
    assert getattr(Thresholds(), name) == value
    assert (rule, action) not in hits_of(sound, {**beside, column: within})
    assert (rule, action) in hits_of(sound, {**beside, column: beyond})
    assert rule in GLOSSES


@pytest.mark.parametrize(("ratio", "hit"), [(1.29, []), (1.31, ["r0"])])
def test_slower_than_a_larger_run(sound: Table, ratio: float, hit: list[str]) -> None:
    table = sound(2, batch_size=[1.0, 16.0], context_len=1000.0, step_time_s=[0.02 * ratio, 0.02])
    assert Thresholds().slower_than_larger == 1.3
    assert list(check_runs(table)["run_id"]) == hit


@pytest.mark.parametrize(
    ("share", "action"), [(0.19, None), (0.21, FLAG), (0.49, FLAG), (0.51, SET_ASIDE)]
)
def test_time_that_does_not_grow(sound: Table, share: float, action: str | None) -> None:
    """Of 1 s at 100 tokens `share` is fixed, so 200 tokens take 2 - share."""
    length = np.array([100.0, 200.0])
    table = sound(
        2, step_time_definition="e2e_over_output", input_len=length, output_len=length,
        context_len=1.5 * length, step_time_s=np.array([1.0, 2.0 - share]) / length, floor_s=1e-4,
    )  # fmt: skip
    hits = check_runs(table)
    found = hits.loc[(hits["rule"] == "fixed_time") & (hits["run_id"] == "r0"), "action"]
    assert list(found) == ([action] if action else [])
    assert (Thresholds().fixed_time_flag, Thresholds().fixed_time_share) == (0.2, 0.5)


def test_every_threshold_has_its_row_here() -> None:
    fields = {field.name for field in dataclasses.fields(Thresholds)}
    elsewhere = {"slower_than_larger", "fixed_time_share", "fixed_time_flag"}
    assert {limit[0] for limit in LIMITS} | elsewhere == fields


def test_degrees_must_give_the_gpus(sound: Table) -> None:
    """tp x pp x dp = 4: of 4 GPUs, one deployment; of 8, two; of 6, none."""
    frame: pd.DataFrame = sound(
        3, tp=2, pp=2, n_gpus=[4, 8, 6], engine_version=["a", "b", "c"], model=["m", "n", "o"]
    )
    hits = check_runs(frame)
    assert list(zip(hits["run_id"], hits["rule"], strict=True)) == [
        ("r2", "gpu_count"), ("r1", "replicas"),
    ]  # fmt: skip
