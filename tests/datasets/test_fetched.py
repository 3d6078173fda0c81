"""Fetching: a local copy, a cache, a wrong file and no network, without any network."""

import hashlib
import http.client
import os
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from capmodel.datasets import fetch_argonne_runs, fetched
from capmodel.datasets.fetched import REMOTE_FILES, RemoteFile, fetch, fetch_file

CONTENT = b"a,b\n1,2\n"


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteFile:
    """A published file served from a local folder, with an empty cache."""
    served = tmp_path / "served" / "runs.csv"
    served.parent.mkdir()
    served.write_bytes(CONTENT)
    monkeypatch.setenv("CAPMODEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CAPMODEL_TEST_RUNS", raising=False)
    digest = hashlib.sha256(CONTENT).hexdigest()
    return RemoteFile(
        "test", "runs.csv", served.as_uri(), digest, "CAPMODEL_TEST_RUNS", "CC0", "two numbers"
    )


def test_is_downloaded_once(remote: RemoteFile, tmp_path: Path) -> None:
    first = fetch(remote)
    assert first.read_bytes() == CONTENT
    (tmp_path / "served" / "runs.csv").unlink()
    assert fetch(remote) == first  # from the cache


def test_a_broken_cache_is_fetched_again(remote: RemoteFile) -> None:
    path = fetch(remote)
    path.write_bytes(b"broken")
    assert fetch(remote).read_bytes() == CONTENT


def test_a_changed_file_is_refused_and_not_kept(remote: RemoteFile, tmp_path: Path) -> None:
    (tmp_path / "served" / "runs.csv").write_bytes(b"other")
    with pytest.raises(ValueError, match=r"is pinned; name a local copy in CAPMODEL_TEST_RUNS"):
        fetch(remote)
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.parametrize("folder", [True, False])
def test_a_local_copy_comes_first(
    remote: RemoteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "runs.csv").write_bytes(CONTENT)
    monkeypatch.setenv(remote.variable, str(own if folder else own / "runs.csv"))
    gone = replace(remote, url="file:///nowhere/at/all")
    assert fetch(gone) == own / "runs.csv"


def test_a_local_copy_is_checked_too(
    remote: RemoteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_bytes(b"x")
    monkeypatch.setenv(remote.variable, str(wrong))
    with pytest.raises(ValueError, match="pinned to"):
        fetch(remote)
    (tmp_path / "folder" / "runs.csv").mkdir(parents=True)
    for absent in (tmp_path / "absent.csv", tmp_path / "folder"):
        monkeypatch.setenv(remote.variable, str(absent))
        with pytest.raises(ValueError, match=r"no such file; name runs\.csv or the folder"):
            fetch(remote)
    monkeypatch.setenv(remote.variable, "~nobody-here/runs.csv")
    with pytest.raises(ValueError, match="no such home folder; name another in CAPMODEL_TEST_RUNS"):
        fetch(remote)


def test_no_network_says_what_to_do(remote: RemoteFile) -> None:
    with pytest.raises(ValueError, match="name a local copy in CAPMODEL_TEST_RUNS"):
        fetch(replace(remote, url="file:///nowhere/at/all"))


@pytest.mark.parametrize(
    "error", [http.client.IncompleteRead(b"a"), ConnectionResetError(104, "reset"), TimeoutError()]
)
def test_a_line_that_is_cut_says_what_to_do(
    remote: RemoteFile, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def cut(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(urllib.request, "urlopen", cut)
    with pytest.raises(ValueError, match="name a local copy in CAPMODEL_TEST_RUNS"):
        fetch(remote)


def test_a_cache_that_takes_nothing_is_said_before_the_download(
    remote: RemoteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(urllib.request, "urlopen", None)
    for folder in (tmp_path / "file", tmp_path / "file" / "below", "/proc/none", "~nobody-here/x"):
        monkeypatch.setenv("CAPMODEL_CACHE", str(folder))
        with pytest.raises(ValueError, match=r"Got the .*; name another in CAPMODEL_CACHE"):
            fetch(remote)


def test_a_full_disk_leaves_no_half_file(
    remote: RemoteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ValueError, match=r"nothing can be kept there .No space left"):
        fetch(remote)
    assert not list((tmp_path / "cache").iterdir())


@pytest.mark.parametrize("name", ["nothing", "", None, ["argonne"], "Argonne"])
def test_unknown_name_lists_the_known(name: object) -> None:
    with pytest.raises(ValueError, match=r"Got data set .*, but expected one of argonne"):
        fetch_file(name)  # type: ignore[arg-type]


def test_argonne_is_pinned_to_the_published_commit() -> None:
    # Figures of the published file: argonne-lcf/LLM-Inference-Bench, Plots/All_results.csv.
    remote = next(f for f in REMOTE_FILES if f.name == "argonne")
    assert "4211f5d4e9bc0145ed541b6d372d5d8223b44235/Plots/All_results.csv" in str(remote.url)
    assert remote.sha256.startswith("631a12e08c786ce2")


def test_argonnes_runs_come_from_a_local_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Invented seconds in the columns of the published file.
    content = (
        b"Hardware,Num of Hardware,Framework,Model,Input Output Length,Batch Size,"
        b"Latency,Throughput"
        b"\nNvidia A100 GPU,1,vLLM,meta-llama/Llama-2-7b-hf,128,1,2.5,102.4"
        b"\nNvidia A100 GPU,1,vLLM,meta-llama/Llama-2-7b-hf,128,16,3.2,1280\n"
    )
    (tmp_path / "All_results.csv").write_bytes(content)
    own = next(f for f in REMOTE_FILES if f.name == "argonne")
    monkeypatch.setenv(own.variable, str(tmp_path))
    with pytest.raises(ValueError, match="argonne is pinned to 631a12e0"):
        fetch_argonne_runs()
    pinned = replace(own, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(fetched, "REMOTE_FILES", (pinned,))
    runs = fetch_argonne_runs()
    assert runs["batch_size"].tolist() == [1, 16]
    assert runs["output_len"].tolist() == [128, 128]
    # The step of one output token out of 128, the prompt's share named as prefill beside it.
    assert (runs["step_time_s"] * 128).round(6).tolist() == [2.5, 3.2]


def test_traces_beside_the_checkout_are_the_pinned_ones(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("azure-conv", "azure-code"):
        remote = next(f for f in REMOTE_FILES if f.name == name)
        monkeypatch.setenv(remote.variable, str(shared_data / "traces"))
        assert fetch_file(name).name == remote.file_name
