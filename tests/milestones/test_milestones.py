"""The milestone table: passes, misses, and parts that are not built."""

import sys
from pathlib import Path

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
    return make_runs(1_000)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan and no decoder, which take seconds, where estimators are what is looked at."""
    for part in ("_planner", "_decoder"):
        monkeypatch.setattr(f"capmodel.milestones.{part}", lambda: iter(()))


def status_of(table: pd.DataFrame, start: str) -> list[str]:
    return table.loc[table["milestone"].str.startswith(start), "status"].tolist()


def test_parts_that_need_no_fit_pass(runs: pd.DataFrame) -> None:
    table = milestones(runs, card=a_card(**GOOD))
    for start in ("profile", "cache bytes", "concurrency", "decoder", "the plan is written"):
        assert set(status_of(table, start)) == {PASS}, start
    measured = table.set_index("milestone")["measured"]
    assert measured["cache bytes per token, Llama-3-70B shape"] == "327,680"
    assert measured["decoder: key projections of 16 tokens, with and without cache"] == "16 and 136"


@pytest.mark.usefixtures("few")
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


@pytest.mark.usefixtures("few")
def test_an_estimator_that_was_not_graded_is_a_miss(runs: pd.DataFrame) -> None:
    table = milestones(runs, card=a_card(roofline=(0.08, 0.96)))
    assert status_of(table, "regressor") == [MISS, MISS]


@pytest.mark.usefixtures("few")
def test_narrow_runs_miss_the_profile(runs: pd.DataFrame) -> None:
    own = runs[runs["model"] == "made-8b-gqa"]
    narrow = own[own["context_len"] == own["context_len"].mode()[0]]
    table = milestones(narrow, card=a_card(**GOOD))
    assert status_of(table, "profile") == [MISS, MISS, MISS]


def test_an_absent_part_is_missed_not_skipped(
    runs: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "capmodel.planner", None)
    table = milestones(runs, card=a_card(**GOOD))
    assert status_of(table, "planner") == [NOT_BUILT]
    assert missed(table) >= 1


@pytest.mark.usefixtures("few")
def test_a_calibrations_card_is_read_and_owes_no_baselines(runs: pd.DataFrame) -> None:
    own = {name: GOOD[name] for name in ("roofline", "regressor")}
    table = milestones(runs, card=a_card("test", **own))
    assert status_of(table, "roofline") == status_of(table, "regressor") == [PASS, PASS]
    assert status_of(table, "raw_linear and raw_boosting") == [""]
    assert missed(table) == 0


@pytest.mark.usefixtures("few")
def test_what_was_not_graded_says_so(runs: pd.DataFrame) -> None:
    table = milestones(runs, card=a_card(roofline=(0.08, 0.96)))
    assert not table["measured"].str.contains("nan").any()
    assert set(table.loc[table["milestone"].str.startswith("regressor"), "measured"]) == {
        "not graded"
    }


@pytest.mark.parametrize("given", [{"runs": "runs.csv"}, {"test": 3}, {"card": pd.DataFrame()}])
def test_what_is_no_table_is_refused(runs: pd.DataFrame, given: dict[str, object]) -> None:
    (name,) = given
    with pytest.raises(ValueError, match=f"Got (a )?{name}.* but expected"):
        milestones(**{"runs": runs, **given})  # type: ignore[arg-type]


@pytest.mark.usefixtures("few")
def test_only_what_is_shown_is_graded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from capmodel import evaluation
    from capmodel.cli import main

    file, asked = tmp_path / "runs.csv", []
    make_runs(60).to_csv(file, index=False)

    class Card:
        table = a_card(**GOOD)

    def graded(*_: object, splits: list[str], **__: object) -> Card:
        asked.append(splits)
        return Card()

    monkeypatch.setattr(evaluation, "cross_validate", graded)
    for more in (["--split", "gpu"], ["--estimator", "roofline"]):
        with pytest.raises(SystemExit) as stop:
            main(["grade", str(file), "--milestones", *more])
        assert stop.value.code == 2
    with pytest.raises(SystemExit):
        main(["grade", str(file), "--milestones"])
    assert asked == [["random"]]
