"""Junk in any argument of the workload, simulation and money rooms: one line that names it.

Every argument of every function and class below is tried with every piece of junk: what comes is
a result, or a ValueError of one line with the argument's name and what was expected.
"""

import inspect
import json
import pkgutil
from importlib import import_module

import numpy as np
import pytest
from step_times import DECODER

from capmodel import costs, simulation, workload
from capmodel.gpus import load_gpu
from capmodel.simulation import (
    FrontEnd,
    PrefillPool,
    Server,
    context_limit,
    front_end_of,
    replicate,
    simulate,
    summarise,
)
from capmodel.simulation.static import simulate_static, slots_of
from capmodel.simulation.table import tabulated
from capmodel.workload import (
    Empirical,
    Fixed,
    Lognormal,
    Requests,
    SharedPrefix,
    Slo,
    Uniform,
    Workload,
    arrival_times,
    read_trace,
)
from capmodel.workload.traces import read_azure, read_mooncake, read_plain

JUNK = [
    None, "x", "3", b"a", True, float("nan"), float("inf"), -float("inf"), -1, -1.5, 0, 2.5, 1j,
    1e300, 10**400, [], {}, object(), np.array([1, 2]), [[1], [2, 3]], Fixed,
]  # fmt: skip
REQUESTS = Workload.fixed(100, 10, rate=1.0).draw(5)
SERVER = Server(DECODER, 1000)
RESULT = simulate(REQUESTS, SERVER)
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
MOONCAKE = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
CASES = {
    Fixed: {"tokens": 10},
    Uniform: {"low": 1, "high": 5},
    Uniform.around: {"tokens": 10, "low_fraction": 0.5},
    Lognormal: {"mean": 10.0, "cv": 1.0, "longest": 50},
    Lognormal(9.0, 1.0).quantile: {"q": 0.5},
    Empirical: {"values": (1, 2)},
    Empirical.of: {"values": [1, 2]},
    SharedPrefix: {"tokens": 10, "share": 0.5, "n_prefixes": 2},
    Workload: {"prompt": Fixed(1), "output": Fixed(1), "rate": 1.0, "concurrency": None, "cv": 1.0,
               "prefix": None},
    Workload.fixed: {"input_len": 10, "output_len": 10, "rate": 1.0, "concurrency": None},
    Workload.fixed(1, 1, rate=1.0).draw: {"n": 3, "seed": 0},
    arrival_times: {"n": 3, "rate": 1.0, "cv": 1.0, "seed": 0},
    Fixed(1).draw: {"n": 3, "rng": np.random.default_rng(0)},
    Uniform(1, 5).draw: {"n": 3, "rng": np.random.default_rng(0)},
    Lognormal(9.0, 1.0).draw: {"n": 3, "rng": np.random.default_rng(0)},
    Empirical((1, 2)).draw: {"n": 3, "rng": np.random.default_rng(0)},
    Slo(1.0, 1.0, 1.0).missed: {"ttft_s": 1.0, "tpot_s": 0.5, "e2e_s": 2.0},
    Slo: {"ttft_s": 1.0, "tpot_s": 1.0, "e2e_s": 1.0, "percentile": 95.0},
    Requests: {"arrival_s": [0.0, 1.0], "prompt_tokens": [1, 2], "output_tokens": [1, 2],
               "prefix_ids": [7], "prefix_offsets": [0, 1, 1], "prefix_block": 16, "name": "r"},
    REQUESTS.head: {"n": 2},
    REQUESTS.window: {"start": 0, "stop": 2},
    REQUESTS.at_rate: {"rate": 1.0},
    REQUESTS.within_context: {"max_context": 1000, "most_refused": 0.01},
    REQUESTS.check_context: {"max_context": 1000},
    read_trace: {"path": None},
    read_azure: {"text": f"{AZURE}2023-11-16 18:15:46,374,44", "name": "trace"},
    read_plain: {"text": "arrival_s,prompt_tokens,output_tokens\n0,1,2", "name": "trace"},
    read_mooncake: {"text": json.dumps(MOONCAKE), "name": "trace"},
    FrontEnd(1.0, 1.0, 1.0).delay_s: {"step_s": 0.01, "in_system": 3},
    PrefillPool(SERVER).transfer_s: {"tokens": 10},
    FrontEnd: {"fixed_s": 0.0, "steps": 0.0, "per_request_s": 0.0},
    front_end_of: {"engine": "vllm"},
    PrefillPool: {"server": SERVER, "replicas": 1, "transfer_s_per_token": 0.0,
                  "transfer_latency_s": 0.0, "route": simulation.least_loaded},
    Server: {"step_time": DECODER, "pool_blocks": 10, "cost": simulation.PAGED, "max_num_seqs": 25,
             "max_batched_tokens": 8192, "prefix_cache": False, "attention_tokens": 1e9,
             "step_scale": 1.0, "front_end": FrontEnd(), "batching": simulation.mixed,
             "order": simulation.first_come, "reservation": simulation.on_demand},
    simulate: {"requests": REQUESTS, "server": SERVER, "replicas": 1,
               "route": simulation.least_loaded, "concurrency": None, "think_s": 0.0,
               "prefill": None},
    simulate_static: {"requests": REQUESTS, "server": SERVER, "max_context": 500, "replicas": 1},
    slots_of: {"server": SERVER, "max_context": 500},
    summarise: {"result": RESULT, "warmup": 0.1, "cooldown": 0.0},
    replicate: {"run": lambda seed: summarise(RESULT), "seeds": [1, 2], "level": 0.9},
    tabulated: {"step_time": DECODER, "most_sequences": 5, "longest": 5, "most_prompt": 5},
    context_limit: {"max_context": 100},
    costs.gpu_price: {"gpu": load_gpu("h100"), "price": None},
    costs.TokenRates: {"input_tok_s": 1.0, "cached_tok_s": 1.0, "output_tok_s": 1.0},
    costs.token_costs: {"dollars_per_hour": 1.0, "rates": costs.TokenRates(1.0, 1.0, 1.0),
                        "prefill_share": 0.5, "prefix_share": 0.0},
    costs.break_even: {"dollars_per_hour": 1.0, "tokens_per_request": 1.0, "capacity_per_s": 1.0,
                       "api_price": 1.0},
    costs.energy: {"gpu": load_gpu("h100"), "n_gpus": 1, "output_tok_s": 1.0},
}  # fmt: skip
# Results, protocols and policies: they are made by the package, or called by it.
NOT_ASKED = {
    "Lengths", "PAGED", "ReplicaTotals", "Simulation", "StepTimeLike", "Summary", "first_come",
    "least_loaded", "mixed", "on_demand", "power_of_two", "prefill_first", "round_robin",
    "same_prefix", "shortest_prompt", "whole_request",
}  # fmt: skip
# What the rooms ask of each other: arguments are the package's own.
INSIDE = {
    "collect", "generator", "growth_of", "lengths_array", "prefix_lists", "seconds_array",
    "settled_blocks", "whole_array",
}  # fmt: skip


