"""`capmodel catalog`: what is known by name, searched, with one row a model or GPU."""

import json

import pytest

from capmodel.cli import main
from capmodel.gpus import gpu_names, load_gpu
from capmodel.kvcache import kv_bytes_per_token
from capmodel.shapes import load_shape, shape_names
from capmodel.weights import parameter_count


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["catalog", *arguments])
        out = capsys.readouterr()
        return end.value.code, out.out, out.err

    return call


def test_every_model_and_gpu_is_a_row_with_the_package_s_own_figures(run) -> None:
    rows = json.loads(run("models", "--json")[1])
    assert [row["name"] for row in rows] == list(shape_names())
    for row in rows:
        shape = load_shape(row["name"])
        assert row["parameters"] == parameter_count(shape)
        assert row["kv_bytes_per_token"] == kv_bytes_per_token(shape)
        assert row["attention"], row["name"]
        assert row["source"], row["name"]
    rows = json.loads(run("gpus", "--json")[1])
    assert [row["name"] for row in rows] == gpu_names()
    for row in rows:
        assert row["memory_bytes"] == load_gpu(row["name"]).memory_bytes
        assert row["source"], row["name"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("models", "llama-3-70b"), ("70,553,706,496", "GQA 64/8", "327,680")),
        (("models", "gpt-oss-120b"), ("window 128 (18 of 36 layers)", "73,728", "MoE")),
        (("models", "deepseek-v3"), ("MLA latent", "70,272")),
        (("gpus", "h100"), ("80 GB", "3.35 TB/s", "989 TFLOP/s", "read as the 80 GB SXM part")),
    ],
)
def test_one_of_a_name_is_shown_whole(run, arguments, said) -> None:
    code, out, _ = run(*arguments)
    assert code == 0
    assert not [text for text in said if text not in out]


def test_all_words_must_occur_and_none_found_is_exit_code_1(run) -> None:
    code, out, _ = run("models", "fp8 qwen3")
    assert code == 0
    assert "qwen3-8b-fp8" in out
    assert "qwen3-4b" not in out
    code, out, _ = run("models", "no\nsuch")
    assert code == 1
    assert len(out.splitlines()) == 1
    assert run("planets")[0] == 2


def test_entries_of_one_s_own_are_in_it(run, tmp_path, monkeypatch) -> None:
    (tmp_path / "mine.toml").write_text('memory_bytes = 48e9\nname = "my\\ncard"\n')
    monkeypatch.setenv("CAPMODEL_CATALOG", str(tmp_path))
    (row,) = json.loads(run("gpus", "my\\ncard", "--json")[1])
    assert (row["name"], row["memory_bytes"]) == ("my\\ncard", 48e9)


def test_an_unknown_model_names_the_nearest_and_the_catalogue(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["predict", "--model", "llama-3-7b", "--gpu", "h100"])
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert "llama-3-70b" in error
    assert "capmodel catalog models" in error
    assert len(error.splitlines()) == 1


def test_too_little_memory_is_one_line(capsys, monkeypatch) -> None:
    import capmodel.prediction

    def full(*_arguments, **_more):
        raise MemoryError

    monkeypatch.setattr(capmodel.prediction, "predict", full)
    with pytest.raises(SystemExit) as end:
        main(["predict", "--model", "llama-3-8b", "--gpu", "h100"])
    error = capsys.readouterr().err
    assert end.value.code == 2
    assert "a machine with more memory" in error
    assert len(error.splitlines()) == 1
