"""Runs sent to be fitted and graded: files of tools, rows, and files that mean harm."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

import capmodel as cm

FORMATS = Path(__file__).resolve().parents[1] / "data" / "formats"
STEP = {"model": "llama-3-8b", "gpu": "h100-sxm", "batch_size": 8, "context_len": 2048}


@pytest.fixture(scope="module")
def runs() -> pd.DataFrame:
    return cm.make_runs(n=160, seed=4)


def csv_of(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False).encode()


def send(client: TestClient, path: str, file: str, content: bytes, **fields: str) -> Any:
    return client.post(path, files={"runs": (file, content)}, data=fields)


def test_a_fit_predicts_as_the_packages(client: TestClient, runs: pd.DataFrame) -> None:
    answer = send(client, "/v1/fit", "mine.csv", csv_of(runs), grade="false", name="mine")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    own = cm.fit(runs, name="mine")
    assert found["rows"]["used"] == own.n_rows
    assert found["files"][0]["name"] == "mine.csv"
    assert found["calibration_id"].startswith("mine-")
    pair = own.pairs[0]
    asked = {**STEP, "engine": pair[0], "gpu": pair[1]}
    over_http = client.post("/v1/predict", json={**asked, "calibration": found["calibration"]})
    assert over_http.json()["calibration_id"] == found["calibration_id"]
    expected = cm.predict(**asked, calibration=own)
    assert over_http.json()["step_time_s"] == pytest.approx(expected.step_time_s, rel=1e-6)


def test_a_fit_with_its_grade_card_and_figures(client: TestClient, runs: pd.DataFrame) -> None:
    answer = send(client, "/v1/fit", "mine.csv", csv_of(runs), figures="true")
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["splits"]["random"]["regressor"]["n"] == found["rows"]["used"]
    assert found["figures"]["grades"]["svg"].lstrip().startswith("<?xml")
    assert "<script" not in found["figures"]["residuals"]["svg"]
    assert found["calibration"]["intervals"] is not None


def test_rows_as_json_give_the_files_fit(client: TestClient, runs: pd.DataFrame) -> None:
    rows = json.loads(runs.to_json(orient="records", double_precision=15))
    answer = client.post("/v1/fit", json={"runs": rows, "grade": False, "name": "mine"})
    assert answer.status_code == 200, answer.text
    file = send(client, "/v1/fit", "x.csv", csv_of(runs), grade="false", name="mine").json()
    for own, other in zip(answer.json()["coefficients"], file["coefficients"], strict=True):
        assert own["value"] == pytest.approx(other["value"], rel=1e-6)


def test_grade_with_a_calibration_is_the_packages(client: TestClient, runs: pd.DataFrame) -> None:
    calibration = cm.fit(runs, name="mine")
    answer = client.post(
        "/v1/grade",
        files={
            "runs": ("mine.csv", csv_of(runs)),
            "calibration": ("mine.json", json.dumps(calibration.to_dict()).encode()),
        },
    )
    assert answer.status_code == 200, answer.text
    own = cm.grade(runs, calibration=calibration).set_index("estimator")
    for name in ("roofline", "regressor"):
        found = answer.json()["splits"]["test"][name]
        assert found["mape"] == pytest.approx(own.loc[name, "mape"], rel=1e-5)
        assert found["n"] == own.loc[name, "n"]


def test_grade_on_hidden_rows(client: TestClient, runs: pd.DataFrame) -> None:
    answer = client.post(
        "/v1/grade",
        files={"runs": ("a.csv", csv_of(runs[:100])), "test": ("b.csv", csv_of(runs[100:]))},
        data={"estimators": "nearest,roofline"},
    )
    assert answer.status_code == 200, answer.text
    assert set(answer.json()["splits"]["test"]) == {"nearest", "roofline"}


@pytest.mark.parametrize("name", sorted(path.name for path in FORMATS.iterdir()))
def test_files_of_every_tool_are_answered(client: TestClient, name: str) -> None:
    """Few rows each: a fit, or a reason that names the file and no path of this machine."""
    answer = send(client, "/v1/fit", name, (FORMATS / name).read_bytes(), grade="false")
    assert answer.status_code in (200, 422), answer.text
    assert "/upload-" not in answer.text
    assert "/dev/shm" not in answer.text
    assert "/tmp" not in answer.text
    if answer.status_code == 200:
        assert answer.json()["files"][0]["name"] == name


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("nothing.csv", b"a,b\n"),
        ("binary.csv", bytes(range(256)) * 20),
        ("packed.csv.gz", b"\x1f\x8b\x08" + b"\0" * 64),
        ("archive.zip", b"PK\x03\x04" + b"\0" * 64),
        ("short.parquet", b"PAR1" + b"\0" * 16 + b"PAR1"),
        ("deep.json", b"[" * 200_000),
        ("deep2.json", b'{"a":' * 100_000),
        ("lists.csv", b'run_id,model\n"[1, 2]","[3]"\n'),
        ("laughs.yaml", b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
            b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9))
            for i in range(9))),
        ("wide.csv", b",".join(b"c%d" % i for i in range(20_000)) + b"\n" + b"1," * 19_999 + b"1"),
        ("formula.csv", b"run_id,model,gpu\n=cmd|' /C calc'!A0,x,y\n"),
        ("nul.csv", b"run_id,model\na\x00b,c\n"),
    ],
)  # fmt: skip
def test_files_that_mean_harm_are_refused(client: TestClient, name: str, content: bytes) -> None:
    answer = send(client, "/v1/fit", name, content)
    assert answer.status_code in (413, 422), answer.text
    told = answer.json()["detail"][0]
    assert told["field"] == "runs"
    assert told["message"].count(name) <= 1
    assert "problem" not in told["message"]
    assert client.get("/healthz").status_code == 200


def test_a_parquet_bomb_is_refused_by_its_footer(client: TestClient) -> None:
    buffer = io.BytesIO()
    table = pa.table({"run_id": pa.array(np.zeros(30_000_000, dtype=np.int64))})
    pq.write_table(table, buffer, compression="zstd")
    assert len(buffer.getvalue()) < 1 << 20
    answer = send(client, "/v1/fit", "bomb.parquet", buffer.getvalue())
    assert answer.status_code == 413
    assert "rows" in answer.json()["detail"][0]["expected"]


def test_more_rows_than_allowed_are_refused(client: TestClient, runs: pd.DataFrame) -> None:
    many = pd.concat([runs] * 14, ignore_index=True)
    many["run_id"] = [f"r{i}" for i in range(len(many))]
    answer = send(client, "/v1/fit", "many.csv", csv_of(many))
    assert answer.status_code == 413
    assert "2,000 rows" in answer.json()["detail"][0]["expected"]


@pytest.mark.parametrize(
    "name", ["../../../etc/cron.d/x", "..\\x.csv", "/etc/passwd", "a\x00b", "'"]
)
def test_names_of_files_lead_nowhere(client: TestClient, runs: pd.DataFrame, name: str) -> None:
    answer = send(client, "/v1/fit", name, csv_of(runs), grade="false")
    assert answer.status_code == 200, answer.text
    assert "/" not in answer.json()["files"][0]["name"]


def test_a_script_in_a_name_stays_text(client: TestClient, runs: pd.DataFrame) -> None:
    named = runs.head(50).assign(engine="<script>alert(1)</script>")
    answer = send(client, "/v1/fit", "<img src=x onerror=alert(1)>.csv", csv_of(named),
                  figures="true")  # fmt: skip
    assert answer.status_code == 200, answer.text
    assert all("<script" not in picture["svg"] for picture in answer.json()["figures"].values())


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"seed": "x"}, "seed"),
        ({"grade": "maybe"}, "grade"),
        ({"colour": "red"}, "colour"),
        ({"name": "x" * 81}, "name"),
    ],
)
def test_a_wrong_form_field_is_named(
    client: TestClient, runs: pd.DataFrame, fields: dict[str, str], field: str
) -> None:
    answer = send(client, "/v1/fit", "a.csv", csv_of(runs), **fields)
    assert answer.status_code == 422
    assert answer.json()["detail"][0]["field"] == field


def test_forms_that_are_none(client: TestClient) -> None:
    bare = client.post("/v1/fit", content=b"--", headers={"content-type": "multipart/form-data"})
    assert bare.status_code == 422
    broken = client.post(
        "/v1/fit", content=b"--x\r\nnonsense",
        headers={"content-type": "multipart/form-data; boundary=x"},
    )  # fmt: skip
    assert broken.status_code == 422
    other = client.post("/v1/fit", content=b"a=b", headers={"content-type": "text/plain"})
    assert other.status_code == 415
    none = client.post("/v1/fit", data={"name": "x"}, files={"other": ("a.csv", b"x")})
    assert none.status_code == 422
