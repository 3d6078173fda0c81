"""What a hostile or mistaken client gets: 4xx that says what to mend, never 500, never a file."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from capmodel.service.app import create_app
from capmodel.service.settings import Settings

STEP = {"model": "llama-3-8b", "gpu": "h100-sxm", "batch_size": 8, "context_len": 512}
LOAD = {"model": "llama-3-8b", "gpu": "h100-sxm", "rate": 1, "input_len": 99, "output_len": 9}


def post(client: TestClient, path: str, text: str | bytes, **headers: str) -> Any:
    return client.post(path, content=text, headers={"content-type": "application/json", **headers})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"batch_size": "8"}, "batch_size"),
        ({"batch_size": True}, "batch_size"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": -1}, "batch_size"),
        ({"batch_size": []}, "batch_size"),
        ({"batch_size": [1] * 10_001}, "batch_size"),
        ({"batch_size": [1, 2], "context_len": [1, 2, 3]}, "batch_size"),
        ({"batch_size": [[1]]}, "batch_size.0"),
        ({"context_len": None}, "context_len"),
        ({"tp": 1.5}, "tp"),
        ({"tp": 3}, "tp"),
        ({"model": 7}, "model"),
        ({"model": "llama-3-9b"}, "model"),
        ({"model": {}}, "model"),
        ({"model": {"model_type": "llama", "num_hidden_layers": 10**9}}, "model"),
        ({"gpu": "h1000"}, "gpu"),
        ({"gpu": {"memory_bytes": -1}}, "gpu"),
        ({"weight_dtype": "bf17"}, "weight_dtype"),
        ({"kv_dtype": "fp8,fp8,fp8"}, "kv_dtype"),
        ({"method": "magic"}, "method"),
        ({"interval": 1.0}, "interval"),
        ({"calibration": {"format": "x"}}, "calibration"),
        ({"calibration": "/etc/passwd"}, "calibration"),
        ({"download": True}, "download"),
    ],
)
def test_a_wrong_field_is_named(client: TestClient, change: dict[str, Any], field: str) -> None:
    answer = client.post("/v1/predict", json={**STEP, **change})
    assert answer.status_code == 422, answer.text
    problems = answer.json()["detail"]
    assert field in {problem["field"] for problem in problems}
    assert all(problem["expected"] for problem in problems)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"rate": None}, "rate"),
        ({"rate": 0}, "rate"),
        ({"concurrency": 4}, "rate"),
        ({"concurrency": 10**7, "rate": None}, "concurrency"),
        ({"gpu": []}, "gpu"),
        ({"gpu": ["h100-sxm"] * 17}, "gpu"),
        ({"trace": "/etc/passwd"}, "trace"),
        ({"price": {"/etc/passwd.toml": 1.0}}, "price"),
        ({"input_len": {"mean": 10}}, "input_len.cv"),
        ({"seed": 0.5}, "seed"),
        ({"simulate": "no"}, "simulate"),
        ({"memory_fraction": 1.01}, "memory_fraction"),
    ],
)
def test_a_wrong_plan_is_named(client: TestClient, change: dict[str, Any], field: str) -> None:
    answer = client.post("/v1/plan", json={**LOAD, **change})
    assert answer.status_code == 422, answer.text
    assert field in {problem["field"] for problem in answer.json()["detail"]}


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/kv", "/v1/plan", "/v1/fit", "/v1/grade"])
@pytest.mark.parametrize(
    "text",
    [
        "", "{", "null", "[]", "NaN", '{"model": NaN}', '{"model": 1e999}', "[" * 100_000,
        '{"a":' * 50_000, "\x00", '"\\ud800"', '{"model": "\\ud800", "gpu": "\\u0000"}',
    ],
)  # fmt: skip
def test_bodies_that_are_none(client: TestClient, path: str, text: str) -> None:
    answer = post(client, path, text)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/predict", "/v1/plan", "/v1/fit"])
@pytest.mark.parametrize(
    "text", [b'{"model": "\xff"}', b'{"model": "\\ud800"}', b'{"runs": [{"model": "\\ud800"}]}']
)
def test_texts_that_are_none(client: TestClient, path: str, text: bytes) -> None:
    answer = post(client, path, text)
    assert answer.status_code == 422, answer.text
    assert "codec" not in answer.text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"input_len": 1e7}, "input_len"),
        ({"rate": None, "input_len": None, "output_len": None,
          "trace": {"arrival_s": [0], "prompt_tokens": [1e7], "output_tokens": [9]}}, "trace"),
        ({"gpu": {"name": "x", "memory_bytes": 8e10, "bandwidth_bytes_per_s": 2e12,
                  "bf16_flops_per_s": 1e15}}, "price"),
    ],
)  # fmt: skip
def test_what_names_no_field_is_given_one(
    client: TestClient, change: dict[str, Any], field: str
) -> None:
    answer = client.post("/v1/plan", json={**LOAD, **change})
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["field"] == field


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "9" * 5000])
def test_numbers_that_are_none(client: TestClient, number: str) -> None:
    text = json.dumps({**STEP, "batch_size": "X"}).replace('"X"', number)
    assert post(client, "/v1/predict", text).status_code == 422


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd", "/etc/passwd", "C:\\x.toml", "file:///etc/passwd", "~/.ssh/id_rsa",
        "config.json", "a.toml", "\x00", "%2e%2e%2f", "meta-llama/None", "x" * 200,
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["model", "gpu"])
def test_no_name_is_a_path(client: TestClient, name: str, field: str) -> None:
    answer = client.post("/v1/predict", json={**STEP, field: name})
    assert answer.status_code == 422
    assert [problem["field"] for problem in answer.json()["detail"]] == [field]


def test_a_file_beside_the_service_is_not_read(client: TestClient, tmp_path: Path) -> None:
    gpu = tmp_path / "mine.toml"
    gpu.write_text("memory_bytes = 8e10\nbandwidth_bytes_per_s = 2e12\n", encoding="utf-8")
    model = tmp_path / "config.json"
    model.write_text('{"model_type": "llama"}', encoding="utf-8")
    for field, path in (("gpu", gpu), ("model", model), ("model", tmp_path)):
        answer = client.post("/v1/kv", json={**{"model": "llama-3-8b", "context_len": 9},
                                             field: str(path)})  # fmt: skip
        assert answer.status_code == 422
        assert "memory" not in answer.text


def test_names_are_not_sent_back_as_markup(client: TestClient) -> None:
    answer = client.post("/v1/predict", json={**STEP, "model": "<script>alert(1)</script>"})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_long_body_is_refused_before_it_is_read(client: TestClient) -> None:
    answer = post(client, "/v1/predict", b" " * (5 << 20))
    assert answer.status_code == 413
    assert "4 MiB" in answer.json()["detail"][0]["expected"]


def test_a_long_body_without_a_length_is_refused(client: TestClient) -> None:
    def endless() -> Any:
        for _ in range(200):
            yield b" " * 65_536

    answer = client.post("/v1/kv", content=endless(), headers={"content-type": "application/json"})
    assert answer.status_code == 413


def test_packed_bodies_are_refused(client: TestClient) -> None:
    assert post(client, "/v1/kv", "x", **{"content-encoding": "gzip"}).status_code == 415


def test_pages_of_other_sites_cannot_post(client: TestClient) -> None:
    answer = client.post("/v1/predict", json=STEP, headers={"sec-fetch-site": "cross-site"})
    assert answer.status_code == 403


def test_every_answer_has_the_security_headers(client: TestClient) -> None:
    for path in ("/", "/lab", "/healthz", "/v1/models", "/nowhere", "/static/service.css"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize(
    "path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"]
)
def test_static_files_are_only_those(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_a_job_that_takes_too_long_is_stopped_and_the_next_one_answered() -> None:
    settings = Settings(jobs=1, plan_timeout_s=0.02)
    with TestClient(create_app(settings), raise_server_exceptions=False) as slow:
        answer = slow.post("/v1/plan", json={**LOAD, "gpu": None})
        assert answer.status_code == 504
        assert "0.02 s" in answer.json()["detail"][0]["message"]
        assert slow.post("/v1/predict", json=STEP).status_code == 200


def test_more_jobs_than_may_wait_are_told_to_come_back() -> None:
    with TestClient(create_app(Settings(jobs=1, waiting=0)), raise_server_exceptions=False) as full:
        answer = full.post("/v1/plan", json=LOAD)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "2"


def test_behind_a_prefix_with_and_without_it() -> None:
    with TestClient(create_app(Settings(jobs=1, prefix="/planner"))) as behind:
        for path in ("/planner/healthz", "/healthz", "/planner/v1/gpus", "/planner/lab"):
            assert behind.get(path).status_code == 200, path
        page = behind.get("/planner/").text
        assert 'href="/planner/static/' in page
        assert 'href="/static/' not in page
        assert behind.get("/planner/static/service.css").status_code == 200


def test_a_body_that_comes_too_slowly_is_refused() -> None:
    """The application is asked as a server would, with a body that never ends."""
    app = create_app(Settings(jobs=1, body_timeout_s=0.05))
    said: list[Any] = []

    async def receive() -> dict[str, Any]:
        if said:
            return {"type": "http.disconnect"}
        await asyncio.sleep(30)
        return {"type": "http.request", "body": b"", "more_body": True}

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": "/v1/kv", "raw_path": b"/v1/kv", "query_string": b"",
        "root_path": "", "headers": [(b"content-type", b"application/json")],
        "server": ("localhost", 80), "client": ("localhost", 1),
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    assert said[0]["status"] == 408


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"rate": 0}, "a number greater than 0"),
        ({"memory_fraction": 2}, "a number of at most 1"),
        ({"model": "x" * 201}, "a text of at most 200 characters"),
        ({"gpu": ["a10"] * 17}, "a list of at most 16 items"),
        ({"seed": 1.5}, "a whole number"),
        ({"simulate": 1}, "true or false"),
    ],
)
def test_expectations_read_as_words(
    client: TestClient, change: dict[str, Any], expected: str
) -> None:
    answer = client.post("/v1/plan", json={**LOAD, **change})
    assert expected in answer.json()["detail"][0]["expected"]


SAID = [
    ("/v1/plan", LOAD, {"rate": None}),
    ("/v1/plan", LOAD, {"input_len": None}),
    ("/v1/plan", LOAD, {"output_len": None}),
    ("/v1/plan", LOAD, {"input_len": 0.5}),
    ("/v1/plan", LOAD, {"input_len": {"mean": 10, "cv": 99}}),
    ("/v1/plan", LOAD, {"price": {"h100-sxm": 0}}),
    ("/v1/plan", LOAD, {"price": {"zz": 1}}),
    ("/v1/plan", LOAD, {"gpu": "zz"}),
    ("/v1/plan", LOAD, {"gpu": {}}),
    ("/v1/plan", LOAD, {"model": "zz"}),
    ("/v1/plan", LOAD, {"weight_dtype": "zz"}),
    ("/v1/plan", LOAD, {"date": "soon"}),
    ("/v1/plan", LOAD, {"colour": 1}),
    ("/v1/plan", LOAD, {"calibration": {}}),
    ("/v1/predict", STEP, {"tp": 3}),
    ("/v1/predict", STEP, {"kv_dtype": "fp8_ds_mla"}),
    ("/v1/predict", STEP, {"batch_size": []}),
    ("/v1/fit", {}, {}),
    ("/v1/fit", {}, {"runs": []}),
    ("/v1/fit", {}, {"runs": [{"model": "x", "weight_dtype": "zz"}]}),
    ("/v1/grade", {}, {"runs": [{"model": "x"}], "test": [{"model": "x"}], "calibration": {}}),
    ("/v1/grade", {}, {"runs": [{"model": "x"}], "estimators": ["zz"]}),
]


@pytest.mark.parametrize(("path", "body", "change"), SAID)
def test_what_is_wrong_is_said_once_and_for_a_client(
    client: TestClient, path: str, body: dict[str, Any], change: dict[str, Any]
) -> None:
    answer = client.post(path, json={**body, **change, **({"simulate": False} if body is LOAD
                                                          else {})})  # fmt: skip
    assert answer.status_code == 422
    for one in answer.json()["detail"]:
        message, name = one["message"], one["field"]
        assert not re.match(rf"{re.escape(name)}: (expected )?{re.escape(name)}\b", message), (
            message
        )
        assert message.count("zz") <= 1
        assert not one["expected"].startswith("Got ")
        assert not re.search(r"expected no |after validation|\\d|--[a-z]|TOML|`capmodel", message)


def test_the_length_that_is_missing_is_the_field(client: TestClient) -> None:
    answer = client.post("/v1/plan", json={**LOAD, "output_len": None})
    assert answer.json()["detail"][0]["field"] == "output_len"


@pytest.mark.parametrize("path", ["/", "/healthz", "/lab", "/v1/gpus", "/static/service.css"])
def test_head_is_answered_where_get_is(client: TestClient, path: str) -> None:
    assert client.head(path).status_code == 200
