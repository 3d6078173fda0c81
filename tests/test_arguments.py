"""Junk given to public functions: a finite result, or a ValueError of one line naming the argument.

Every keyword of every public function that counts is drawn on, so that a new one is tried too.
"""

import inspect
import json
import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import capmodel as cm
from capmodel.arguments import BYTES, COUNT, SHARE, flag, number, numbers, one_or_many
from capmodel.kvcache import (
    EngineSettings,
    fixed_bytes,
    growth_bytes_per_token,
    replay,
    request_blocks,
    request_cost,
)
from capmodel.memory import concurrency_curves, context_axis, explain_fit, memory_budget
from capmodel.planner import Plan
from capmodel.prediction import step_time
from capmodel.workload import Fixed, SharedPrefix, Workload

DEPLOYMENT = {"model": "llama-3-8b", "gpu": "h100"}
STEP = {**DEPLOYMENT, "batch_size": 8, "context_len": 1000}
# One candidate and no simulation: a plan in a few hundredths of a second.
PLAN = {
    **DEPLOYMENT, "rate": 2.0, "input_len": 1000, "output_len": 200, "tp": 1,
    "weight_dtype": "bf16", "kv_dtype": "bf16", "simulate": False,
}  # fmt: skip
TRACE = Workload(Fixed(1000), Fixed(100), rate=2.0).draw(200, 1)
FUNCTIONS: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (cm.predict, STEP),
    (cm.predict, {**STEP, "engine": "vllm", "method": "roofline", "tp": 2}),
    (cm.predict_step_time, STEP),
    (cm.predict_step_time, {**STEP, "interval": 0.8}),
    (step_time, DEPLOYMENT),
    (cm.kv_bytes, {"model": "llama-3-8b", "context_len": 1000}),
    (cm.kv_bytes_per_token, {"model": "deepseek-v3"}),
    (growth_bytes_per_token, {"model": "gpt-oss-120b"}),
    (fixed_bytes, {"model": "gpt-oss-120b"}),
    (cm.weight_bytes, {"model": "llama-3-8b"}),
    (cm.max_concurrency, {**DEPLOYMENT, "context_len": 1000}),
    (cm.max_concurrency, {**DEPLOYMENT, "context_len": [1000, 2000], "mode": "engine"}),
    (explain_fit, {**DEPLOYMENT, "context_len": 1000}),
    (memory_budget, {**DEPLOYMENT, "mode": "engine"}),
    (replay, {"model": "gpt-oss-120b", "available_bytes": 6e9, "max_model_len": 8000}),
    (replay, {"model": "qwen3-8b", "available_bytes": None, "max_model_len": 8000,
              "engine": "llama.cpp"}),
    (request_blocks, {"model": "gpt-oss-120b", "context_len": 8000}),
    (request_cost, {"model": "gpt-oss-120b"}),
    (EngineSettings, {}),
    (cm.plan, PLAN),
    (cm.plan, {**PLAN, "rate": None, "concurrency": 8, "slo_ttft_p95": 5.0, "price": {"*": 2.0}}),
    (cm.plan, {**PLAN, "input_len": None, "output_len": None, "rate": None, "trace": TRACE}),
    (cm.load_shape, {"x": "llama-3-8b"}),
    (cm.load_gpu, {"gpu": "h100"}),
    (context_axis, {"longest": 1000}),
    (concurrency_curves, {**DEPLOYMENT, "context_len": context_axis(4096)}),
]  # fmt: skip
PLACES = [
    (function, given_, name)
    for function, given_ in FUNCTIONS
    for name in inspect.signature(function).parameters
]
FIXED = [
    None, "8", "", "a\nb", b"8", math.inf, -math.inf, math.nan, True, False, -1, 0, 0.5, 1e308,
    10**400, -(10**400), 8 + 0j, Fraction(1, 3), Decimal("8"), object(), {}, [], [None], ["a", "b"],
    [[1, 2], [3]], [True], [10**400], (1, 2), {8}, np.array(["a"]), np.array([1, 2]),
    np.array([np.nan]), np.datetime64("2026-01-01"), np.bool_(True), print, {"a": [1]},
]  # fmt: skip
JUNK = st.one_of(
    st.sampled_from(FIXED), st.integers(), st.floats(), st.text(max_size=8), st.booleans(),
    st.lists(st.one_of(st.floats(), st.integers(), st.none()), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)  # fmt: skip


def outcome(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """What the function gives, or its ValueError; any other error is the test's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(**arguments)
        except ValueError as error:
            return error


def figures(found: Any) -> list[float]:
    """All numbers in a result."""
    if isinstance(found, cm.Prediction):
        found = [found.step_time_s, found.low_s, found.high_s, *found.terms.values(), found.mbu]
    if isinstance(found, Plan):
        now = found.chosen.estimate
        found = [found.chosen.dollars_per_hour, now.ttft_p95_s, now.tpot_p95_s, now.e2e_p95_s]
    if isinstance(found, list | tuple):
        return [figure for part in found for figure in figures(part)]
    if isinstance(found, int | float | np.ndarray | np.generic):
        return np.asarray(found, float).ravel().tolist()
    return []


def check(function: Callable[..., Any], arguments: dict[str, Any], name: str) -> None:
    found = outcome(function, arguments)
    if isinstance(found, ValueError):
        assert str(found), (function, name)
        assert len(str(found).splitlines()) == 1, str(found)
        assert len(str(found)) < 1500, str(found)
    else:
        assert all(map(math.isfinite, figures(found))), (function, name, found)


@pytest.mark.parametrize("place", range(len(PLACES)), ids=lambda n: f"{PLACES[n][0].__name__}-{PLACES[n][2]}")  # fmt: skip # noqa: E501
def test_each_known_piece_of_junk_at_each_place(place: int) -> None:
    function, base, name = PLACES[place]
    for junk in FIXED:
        check(function, {**base, name: junk}, name)


@settings(max_examples=300, deadline=None)
@given(place=st.sampled_from(PLACES), junk=JUNK)
def test_drawn_junk_at_any_place(place: tuple[Any, dict[str, Any], str], junk: Any) -> None:
    function, base, name = place
    check(function, {**base, name: junk}, name)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": "8"}, "Got batch_size='8', but expected a positive, finite number"),
        ({"batch_size": True}, "Got batch_size=True, but expected"),
        ({"context_len": [1000, math.nan]}, "Got context_len=nan, but expected"),
        ({"tp": None}, "Got tp=None, but expected a whole number of GPUs"),
        ({"tp": 1.5}, "Got tp=1.5, but expected a whole number of GPUs"),
        ({"interval": "8"}, "Got interval='8', but expected a share between 0 and 1"),
        ({"interval": 2}, "Got interval=2, but expected a share between 0 and 1"),
        ({"engine": True}, "Got engine=True, but expected a name such as vllm, or None"),
        ({"engine": 0}, "Got engine=0, but expected a name"),
        ({"calibration": True}, "Got calibration=True, but expected a Calibration"),
        ({"weight_dtype": ["bf16"]}, "Got weight dtype ['bf16'], but expected one of fp32, bf16"),
        ({"kv_dtype": 8}, "Got KV dtype 8, but expected one of"),
        ({"method": ["roofline"]}, "Got method=['roofline'], but expected regressor or roofline"),
        ({"model": None}, "Got model=None, but expected a name, the path of a config.json"),
        ({"model": ""}, "Got model='', but expected a name"),
        ({"model": 123}, "Got model=123, but expected a name"),
        ({"gpu": None}, "Got gpu=None, but expected a name, the path of a TOML file"),
        ({"gpu": {"memory_bytes": "80 GB", "aliases": 3}}, "memory_bytes is '80 GB'"),
    ],
)  # fmt: skip
def test_value_place_and_expectation_are_named(changes: dict[str, Any], said: str) -> None:
    for function in (cm.predict, cm.predict_step_time):
        assert str(outcome(function, {**STEP, **changes})).find(said) >= 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rate": "2"}, "Got rate='2', but expected requests/s"),
        ({"rate": 10**400}, "Got rate=10"),
        ({"rate": None, "concurrency": 2.5}, "Got concurrency=2.5, but expected a whole number"),
        ({"slo_ttft_p95": {}}, "Got slo_ttft_p95={}, but expected a positive number of seconds"),
        ({"slo_tpot_p95": "1"}, "Got slo_tpot_p95='1', but expected"),
        ({"slo_e2e_p95": [1]}, "Got slo_e2e_p95=[1], but expected"),
        ({"price": "2"}, "Got price='2', but expected dollars per GPU-hour"),
        ({"price": {"h100": "2"}}, "Got price of 'h100'='2', but expected dollars per GPU-hour"),
        ({"price": {"*": None}}, "Got price of '*'=None, but expected dollars per GPU-hour"),
        ({"cv": "1"}, "Got cv='1', but expected the cv of the gaps"),
        ({"memory_fraction": None}, "Got memory_fraction=None, but expected one in (0, 1]"),
        ({"input_len": "1000"}, "Got input_len='1000', but expected whole tokens"),
        ({"output_len": [1, 2]}, "Got output_len=[1, 2], but expected whole tokens"),
        ({"input_len": Fixed}, "but expected whole tokens, at least 1 (up to 1e9), or a distri"),
        ({"input_len": "a\nb", "output_len": None}, r"Got input_len='a\nb', output_len=None"),
        ({"calibration": 8}, "Got calibration=8, but expected a Calibration, the path"),
        ({"calibration": cm.Calibration}, "but expected a Calibration, the path of its file"),
        ({"seed": math.nan}, "Got seed=nan, but expected a whole number from 0 up"),
        ({"seed": np.float64(0.5)}, "Got seed=0.5, but expected a whole number from 0 up"),
        ({"date": 20260101}, "Got date=20260101, but expected a day such as 2026-12-31"),
        ({"tp": 10**400}, "but expected a whole number of GPUs, at least 1 GPU"),
        ({"prefix": 100}, "Got prefix=100, but expected a SharedPrefix, or None"),
        ({"prefix_cache": "no"}, "Got prefix_cache='no', but expected True or False"),
        ({"simulate": 0}, "Got simulate=0, but expected True or False"),
        ({"progress": "yes"}, "Got progress='yes', but expected a function, or None"),
        ({"input_len": None, "output_len": None, "trace": 8}, "Got trace=8, but expected the path"),
        ({"input_len": None, "output_len": None, "trace": "a\nb"}, r"Trace a\nb cannot be read"),
        ({"input_len": None, "output_len": None, "trace": "a\0b"}, r"Trace a\x00b cannot be read"),
    ],
)  # fmt: skip
def test_a_plan_names_value_place_and_expectation(changes: dict[str, Any], said: str) -> None:
    error = outcome(cm.plan, {**PLAN, **changes})
    assert isinstance(error, ValueError)
    assert str(error).find(said) >= 0, error
    assert len(str(error).splitlines()) == 1, error


def test_numpy_scalars_make_the_same_plan() -> None:
    kinds = {"rate": np.float64(2.0), "input_len": np.int64(1000), "tp": np.int32(1),
             "seed": np.int64(0), "simulate": np.bool_(False), "memory_fraction": np.float64(0.92),
             "date": "2026-01-01", "prefix": SharedPrefix(160)}  # fmt: skip
    plain = {name: getattr(kind, "item", lambda kind=kind: kind)() for name, kind in kinds.items()}
    given_ = cm.plan(**{**PLAN, **kinds}).to_dict()
    assert json.dumps(given_) == json.dumps(cm.plan(**{**PLAN, **plain}).to_dict())


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, np.float32, np.float64, np.asarray])
def test_numpy_scalars_are_numbers(kind: Callable[[int], Any]) -> None:
    plain = cm.predict_step_time(**STEP, tp=2)
    given_ = {**STEP, "batch_size": kind(8), "tp": kind(2)}
    assert cm.predict_step_time(**given_) == plain
    assert cm.kv_bytes("llama-3-8b", kind(100), kind(2)) == cm.kv_bytes("llama-3-8b", 100, 2)
    assert cm.weight_bytes("llama-3-8b", tp=kind(2)) == cm.weight_bytes("llama-3-8b", tp=2)
    asked = {**DEPLOYMENT, "context_len": 1000}
    assert cm.max_concurrency(**asked, tp=kind(2)) == cm.max_concurrency(**asked, tp=2)


def test_an_argument_is_never_taken_for_an_equal_one_of_another_kind() -> None:
    """True equals 1 and 2.0 equals 2, so a cache would answer for the other one."""
    cm.predict_step_time(**STEP, tp=1)
    cm.max_concurrency(**DEPLOYMENT, context_len=1000, block_size=1)
    with pytest.raises(ValueError, match="tp=True"):
        cm.predict_step_time(**STEP, tp=True)
    with pytest.raises(ValueError, match="block_size=True"):
        cm.max_concurrency(**DEPLOYMENT, context_len=1000, block_size=True)


def test_the_helpers_keep_kinds() -> None:
    assert type(number("n", 3.0, COUNT)) is int
    assert type(number("n", np.float32(0.5), SHARE)) is float
    assert number("n", 0, BYTES) == 0
    assert one_or_many("n", 3, COUNT) == 3
    assert numbers("n", [[1, 2]], COUNT).shape == (1, 2)
    assert flag("f", np.bool_(True)) is True
    for ends in (0, 1):
        with pytest.raises(ValueError, match=f"n={ends}, but expected a share"):
            number("n", ends, SHARE)
