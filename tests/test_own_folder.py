"""CAPMODEL_CATALOG as it is now: other folders of one relative name, edited and added files."""

import os
from pathlib import Path

import pytest

import capmodel as cm
from capmodel.gpus import gpu_names, load_gpu
from capmodel.kvcache import replay
from capmodel.shapes import load_shape, shape_names

GPU = "memory_bytes = {}e9\nbandwidth_bytes_per_s = 1e12\nbf16_flops_per_s = 2e14\n"
MODEL = """
name = "mine"
hidden_size = 512
vocab_size = 1000
[[groups]]
count = {}
attention = {{ kind = "softmax", n_heads = 8, n_kv_heads = 8, head_dim = 64 }}
mlp = {{ kind = "dense", intermediate = 1024 }}
"""


def write(path: Path, text: str, age_s: int = 0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if age_s:
        about = path.stat()
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns - age_s * 10**9))


def test_the_same_relative_name_in_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPMODEL_CATALOG", "own")
    for place, size in (("a", 24), ("b", 48)):
        write(tmp_path / place / "own" / "card.toml", GPU.format(size))
        write(tmp_path / place / "own" / "mine.toml", MODEL.format(size))
        monkeypatch.chdir(tmp_path / place)
        assert load_gpu("card").memory_bytes == size * 1e9
        assert load_shape("mine").n_layers == size


def test_edited_added_and_removed_files_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAPMODEL_CATALOG", str(tmp_path))
    ask = {"model": "mine", "gpu": "card", "batch_size": 4, "context_len": 100}
    write(tmp_path / "card.toml", GPU.format(24), age_s=5)
    write(tmp_path / "models" / "mine.toml", MODEL.format(10), age_s=5)
    before = cm.predict_step_time(**ask)
    write(tmp_path / "models" / "mine.toml", MODEL.format(40))  # of the same size in bytes
    write(tmp_path / "card.toml", GPU.format(48))
    assert cm.predict_step_time(**ask) > before
    assert load_gpu("card").memory_bytes == 48e9
    write(tmp_path / "second.toml", GPU.format(12))
    assert "second" in gpu_names()
    (tmp_path / "models" / "mine.toml").unlink()
    assert "mine" not in shape_names()


def test_a_path_is_read_again_whatever_was_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = []
    for place, layers in (("a", 10), ("b", 40)):
        write(tmp_path / place / "mine.toml", MODEL.format(layers))
        monkeypatch.chdir(tmp_path / place)
        seconds.append(cm.predict_step_time("mine.toml", "h100", batch_size=4, context_len=100))
    assert seconds[1] > seconds[0]


def test_what_is_no_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bad in (tmp_path / "absent", tmp_path / "file\nof two lines"):
        if "two" in bad.name:
            bad.write_text("")
        monkeypatch.setenv("CAPMODEL_CATALOG", str(bad))
        for load in (load_gpu, load_shape):
            with pytest.raises(ValueError, match="expected a folder of TOML or JSON") as error:
                load("h100" if load is load_gpu else "llama-3-8b")
            assert len(str(error.value).splitlines()) == 1


def test_a_gpu_file_without_its_memory_is_no_longer_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "card.toml", "bandwidth_bytes_per_s = 1e12\n")
    monkeypatch.setenv("CAPMODEL_CATALOG", str(tmp_path))
    with pytest.raises(ValueError, match="memory_bytes is missing"):
        load_gpu("card")


def test_all_missing_fields_of_a_model_at_once() -> None:
    entry = {"name": "torn\nname", "vocab_size": "many", "hidden_sise": 3, "quantization": "fp8",
             "groups": [{"count": 1, "attention": {"kind": "softmax", "n_heads": 4}},
                        {"mlp": {"kind": "moe", "n_experts": 4}}, 7]}  # fmt: skip
    with pytest.raises(ValueError) as error:
        load_shape(entry)
    text = str(error.value)
    assert len(text.splitlines()) == 1
    for said in ("torn\\nname", "without hidden_size", "vocab_size='many'", "'hidden_size'",
                 "quantization='fp8'", "groups 1, attention without n_kv_heads, head_dim",
                 "groups 2, mlp without top_k, expert_intermediate", "groups 2 without count",
                 "groups 3 as int"):  # fmt: skip
        assert said in text, said


@pytest.mark.parametrize("key", ["kept", "kept_in_layers", "group_size"])
@pytest.mark.parametrize("value", [0, "x", [1], [["a"]], [["a", "b"]], {"a": 1}, 10**400])
def test_odd_quantization_of_an_own_entry(key: str, value: object) -> None:
    entry = {
        "name": "x", "hidden_size": 8, "vocab_size": 8,
        "groups": [{"count": 1, "mlp": {"kind": "dense", "intermediate": 8}}],
        "quantization": {"method": "awq", "dtype": "int4", key: value},
    }  # fmt: skip
    try:
        found: object = cm.weight_bytes(load_shape(entry), None)
    except ValueError as error:
        found = error
    said = str(found)
    assert len(said.splitlines()) == 1
    assert isinstance(found, ValueError) or found > 0


def test_a_name_of_two_lines_breaks_no_message(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    path.write_text('name = "a\\nb"\nmemory_bytes = 24e9\nassumption = "c\\nd"\n')
    gpu = load_gpu(str(path))
    assert (gpu.name, gpu.assumption) == ("a\\nb", "c\\nd")
    with pytest.raises(ValueError, match="no peak FLOP/s") as error:
        cm.predict("llama-3-8b", gpu, batch_size=1, context_len=10)
    assert len(str(error.value).splitlines()) == 1


def test_a_model_without_attention_has_no_limit_to_divide_by() -> None:
    entry = {"name": "mlps", "hidden_size": 8, "vocab_size": 8,
             "groups": [{"count": 1, "mlp": {"kind": "dense", "intermediate": 8}}]}  # fmt: skip
    for mode in ("nameplate", "engine"):
        with pytest.raises(ValueError, match="keep no cache and no state"):
            cm.max_concurrency(entry, "h100", 1000, mode=mode)
    with pytest.raises(ValueError, match="keep no cache that grows"):
        replay(entry, 6e9, 1000)
    assert "neither" in str(cm.predict(entry, "h100", batch_size=1, context_len=10).ceiling)
