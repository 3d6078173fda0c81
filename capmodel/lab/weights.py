"""The trained model's file: found, checked against its sha256, and read."""

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from capmodel.lab.config import ToyConfig
from capmodel.lab.parameters import LayerWeights, Parameters, SoftmaxWeights
from capmodel.lab.tokenizer import Tokenizer
from capmodel.shapes.attention import SoftmaxAttention

FILE = "lab_model.npz"
SHA256 = "ffab472f58404356a104514ba50b48bc210025c17e431199febb288f419d8c0f"

# What NumPy, zipfile and the parsing below raise for bytes that are no such file.
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, BadZipFile)


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
    from capmodel.datasets.bundled import bundled_path

    try:
        found = bundled_path(FILE) if path is None else Path(path)
        content = found.read_bytes()
    except FileNotFoundError as error:
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

    def wide(name: str) -> np.ndarray:
        return arrays[name].astype(np.float32)

    q, k, v, o, gate, up, down = (wide(n) for n in ("q", "k", "v", "o", "gate", "up", "down"))
    norms = wide("attention_norm"), wide("mlp_norm")
    layers = tuple(
        LayerWeights(
            norms[0][i],
            SoftmaxWeights(q[i], k[i], v[i], o[i]),
            norms[1][i],
            gate[i],
            up[i],
            down[i],
        )
        for i in range(facts["n_layers"])
    )
    merges = tuple((int(left), int(right)) for left, right in arrays["merges"])
    return ModelFile(
        config,
        Parameters(wide("embedding"), layers, wide("final_norm"), wide("head")),
        Tokenizer(arrays["alphabet"].tobytes().decode(), merges),
        arrays["held_out"].tobytes().decode(),
        facts["context"],
        json.loads(arrays["training"].tobytes()),
        digest,
    )
