"""What changed between two plans and why; each cause changed by hand, the money by arithmetic."""

import json

import plans
import pytest
from click.testing import CliRunner

from capmodel.cli.diff import command as diff_command
from capmodel.cli.report import command as report_command
from capmodel.report.diff import compare_plans, shown
from capmodel.report.load import load_plan


def _causes(found):
    return {row["cause"] for row in found["causes"]}


def _named(rows, name):
    return next(row for row in rows if row["name"] == name)


def test_equal_plans_say_the_same():
    assert compare_plans(plans.plan(), plans.plan()) == {
        "same": True,
        "before": plans.plan()["message"],
        "after": plans.plan()["message"],
        "results": [],
        "causes": [],
        "why": [],
    }


def test_a_dearer_gpu_is_a_price_cause_and_all_of_the_money():
    before, after = _priced(8, 3.5), _priced(8, 4.5)
    found = compare_plans(before, after)
    assert _causes(found) == {"price"}
    assert _named(found["results"], "dollars_per_hour")["change"] == pytest.approx(8 / 28)
    assert found["why"][0] == (
        "The cost moves by +$8.00 an hour, all of it from $3.50 to $4.50 a GPU-hour; the 8 GPUs "
        "stay."
    )


def test_more_gpus_at_one_price():
    why = compare_plans(_priced(8, 3.5), _priced(12, 3.5))["why"]
    assert why[1] == (
        "The cost moves by +$14.00 an hour, all of it from 8 to 12 GPUs; a GPU-hour stays at $3.50."
    )


def test_a_price_that_moves_by_less_than_a_cent_is_told_apart():
    found = compare_plans(_priced(8, 3.4950), _priced(8, 3.4951))
    assert "from $3.495 to $3.4951 a GPU-hour" in found["why"][0]
    assert "+$0.0008 an hour" in found["why"][0]
    texts = [shown(row) for row in found["causes"]]
    assert texts == [("Price of h100-sxm", "$3.495", "$3.4951", "+0.003 %")]


@pytest.mark.parametrize(
    ("before", "after"), [(1.0, 1.0000001), (1e12, 1e12 + 1), (0.05, 0.0500001)]
)
def test_figures_that_differ_never_print_alike(before, after):
    for name in ("rate", "ttft_s", "per_million_output", "utilisation", "weights_bytes"):
        row = {"name": name, "before": before, "after": after, "change": after / before - 1}
        _, first, second, change = shown(row)
        assert first != second
        assert float(change.removesuffix(" %")) != 0


def _priced(n_gpus, price):
    """The plan with so many GPUs, one a replica, at that price."""
    made = plans.plan()
    best = made["recommendation"]
    best |= {"gpu": "h100-sxm", "n_gpus": n_gpus, "tp": 1, "replicas": n_gpus}
    best["price_per_gpu_hour"] |= {"estimate": price, "source": "given"}
    best["dollars_per_hour"]["estimate"] = n_gpus * price
    return made


def test_gpus_are_charged_at_the_old_price_and_price_on_the_new_gpus():
    before, after = _priced(8, 3.495), _priced(12, 3.0)
    after["workload"]["rate"] = 18.0
    why = compare_plans(before, after)["why"]
    # 4 x 3.495 = 13.98 for GPUs; 12 x (3.000 - 3.495) = -5.94 for price; together 8.04.
    assert "+$8.04 an hour: +$13.98 from 8 to 12 GPUs, -$5.94 from $3.50 to $3.00" in why[0]
    assert "plan again with one of them" in why[-1]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda p: p["workload"].update(input_mean=9), "workload"),
        (lambda p: p["slo"].update(tpot_s=0.01), "promises"),
        (lambda p: p["calibration"].update(id="other"), "calibration"),
        (lambda p: p.update(engine_version="0.9"), "engine"),
        (lambda p: p.update(package_version="9"), "package"),
        (lambda p: p.update(seed=7), "seed"),
        (lambda p: p.update(inputs=[{"name": "load.csv", "sha256": "ab" * 32}]), "files"),
        (lambda p: p["assumptions"][6].update(value="1 block"), "assumption"),
        (lambda p: p["alternatives"].append({**p["alternatives"][0], "gpu": "new"}), "candidates"),
    ],
)
def test_each_cause_is_named_alone(change, cause):
    after = plans.plan()
    change(after)
    found = compare_plans(plans.plan(), after)
    assert _causes(found) == {cause}
    assert "nothing that was decided does" in found["why"][0]


