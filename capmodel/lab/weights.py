"""The trained model's file: found, checked against its sha256, and read."""

import hashlib
import io
import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from capmodel.arguments import POSITIVE, number
from capmodel.lab.config import ToyConfig
from capmodel.lab.parameters import LayerWeights, Parameters, SoftmaxWeights
from capmodel.lab.sizes import MOST_LAYERS, MOST_TOKENS, whole
from capmodel.lab.tokenizer import Tokenizer
from capmodel.shapes.attention import SoftmaxAttention

FILE = "lab_model.npz"
SHA256 = "ffab472f58404356a104514ba50b48bc210025c17e431199febb288f419d8c0f"

# What NumPy, zipfile and the parsing below raise for bytes that are no such file.
UNREADABLE = (
    *(ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError, EOFError),
    *(RuntimeError, OSError, MemoryError, BadZipFile, zlib.error, struct.error),
)
FACTS = ("n_layers", "hidden_size", "n_heads", "n_kv_heads", "head_dim", "intermediate")
RECORDED = ("ngram_order", "ngram_perplexity")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What `lab_model.npz` holds. context: longest sequence it was trained on [token].

    held_out: text it was not trained on. training: figures recorded when it was trained.
    """

    config: ToyConfig
    parameters: Parameters
    tokenizer: Tokenizer
    held_out: str
    context: int
    training: dict[str, Any]
    sha256: str


def read_model(path: Path | None = None, sha256: str = SHA256) -> ModelFile:
    """Read the bundled model, or `path`, whose content must have `sha256`; weights in float32.

    Raises ValueError when the file is missing, its content differs from what was published, or it
    is not a file of this model's arrays.
    """
    from capmodel.bundled import bundled_path

    try:
        found = bundled_path(FILE) if path is None else Path(path)
        content = found.read_bytes()
    except (OSError, TypeError) as error:
        raise ValueError(
            f"Got no model file ({error}), but expected {FILE}; reinstall capmodel, or make the "
            "file again with tools/train_lab_model.py"
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise ValueError(
            f"Got {found.name} with sha256 {digest[:16]}..., but expected {sha256[:16]}...; the "
            "file is damaged or of another version: restore it"
        )
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return _parsed({name: arrays[name] for name in arrays.files}, digest)
    except UNREADABLE as error:
        raise ValueError(
            f"Got {found.name}, which cannot be read ({type(error).__name__}: {error}), but "
            "expected the arrays that tools/train_lab_model.py writes, and no pickles"
        ) from error


def _parsed(arrays: dict[str, np.ndarray], digest: str) -> ModelFile:
    facts = json.loads(arrays["config"].tobytes())
    training = json.loads(arrays["training"].tobytes())
    for name in (*FACTS, "vocab_size", "context"):
        whole(name, facts[name], 1, MOST_TOKENS)
    whole("n_layers", facts["n_layers"], 1, MOST_LAYERS)
    for name in RECORDED:
        number(name, training[name], POSITIVE)
    layer = SoftmaxAttention(
        facts["n_heads"], facts["n_kv_heads"], facts["head_dim"], facts["head_dim"]
    )
    config = ToyConfig(
        (layer,) * facts["n_layers"],
        facts["hidden_size"],
        facts["vocab_size"],
        facts["intermediate"],
        facts["rope_base"],
        facts["norm_eps"],
        tied_embeddings=False,
    )

    def wide(name: str, *shape: int) -> np.ndarray:
        array = arrays[name]
        if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(
                f"Got {name} of {array.dtype} {array.shape}, but expected finite floats {shape}"
            )
        return array.astype(np.float32)

    n, hidden, mlp = facts["n_layers"], facts["hidden_size"], facts["intermediate"]
    queries, keys = (facts[name] * facts["head_dim"] for name in ("n_heads", "n_kv_heads"))
    q, o = wide("q", n, hidden, queries), wide("o", n, queries, hidden)
    k, v = (wide(name, n, hidden, keys) for name in ("k", "v"))
    gate, up = (wide(name, n, hidden, mlp) for name in ("gate", "up"))
    down = wide("down", n, mlp, hidden)
    norms = wide("attention_norm", n, hidden), wide("mlp_norm", n, hidden)
    layers = tuple(
        LayerWeights(
            norms[0][i],
            SoftmaxWeights(q[i], k[i], v[i], o[i]),
            norms[1][i],
            gate[i],
            up[i],
            down[i],
        )
        for i in range(n)
    )
    embedding = wide("embedding", config.vocab_size, hidden)
    return ModelFile(
        config,
        Parameters(
            embedding, layers, wide("final_norm", hidden), wide("head", hidden, config.vocab_size)
        ),
        _tokenizer(arrays, config.vocab_size),
        _text(arrays["held_out"]),
        facts["context"],
        training,
        digest,
    )


def _tokenizer(arrays: dict[str, np.ndarray], vocab_size: int) -> Tokenizer:
    alphabet = _text(arrays["alphabet"])
    merges = tuple((int(left), int(right)) for left, right in arrays["merges"])
    tokenizer = Tokenizer(alphabet, merges)
    if tokenizer.vocab_size != vocab_size:
        raise ValueError(f"Got {tokenizer.vocab_size} tokens, but expected vocab_size={vocab_size}")
    for i, pair in enumerate(merges):
        if not 0 <= min(pair) <= max(pair) < len(alphabet) + i:
            raise ValueError(f"Got merge {i} of {pair}, but expected two tokens made before it")
    return tokenizer


def _text(array: np.ndarray) -> str:
    text = array.tobytes().decode()
    if array.dtype != np.uint8 or not text:
        raise ValueError(f"Got {array.dtype} {array.shape} for text, but expected bytes")
    return text
