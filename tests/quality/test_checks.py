"""Each check hits what it names and nothing else; every row is in exactly one part."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import SOUND, Table

from capmodel.quality import SET_ASIDE, check_runs, check_units, split_aside
from capmodel.runs import RunsError

SERVING = {"step_time_definition": "tpot", "tpot_s": 0.02, "ttft_s": 0.5, "input_len": 900.0,
           "output_len": 201.0, "e2e_s": 4.5, "concurrency": 8.0,
           "output_throughput_tok_s": 350.0}  # fmt: skip


def rules(table: pd.DataFrame, **thresholds: float) -> list[tuple[str, str]]:
    hits = check_runs(table, **thresholds)
    return list(zip(hits["rule"], hits["action"], strict=True))


def test_sound_rows_are_hit_by_nothing(sound: Table) -> None:
    assert rules(sound(20)) == []
    assert rules(sound(3, **SERVING)) == [("repeated", "flag")] * 3  # equal but for their times


# What is changed -> the check that hits, and what becomes of the row.
CASES = {
    "fewer experts than random prompts touch": ({"weight_s": 0.02, "kv_s": 0.001},
                                                "below_expected", "flag"),
    "half the floor": ({"step_time_s": 0.005}, "below_floor", SET_ASIDE),
    "no bandwidth figure": ({"floor_s": np.nan}, "no_bandwidth", SET_ASIDE),
    "weights alone over memory": ({"weight_stored_bytes": 81e9}, "over_memory", SET_ASIDE),
    "weights and cache over memory": ({"kv_stored_bytes": 65e9}, "over_memory", SET_ASIDE),
    "95 % of the memory": ({"kv_stored_bytes": 60e9}, "nearly_full", "flag"),
    "in ms": ({"step_time_s": 20.0}, "unit_slip", SET_ASIDE),
    "in us": ({"step_time_s": 20_000.0}, "unit_slip", SET_ASIDE),
    "tp 2 on 3 GPUs": ({"tp": 2, "n_gpus": 3}, "gpu_count", SET_ASIDE),
    "experts over more GPUs than there are": ({"ep": 4}, "gpu_count", SET_ASIDE),
    "a typo in the engine": ({"engine": "vlmm"}, "unknown_engine", "flag"),
    "two copies": ({"n_gpus": 2}, "replicas", "flag"),
    "5 % lost": ({**SERVING, "requested": 100.0, "completed": 94.0}, "incomplete", SET_ASIDE),
    "1 % lost": ({**SERVING, "requested": 100.0, "completed": 99.0}, "incomplete", "flag"),
    "outputs end early": ({**SERVING, "target_output_len": 256.0}, "short_output", SET_ASIDE),
    "two latencies long": ({**SERVING, "duration_s": 9.0}, "short_run", SET_ASIDE),
    "half the offered": ({**SERVING, "concurrency": 16.0}, "concurrency_not_reached", "flag"),
    "cache hits": ({**SERVING, "prefix_hit_share": 0.3}, "warm_prefix", SET_ASIDE),
    # 900 prompt tokens take 0.1 s at the peak: 0.002 s for 18 of them
    "first token too soon": ({**SERVING, "ttft_s": 0.09, "e2e_s": 4.1, "prefill_tokens": 18.0,
                              "prefill_s": 0.002}, "warm_prefix", SET_ASIDE),
    "empty chunks counted": ({**SERVING, "itl_s": 0.01}, "chunk_counting", "flag"),
    "gaps that are no steps": ({**SERVING, "step_time_definition": "itl_median", "itl_s": 0.06},
                               "chunk_counting", SET_ASIDE),
    "speculative": ({**SERVING, "accepted_tokens": 2.9}, "speculative", SET_ASIDE),
    "throughput says twice the batch": ({"throughput_tok_s": 800.0}, "contradiction", SET_ASIDE),
    "more in flight than offered": ({**SERVING, "output_throughput_tok_s": 600.0},
                                    "contradiction", SET_ASIDE),
    "parts do not make the whole": ({**SERVING, "ttft_s": 3.0}, "contradiction", "flag"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_check(name: str, sound: Table) -> None:
    changes, rule, action = CASES[name]
    table = sound(9)
    for column, value in changes.items():
        default = SOUND.get(column, np.nan)
        table[column] = table[column] if column in SOUND else default
        table.loc[4, column] = value
    if rule == "chunk_counting" and action == SET_ASIDE:
        table["concurrency"] = np.nan
    hits = check_runs(table)
    assert [(row.rule, row.action) for row in hits.itertuples()] == [(rule, action)]
    assert list(hits.index) == [4]
    assert list(hits["run_id"]) == ["r4"]
    used, aside = split_aside(table)
    assert len(used) + len(aside) == 9
    if action == SET_ASIDE:
        assert list(aside["rule"]) == [rule]
        assert aside["reason"].iloc[0] == hits["reason"].iloc[0]
    else:
        assert used["flags"].tolist() == [""] * 4 + [rule] + [""] * 4


def test_reason_states_the_figures(sound: Table) -> None:
    hits = check_runs(sound(5, step_time_s=[0.005, 0.02, 0.021, 0.022, 0.023]))
    begins = "a step of 5 ms is 50.0 % of the 10 ms that its bytes at the datasheet's bandwidth"
    assert hits["reason"].iloc[0].startswith(begins)


def test_prefill_counts_towards_the_floor_of_a_whole_batch(sound: Table) -> None:
    """A latency over its output holds the prefill: 10 ms of bytes and 15 ms of FLOP a step."""
    whole = {"step_time_definition": "e2e_over_output", "prefill_s": 0.015, "output_len": 100.0}
    assert rules(sound(**whole)) == [("below_floor", SET_ASIDE)]
    # Among requests in flight prefill overlaps the reads: 15 ms and 1 ms of FLOP against 10 ms.
    assert rules(sound(**{**whole, "step_time_definition": "tpot"})) == []
    mixed = {**whole, "step_time_definition": "tpot", "prefill_s": 0.0195}
    assert rules(sound(**mixed)) == [("below_floor", SET_ASIDE)]


def test_cache_of_staggered_requests_is_half_grown(sound: Table) -> None:
    """A static batch ends together at 70 GB; requests in flight hold half of it on average."""
    lengths = {
        "input_len": 0.0,
        "output_len": 1000.0,
        "context_len": 500.0,
        "kv_stored_bytes": 70e9,
    }
    assert rules(sound(**lengths)) == [("over_memory", SET_ASIDE)]
    assert rules(sound(**lengths, step_time_definition="tpot")) == []


def test_thresholds_are_arguments(sound: Table) -> None:
    table = sound(kv_stored_bytes=60e9)
    assert rules(table, full_share=0.99) == []
    assert rules(table, memory_share=0.9) == [("over_memory", SET_ASIDE)]
    with pytest.raises(ValueError, match="positive"):
        check_runs(table, memory_share=-1.0)


@pytest.mark.parametrize(
    ("factor", "unit"), [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")]
)
def test_a_file_in_another_unit_is_one_error_that_names_it(
    sound: Table, factor: float, unit: str
) -> None:
    table = sound(20)
    table["step_time_s"] *= factor
    with pytest.raises(RunsError, match=unit) as error:
        check_runs(table)
    assert len(error.value.problems) == 1


def test_seconds_divided_by_a_thousand_are_named(sound: Table) -> None:
    table = sound(20)
    table["step_time_s"] /= 1e3
    with pytest.raises(RunsError, match=r"multiply it by 1,000"):
        check_units(table)


def test_small_models_on_many_gpus_are_no_unit_slip(sound: Table) -> None:
    """75 times the floor was measured: a 7B model over 8 GPUs, where launches are all."""
    assert rules(sound(5, floor_s=0.0003)) == []


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(st.floats(1e-4, 0.5), min_size=1, max_size=12),
    memory=st.floats(1e9, 1e12),
    flags=st.sampled_from(["", "kv_dtype_assumed"]),
)
def test_every_row_is_in_exactly_one_part(steps: list[float], memory: float, flags: str) -> None:
    n = len(steps)
    table = pd.DataFrame({name: [value] * n for name, value in SOUND.items()})
    table = table.assign(run_id=[f"r{i}" for i in range(n)], step_time_s=steps, flags=flags,
                         gpu_memory_bytes=memory)  # fmt: skip
    try:
        used, aside = split_aside(table)
    except RunsError:  # most rows below a thirtieth of the floor
        return
    assert sorted([*used["run_id"], *aside["run_id"]]) == sorted(table["run_id"])
    assert (aside["rule"] != "").all()
    assert (aside["reason"] != "").all()
    assert used["flags"].str.startswith(flags).all()


def test_microseconds_under_a_name_of_milliseconds_are_a_unit_slip(sound: Table) -> None:
    """The batch, throughput x time, slips with the time: 7,000 of 8 offered, 2 TB of cache."""
    row = {**SERVING, "step_time_s": 20.0, "tpot_s": 20.0, "ttft_s": 500.0, "e2e_s": 4500.0,
           "batch_size": 7000.0, "floor_s": 1.0, "kv_stored_bytes": 2e12}  # fmt: skip
    _, aside = split_aside(sound(**row))
    assert list(aside["rule"]) == ["unit_slip"]
    assert "7,000 sequences, 875 times the 8 offered" in aside["reason"].iloc[0]
