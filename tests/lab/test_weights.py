"""The model's file: missing, damaged and foreign ones are told apart from the published one."""

import hashlib
import io
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from capmodel import bundled
from capmodel.bundled import bundled_path
from capmodel.cli import main
from capmodel.lab import weights
from capmodel.lab.language_model import load_language_model


def test_the_file_is_small_and_named_in_its_card() -> None:
    path = bundled_path(weights.FILE)
    assert path.stat().st_size <= 4_000_000
    assert weights.SHA256 in bundled_path("lab_model.md").read_text()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Got no model file .* expected lab_model.npz; reinstall"):
        weights.read_model(tmp_path / "lab_model.npz")


def test_one_flipped_bit_is_found(tmp_path: Path) -> None:
    content = bytearray(bundled_path(weights.FILE).read_bytes())
    content[len(content) // 2] ^= 1
    damaged = tmp_path / "lab_model.npz"
    damaged.write_bytes(content)
    with pytest.raises(ValueError, match="the file is damaged or of another version"):
        weights.read_model(damaged)


def pickled() -> bytes:
    file = io.BytesIO()
    np.savez(file, config=np.array([{"a": 1}], dtype=object))
    return file.getvalue()


def without_config() -> bytes:
    file = io.BytesIO()
    np.savez(file, embedding=np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 no zip after all",
        b"not an archive",
        pickle.dumps({"config": 1}),
        pickled(),
        without_config(),
        bundled_path(weights.FILE).read_bytes()[:-500],
    ],
    ids=["empty", "zip head", "text", "pickle", "pickles inside", "no config", "cut"],
)
def test_a_file_of_other_content_is_named_even_when_its_sum_is_given(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"Got own.npz, which cannot be read \(.* no pickles"):
        weights.read_model(path, hashlib.sha256(content).hexdigest())


def test_the_command_line_says_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    load_language_model.cache_clear()
    monkeypatch.setattr(bundled, "bundled_path", lambda name: tmp_path / name)
    with pytest.raises(SystemExit) as stop:
        main(["lab", "model"])
    load_language_model.cache_clear()
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("capmodel: Got no model file")


def arrays() -> dict[str, np.ndarray]:
    with np.load(bundled_path(weights.FILE)) as held:
        return {name: held[name] for name in held.files}


def as_bytes(value: object) -> np.ndarray:
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def facts(**changed: object) -> np.ndarray:
    return as_bytes({**json.loads(arrays()["config"].tobytes()), **changed})


@pytest.mark.parametrize(
    "changed",
    [
        *({name: None} for name in ("q", "head", "merges", "alphabet", "held_out", "training")),
        *({name: np.zeros(3)} for name in ("embedding", "head", "down", "final_norm", "merges")),
        *({name: np.full_like(arrays()[name], np.nan)} for name in ("q", "mlp_norm", "embedding")),
        {"q": arrays()["q"].astype(int)},
        {"alphabet": np.frombuffer(b"ab", np.uint8)},
        {"alphabet": np.full(63, 255, np.uint8)},
        {"merges": np.full_like(arrays()["merges"], 1023)},
        {"held_out": np.zeros(0, np.uint8)},
        {"training": as_bytes({})},
        {"training": as_bytes([])},
        {"training": as_bytes({"ngram_order": 8, "ngram_perplexity": 0})},
        {"config": np.frombuffer(b"[" * 200_000, np.uint8)},
        *({"config": facts(n_layers=n)} for n in (0, 2, 4, 10**9, None, "3", 3.5)),
        *({"config": facts(context=n)} for n in (0, -1, 10**9, None)),
        *({"config": facts(**{n: 10**6})} for n in ("hidden_size", "vocab_size", "n_heads")),
        {"config": facts(rope_base=0)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_file_of_other_arrays_is_refused_when_it_is_read_not_when_it_is_used(
    tmp_path: Path, changed: dict[str, np.ndarray | None]
) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, **{k: v for k, v in {**arrays(), **changed}.items() if v is not None})
    with pytest.raises(ValueError, match=r"Got own.npz, which cannot be read"):
        weights.read_model(path, hashlib.sha256(path.read_bytes()).hexdigest())


def refused(path: Path) -> str:
    try:
        weights.read_model(path, hashlib.sha256(path.read_bytes()).hexdigest())
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(40))
def test_damage_anywhere_is_one_line_even_when_its_sum_is_given(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    content = bytearray(bundled_path(weights.FILE).read_bytes())
    # Half of them inside the compressed arrays, half in the archive's directory at the end.
    near = len(content) if seed % 2 else 1800
    for place in rng.integers(len(content) - near, len(content), 5):
        content[place] ^= int(rng.integers(1, 256))
    path = tmp_path / "own.npz"
    path.write_bytes(content)
    refusal = refused(path)
    # The archive's directory holds dates and attributes nobody reads.
    assert refusal.startswith("Got own.npz, which cannot be read") or (
        seed % 2 == 0 and not refusal
    )


@pytest.mark.parametrize("path", [5, "folder", "no/such/file"])
def test_what_is_no_file_is_one_line(tmp_path: Path, path: object) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match=r"^Got no model file"):
        weights.read_model(tmp_path / path if isinstance(path, str) else path)  # type: ignore[arg-type]
