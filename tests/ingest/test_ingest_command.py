"""capmodel ingest: what it prints, writes and returns; large files chunk by chunk."""

import errno
import json
import os
import re
import signal
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.exceptions import Abort
from click.testing import CliRunner

from capmodel.cli.ingest import command
from capmodel.cli.profile import command as profile
from capmodel.datasets import make_runs
from capmodel.ingest import Given, large, read_runs, reading, writing
from capmodel.quality import take_in

FACTS = {"model": "llama-3-8b", "gpu": "h100-sxm", "tp": 1,
         "weight_dtype": "bf16", "kv_dtype": "bf16"}  # fmt: skip


def run(*arguments: str | Path) -> tuple[int, dict[str, object]]:
    result = CliRunner().invoke(command, [*map(str, arguments), "--json"], standalone_mode=False)
    if result.exception:
        raise result.exception
    return int(result.return_value), json.loads(result.stdout)


def test_every_row_is_accounted_for(formats: Path, tmp_path: Path) -> None:
    out = tmp_path / "runs.parquet"
    code, answer = run(formats / "aiconfigurator.csv", formats / "argonne.csv", "-o", out)
    rows = answer["rows"]
    assert code == 0
    assert rows["read"] == 7 + 3
    assert rows["read"] + rows["made"] == rows["used"] + sum(rows["set_aside"].values())
    assert rows["flagged"]["kv_dtype_assumed"] == 4
    assert answer["written"] == [str(out), str(tmp_path / "runs_set_aside.csv")]
    assert len(read_runs(out)) == rows["used"]
    aside = pd.read_csv(tmp_path / "runs_set_aside.csv")
    assert len(aside) == sum(rows["set_aside"].values())
    assert aside["reason"].notna().all()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.parquet",
                                                               "runs_set_aside.csv"]  # fmt: skip


def test_differenced_runs_are_counted_as_made(formats: Path) -> None:
    code, answer = run(formats / "vllm_latency_out128.json", formats / "vllm_latency_out256.json")
    assert code == 0
    assert answer["rows"]["read"] == 2
    assert answer["rows"]["made"] == 1
    assert answer["rows"]["set_aside"] == {"differenced": 2}


def test_a_refused_file_is_exit_code_one_and_the_others_are_read(formats: Path) -> None:
    code, answer = run(formats / "argonne.csv", formats / "aiperf.json")
    assert code == 1
    assert [file["status"] for file in answer["files"]] == ["read", "refused"]
    assert "--gpu --engine --weight-dtype --kv-dtype" in answer["files"][1]["reason"]
    assert answer["rows"]["used"] == 3


def test_a_file_in_milliseconds_is_set_aside_whole(formats: Path, tmp_path: Path) -> None:
    path = tmp_path / "ms.csv"
    runs = make_runs(50, seed=0).drop(columns="throughput_tok_s")
    runs["step_time_s"] *= 1000
    runs.to_csv(path, index=False)
    code, answer = run(formats / "argonne.csv", path)
    assert code == 1
    assert answer["rows"]["set_aside"] == {"wrong_unit": 50}
    assert answer["rows"]["used"] == 3


