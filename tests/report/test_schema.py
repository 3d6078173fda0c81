"""Whatever part of a plan is missing or odd, the report names it or does without it."""

import copy
import json
from contextlib import nullcontext

import plans
import pytest

from capmodel.report import figures, plan_figures
from capmodel.report.diff import compare_plans, shown
from capmodel.report.load import load_plan
from capmodel.report.plan import check_plan, plan_document
from capmodel.report.schema import PLAN, Each, breach

ODD = (None, "text", 1e300, 0, True, [], {})


def _paths(value, path=()):
    """Every place of a plan, the first and last of each list."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, (*path, key))
    elif isinstance(value, list) and value:
        for index in {0, len(value) - 1}:
            yield from _paths(value[index], (*path, index))


def _at(value, path):
    for key in path:
        value = value[key]
    return value


def _small():
    """A whole plan with two entries in each list: enough to be odd in."""
    made = plans.complete()
    for key, value in made.items():
        if isinstance(value, list):
            made[key] = value[:2]
    card = made["calibration"]
    for key in ("grade_card", "coefficients", "terms", "used_by"):
        card[key] = card[key][:2]
    card["residuals"] = {key: values[:3] for key, values in card["residuals"].items()}
    return made


SMALL = _small()
PATHS = sorted(_paths(SMALL), key=str)


class _Paper:
    """A figure that costs nothing."""

    def subplots(self, rows=1, columns=1, **options):
        return [None] * (rows * columns) if rows * columns > 1 else None


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are laid out in other tests; here their data are read and not drawn."""
    for module in (figures, plan_figures):
        monkeypatch.setattr(module, "to_svg", lambda fig, **options: "<svg/>")
        monkeypatch.setattr(module, "figure", lambda width, height: nullcontext(_Paper()))
        for name in [name for name in vars(module) if name.startswith("draw_")]:
            monkeypatch.setattr(module, name, lambda *arguments, **options: None)
    monkeypatch.setattr(figures, "above_panels", lambda *arguments: None)


@pytest.mark.parametrize("top", sorted({path[0] for path in PATHS}))
@pytest.mark.usefixtures("undrawn")
def test_no_part_that_is_missing_or_odd_ends_in_a_traceback(top):
    for path in (path for path in PATHS if path[0] == top):
        for odd in (*ODD, "missing"):
            made = {**SMALL, top: copy.deepcopy(SMALL[top])}
            if odd == "missing":
                if isinstance(path[-1], int):
                    continue
                del _at(made, path[:-1])[path[-1]]
            else:
                _at(made, path[:-1])[path[-1]] = copy.deepcopy(odd)
            said = _refusal(made)
            if said is not None:
                assert top in said or top in ("kind", "schema_version")
                continue
            plan_document(made)
            found = compare_plans(SMALL, made)
            for row in (*found["results"], *found["causes"]):
                assert len(shown(row)) == 4


def _refusal(plan):
    try:
        check_plan(plan)
    except ValueError as error:
        return str(error)
    return None


def test_a_breach_is_named_by_its_path():
    made = plans.plan()
    del made["recommendation"]["gpu"]
    with pytest.raises(ValueError, match=r"recommendation\.gpu is missing"):
        check_plan(made)
    made = plans.plan()
    made["alternatives"][1]["n_gpus"] = "four"
    with pytest.raises(ValueError, match=r"alternatives\[1\]\.n_gpus is 'four', but"):
        check_plan(made)
    for path in (("slo", "tpot_s"), ("steps", 0, "step_s", 1), ("steps", 0, "tokens_per_s", 0)):
        made = plans.plan()
        _at(made, path[:-1])[path[-1]] = 0
        with pytest.raises(ValueError, match="above 0"):
            check_plan(made)
    made = {**plans.plan(), "date": "yesterday"}
    with pytest.raises(ValueError, match="date is 'yesterday', but expected a day"):
        check_plan(made)


def test_specs():
    assert breach({"a": 1, "b": 2}, Each({"*": float})) is None
    wrong = breach({"a": 1, "b": "2"}, Each({"*": float}), "x")
    assert wrong == "x.b is '2', but expected a number"
    assert breach({}, Each({"*": str, "a": str}), "x") == "x.a is missing"
    assert breach(True, int, "x") == "x is True, but expected a number"
    assert breach(float("inf"), float, "x") == "x is inf, but expected a number"
    assert "x is 1000" in str(breach(10**400, float, "x"))
    assert breach("ab", [str], "x") == "x is 'ab', but expected a list"
    assert set(PLAN) >= {"message", "rejected"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "nesting"),
        ('{"kind": "plan", "schema_version": ' + "9" * 5000 + "}", "as large"),
        ('{"kind": "plan", "energy": {"x": ' + "9" * 400 + "}}", "as large"),
        ('{"kind": "plan", "schema_version": 99}', "install the capmodel that wrote it"),
        ('{"kind": "plan", "schema_version": "x"}', "plan again with this capmodel"),
    ],
)
def test_odd_json_names_the_file(tmp_path, text, said):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        load_plan(path)
    assert "plan.json" in str(error.value)


def test_what_json_has_not_is_unknown(tmp_path):
    path = tmp_path / "plan.json"
    made = {**plans.plan(), "engine": float("nan")}
    path.write_text(json.dumps(made))
    assert load_plan(path)["engine"] is None
