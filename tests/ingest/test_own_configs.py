"""Runs whose model is a config.json of one's own."""

import json
from pathlib import Path

import pytest

import capmodel as cm
from capmodel.runs import RunsError

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
HEAD = "engine,gpu,model,tp,weight_dtype,kv_dtype,batch_size,context_len,step_time_s"


def folder(place: Path, **changed: object) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text(json.dumps({**CONFIG, **changed}))
    return place


def table(path: Path, *models: Path) -> Path:
    rows = [f"vllm,h100-sxm,{model},1,bf16,bf16,{b},512,0.012" for model in models for b in (1, 2)]
    path.write_text("\n".join([HEAD, *rows]) + "\n")
    return path


def test_two_models_of_one_name_are_not_merged(tmp_path: Path) -> None:
    one = folder(tmp_path / "a" / "mine")
    other = folder(tmp_path / "b" / "mine", num_hidden_layers=80)
    with pytest.raises(RunsError, match="has other layers"):
        cm.read_runs(table(tmp_path / "runs.csv", one, other))
    same = folder(tmp_path / "c" / "mine")
    assert set(cm.read_runs(table(tmp_path / "same.csv", one, same))["model"]) == {"mine"}


def test_a_config_called_like_a_catalogued_model_is_another(tmp_path: Path) -> None:
    like = cm.load_shape(folder(tmp_path / "a" / "llama-3-8b"))
    assert like.name == "llama-3-8b"
    unlike = cm.load_shape(folder(tmp_path / "b" / "llama-3-8b", num_key_value_heads=32))
    assert unlike.name == "llama-3-8b (own)"
    asked = {"engine": "vllm", "batch_size": 8, "context_len": 1024}
    known = cm.predict(like, "h100", **asked)
    assert not any("no rows of" in doubt for doubt in known.extrapolation)
    assert any("no rows of" in doubt for doubt in cm.predict(unlike, "h100", **asked).extrapolation)
