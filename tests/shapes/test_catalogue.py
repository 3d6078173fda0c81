"""The catalogue: names, aliases, own entries, and the figures each entry carries."""

import json

import pytest

from capmodel.shapes import entry_from_shape, find_shape, load_shape, shape_from_entry, shape_names
from capmodel.shapes.attention import SoftmaxAttention

ARGONNE = [
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Meta-Llama-3-8B",
    "mistralai/Mistral-7B-v0.1",
    "Qwen/Qwen2-7B",
    "mistralai/Mixtral-8x7B-v0.1",
    "meta-llama/Meta-Llama-3-70B",
    "meta-llama/Llama-2-70b-hf",
    "Deci/DeciLM-7B",
    "BAAI/Aquila-7B",
    "bigscience/bloom-7b1",
    "EleutherAI/gpt-j-6b",
    "huggyllama/llama-7b",
    "facebook/opt-6.7b",
    "Qwen/Qwen1.5-7B",
]

MEASURED = [
    "deepseek-ai/DeepSeek-R1",
    "MiniMaxAI/MiniMax-M2.5",
    "openai/gpt-oss-120b",
    "deepseek-ai/DeepSeek-V3",
    "Qwen/Qwen3-32B",
    "meta-llama/Llama-3.1-70B",
    "moonshotai/Kimi-K2.5",
    "Qwen/Qwen3.5-397B-A17B",
    "meta-llama/Llama-3.1-8B-Instruct",
    "zhipuai/GLM-5",
    "Qwen/Qwen3-235B-A22B-FP8",
    "nvidia/Llama-3.1-8B-Instruct-FP8",
    "nvidia/Qwen3-32B-NVFP4",
    "nvidia/DeepSeek-V3.1-NVFP4",
]


@pytest.mark.parametrize("model", ARGONNE + MEASURED)
def test_models_of_the_measured_tables_are_catalogued(model: str) -> None:
    assert load_shape(model).n_layers > 0


def test_every_entry_names_its_source_and_survives_a_round_trip() -> None:
    names = shape_names()
    assert len(names) >= 90
    for name in names:
        shape = load_shape(name)
        assert shape.name == name
        assert len(shape.source) > 10
        table = json.loads(json.dumps(entry_from_shape(shape)))
        assert shape_from_entry(table) == shape


@pytest.mark.parametrize(
    "spelling",
    [
        "llama-3-70b",
        "LLAMA-3-70B",
        "Meta-Llama-3-70B",
        "meta-llama/meta-llama-3-70b",
        " llama_3-70b ",
    ],
)
def test_spellings_of_one_model(spelling: str) -> None:
    assert load_shape(spelling).name == "llama-3-70b"


def test_unknown_and_ambiguous_names() -> None:
    with pytest.raises(ValueError, match=r"'lama-3-70b'.*nearest are llama-3-70b"):
        load_shape("lama-3-70b")
    with pytest.raises(ValueError, match=r"names several: .*gpt-oss-120b, gpt-oss-20b"):
        load_shape("gpt-oss")
    with pytest.raises(ValueError, match="CAPMODEL_CATALOG"):
        load_shape("no-such-model-anywhere")
    for bad in ("", " ", "\0", "../..", "a" * 10_000):
        with pytest.raises(ValueError):
            load_shape(bad)
    with pytest.raises(ValueError, match="model=7, but expected a name"):
        load_shape(7)  # type: ignore[arg-type]


def test_the_network_is_not_touched_without_download(monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    def refuse(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    with pytest.raises(ValueError, match="download=True"):
        load_shape("someone/some-model")


def test_decilm_has_kv_heads_per_layer() -> None:
    """config.json of Deci/DeciLM-7B: 7 layers with 4 KV heads, 14 with 2, 11 with 1."""
    heads = sorted(
        (a.n_kv_heads, count)
        for count, a in load_shape("Deci/DeciLM-7B").attention_layers()
        if isinstance(a, SoftmaxAttention)
    )
    assert heads == [(1, 11), (2, 14), (4, 7)]


def test_own_entries_come_first(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\naliases = ["llama-3-8b"]\nsource = "my own"\nhidden_size = 64\n'
        "vocab_size = 100\n[[groups]]\ncount = 2\n"
        'attention = { kind = "softmax", n_heads = 4, n_kv_heads = 2, head_dim = 16 }\n'
        'mlp = { kind = "dense", intermediate = 128 }\n'
    )
    (tmp_path / "tuned.json").write_text('{"base": "mine", "vocab_size": 200, "source": "tuned"}')
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 50,
              "num_attention_heads": 4, "intermediate_size": 96}  # fmt: skip
    (tmp_path / "raw.json").write_text(json.dumps(config))
    (tmp_path / "gpu.toml").write_text('name = "my-gpu"\nbandwidth_bytes_per_s = 1e12\n')
    monkeypatch.setenv("CAPMODEL_CATALOG", str(tmp_path))
    assert load_shape("mine").n_layers == 2
    assert load_shape("llama-3-8b").name == "mine"
    assert load_shape("tuned").vocab_size == 200
    assert load_shape("tuned").groups == load_shape("mine").groups
    assert load_shape("raw").n_layers == 3
    assert {"mine", "tuned", "raw", "llama-3-70b"} <= set(shape_names())
    monkeypatch.setenv("CAPMODEL_CATALOG", str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="expected a folder"):
        find_shape("mine")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hiden_size": 3}, "did you mean 'hidden_size'"),
        ({"hidden_size": "wide"}, "expected int"),
        ({"hidden_size": -1}, "0 or more"),
        ({"groups": []}, "at least one"),
        ({"groups": [{"count": 1, "mlp": {"kind": "foo"}}]}, "one of dense, moe"),
        ({"groups": [{"mlp": {"kind": "dense", "intermediate": 3}}]}, "without count"),
        ({"groups": {"count": 1}}, "expected a list"),
        ({"groups": [{"count": 1, "attention": {"kind": "softmax", "n_heads": 6, "n_kv_heads": 4,
                                                "head_dim": 8}}]}, "divide the heads"),
        ({"groups": [{"count": 1, "mlp": {"kind": "moe", "n_experts": 2, "top_k": 3,
                                          "expert_intermediate": 8}}]}, "top_k <= n_experts"),
    ],
)  # fmt: skip
def test_wrong_entries_name_the_field(change: dict, message: str) -> None:
    entry = {
        "name": "x", "hidden_size": 8, "vocab_size": 8,
        "groups": [{"count": 1, "mlp": {"kind": "dense", "intermediate": 8}}],
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=message):
        load_shape(entry)
