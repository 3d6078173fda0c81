"""The milestone table: passes, misses, and parts that are not built."""

import sys

import pandas as pd
import pytest

from capmodel.datasets import make_runs
from capmodel.milestones import MISS, NOT_BUILT, PASS, milestones, missed


def a_card(split: str = "random", **mape_and_r2: tuple[float, float]) -> pd.DataFrame:
    rows = [
        {"split": split, "estimator": name, "mape": mape, "r2": r2}
        for name, (mape, r2) in mape_and_r2.items()
    ]
    return pd.DataFrame(rows)


GOOD = {
    "raw_linear": (1.4, 0.55),
    "raw_boosting": (0.07, 0.96),
    "roofline": (0.08, 0.96),
    "regressor": (0.04, 0.99),
}


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return make_runs(4_000)


def status_of(table: pd.DataFrame, start: str) -> list[str]:
    return table.loc[table["milestone"].str.startswith(start), "status"].tolist()


def test_parts_that_need_no_fit_pass(runs: pd.DataFrame) -> None:
    table = milestones(runs, card=a_card(**GOOD))
    for start in ("profile", "cache bytes", "concurrency", "decoder"):
        assert set(status_of(table, start)) == {PASS}, start
    measured = table.set_index("milestone")["measured"]
    assert measured["cache bytes per token, Llama-3-70B shape"] == "327,680"
    assert measured["decoder: key projections of 16 tokens, with and without cache"] == "16 and 136"


def test_estimators_are_held_to_their_aims(runs: pd.DataFrame) -> None:
    table = milestones(runs, card=a_card(**GOOD))
    assert status_of(table, "roofline") == [PASS, PASS]
    assert status_of(table, "regressor") == [PASS, PASS]
    assert status_of(table, "raw_boosting") == [""]  # reported, whatever it reaches
    worse = GOOD | {
        "roofline": (0.0901, 0.949),
        "regressor": (0.0621, 0.98),
        "raw_linear": (1, 0.61),
    }
    table = milestones(runs, card=a_card(**worse))
    assert status_of(table, "roofline") == [MISS, MISS]
    assert status_of(table, "regressor") == [MISS, PASS]
    assert status_of(table, "raw_linear") == [MISS]


def test_an_estimator_that_was_not_graded_is_a_miss(runs: pd.DataFrame) -> None:
    table = milestones(runs, card=a_card(roofline=(0.08, 0.96)))
    assert status_of(table, "regressor") == [MISS, MISS]


def test_narrow_runs_miss_the_profile(runs: pd.DataFrame) -> None:
    narrow = runs[(runs["model"] == "made-8b-gqa") & (runs["context_len"] == 1024)]
    table = milestones(narrow, card=a_card(**GOOD))
    assert status_of(table, "profile") == [MISS, MISS, MISS]


def test_an_absent_part_is_missed_not_skipped(
    runs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "capmodel.planner", None)
    table = milestones(runs, card=a_card(**GOOD))
    assert status_of(table, "planner") == [NOT_BUILT]
    assert missed(table) >= 1