def test_a_changed_choice_says_what_became_of_the_old_one():
    after = plans.plan()
    other = after["alternatives"].pop(0)
    old = {**after["recommendation"], "dollars_per_hour": 99.0}
    after["recommendation"] |= {
        key: other[key] for key in ("gpu", "tp", "weight_dtype", "kv_dtype", "replicas")
    }
    after["alternatives"].append(old)
    why = " ".join(compare_plans(plans.plan(), after)["why"])
    assert "The first plan's choice" in why
    assert "would cost $99.00 an hour in the second" in why


def test_from_feasible_to_infeasible_gives_the_reason():
    after = plans.infeasible()
    first = plans.plan()["recommendation"]
    parts = {key: first[key] for key in ("gpu", "tp", "weight_dtype", "kv_dtype")}
    after["rejected"].append({**after["closest"], **parts, "reason": "TPOT too long"})
    found = compare_plans(plans.plan(), after)
    assert [row["name"] for row in found["results"]] == ["feasible"]
    assert any("set aside in the second: TPOT too long" in line for line in found["why"])


def _write(path, plan):
    path.write_text(json.dumps(plan))
    return str(path)


def test_command_prints_and_json_is_the_same_dict(tmp_path):
    after = plans.plan()
    after["slo"]["tpot_s"] = 0.04
    paths = [_write(tmp_path / "a.json", plans.plan()), _write(tmp_path / "b.json", after)]
    printed = CliRunner().invoke(diff_command, paths)
    assert printed.exit_code == 0
    assert "promises" in printed.output
    assert "-20.0 %" in printed.output
    as_json = CliRunner().invoke(diff_command, [*paths, "--json"])
    assert json.loads(as_json.output) == compare_plans(plans.plan(), after)


@pytest.mark.parametrize("suffix", [".pdf", ".html"])
def test_report_renders_by_suffix(tmp_path, suffix):
    source = _write(tmp_path / "plan.json", plans.infeasible())
    target = tmp_path / f"plan{suffix}"
    assert CliRunner().invoke(report_command, [source, "-o", str(target)]).exit_code == 0
    assert target.read_bytes()[:5] == {".pdf": b"%PDF-", ".html": b"<!doc"}[suffix]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file"),
        ("", "not whole JSON"),
        ('{"kind": "plan", "schema_ver', "not whole JSON"),
        ("[]", "expected a plan"),
        ('{"kind": "plan", "schema_version": 2}', "schema version 2"),
        ('{"kind": "plan", "schema_version": 1}', "package_version is missing"),
        (b"\xff\xfe\x00", "not text"),
    ],
)
def test_files_that_are_no_plan_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message) as error:
        load_plan(path)
    assert "plan.json" in str(error.value)


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folder"):
        load_plan(tmp_path)


@pytest.mark.parametrize("name", ["plan.pdf", "plan.html"])
def test_a_report_never_takes_the_place_of_its_plan(tmp_path, name):
    plan = tmp_path / name
    before = json.dumps(plans.infeasible())
    plan.write_text(before)
    calls = [[str(plan), "-o", str(plan)]]
    if name.endswith(".pdf"):
        calls.append([str(plan)])  # the default place is the plan itself
    (tmp_path / "link.pdf").symlink_to(plan)
    calls.append([str(plan), "-o", str(tmp_path / "link.pdf")])
    for words in calls:
        refused = CliRunner().invoke(report_command, words)
        assert refused.exit_code == 2
        assert "another file than the plan" in refused.output
    assert plan.read_text() == before


def test_what_follows_from_another_input_is_no_input_to_change_alone():
    before, after = _priced(8, 3.5), _priced(12, 3.5)
    after["calibration"]["id"] = "mine-1"
    after["inputs"] = [{"name": "mine.json", "sha256": "ab" * 32}]
    found = compare_plans(before, after)
    assert _causes(found) == {"calibration", "files"}
    assert not [why for why in found["why"] if why.startswith("Several")]
    assert shown(_named(found["causes"], "mine.json"))[0] == "mine.json"
    after["engine"] = "sglang"
    whys = compare_plans(before, after)["why"]
    assert not [why for why in whys if why.startswith("Several")]
    assert any(why.startswith("Another engine") for why in whys)
    after["seed"] = 7
    assert "Several inputs changed (engine, seed)" in compare_plans(before, after)["why"][-1]


def test_one_gpu_is_no_plural():
    assert compare_plans(_priced(1, 3.5), _priced(1, 2.0))["why"][0].endswith("the one GPU stays.")
