"""The model's file: missing, damaged and foreign ones are told apart from the published one."""

import hashlib
import io
import pickle
from pathlib import Path

import numpy as np
import pytest

from capmodel.cli import main
from capmodel.datasets import bundled
from capmodel.datasets.bundled import bundled_path
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