def test_every_public_name_is_tried():
    tried = {function.__name__ for function in CASES}
    assert {*workload.__all__, *simulation.__all__} - tried == NOT_ASKED


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__qualname__)
def test_junk_is_a_result_or_one_line_that_names_the_argument(function):
    good = CASES[function]
    if function is not read_trace:
        function(**good)
    for name in good:
        for junk in JUNK:
            try:
                function(**{**good, name: junk})
            except ValueError as error:
                said = str(error)
                assert len(said.splitlines()) == 1, (name, junk)
                assert name in said or "cannot be read" in said or "expected" in said, (name, junk)


def test_every_public_method_with_arguments_is_tried():
    """Of the classes that a caller makes: what they do with an argument, they check."""
    tried = {function.__qualname__ for function in CASES}
    made = [one for one in CASES if inspect.isclass(one)]
    for one in made:
        for name, method in inspect.getmembers(one, callable):
            if name.startswith("_") or len(inspect.signature(method).parameters) < 2:
                continue
            assert f"{one.__name__}.{name}" in tried, f"{one.__name__}.{name}"


@pytest.mark.parametrize("room", [workload, simulation])
def test_every_public_function_of_every_module_is_tried(room):
    tried = {function.__name__ for function in CASES}
    for info in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        module = import_module(info.name)
        for name, one in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("_") or one.__module__ != module.__name__:
                continue
            assert name in tried | NOT_ASKED | INSIDE, f"{info.name}.{name}"


@pytest.mark.parametrize("junk", [5, "x", None, [1], {**MOONCAKE, "hash_ids": None},
                                  {**MOONCAKE, "hash_ids": ["a"]}, {**MOONCAKE, "hash_ids": [-1]},
                                  {**MOONCAKE, "hash_ids": [10**30]},
                                  {**MOONCAKE, "timestamp": "x"},
                                  {k: v for k, v in MOONCAKE.items() if k != "hash_ids"},
                                  {**MOONCAKE, "input_length": None}])  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_a_line_of_junk_in_a_trace_is_one_line_that_says_where(junk, first):
    lines = [json.dumps(junk), json.dumps(MOONCAKE)]
    with pytest.raises(ValueError, match=r"expected|missing") as error:
        read_mooncake("\n".join(lines if first else lines[::-1]), "trace")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["", "a,b\n1,2", f"{AZURE}", f"{AZURE}yesterday,1,2",
                                  f"{AZURE}2023-11-16 18:15:46,x,2", '"'])  # fmt: skip
def test_tables_of_junk_say_what_is_wrong(text):
    for read in (read_azure, read_plain):
        with pytest.raises(ValueError, match=r"trace|prompt_tokens"):
            read(text, "trace")


def test_a_promise_is_missed_by_what_is_not_known():
    slo = Slo(ttft_s=1.0, tpot_s=0.1, e2e_s=5.0)
    nan, inf = float("nan"), float("inf")
    assert slo.missed(1.0, 0.1, 5.0) == ()
    assert slo.missed(nan, nan, nan) == slo.missed(inf, inf, inf) == ("ttft", "tpot", "e2e")
    for junk in (None, "1", True, -1.0, [1.0], 1j):
        with pytest.raises(ValueError, match=r"^Got ttft_s="):
            slo.missed(junk, 0.1)


@pytest.mark.parametrize("junk", [None, "3", True, float("nan"), float("inf"), -1, 2.5, 1e300, []])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (Fixed, "tokens"), (Uniform, "low"), (Uniform, "high"), (SharedPrefix, "tokens"),
        (Workload.fixed(1, 1, rate=1.0).draw, "n"), (simulate, "replicas"),
        (Server, "pool_blocks"), (PrefillPool, "replicas"), (costs.energy, "n_gpus"),
    ],
)  # fmt: skip
def test_counts_take_nothing_but_whole_numbers(function, name, junk):
    with pytest.raises(ValueError, match=f"^Got {name}=.*, but expected whole|{name}=.*, but exp"):
        function(**{**CASES[function], name: junk}) if function in CASES else function(junk)


def test_prefix_offsets_that_do_not_cover_the_ids_are_refused():
    good = CASES[Requests]
    for offsets in ([0, 0, 0], [1, 1, 1], [0, 1, 0], [0, 1]):
        with pytest.raises(ValueError, match="prefix"):
            Requests(**{**good, "prefix_offsets": offsets})
