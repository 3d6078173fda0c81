"""Answers over HTTP are the package's own, field for field."""

import inspect
import re

import numpy as np
import pytest
from pydantic import BaseModel
from starlette.testclient import TestClient

import capmodel as cm
from capmodel.memory import explain_fit
from capmodel.service.bodies import PlanBody, PredictBody
from capmodel.workload import Lognormal

STEP = {"model": "llama-3-70b", "gpu": "h100-sxm", "tp": 4, "batch_size": 32, "context_len": 2048}
LOAD = {
    "model": "llama-3-8b", "gpu": "h100-sxm", "rate": 2.0, "input_len": 500, "output_len": 100,
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "function", "not_over_http"),
    [(PredictBody, cm.predict, set()), (PlanBody, cm.plan, {"download", "progress"})],
)
def test_fields_are_the_keyword_names(
    body: type[BaseModel], function: object, not_over_http: set[str]
) -> None:
    parameters = set(inspect.signature(function).parameters)  # type: ignore[arg-type]
    assert set(body.model_fields) == parameters - not_over_http


def fields_refused(answer: object) -> set[str]:
    return {problem["field"] for problem in answer.json()["detail"]}  # type: ignore[attr-defined]


def test_ready_names_its_calibrations(client: TestClient) -> None:
    answer = client.get("/healthz").json()
    assert answer["status"] == "ready"
    assert answer["version"] == cm.__version__
    assert cm.predict(**STEP).calibration_id in answer["calibrations"]


def test_predict_is_the_packages(client: TestClient) -> None:
    answer = client.post("/v1/predict", json=STEP).json()
    own = cm.predict(**STEP).to_dict()
    assert set(own) <= set(answer)
    assert answer["step_time_s"] == own["step_time_s"]
    assert answer["terms"] == own["terms"]
    assert answer["extrapolation"] == list(own["extrapolation"])


def test_predict_a_batch(client: TestClient) -> None:
    many = {**STEP, "batch_size": [1, 8, 64], "context_len": 1000, "tp": [2, 4, 4]}
    answer = client.post("/v1/predict", json=many)
    assert answer.status_code == 200
    own = cm.predict_step_time(**many)
    np.testing.assert_array_equal(answer.json()["step_time_s"], own)


def test_a_model_of_ones_own_answers_as_from_python(client: TestClient) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
        "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 12,
        "intermediate_size": 5632, "vocab_size": 32000, "tie_word_embeddings": False,
    }  # fmt: skip
    asked = {**STEP, "model": config}
    answer = client.post("/v1/predict", json=asked).json()
    assert answer["step_time_s"] == cm.predict_step_time(**asked)
    kv = client.post("/v1/kv", json={"model": config, "context_len": 4096}).json()
    assert kv["kv_bytes"] == cm.kv_bytes(config, 4096)


def test_kv_with_what_fits(client: TestClient) -> None:
    asked = {"model": "llama-3-70b", "context_len": 8192, "tp": 4, "kv_dtype": "fp8"}
    answer = client.post("/v1/kv", json={**asked, "gpu": "h100-sxm", "batch_size": 3}).json()
    assert answer["kv_bytes"] == cm.kv_bytes("llama-3-70b", 8192, 3, "fp8", 4)
    own = explain_fit("llama-3-70b", "h100-sxm", 8192, tp=4, kv_dtype="fp8")
    assert answer["fit"]["concurrency"] == own.concurrency
    assert answer["fit"]["parts"] == own.budget.parts()


def test_kv_over_contexts(client: TestClient) -> None:
    lengths = [1024, 4096, 8192]
    asked = {"model": "llama-3-70b", "context_len": lengths, "tp": 4, "gpu": "h100-sxm"}
    answer = client.post("/v1/kv", json=asked).json()
    own = cm.max_concurrency("llama-3-70b", "h100-sxm", np.array(lengths), tp=4)
    np.testing.assert_array_equal(answer["max_concurrency"], own)
    assert answer["kv_bytes"] == [cm.kv_bytes("llama-3-70b", n, tp=4) for n in lengths]


def test_warnings_are_part_of_the_answer(client: TestClient) -> None:
    answer = client.post("/v1/kv", json={"model": "llama-3-8b", "context_len": 100_000}).json()
    assert any("llama-3-8b was made for" in text for text in answer["warnings"])


@pytest.mark.parametrize("simulate", [False, True])
def test_plan_is_the_packages(client: TestClient, simulate: bool) -> None:
    answer = client.post("/v1/plan", json={**LOAD, "simulate": simulate})
    assert answer.status_code == 200
    own = cm.plan(**LOAD, simulate=simulate).to_dict()
    assert answer.json()["recommendation"] == own["recommendation"]
    assert answer.json()["latency"] == own["latency"]


def test_plan_of_lengths_that_vary(client: TestClient) -> None:
    asked = {**LOAD, "input_len": {"mean": 500, "cv": 0.5}, "simulate": False}
    answer = client.post("/v1/plan", json=asked).json()
    own = cm.plan(**{**LOAD, "input_len": Lognormal(500, 0.5)}, simulate=False)
    assert answer["workload"] == own.to_dict()["workload"]


