"""Small files are read together, and what comes out is what reading them one by one gives."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from capmodel.ingest import Given, Ingested, batches, read_files
from capmodel.quality import take_in

FACTS = Given({"model": "llama-3.1-8b", "gpu": "h100", "engine": "vllm", "weight_dtype": "bf16",
               "kv_dtype": "bf16", "batch_size": 8, "input_len": 512,
               "output_len": 128})  # fmt: skip


def grown(folder: Path, formats: Path) -> None:
    """Every format several times, some with a field less, with none left, broken or failed."""
    for path in sorted(formats.iterdir()):
        for copy in range(3):
            inside = folder / f"run{copy}"
            inside.mkdir(exist_ok=True)
            shutil.copy(path, inside / path.name)
        if path.suffix != ".json":
            continue
        read = json.loads(path.read_text())
        record = read[0] if isinstance(read, list) else read
        for number, key in enumerate(record):
            less = {name: value for name, value in record.items() if name != key}
            (folder / f"{path.stem}-{number:02d}.json").write_text(json.dumps(less))
    serve = json.loads((formats / "vllm_serve.json").read_text())
    for number, changes in enumerate(
        [
            {"max_concurrency": "inf"}, {"max_concurrency": 10**30}, {"num_prompts": 10**400},
            {"mean_tpot_ms": "30.5 "}, {"mean_tpot_ms": "30,5"}, {"completed": 0},
            {"gpu": "a100"}, {"gpu": "H100-SXM"}, {"mean_tpot_ms": True}, {"tp": None},
            {"num_prompts": -1}, {"completed": 200.5}, {"num_prompts": 2**64, "label": [1]},
            {"version": "0.9"}, {"spec_decode_acceptance_length": 3.0}, {"model_id": [["x"]]},
        ]
    ):  # fmt: skip
        (folder / f"changed-{number:02d}.json").write_text(json.dumps(serve | changes))
    (folder / "cut.json").write_text(json.dumps(serve)[:90])


def parts(found: Ingested) -> tuple[object, ...]:
    return tuple(
        (f.path, f.status, f.format, f.rows, f.kept, f.reason, f.named) for f in found.files
    )


def same(together: Ingested, alone: Ingested) -> None:
    assert parts(together) == parts(alone)
    pd.testing.assert_frame_equal(together.runs, alone.runs)
    pd.testing.assert_frame_equal(together.aside, alone.aside)
    pd.testing.assert_series_equal(together.file_of_row, alone.file_of_row)


@pytest.mark.parametrize("given", [FACTS, Given({"gpu": "h100", "kv_dtype": "bf16"})])
def test_files_read_together_are_as_read_one_by_one(
    formats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Given
) -> None:
    grown(tmp_path, formats)
    together = read_files([tmp_path], given=given)
    monkeypatch.setattr("capmodel.ingest.files.is_small", lambda document, tool: False)
    same(together, read_files([tmp_path], given=given))
    assert len({f.format for f in together.files if f.status == "read"}) >= 8
    assert {f.status for f in together.files} == {"read", "refused", "no benchmark"}


def test_a_table_is_made_once_for_many_files(
    formats: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = json.loads((formats / "vllm_serve.json").read_text())
    for number in range(64):
        changed = {"mean_tpot_ms": "fast" if number == 40 else 30.0 + number}
        (tmp_path / f"{number:02d}.json").write_text(json.dumps(record | changed))
    made: list[int] = []
    plain = batches.table_of
    monkeypatch.setattr(
        batches, "table_of", lambda rows, *more: made.append(len(rows)) or plain(rows, *more)
    )
    found = read_files([tmp_path])
    assert [Path(f.path).name for f in found.refused] == ["40.json"]
    assert len(found.runs) == 63
    assert len(made) <= 2 * 7 - 1  # one bad file of 64: halved six times
    assert found.runs["run_id"].tolist() == [f"{n:02d}-1" for n in range(64) if n != 40]


def test_one_file_in_a_wrong_unit_among_many_is_the_only_one_set_aside(
    formats: Path, tmp_path: Path
) -> None:
    record = json.loads((formats / "vllm_serve.json").read_text())
    for number in range(12):
        scale = 1e3 if number == 5 else 1.0
        changed = {
            "mean_tpot_ms": (30.0 + number) * scale, "output_throughput": 512.0 / scale,
            "max_concurrency": 16 + number,
        }  # fmt: skip
        (tmp_path / f"{number:02d}.json").write_text(json.dumps(record | changed))
    intake = take_in([tmp_path], tmp_path / "out.parquet")
    assert intake.set_aside["wrong_unit"] == 1
    aside = pd.read_csv(tmp_path / "out_set_aside.csv")
    assert aside.loc[aside["rule"] == "wrong_unit", "run_id"].tolist() == ["05-1"]
