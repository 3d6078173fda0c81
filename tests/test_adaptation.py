"""A new engine and GPU from a few runs, and which runs to make."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import capmodel as cm
from capmodel.adaptation import FEW, adapted, odd_runs
from capmodel.calibration import Calibration, fit
from capmodel.cli.fit import command
from capmodel.datasets import make_runs
from capmodel.estimators import Roofline
from capmodel.evaluation import cross_validate, used_rows
from capmodel.loading import load_calibration
from capmodel.roofline import RooflineRegressor
from capmodel.suggestion import (
    FARTHEST,
    SCATTER,
    conditioned,
    covariance,
    feasible_steps,
    most_telling,
    suggest,
)


def mape(predicted: np.ndarray, rows: pd.DataFrame) -> float:
    return float(np.abs(predicted / rows["step_time_s"].to_numpy(float) - 1).mean())


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return used_rows(make_runs(n=3000, seed=3, noise=0.02))


@pytest.fixture(scope="module")
def without_h200(rows: pd.DataFrame) -> Calibration:
    rest = rows[rows["gpu"] != "h200-sxm"].reset_index(drop=True)
    card = cross_validate(
        rest, splits=["random", "model", "gpu"], estimators=["roofline", "regressor"]
    )
    return fit(rest, name="rest", grade_card=card)


@pytest.fixture(scope="module")
def new_rows(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["gpu"] == "h200-sxm"].reset_index(drop=True)


def curve(base: Calibration, rows: pd.DataFrame) -> dict[int, float]:
    """Median held-out error by number of runs adapted to; 0 is without any."""
    rng = np.random.default_rng(0)
    found = {0: mape(base.predict(rows), rows)}
    for n in (3, 8, 20):
        errors = []
        for _ in range(8):
            order = rng.permutation(len(rows))
            own, held = base.adapt(rows.iloc[order[:n]]), rows.iloc[order[n:]]
            errors.append(mape(own.predict(held), held))
        found[n] = float(np.median(errors))
    return found


def test_a_few_runs_help_a_gpu_unlike_the_others(
    without_h200: Calibration, new_rows: pd.DataFrame
) -> None:
    slow = {"step_time_s": 1.6 * new_rows["step_time_s"], "throughput_tok_s": np.nan}
    found = curve(without_h200, new_rows.assign(**slow))
    assert found[3] < 0.7 * found[0]
    assert found[8] < 0.5 * found[0]
    assert found[20] < found[3]


def test_a_gpu_like_the_others_is_not_made_worse_beyond_noise(
    without_h200: Calibration, new_rows: pd.DataFrame
) -> None:
    found = curve(without_h200, new_rows)
    assert max(found[3], found[8], found[20]) < found[0] + 0.02


def test_a_fitted_pair_follows_a_new_version(rows: pd.DataFrame) -> None:
    """Rows of an engine that became 20 % faster everywhere pull the pair after them."""
    base = fit(rows, name="base")
    pair = base.pairs[0]
    mine = rows[(rows["engine"] == pair[0]) & (rows["gpu"] == pair[1])].reset_index(drop=True)
    faster = mine.assign(step_time_s=0.8 * mine["step_time_s"])
    own = base.adapt(faster.iloc[::40])
    assert mape(own.predict(faster), faster) < 0.5 * mape(base.predict(faster), faster)
    others = rows[rows["gpu"] != pair[1]]
    assert (own.predict(others) == base.predict(others)).all()


def test_rows_that_agree_change_nothing_much(rows: pd.DataFrame) -> None:
    base = fit(rows, name="base")
    own = base.adapt(rows.iloc[::100])
    assert np.median(np.abs(own.predict(rows) / base.predict(rows) - 1)) < 0.02


def test_what_is_adapted_is_whole(
    without_h200: Calibration, new_rows: pd.DataFrame, tmp_path: Path
) -> None:
    own = without_h200.adapt(new_rows.iloc[:10], name="mine", date="2026-01-01")
    engine = str(new_rows["engine"].iloc[0])
    assert (engine, "h200-sxm") in own.pairs
    assert own.n_rows == without_h200.n_rows + 10
    assert own.calibration_id != without_h200.calibration_id
    own.save(tmp_path / "mine.json")
    again = load_calibration(tmp_path / "mine.json")
    assert again.calibration_id == own.calibration_id
    low, middle, high = cm.predict_step_time(
        "llama-3-8b", "h200", engine=engine, batch_size=16, context_len=2048, interval=0.9,
        calibration=again,
    )  # fmt: skip
    assert low < middle < high
    known = cm.predict_step_time(
        "llama-3-8b", "h100", batch_size=16, context_len=2048, interval=0.9, calibration=again
    )
    assert high / low > known[2] / known[0]  # ten rows say less than hundreds


def test_intervals_of_an_adapted_gpu_cover(
    without_h200: Calibration, new_rows: pd.DataFrame
) -> None:
    """One draw of ten runs has 0.68 to 0.98 of the others inside, so many are drawn."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(16):
        order = rng.permutation(len(new_rows))
        own, held = without_h200.adapt(new_rows.iloc[order[:10]]), new_rows.iloc[order[10:]]
        ratio = held["step_time_s"].to_numpy(float) / own.predict(held)
        low, high = own.interval_factors(held)
        inside.append(((ratio >= low) & (ratio <= high)).mean())
    assert np.mean(inside) >= 0.85


