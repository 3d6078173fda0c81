"""What a plan says it was made from."""

import hashlib
import json

import pytest
from rates import NameplateCalibration

import capmodel as cm
from capmodel.planner.provenance import day, inputs_of, kind_of


def test_files_are_named_with_their_sha256(tmp_path):
    trace, config = tmp_path / "load.csv", tmp_path / "model"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    config.mkdir()
    (config / "config.json").write_text("{}")
    found = inputs_of(config, ["h100", {"name": "mine"}], trace, str(trace))
    assert found == (
        {"name": "config.json", "sha256": hashlib.sha256(b"{}").hexdigest()},
        {"name": "load.csv", "sha256": hashlib.sha256(trace.read_bytes()).hexdigest()},
    )


def test_a_catalogue_name_is_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("llama-3-8b", "h100"):
        (tmp_path / name).write_text("not read by anyone")
    assert inputs_of("llama-3-8b", "h100", None, None) == ()


def test_the_day_can_be_fixed(monkeypatch):
    assert day("2026-03-01") == "2026-03-01"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert day(None) == "1970-01-02"
    with pytest.raises(ValueError, match=r"date='1\.3\.26'.*expected a day"):
        day("1.3.26")


def test_the_plan_carries_them(tmp_path):
    trace = tmp_path / "load.csv"
    rows = "".join(f"{i},500,50\n" for i in range(200))
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    plan = cm.plan(
        "llama-3-8b", "h100", trace=trace, calibration=NameplateCalibration(), simulate=False,
        date="2026-03-01",
    )  # fmt: skip
    document = json.loads(json.dumps(plan.to_dict()))
    assert document["date"] == "2026-03-01"
    assert [entry["name"] for entry in document["inputs"]] == ["load.csv"]


def test_the_card_of_a_shipped_calibration():
    plan = cm.plan("llama-3-8b", "h100", rate=1.0, input_len=500, output_len=50, simulate=False)
    card = plan.to_dict()["calibration"]
    assert card["id"] == plan.chosen.replica.calibration_id
    assert sum(row["rows"] for row in card["used_by"]) <= card["rows"]["used"]
    graded = {(row["split"], row["estimator"]) for row in card["grade_card"]}
    assert {("random", "regressor"), ("gpu", "roofline")} <= graded
    own = next(
        row for row in card["coefficients"] if row["gpu"] == "h100-sxm" and row["engine"] == "vllm"
    )
    assert own["c_w"] >= 1 or own["at_bound"] or own["c_w"] > 0.5
    assert set(own["standard_errors"]) == {"c_step", "c_w", "c_kv", "c_f"}
    assert {term["name"] for term in card["terms"]} >= {"c_step", "c_w", "c_kv", "c_f"}


@pytest.mark.parametrize(
    ("sources", "kind"),
    [
        (("Argonne LLM-Inference-Bench",), "measured"),
        (("Argonne LLM-Inference-Bench", "composed from aiconfigurator-core"), "composed"),
        (("composed from kernels", "Synthetic, capmodel.datasets.make_runs"), "generated"),
        ((), "measured"),
    ],
)
def test_a_step_time_is_called_what_its_rows_are(sources, kind):
    assert kind_of(sources) == kind


def test_the_ledger_says_what_the_calibration_was_fitted_on(shipped_by_gpu):
    """Argonne's rows were measured, the silicon runs composed; generated runs are neither."""
    kinds = {gpu: found["step time"]["kind"] for gpu, found in shipped_by_gpu.items()}
    assert kinds == {"h100": "measured", "b200": "composed"}
    sources = {found["prompts"]["source"] for found in shipped_by_gpu.values()}
    assert sources == {"TTFT of vllm in AIConfigurator's sample of measured runs"}


@pytest.fixture(scope="module")
def shipped_by_gpu():
    return {
        gpu: {
            line["what"]: line
            for line in cm.plan(
                "llama-3-8b", gpu, rate=1.0, input_len=500, output_len=50, simulate=False, tp=1
            ).to_dict()["assumptions"]
        }
        for gpu in ("h100", "b200")
    }


@pytest.mark.parametrize(
    ("gpu", "promises", "stage"),
    [("h100", {"slo_tpot_p95": 1e-6}, "slo"), ("l4", {}, "memory")],
)
def test_a_plan_that_cannot_be_says_what_its_step_times_rest_on(gpu, promises, stage):
    with pytest.raises(cm.planner.InfeasiblePlan) as error:
        cm.plan(
            "llama-3-70b", gpu, rate=1.0, input_len=500, output_len=50, tp=1,
            weight_dtype="int4", kv_dtype="fp8", simulate=False, **promises,
        )  # fmt: skip
    document = json.loads(json.dumps(error.value.plan.to_dict(), allow_nan=False))
    assert document["closest"]["stage"] == stage
    card = document["calibration"]
    assert card["id"]
    assert card["low_factor"] <= 1 <= card["high_factor"]
    assert card["grade_card"]
    assert card["basis"]