def test_an_unknown_model_is_set_aside_with_the_nearest_names(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    header = "engine,model,gpu,weight_dtype,kv_dtype,batch_size,context_len,step_time_s\n"
    names = [("llama-3.1-8b", "h100"), ("lama-3-8x", "h100"), ("llama-3.1-8b", "h1000")]
    rows = [f"vllm,{model},{gpu},bf16,bf16,8,1000,0.01" for model, gpu in names]
    path.write_text(header + "\n".join(rows) + "\n")
    out = tmp_path / "out.csv"
    code, answer = run(path, "-o", out)
    assert code == 0
    assert answer["rows"]["set_aside"] == {"unknown_model": 1, "unknown_gpu": 1}
    reasons = pd.read_csv(tmp_path / "out_set_aside.csv")["reason"]
    assert "llama-3-8b" in reasons.iloc[0]


OWN = "engine,model,gpu,weight_dtype,kv_dtype,batch_size,context_len,step_time_s\n"


def test_a_file_without_a_usable_row_is_exit_code_one_and_says_why(
    formats: Path, tmp_path: Path
) -> None:
    path = tmp_path / "pp.json"
    records = json.loads((formats / "llama_bench.json").read_text())
    path.write_text(json.dumps([{**record, "n_gen": 0, "n_prompt": 512} for record in records]))
    out = tmp_path / "out.parquet"
    result = CliRunner().invoke(command, [str(path), "--gpu", "h100", "-o", str(out)],
                                standalone_mode=False)  # fmt: skip
    assert result.return_value == 1
    assert "no row can be used" in result.stderr
    assert f"{len(records)} prefill_only" in result.stderr
    assert "a prompt-processing test holds no decode step" in result.stdout
    assert not out.exists()
    assert len(pd.read_csv(tmp_path / "out_set_aside.csv")) == len(records)


def test_every_rule_that_hit_is_explained(formats: Path) -> None:
    _, answer = run(formats / "aiconfigurator.csv", formats / "argonne.csv")
    hit = {*answer["rows"]["set_aside"], *answer["rows"]["flagged"]}
    assert set(answer["rules"]) == hit
    assert "launch scripts" in answer["rules"]["kv_dtype_assumed"]


def test_an_engine_with_a_typo_is_a_doubt_with_the_nearest_name(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN + "vlm,llama-3.1-8b,h100,bf16,bf16,8,1000,0.01\n"
                    "vllm,llama-3.1-8b,h100,bf16,bf16,8,1000,0.01\n")  # fmt: skip
    code, answer = run(path)
    assert code == 0
    assert answer["rows"]["flagged"]["unknown_engine"] == 1
    ((doubt, rows),) = answer["doubts"].items()
    assert "did you mean vllm" in doubt
    assert rows == 1
    printed = CliRunner().invoke(command, [str(path)], standalone_mode=False).stdout
    assert f"doubt: {doubt} (1 row)" in printed


def test_missing_facts_are_all_named(formats: Path) -> None:
    _, answer = run(formats / "aiperf.json")
    assert (
        "gpu, engine, weight_dtype, kv_dtype: the file does not say them"
        in (answer["files"][0]["reason"])
    )


def test_nothing_that_is_read_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(OWN + "vllm,llama-3.1-8b,h100,bf16,bf16,8,1000,0.01\n")
    before = path.read_text()
    with pytest.raises(ValueError, match="a file to read"):
        run(path, "-o", path)
    assert path.read_text() == before
    for _ in range(2):  # what the first call wrote into the folder is not read by the second
        _, answer = run(tmp_path, "-o", tmp_path / "out.csv")
        assert answer["rows"]["read"] == 1


@pytest.mark.parametrize("columns", ["40", "80", ""])
def test_no_printed_value_is_cut(
    formats: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    path = formats / "argonne.csv"
    printed = CliRunner().invoke(command, [str(path)], standalone_mode=False).stdout
    assert "\u2026" not in printed
    assert str(path) in printed
    profiled = CliRunner().invoke(profile, [str(path)], standalone_mode=False).stdout
    assert "\u2026" not in profiled
    for words in ("a100-40gb-sxm", "max-1550", "arithmetic_intensity"):
        assert words in profiled


def test_names_are_not_read_as_markup(tmp_path: Path) -> None:
    path = tmp_path / "runs[bold].csv"
    path.write_text(OWN + "[/red]x,llama-3.1-8b,h100,bf16,bf16,8,1000,0.01\n")
    printed = CliRunner().invoke(command, [str(path)], standalone_mode=False)
    assert printed.exception is None
    assert "runs[bold].csv" in printed.stdout
    profiled = CliRunner().invoke(profile, [str(path)], standalone_mode=False)
    assert profiled.exception is None
    assert "[/red]x" in profiled.stdout


def test_printed_tables(formats: Path) -> None:
    result = CliRunner().invoke(command, [str(formats / "argonne.csv")], standalone_mode=False)
    for words in ("argonne", "read", "used", "set aside"):
        assert words in result.stdout


def test_out_that_cannot_be(formats: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in .parquet or .csv"):
        run(formats / "argonne.csv", "-o", tmp_path / "runs.xlsx")
    with pytest.raises(ValueError, match="make it first"):
        run(formats / "argonne.csv", "-o", tmp_path / "gone" / "runs.csv")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few rows take the way of files of gigabytes."""
    monkeypatch.setattr(large, "LARGE_BYTES", 2000)
    monkeypatch.setattr(large, "_BLOCK_BYTES", 20_000)
    monkeypatch.setattr(reading, "CHUNK", 100)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["runs.csv", "runs.parquet"])
def test_large_tables_give_what_small_ones_give(tmp_path: Path, name: str) -> None:
    runs = make_runs(500, seed=3)
    path, out = tmp_path / name, tmp_path / "out.parquet"
    runs.to_csv(path, index=False) if name.endswith("csv") else runs.to_parquet(path)
    code, answer = run(path, "-o", out)
    rows = answer["rows"]
    assert code == 0
    assert rows["read"] == 500 == rows["used"] + sum(rows["set_aside"].values())
    written = read_runs(out).set_index("run_id")
    original = runs.set_index("run_id").loc[written.index]
    assert (written["step_time_s"] - original["step_time_s"]).abs().max() < 1e-15
    assert (written["n_params"] == original["n_params"]).all()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("name", ["runs.csv", "runs.parquet", "sglang.jsonl"])
def test_the_bar_of_a_large_file_goes_as_its_rows_do(
    formats: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    if name == "runs.csv":
        make_runs(1000, seed=3).to_csv(path, index=False)
    elif name == "runs.parquet":
        make_runs(1000, seed=3).to_parquet(path)
    else:
        line = (formats / "sglang_serving.jsonl").read_text().splitlines()[0]
        path.write_text(f"{line}\n" * 1000)
    steps: list[int] = []
    facts = {} if name.startswith("runs") else FACTS
    take_in([path], given=Given(facts), progress=steps.append)
    assert sum(steps) == path.stat().st_size
    assert max(steps) < 0.25 * sum(steps)  # a hundred rows of a thousand, or two blocks


@pytest.mark.usefixtures("small_chunks")
def test_names_of_runs_are_unique_over_large_files(tmp_path: Path) -> None:
    runs, out = make_runs(500, seed=3), tmp_path / "out.parquet"
    other = make_runs(500, seed=4).assign(run_id=runs["run_id"])
    nameless = make_runs(500, seed=5).assign(run_id="")
    for name, table in (("a", runs), ("b", other), ("c", nameless)):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    code, answer = run(tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "c.csv", "-o", out)
    assert code == 0
    written = read_runs(out)["run_id"]  # refuses names that occur twice
    assert len(written) == answer["rows"]["used"] > 1400
    first = runs["run_id"].iloc[0]
    assert {first, f"b:{first}", "c-1"} <= set(written)


@pytest.mark.usefixtures("small_chunks")
def test_a_name_twice_in_a_large_file_is_named(tmp_path: Path) -> None:
    runs = make_runs(500, seed=3)
    runs.loc[450, "run_id"] = runs.loc[10, "run_id"]
    runs.to_csv(tmp_path / "a.csv", index=False)
    make_runs(500, seed=3).to_csv(tmp_path / "b.csv", index=False)
    code, answer = run(tmp_path / "a.csv", tmp_path / "b.csv")
    assert code == 1
    assert [file["status"] for file in answer["files"]] == ["refused", "read"]
    assert (
        f"more than once; leave run_id out, and rows are numbered (got '{runs.loc[10, 'run_id']}"
        in (answer["files"][0]["reason"])
    )


@pytest.mark.parametrize("size", [2000, 10**9])
def test_columns_of_their_own_survive_whatever_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(large, "LARGE_BYTES", size)
    runs = make_runs(40, seed=3).assign(
        day=pd.Timestamp("2026-01-02"), note=[["a", "b"]] * 40, lucky=True
    )
    path, out = tmp_path / "runs.parquet", tmp_path / "out.parquet"
    runs.to_parquet(path)
    _, answer = run(path, "-o", out)
    assert answer["rows"]["used"] > 30
    written = read_runs(out)
    assert written["day"].astype(str).str.startswith("2026-01-02").all()
    assert written["note"].str.contains("b").all()
    assert written["lucky"].astype(bool).all()


def test_a_column_of_words_and_huge_numbers_is_written_as_text(tmp_path: Path) -> None:
    runs = make_runs(20, seed=3)
    path, out = tmp_path / "runs.csv", tmp_path / "out.parquet"
    runs.assign(note=["x", 2**70] * 10).to_csv(path, index=False)
    run(path, "-o", out)
    assert set(read_runs(out)["note"].astype(str)) == {"x", str(2**70)}
    runs.assign(note=[1, 2**70] * 10).to_csv(path, index=False)
    run(path, "-o", out)
    assert str(2**70) in set(read_runs(out)["note"].astype(str))


@pytest.mark.usefixtures("small_chunks")
def test_large_json_lines_number_their_rows_through(formats: Path, tmp_path: Path) -> None:
    line = (formats / "sglang_serving.jsonl").read_text().splitlines()[0]
    path, out = tmp_path / "many.jsonl", tmp_path / "out.parquet"
    records = [json.loads(line) | {"mean_tpot_ms": 10.0 + i / 997} for i in range(250)]
    path.write_text("\n".join(map(json.dumps, records)))
    facts = ["--gpu", "h100", "--model", "llama-3.1-8b", "--weight-dtype", "bf16", "--kv-dtype"]
    code, answer = run(path, "-o", out, *facts, "bf16")
    assert code == 0
    assert answer["rows"]["read"] == 250
    assert read_runs(out)["run_id"].iloc[-1] == "many-250"


@pytest.mark.usefixtures("small_chunks")
def test_large_table_with_a_bad_row_leaves_nothing_behind(tmp_path: Path) -> None:
    runs = make_runs(500, seed=3).astype({"batch_size": object})
    runs.loc[420, "batch_size"] = "many"
    path = tmp_path / "runs.csv"
    runs.to_csv(path, index=False)
    code, answer = run(path, "-o", tmp_path / "out.parquet")
    assert code == 1
    assert "'many'" in answer["files"][0]["reason"]
    assert answer["rows"]["read"] == 0
    assert answer["written"] == []
    assert [item.name for item in tmp_path.iterdir()] == ["runs.csv"]


@pytest.mark.usefixtures("small_chunks")
def test_a_large_batch_keeps_its_good_files(formats: Path, tmp_path: Path) -> None:
    good = make_runs(500, seed=3)
    good.to_csv(tmp_path / "good.csv", index=False)
    (tmp_path / "bad.csv").write_text((tmp_path / "good.csv").read_text()[:-200] + ",x,x")
    code, answer = run(tmp_path / "*.csv", formats / "argonne.csv", "-o", tmp_path / "out.parquet")
    assert code == 1
    assert [file["status"] for file in answer["files"]] == ["refused", "read", "read"]
    rows = answer["rows"]
    assert rows["read"] == 503 == rows["used"] + sum(rows["set_aside"].values())
    assert len(read_runs(tmp_path / "out.parquet")) == rows["used"]


def test_names_of_no_catalogue_are_told_with_their_remedy(tmp_path: Path) -> None:
    runs = make_runs(n=4, seed=1)[["engine", "weight_dtype", "kv_dtype", "batch_size",
                                   "context_len", "step_time_s"]]  # fmt: skip
    runs = runs.assign(
        model=["our-llama", "our-llama", "llama-3-8b", "llama-3-8b"],
        gpu=["h100-sxm", "h100-sxm", "rtx9999", "rtx9999"],
    )
    path = tmp_path / "runs.csv"
    runs.to_csv(path, index=False)
    _, answer = run(path)
    model, gpu = sorted(answer["doubts"], reverse=True)
    assert re.search("'our-llama'.*; give --model, or translate the name", model)
    assert re.search("'rtx9999'.*; give --gpu, or translate the name", gpu)
    assert set(answer["doubts"].values()) == {2}
    assert answer["rows"]["set_aside"] == {"unknown_model": 2, "unknown_gpu": 2}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_full_disk_names_the_file_and_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, chunked: bool
) -> None:
    if chunked and ending == "csv":
        pytest.skip("large inputs are written as Parquet")
    path = tmp_path / "in.csv"
    make_runs(n=5, seed=1).to_csv(path, index=False)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "Error writing bytes to file. Detail: [errno 28]")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", full)
    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    if chunked:
        monkeypatch.setattr(large, "LARGE_BYTES", 1)
    with pytest.raises(OSError, match=r"out\.\w+, but it cannot be written: No space left"):
        run(path, "-o", tmp_path / f"out.{ending}")
    assert [found.name for found in tmp_path.iterdir()] == ["in.csv"]


def test_a_sigterm_leaves_no_half_written_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "in.csv"
    make_runs(n=5, seed=1).to_csv(path, index=False)
    monkeypatch.setattr(large, "LARGE_BYTES", 1)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(writing.Part, "write", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(Abort):
        run(path, "-o", tmp_path / "out.parquet")
    assert [found.name for found in tmp_path.iterdir()] == ["in.csv"]
    assert signal.getsignal(signal.SIGTERM) is before
