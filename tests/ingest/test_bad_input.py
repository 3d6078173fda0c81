"""Bad files: the file, the place and the remedy are named; the good files of a batch are read."""

import json
from pathlib import Path

import pandas as pd
import pytest

from capmodel.datasets import make_runs
from capmodel.ingest import Given, read_files, read_runs
from capmodel.runs import RunsError

FACTS = {"model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm", "weight_dtype": "bf16",
         "kv_dtype": "bf16"}  # fmt: skip
OWN = (
    "engine,model,gpu,weight_dtype,kv_dtype,batch_size,context_len,step_time_s\n"
    "vllm,llama-3.1-8b,h100,bf16,bf16,8,1000,0.01\n"
)


def message(path: Path, **facts: object) -> str:
    with pytest.raises(RunsError) as error:
        read_runs(path, given=Given({**FACTS, **facts}))
    assert str(path) in str(error.value)
    return str(error.value)


def serve(formats: Path, **changes: object) -> str:
    record = json.loads((formats / "vllm_serve.json").read_text())
    return json.dumps({**record, **changes})


def test_truncated_json_names_the_line(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text((formats / "guidellm.json").read_text()[:600])
    assert "line 6, column" in message(path)
    assert "the JSON ends early; the file was cut off" in message(path)


def test_broken_line_of_jsonl_is_named(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    lines = (formats / "sglang_serving.jsonl").read_text().splitlines()
    path.write_text("\n".join([*lines, lines[0][:200]]) + "\n")
    assert "line 3, column" in message(path)


def test_values_glued_one_after_another_are_all_read(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "glued.json"
    path.write_text(serve(formats) + serve(formats, mean_tpot_ms=40.0))
    assert list(read_runs(path)["step_time_s"]) == pytest.approx([0.03, 0.04])


def test_bare_infinity_and_nan(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "inf.json"
    path.write_text(serve(formats, max_concurrency=float("inf"), mean_ttft_ms=float("nan")))
    assert "Infinity" in path.read_text()
    row = read_runs(path).iloc[0]
    assert pd.isna(row["concurrency"])
    path.write_text(serve(formats, mean_tpot_ms=float("inf")))
    assert "must be finite" in message(path)


def test_numbers_as_text_and_with_thousands(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "text.json"
    path.write_text(serve(formats, mean_tpot_ms="30.0\t", total_input_tokens="204,800"))
    row = read_runs(path).iloc[0]
    assert (row["step_time_s"], row["input_len"]) == (pytest.approx(0.03), 1024)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("30.0ms", "'ms' is glued to it"),
        ("0.01230.0145", "two numbers run together"),
        ("30,5", "without thousands separators"),
        ("fast", "no number"),
        ([30.0], "it is a list"),
        (True, "it is a bool"),
        (10**400, "too large"),
        (-30.0, "must be 0 or more s"),
    ],
)
def test_unreadable_number_names_row_field_and_value(
    formats: Path, tmp_path: Path, value: object, reason: str
) -> None:
    path = tmp_path / "bad.json"
    path.write_text(serve(formats) + "\n" + serve(formats, mean_ttft_ms=value))
    text = message(path)
    assert reason in text
    assert "row 2, " in text


def test_unknown_unit_is_named(formats: Path, tmp_path: Path) -> None:
    record = json.loads((formats / "aiperf.json").read_text())
    record["inter_token_latency"]["unit"] = "fortnights"
    path = tmp_path / "unit.json"
    path.write_text(json.dumps(record))
    assert "inter_token_latency.avg: its unit 'fortnights' is none of s, sec" in message(path)


def test_unknown_version_of_a_format(formats: Path, tmp_path: Path) -> None:
    record = json.loads((formats / "llmd_report.json").read_text()) | {"version": "0.9"}
    path = tmp_path / "new.json"
    path.write_text(json.dumps(record))
    assert "version '0.9' of llm-d's report, but expected one of 0.2, 0.2.1" in message(path)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_encodings(formats: Path, tmp_path: Path, encoding: str) -> None:
    for name, text in (("a.json", serve(formats)), ("b.csv", OWN)):
        path = tmp_path / name
        path.write_text(text, encoding=encoding)
        assert len(read_runs(path)) == 1


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiters_and_padding(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN.replace(",", f"{delimiter} "))
    assert read_runs(path)["step_time_s"].iloc[0] == 0.01


def test_semicolons_with_decimal_commas(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN.replace(",", ";").replace("0.01", "0,01"))
    assert read_runs(path)["step_time_s"].iloc[0] == 0.01


def test_two_names_for_one_gpu_and_one_model(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    other = OWN.splitlines()[1].replace(
        "llama-3.1-8b,h100", "meta-llama/Meta-Llama-3.1-8B,H100-SXM"
    )
    path.write_text(OWN + other + "\n")
    runs = read_runs(path)
    assert set(runs["gpu"]) == {"h100-sxm"}
    assert set(runs["model"]) == {"llama-3.1-8b"}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is empty"),
        (b"  \n\t\n", "it is empty"),
        (b"\x7fELF\x02\x01\x00\x00\x00\x00\x00\x00", "it is binary"),
        (b"PAR1 but no more", "no readable Parquet"),
        (b"[]", "no records"),
        (b"[1, 2]", "holds a int, but expected objects"),
        (b'{"a": 1}', "no benchmark that is known; its fields are a"),
        (b"dear diary,today\n1,2\n", "no benchmark that is known"),
        (b"# notes\n\nnothing to see\n", "no benchmark that is known"),
    ],
)
def test_what_is_no_benchmark(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file.dat"
    path.write_bytes(content)
    assert reason in message(path)


def test_missing_file_and_folder_without_files(tmp_path: Path) -> None:
    assert "it is not there" in message(tmp_path / "gone.json")
    with pytest.raises(ValueError, match="no file"):
        read_files([tmp_path])


def test_all_failed_and_empty_runs_are_set_aside_with_the_reason(
    formats: Path, tmp_path: Path
) -> None:
    path = tmp_path / "failed.json"
    path.write_text(serve(formats, completed=0, total_output_tokens=0, mean_tpot_ms=0.0))
    found = read_files([path])
    assert list(found.aside["rule"]) == ["all_failed"]
    with pytest.raises(RunsError, match="no row holds a decode step"):
        read_runs(path)
    empty = tmp_path / "empty.json"
    empty.write_text('{"metadata": {}, "args": {}, "benchmarks": []}')
    assert "the benchmark ended before it wrote any" in message(empty)


def test_missing_facts_are_asked_for_by_name(formats: Path) -> None:
    with pytest.raises(RunsError, match=r"give --gpu --engine --weight-dtype --kv-dtype, or write"):
        read_runs(formats / "aiperf.json")


def test_facts_from_sidecars_flags_first(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text((formats / "aiperf.json").read_text())
    (tmp_path / "capmodel.toml").write_text('gpu = "h100"\nengine = "vllm"\nweight_dtype = "fp8"\n')
    (tmp_path / "run.json.toml").write_text('weight_dtype = "bf16"\nkv_dtype = "fp8"\ntp = 2\n')
    row = read_runs(path).iloc[0]
    assert (row["gpu"], row["weight_dtype"], row["kv_dtype"], row["tp"]) == ("h100-sxm", "bf16",
                                                                           "fp8", 2)  # fmt: skip
    assert read_runs(path, given=Given({"tp": 4})).iloc[0]["tp"] == 4


def test_sidecar_translates_names_and_refuses_unknown_keys(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text((formats / "llama_bench.json").read_text())
    sidecar = tmp_path / "bench.toml"
    sidecar.write_text('gpu = "rtx-4090"\n[models]\n"llama 8B" = "llama-3.1-8b"\n')
    assert read_runs(path).iloc[0]["model"] == "llama-3.1-8b"
    sidecar.write_text('gpuu = "rtx-4090"\n')
    with pytest.raises(RunsError, match="gpuu: unknown key"):
        read_runs(path)


def test_flags_never_overwrite_what_the_file_says(formats: Path) -> None:
    runs = read_runs(formats / "argonne.csv", given=Given({"gpu": "h200", "model": "qwen3-8b"}))
    assert set(runs["gpu"]) == {"a100-40gb-sxm", "max-1550"}
    assert set(runs["model"]) == {"llama-2-7b"}


def test_good_files_of_a_batch_are_read_and_bad_ones_listed(formats: Path, tmp_path: Path) -> None:
    (tmp_path / "good.json").write_text(serve(formats))
    (tmp_path / "cut.json").write_text(serve(formats)[:100])
    (tmp_path / "notes.md").write_text("nothing")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "argonne.csv").write_text((formats / "argonne.csv").read_text())
    found = read_files([tmp_path])
    status = {Path(report.path).name: report.status for report in found.files}
    assert status == {"good.json": "read", "cut.json": "refused", "notes.md": "no benchmark",
                      "argonne.csv": "read"}  # fmt: skip
    assert len(found.runs) == 4
    assert [Path(report.path).name for report in found.refused] == ["cut.json"]
    assert found.file_of_row.str.endswith("argonne.csv").sum() == 3


def test_globs_and_repeated_names(formats: Path) -> None:
    found = read_files([str(formats / "llama_bench.*")],
                       given=Given({"model": "llama-3.1-8b", "gpu": "rtx-4090"}))  # fmt: skip
    assert [report.rows for report in found.files] == [1, 3, 3]
    assert found.runs["run_id"].is_unique
    twice = read_files([formats / "argonne.csv", formats / "." / "argonne.csv"])
    assert len(twice.files) == 1


def test_own_table_reports_every_problem_at_once(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN + "vllm,llama-3.1-8b,h100,bf16,bf16,-1,1000,0.01\n"
                    "vllm,llama-3.1-8b,h100,bf99,bf16,8,,0.01\n")  # fmt: skip
    with pytest.raises(RunsError) as error:
        read_runs(path)
    problems = error.value.problems
    assert list(problems["row"]) == [2, 3, 3]
    assert set(problems["column"]) == {"batch_size", "context_len", "weight_dtype"}


def test_own_table_round_trips_through_csv_and_parquet(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN)
    runs = read_runs(path)
    for name in ("again.csv", "again.parquet"):
        again = tmp_path / name
        runs.to_csv(again, index=False) if name.endswith("csv") else runs.to_parquet(again)
        assert read_runs(again)["step_time_s"].tolist() == runs["step_time_s"].tolist()


def test_empty_rows_below_a_spreadsheet_are_no_rows(tmp_path: Path) -> None:
    runs, path = make_runs(30, seed=3), tmp_path / "runs.csv"
    runs.to_csv(path, index=False)
    before = read_runs(path)
    path.write_text(path.read_text() + ("," * (runs.shape[1] - 1) + "\n") * 3)
    pd.testing.assert_frame_equal(read_runs(path), before)
