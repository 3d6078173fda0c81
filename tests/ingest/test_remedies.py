"""What a reader says of a bad file is what is wrong with it, and what to do."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from capmodel.ingest import Given, files, read_files, read_runs
from capmodel.quality import take_in
from capmodel.runs import RunsError

HEAD = "engine,model,gpu,weight_dtype,kv_dtype,batch_size,context_len,step_time_s"
ROW = "vllm,llama-3.1-8b,h100,bf16,bf16,8,1000,0.01"
OWN = f"{HEAD}\n{ROW}\n"


FACTS = Given({"model": "llama-3.1-8b", "gpu": "h100", "weight_dtype": "bf16", "kv_dtype": "bf16"})


def message(path: Path, content: str | bytes, given: Given | None = None) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(RunsError) as error:
        read_runs(path, given=given)
    assert str(path) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("head", [HEAD.upper(), HEAD.title(), HEAD.replace("_", " ").title()])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_headings_are_known_in_any_case(tmp_path: Path, head: str, delimiter: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(f"{head}\n{ROW}\n".replace(",", delimiter))
    assert read_runs(path)["step_time_s"].tolist() == [0.01]


def test_headings_that_differ_only_in_case_are_refused(tmp_path: Path) -> None:
    text = message(tmp_path / "runs.csv", f"{HEAD},GPU\n{ROW},a100\n")
    assert "GPU: it means the same column as 'gpu'; keep one" in text


@pytest.mark.parametrize("heading", ["step_time_ms", "step_time_s [s]", "Step time (s)"])
def test_a_heading_like_the_missing_one_is_named(tmp_path: Path, heading: str) -> None:
    text = message(tmp_path / "runs.csv", OWN.replace("step_time_s", heading))
    assert "step_time_s: column is missing: one decode step [s]; or give throughput_tok_s; " in text
    assert f"{heading!r} is like it: if it is that, rename it and give it in s" in text


def test_a_statistic_without_its_unit_is_refused(formats: Path, tmp_path: Path) -> None:
    record = json.loads((formats / "aiperf.json").read_text())
    for unit in (None, ["ms"], ""):
        record["inter_token_latency"]["unit"] = unit
        text = message(tmp_path / "a.json", json.dumps(record))
        assert "inter_token_latency.avg: no unit stands beside it; write one of s, sec" in text


@pytest.mark.parametrize("unit", ["text", "unit", "s]"])
def test_a_unit_is_no_word_of_ours(formats: Path, tmp_path: Path, unit: str) -> None:
    record = json.loads((formats / "aiperf.json").read_text())
    record["inter_token_latency"]["unit"] = unit
    assert f"its unit {unit!r} is none of" in message(tmp_path / "a.json", json.dumps(record))


def test_a_bracket_too_many_is_no_cut_file(formats: Path, tmp_path: Path) -> None:
    text = (formats / "vllm_serve.json").read_text().strip()
    assert "no JSON: Expecting value" in message(tmp_path / "a.json", text + "]")
    assert "the JSON ends early" in message(tmp_path / "b.json", text[:-1])


@pytest.mark.parametrize("ending", ["", "]" * 100_000])
@pytest.mark.parametrize("name", ["a.json", "a.yaml"])
def test_brackets_too_deep_to_follow(tmp_path: Path, ending: str, name: str) -> None:
    start = "version: " if name == "a.yaml" else ""
    text = message(tmp_path / name, start + "[" * 100_000 + ending)
    assert "brackets are nested too deep" in text
    assert "recursion" not in text


def test_a_number_of_thousands_of_digits(tmp_path: Path) -> None:
    text = message(tmp_path / "a.json", '{"a": ' + "9" * 5000 + "}")
    assert "a number of more than 4,300 digits; mend that place" in text


def tar_of(path: Path) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        archive.add(path)
    return held.getvalue()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"7z\xbc\xaf'\x1c" + bytes(50), "7-Zip archive; unpack it"),
        (b"Rar!\x1a\x07\x00" + bytes(50), "RAR archive; unpack it"),
        (b"\x04\x22\x4d\x18" + b"abc" * 20, "compressed with lz4; unpack it"),
        (b"\x1f\x9d" + b"abc" * 20, "compressed; unpack it first (uncompress)"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500), "save the sheet as CSV"),
        (b"\x93NUMPY\x01\x00v\x00{" + bytes(50), "NumPy array; save the table as CSV"),
    ],
)
def test_an_archive_by_mistake(tmp_path: Path, content: bytes, what: str) -> None:
    assert what in message(tmp_path / "a.json", content)


def test_a_tar_by_mistake(formats: Path, tmp_path: Path) -> None:
    content = tar_of(formats / "vllm_serve.json")
    assert "tar archive; unpack it" in message(tmp_path / "a.json", content)


@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        (OWN.replace("vllm,", '"vllm,'), "a quote is left open"),
        (OWN + ROW + ",1,2\n", "quote cells that hold a ','"),
        ("My runs\n\n" + OWN, "delete what stands above the names"),
        ("# made by me\n" + OWN, "delete what stands above the names"),
    ],
)
def test_a_table_that_is_not_one(tmp_path: Path, content: str, remedy: str) -> None:
    assert remedy in message(tmp_path / "runs.csv", content)


@pytest.mark.parametrize("name", ["vllm_serve.json", "argonne.csv", "llama_bench.md"])
def test_a_file_that_goes_while_it_is_read_is_listed(
    formats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path, good = tmp_path / name, tmp_path / "good.csv"
    path.write_bytes((formats / name).read_bytes())
    good.write_text(OWN)
    plain = files.identify

    def gone(document: files.Document, format: str) -> files.Tool:
        tool = plain(document, format)
        if document.path == path:
            path.unlink()
        return tool

    monkeypatch.setattr(files, "identify", gone)
    found = read_files([path, good], given=Given({"gpu": "h100", "model": "qwen3-8b"}))
    assert [report.status for report in found.files] == ["refused", "read"]
    assert "it cannot be read: No such file or directory" in found.files[0].reason
    assert str(path) in found.files[0].reason


def test_a_row_of_a_later_chunk_is_named_by_its_place_in_the_file(
    formats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capmodel.ingest.reading.CHUNK", 4)
    monkeypatch.setattr("capmodel.ingest.batches.SMALL_BYTES", 0)
    record = json.loads((formats / "sglang_serving.jsonl").read_text().splitlines()[0])
    lines = [json.dumps(record | {"mean_tpot_ms": 10.0 + n}) for n in range(10)]
    lines[6] = json.dumps(record | {"mean_tpot_ms": "fast"})
    assert "row 7, mean_tpot_ms: no number" in message(
        tmp_path / "a.jsonl", "\n".join(lines), FACTS
    )
    header, *rows = (formats / "argonne.csv").read_text().splitlines()
    many = [rows[n % len(rows)] for n in range(11)]
    path = tmp_path / "b.csv"
    path.write_text("\n".join([header, *many]))
    assert read_runs(path)["run_id"].tolist() == [f"argonne-{n}" for n in range(1, 12)]
    many[9] = many[9].replace(many[9].split(",")[6], "slow")
    assert "row 10, Latency: no number" in message(path, "\n".join([header, *many]))


def test_what_an_earlier_call_set_aside_is_no_benchmark(tmp_path: Path, formats: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    given = Given({"gpu": "h100", "weight_dtype": "bf16", "kv_dtype": "bf16"})
    take_in([formats / "vllm_serve.json"], out / "runs.csv", given=given)
    again = take_in([out])
    assert not again.refused
    assert [report.status for report in again.files] == ["read", "no benchmark"]
    assert "earlier call set aside" in again.files[1].reason
    assert again.rows_used == 1


@pytest.mark.parametrize("name", ["", "  "])
def test_an_empty_name_is_not_the_folder_one_stands_in(name: str) -> None:
    with pytest.raises(ValueError, match="empty name"):
        read_files([name])


def test_a_sidecar_in_another_encoding_is_told_apart(tmp_path: Path, formats: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes((formats / "vllm_serve.json").read_bytes())
    (tmp_path / "run.json.toml").write_bytes('gpu = "h100"'.encode("utf-16"))
    with pytest.raises(RunsError, match="save it as UTF-8"):
        read_runs(path)