def test_plan_of_a_trace(client: TestClient) -> None:
    rng = np.random.default_rng(3)
    trace = {
        "arrival_s": np.cumsum(rng.exponential(0.5, 200)).tolist(),
        "prompt_tokens": rng.integers(50, 900, 200).tolist(),
        "output_tokens": rng.integers(20, 200, 200).tolist(),
    }
    asked = {"model": "llama-3-8b", "gpu": "h100-sxm", "trace": trace, "simulate": False}
    answer = client.post("/v1/plan", json=asked)
    assert answer.status_code == 200, answer.text
    assert answer.json()["workload"]["requests"] == 200
    back = {**trace, "arrival_s": trace["arrival_s"][::-1]}
    refused = client.post("/v1/plan", json={**asked, "trace": back})
    assert refused.status_code == 422
    assert fields_refused(refused) == {"trace"}


def test_an_infeasible_plan_says_what_comes_closest(client: TestClient) -> None:
    asked = {**LOAD, "model": "llama-3-70b", "tp": 1, "weight_dtype": "bf16"}
    answer = client.post("/v1/plan", json=asked)
    assert answer.status_code == 200
    assert answer.json()["feasible"] is False
    assert answer.json()["closest"]["gpu"] == "h100-sxm"


def test_plan_as_csv_and_pdf(client: TestClient) -> None:
    asked = {**LOAD, "simulate": False}
    table = client.post("/v1/plan?format=csv", json=asked)
    rows = table.text.splitlines()
    assert rows[0].startswith("status,gpu,tp,")
    assert rows[1].startswith("chosen,h100-sxm,")
    assert "capacity_plan.csv" in table.headers["content-disposition"]
    document = client.post("/v1/plan?format=pdf", json=asked)
    assert document.content[:5] == b"%PDF-"
    assert document.headers["content-type"] == "application/pdf"


def test_models_and_gpus_are_the_catalogue(client: TestClient) -> None:
    models = {row["name"]: row for row in client.get("/v1/models").json()["models"]}
    assert len(models) > 90
    assert models["llama-3-70b"]["kv_bytes_per_token"] == 327_680  # PHYSICS section 1
    gpus = {row["name"]: row for row in client.get("/v1/gpus").json()["gpus"]}
    assert gpus["h100-sxm"]["memory_bytes"] == 80e9


def test_lab_numbers_are_the_labs(client: TestClient) -> None:
    from capmodel.lab.steps import lab_steps

    answer = client.get("/v1/lab?n_tokens=6&seed=2").json()
    own = lab_steps(6, 2)["kinds"]
    for kind, steps in own.items():  # type: ignore[attr-defined]
        assert answer["kinds"][kind]["cached"] == list(steps["cached"])
        assert answer["kinds"][kind]["uncached"] == list(steps["uncached"])
        # The arrays of the float32 decoder take what the cache arithmetic says.
        counted = [step["cache_bytes"] for step in steps["cached"]]
        assert answer["kinds"][kind]["cache_bytes"]["fp32"] == counted


def test_lab_shows_a_70b_class_cache_collapse(client: TestClient) -> None:
    variants = {row["attention"]: row["kv_bytes"] for row in
                client.get("/v1/lab").json()["model"]["variants"]}  # fmt: skip
    assert variants["MHA"]["bf16"] == 2_621_440 * 131_072  # PHYSICS section 1: 343.6 GB
    assert variants["GQA 8"]["bf16"] == 327_680 * 131_072
    assert variants["MQA"]["fp8"] < 3e9


def test_metrics_count_by_route(client: TestClient) -> None:
    def counted() -> float:
        lines = client.get("/metrics").text.splitlines()
        key = 'capmodel_requests_total{method="POST",path="/v1/predict",status="422"}'
        return sum(float(line.split()[-1]) for line in lines if line.startswith(key))

    before = counted()
    client.post("/v1/predict", json={})
    client.get("/no/such/page?x=1")
    assert counted() == before + 1
    assert "/no/such/page" not in client.get("/metrics").text


def checked(page: str) -> list[str]:
    return re.findall(r'name="gpu" value="([^"]*)" checked', page)


def test_gpus_of_an_address_are_read_as_by_the_package(client: TestClient) -> None:
    page = client.get("/?model=llama-3-8b&gpu=h200&gpu=b200&gpu=nothing&gpu=h200-sxm").text
    assert sorted(checked(page)) == ["b200-sxm", "h200-sxm", "nothing"]
    assert checked(client.get("/").text) == ["h100-sxm"]


def test_a_browser_is_shown_a_page_where_nothing_is(client: TestClient) -> None:
    shown = client.get("/<b>nowhere", headers={"accept": "text/html,*/*"})
    assert shown.status_code == 404
    assert "/&lt;b&gt;nowhere" in shown.text
    assert 'href="/lab"' in shown.text
    assert client.get("/nowhere").json()["detail"][0]["expected"]
    assert client.get("/v1/nowhere", headers={"accept": "text/html"}).json()["detail"]