def test_rows_need_no_source(without_h200: Calibration, new_rows: pd.DataFrame) -> None:
    own = without_h200.adapt(new_rows.iloc[:5].drop(columns="source"))
    assert own.sources == without_h200.sources


def test_a_run_gone_wrong_does_not_carry_the_others(
    without_h200: Calibration, new_rows: pd.DataFrame
) -> None:
    """One of eight runs takes twice its time, which none of the others bears out."""
    estimator, rng = without_h200.estimator, np.random.default_rng(2)
    clean, spoilt = [], []
    for _ in range(8):
        order = rng.permutation(len(new_rows))
        own, held = new_rows.iloc[order[:8]], new_rows.iloc[order[8:]]
        seconds = own["step_time_s"] * np.where(np.arange(8) == 0, 2.0, 1.0)
        wrong = own.assign(step_time_s=seconds, throughput_tok_s=np.nan)
        clean.append(mape(adapted(estimator, own).predict(held), held))
        spoilt.append(mape(adapted(estimator, wrong).predict(held), held))
    assert np.median(spoilt) < np.median(clean) + 0.01


def test_a_run_gone_wrong_of_a_known_pair_does_not_carry_its_like(
    without_h200: Calibration, rows: pd.DataFrame
) -> None:
    """Eight runs of a pair that is fitted, all slower by a third, one of them by ten times more."""
    pair = rows[(rows["gpu"] == "h100-sxm") & (rows["engine"] == rows["engine"].iloc[0])]
    own = pair.iloc[:: max(len(pair) // 8, 1)].iloc[:8]
    seconds = 1.3 * own["step_time_s"] * np.where(np.arange(len(own)) == 2, 10.0, 1.0)
    wrong = own.assign(step_time_s=seconds, throughput_tok_s=np.nan)
    fitted = adapted(without_h200.estimator, wrong)
    moved = fitted.predict(pair) / without_h200.estimator.predict(pair)
    assert 1.1 < np.median(moved) < 1.5
    assert moved.max() < 1.7
    odd = odd_runs(fitted, wrong)
    assert odd.index.tolist() == [wrong.index[2]]
    assert odd.iloc[0] == pytest.approx(10.0, rel=0.3)
    assert not len(odd_runs(adapted(without_h200.estimator, own), own))


def test_a_few_runs_are_given_at_once(without_h200: Calibration, new_rows: pd.DataFrame) -> None:
    one = without_h200.adapt(new_rows.iloc[:3])
    with pytest.raises(ValueError, match="all of them at once"):
        one.adapt(new_rows.iloc[:5])
    enough = without_h200.adapt(new_rows[new_rows["engine"] == new_rows["engine"].iloc[0]])
    assert enough.adapt(new_rows[new_rows["engine"] == new_rows["engine"].iloc[0]].iloc[:3])


def test_one_run_is_never_surer_than_two(without_h200: Calibration, new_rows: pd.DataFrame) -> None:
    own = new_rows[new_rows["engine"] == new_rows["engine"].iloc[0]]
    row, widths = own.iloc[10], []
    for n in (1, 2, 5):
        fitted = without_h200.adapt(own.iloc[:n])
        low, high = fitted.step_time(
            "llama-3-70b", "h200-sxm", tp=8, engine=row["engine"]
        ).interval_factors(0.9)
        widths.append(high / low)
    assert widths[0] > widths[1] > widths[2]


def test_many_rows_are_fitted_as_a_table_is(
    without_h200: Calibration, new_rows: pd.DataFrame
) -> None:
    """Past FEW rows another way is taken, which must not be worse than what fewer rows gave."""
    order = np.random.default_rng(4).permutation(len(new_rows))
    held, known = new_rows.iloc[order[4 * FEW :]], without_h200.estimator
    few, many = (adapted(known, new_rows.iloc[order[:n]]) for n in (FEW, 2 * FEW))
    assert mape(many.predict(held), held) < mape(few.predict(held), held) + 0.005


def test_adapting_leaves_the_first_as_it_was(rows: pd.DataFrame) -> None:
    base = fit(rows, name="base")
    before = base.predict(rows.iloc[:50])
    adapted(base.estimator, rows.iloc[:5].assign(gpu="l40s", engine="other"))
    assert (base.predict(rows.iloc[:50]) == before).all()


class TestSuggestion:
    @pytest.fixture(scope="class")
    @staticmethod
    def steps() -> pd.DataFrame:
        return feasible_steps(["llama-3-8b"], "b200-sxm", "vllm", [1, 2], "bf16", "bf16")

    def test_only_what_fits(self, steps: pd.DataFrame) -> None:
        stored = steps["weight_stored_bytes"] + steps["kv_stored_bytes"]
        assert (stored <= 0.9 * steps["gpu_memory_bytes"]).all()
        assert (steps["context_len"] <= 8192).all()  # the model's longest

    def test_beats_drawing_at_random(self, without_h200: Calibration, steps: pd.DataFrame) -> None:
        between = covariance(without_h200.estimator.physics, steps, ("vllm", "b200-sxm"))
        _, errors = most_telling(between, 5)
        rng = np.random.default_rng(0)
        drawn = [
            np.sqrt(np.diag(conditioned(between, rng.permutation(len(steps))[:5])).mean())
            for _ in range(50)
        ]
        assert errors[-1] < np.quantile(drawn, 0.1)
        assert (np.diff(errors) < 0).all()

    def test_a_pair_unlike_all_others_does_not_decide(
        self, without_h200: Calibration, steps: pd.DataFrame
    ) -> None:
        """A pair 30 times slower than the rest would otherwise be all that runs are chosen for."""
        roofline = without_h200.estimator.physics.roofline
        one = roofline.coefficients_[without_h200.pairs[0]]
        odd = replace(one, values=tuple(30 * value for value in one.values))
        slow = RooflineRegressor(coefficients_={**roofline.coefficients_, ("odd", "gpu"): odd})
        pair = ("vllm", "b200-sxm")
        with_it, without = (
            np.diag(covariance(Roofline(roofline=own), steps, pair)).mean()
            for own in (slow, roofline)
        )
        assert with_it < without + 0.1 * FARTHEST**2

    def test_the_stated_error_is_the_conditioned_one(
        self, without_h200: Calibration, steps: pd.DataFrame
    ) -> None:
        between = covariance(without_h200.estimator.physics, steps, ("vllm", "b200-sxm"))
        chosen, errors = most_telling(between, 4)
        left = np.sqrt(np.diag(conditioned(between, chosen)).mean())
        assert errors[-1] == pytest.approx(left, rel=1e-6)
        assert left > SCATTER / 100

    def test_what_is_measured_is_not_asked_again(
        self, without_h200: Calibration, steps: pd.DataFrame
    ) -> None:
        first = suggest(without_h200.estimator.physics, steps, 3)
        key = ["tp", "batch_size", "context_len"]
        measured = steps.merge(first[key], on=key)
        second = suggest(without_h200.estimator.physics, steps, 3, measured)
        left = first["typical_error"].iloc[-1]  # how far pairs lie apart is read off other steps
        assert second.attrs["typical_error"] == pytest.approx(left, rel=0.01)
        assert not len(first.merge(second, on=key))

    @pytest.mark.parametrize(
        "wrong",
        [{"n": 0}, {"n": 2.5}, {"n": True}, {"n": "5"}, {"tp": 0}, {"tp": "2"}, {"tp": [True]},
         {"tp": []}, {"tp": 3}, {"engine": ""}, {"engine": None}, {"model": []}, {"model": 5},
         {"model": [[]]}, {"runs": 5}],
    )  # fmt: skip
    def test_junk_is_named(self, without_h200: Calibration, wrong: dict[str, Any]) -> None:
        name = next(iter(wrong))
        with pytest.raises(ValueError, match=name):
            without_h200.suggest(**{"model": "llama-3-8b", "gpu": "b200", **wrong})

    def test_only_tp_that_divides_and_no_more_steps_than_can_be_weighed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("capmodel.suggestion.MOST_STEPS", 100)
        models = ["llama-3-8b", "qwen2.5-7b"]  # 32 and 28 heads
        steps = feasible_steps(models, "b200-sxm", "vllm", [1, 3, 8], "bf16", "bf16")
        tps = steps.groupby("model")["tp"].unique()
        assert set(tps["llama-3-8b"]) == {1, 8}
        assert set(tps["qwen2.5-7b"]) == {1}
        assert len(steps) == 100

    def test_a_gpu_of_ones_own(self, without_h200: Calibration) -> None:
        own = {"name": "mine", "memory_bytes": 6e10, "bandwidth_bytes_per_s": 2e12,
               "bf16_flops_per_s": 4e14}  # fmt: skip
        found = without_h200.suggest("llama-3-8b", own, n=2)
        assert found["gpu"].tolist() == ["mine", "mine"]
        assert found["typical_error"].is_monotonic_decreasing

    def test_nothing_fits(self) -> None:
        with pytest.raises(ValueError, match="no step fits"):
            feasible_steps(["llama-3.1-405b"], "l40s", "vllm", [1], "bf16", "bf16")

    def test_command(self, tmp_path: Path, new_rows: pd.DataFrame) -> None:
        asked = ["--suggest", "3", "--model", "llama-3-8b", "--gpu", "b200", "--json"]
        found = json.loads(CliRunner().invoke(command, asked).stdout)
        assert len(found["suggested"]) == 3
        errors = [row["typical_error"] for row in found["suggested"]]
        assert found["typical_error_before"] > errors[0] > errors[-1] > 0

        table = tmp_path / "mine.csv"
        columns = ["run_id", "source", "engine", "model", "gpu", "tp", "weight_dtype", "kv_dtype",
                   "batch_size", "context_len", "step_time_s"]  # fmt: skip
        named = make_runs(n=40, seed=2)
        named[[*columns, *[c for c in named if c.startswith(("n_", "h", "i", "v"))]]].to_csv(
            table, index=False
        )
        out = tmp_path / "mine.json"
        result = CliRunner().invoke(command, [str(table), "--adapt", "silicon", "-o", str(out)])
        assert result.exit_code == 0, result.output
        assert load_calibration(out).n_rows > 20_000

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            (["--suggest", "3"], "--suggest needs"),
            ([], "give RUNS"),
            (["--suggest", "0"], "not in the range"),
            (["x.csv", "--adapt", "nothing", "-o", "y.json"], "nothing"),
        ],
    )
    def test_bad_asking(self, asked: list[str], said: str) -> None:
        result = CliRunner().invoke(command, asked)
        assert result.exit_code != 0
        assert said in result.output + str(result.exception)
