"""Files that are no files, and content that would hang, fill the memory or garble a message."""

import gzip
import os
import zipfile
from pathlib import Path

import pytest

from capmodel.cli import main
from capmodel.ingest import RowsLeftOut, documents, json_text, read_files, read_runs
from capmodel.ingest.paths import expand_paths
from capmodel.runs import RunsError

OWN = (
    "engine,model,gpu,weight_dtype,kv_dtype,batch_size,context_len,step_time_s\n"
    "vllm,llama-3.1-8b,h100,bf16,bf16,8,1000,0.01\n"
)


def reason(path: Path) -> str:
    """Why one file is refused, on one line."""
    report = read_files([path]).files[0]
    assert report.status != "read"
    assert report.reason.isprintable()
    return report.reason


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.csv")
    assert "a pipe or a device; save its content" in reason(tmp_path / "runs.csv")


def test_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "a.csv").symlink_to("b.csv")
    (tmp_path / "b.csv").symlink_to("a.csv")
    assert "cannot be read: Too many levels" in reason(tmp_path / "a.csv")
    (tmp_path / "here").symlink_to(tmp_path)
    assert expand_paths([tmp_path]) == []


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "gone\nfile.csv", "none*.csv"])
def test_names_the_system_does_not_take(tmp_path: Path, name: str) -> None:
    assert reason(tmp_path / name)


def test_one_file_under_several_names_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN)
    (tmp_path / "link.csv").symlink_to(path)
    names = [path, tmp_path, str(tmp_path / "*.csv"), tmp_path / "." / "runs.csv"]
    assert expand_paths(names) == [(path, True)]


def test_packed_files_say_how_to_unpack(tmp_path: Path) -> None:
    (tmp_path / "gz.csv").write_bytes(gzip.compress(OWN.encode()))
    with zipfile.ZipFile(tmp_path / "zip.csv", "w") as archive:
        archive.writestr("runs.csv", OWN)
    assert "compressed with gzip; unpack it first" in reason(tmp_path / "gz.csv")
    assert "a zip archive or a workbook; unpack it" in reason(tmp_path / "zip.csv")
    (tmp_path / "plain.csv.gz").write_text(OWN)  # the content counts, not the name
    assert len(read_runs(tmp_path / "plain.csv.gz")) == 1


def test_utf_32(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(OWN, encoding="utf-32")
    assert len(read_runs(tmp_path / "runs.csv")) == 1


def test_a_quote_left_open_is_no_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN + OWN.splitlines()[1].replace("vllm", '"vllm') + "\n" +
                    OWN.splitlines()[1].replace("vllm", '"vllm') + "\n")  # fmt: skip
    assert "is a quote left open" in reason(path)


def test_lines_and_documents_too_large_for_memory(
    tmp_path: Path, formats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_text, "WHOLE_BYTES", 2**20)
    (tmp_path / "line.json").write_text('{"a": "' + "x" * 2**21 + '"}')
    assert "a line is longer than 1 MiB" in reason(tmp_path / "line.json")
    (tmp_path / "line.csv").write_text("x" * 2**21)
    assert "a table begins with its names" in reason(tmp_path / "line.csv")
    with pytest.raises(RunsError, match="write one record a line"):
        documents.whole_text(formats / "guidellm.json", "utf-8", limit=100)


def test_a_header_of_a_hundred_thousand_columns(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(100_000)) + "\n")
    assert "its fields are c0, c1" in reason(path)


def test_rows_left_out_are_said(formats: Path, tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text((formats / "llama_bench.json").read_text())
    (tmp_path / "capmodel.toml").write_text('gpu = "h100"\nmodel = "llama-3.1-8b"\n')
    with pytest.warns(RowsLeftOut, match="rows hold no decode step and are left out: .*prefill"):
        read_runs(tmp_path / "bench.json")


@pytest.mark.parametrize("command", ["ingest", "profile", "fit", "grade"])
def test_every_command_says_in_one_line_what_is_wrong(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs\n.csv"
    path.write_text(OWN.replace("llama-3.1-8b", '"llama\n\x1b[31m"'))
    more = ["-o", str(tmp_path / "out.json")] if command == "fit" else []
    with pytest.raises(SystemExit) as ended:
        main([command, str(path), *more])
    assert ended.value.code in (1, 2)
    said = capsys.readouterr().err.splitlines()
    assert "is a quote left open" in said[0]
    assert said[0].isprintable()
    assert len(said) == (2 if command == "ingest" else 1)


def test_a_command_notes_the_rows_left_out(
    formats: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bench.json").write_text((formats / "llama_bench.json").read_text())
    (tmp_path / "capmodel.toml").write_text('gpu = "h100"\nmodel = "llama-3.1-8b"\n')
    with pytest.raises(SystemExit):
        main(["profile", str(tmp_path / "bench.json")])
    assert capsys.readouterr().err.startswith("capmodel: note: 2 of 3 rows hold no decode step")


def test_a_bad_line_of_another_kind_is_numbered(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text((formats / "sglang_serving.jsonl").read_text() + "[1]\n")
    assert "line 3: its JSON holds a int, but expected objects" in reason(path)
