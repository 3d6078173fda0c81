"""Published runs and traces: downloaded once, checked against a pinned sha256, kept in a cache.

An environment variable per file names a local copy, for machines without a network.
"""

import hashlib
import http.client
import importlib.util
import os
import tempfile
import urllib.request
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from capmodel.ingest import file_sha256, read_runs
from capmodel.words import shown

CACHE_VARIABLE = "CAPMODEL_CACHE"
_GITHUB = "https://raw.githubusercontent.com"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A published file. url: None where it only comes inside a package (`package_path`).

    variable: environment variable naming a local copy (the file, or the folder it is in).
    """

    name: str
    file_name: str
    url: str | None
    sha256: str
    variable: str
    licence: str
    about: str
    package_path: str = ""


REMOTE_FILES = (
    RemoteFile(
        "argonne",
        "All_results.csv",
        f"{_GITHUB}/argonne-lcf/LLM-Inference-Bench/"
        "4211f5d4e9bc0145ed541b6d372d5d8223b44235/Plots/All_results.csv",
        "631a12e08c786ce2d4bdfdc0f67b93234360682cb4b36c93806270ddcfd58412",
        "CAPMODEL_ARGONNE_RUNS",
        "BSD-3-Clause",
        "end-to-end latency of static batches, seven accelerators, six engines (4,771 rows)",
    ),
    RemoteFile(
        "serving",
        "silicon_sample.csv",
        None,
        "4240bfaf555b6f8b2c62512074e5efbb7791cdbb0344b068408f397588499adb",
        "CAPMODEL_SERVING_RUNS",
        "Apache-2.0",
        "TTFT and TPOT of served models, H100 to GB300 (5,221 rows); inside aiconfigurator-core",
        package_path="systems/silicon_sample.csv",
    ),
    RemoteFile(
        "azure-conv",
        "AzureLLMInferenceTrace_conv.csv",
        f"{_GITHUB}/Azure/AzurePublicDataset/master/data/AzureLLMInferenceTrace_conv.csv",
        "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
        "CAPMODEL_AZURE_CONV",
        "CC-BY-4.0",
        "one hour of chat requests, 2023: arrivals, prompt and output tokens (19,366 rows)",
    ),
    RemoteFile(
        "azure-code",
        "AzureLLMInferenceTrace_code.csv",
        f"{_GITHUB}/Azure/AzurePublicDataset/master/data/AzureLLMInferenceTrace_code.csv",
        "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
        "CAPMODEL_AZURE_CODE",
        "CC-BY-4.0",
        "one hour of code-completion requests, 2023 (8,819 rows)",
    ),
    RemoteFile(
        "mooncake",
        "conversation_trace.jsonl",
        f"{_GITHUB}/kvcache-ai/Mooncake/main/FAST25-release/traces/conversation_trace.jsonl",
        "b8cbb061a85206d729d91cdc2981f43c9e0d99209dce588d3af5f7934408b9df",
        "CAPMODEL_MOONCAKE_TRACE",
        "Apache-2.0",
        "chat requests with prefix blocks, FAST25 release (12,031 rows)",
    ),
)


def fetch_argonne_runs() -> pd.DataFrame:
    """Runs table of argonne-lcf/LLM-Inference-Bench (BSD-3-Clause), measured end to end.

    Taken from CAPMODEL_ARGONNE_RUNS, else the cache, else downloaded. Raises ValueError where
    the file cannot be had or is not the pinned one.
    """
    return read_runs(fetch_file("argonne"), format="argonne")


def fetch_serving_runs() -> pd.DataFrame:
    """Runs table of measured serving deployments (aiconfigurator-core's sample, Apache-2.0).

    Taken from CAPMODEL_SERVING_RUNS, else from the installed `capmodel[silicon]` package.
    """
    return read_runs(fetch_file("serving"), format="aiconfigurator")


def fetch_file(name: str) -> Path:
    """Path of a verified copy of the published file `name`, one of REMOTE_FILES.

    Raises ValueError for an unknown name, a copy with another sha256, or a failed download.
    """
    by_name = {remote.name: remote for remote in REMOTE_FILES}
    if not isinstance(name, str) or name not in by_name:
        raise ValueError(f"Got data set {shown(name)}, but expected one of {', '.join(by_name)}")
    return fetch(by_name[name])


def fetch(remote: RemoteFile) -> Path:
    """Path of a verified copy: the local one, the package's, the cache's, or a download."""
    local = os.environ.get(remote.variable)
    if local:
        return _verified(_in_folder(_place(local, remote.variable), remote), remote)
    if remote.package_path:
        return _verified(_in_package(remote), remote)
    cached = cache_folder() / f"{remote.sha256[:12]}-{remote.file_name}"
    try:
        if cached.is_file() and file_sha256(cached) == remote.sha256:
            return cached
        _check_cache(cached.parent)
    except OSError as error:
        raise _no_cache(cached.parent, error) from error
    return _download(remote, cached)


def cache_folder() -> Path:
    """Where downloads are kept: CAPMODEL_CACHE, else the user's cache folder."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return _place(own, CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _place(base, CACHE_VARIABLE) / "capmodel"


def _place(path: str, variable: str) -> Path:
    """`path` with its ~ written out. Raises ValueError where nobody's home is meant."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"Got the path {path}, but there is no such home folder; name another in {variable}"
        ) from error


def _check_cache(folder: Path) -> None:
    """Make the cache folder and try it: before the download, not after."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        pass


def _no_cache(folder: Path, error: OSError) -> ValueError:
    why = error.strerror or str(error)
    return ValueError(
        f"Got the cache folder {folder}, but nothing can be kept there ({why}); name another in "
        f"{CACHE_VARIABLE}"
    )


def _in_folder(path: Path, remote: RemoteFile) -> Path:
    path = path / remote.file_name if path.is_dir() else path
    if not path.is_file():
        raise ValueError(
            f"Got {remote.variable}={path}, but there is no such file; name {remote.file_name} or "
            "the folder it is in"
        )
    return path


def _in_package(remote: RemoteFile) -> Path:
    spec = importlib.util.find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            f"{remote.name} comes inside aiconfigurator-core, which is not installed; "
            f"pip install 'capmodel[silicon]', or name a local copy in {remote.variable}"
        )
    return Path(spec.submodule_search_locations[0]) / remote.package_path


def _verified(path: Path, remote: RemoteFile) -> Path:
    found = file_sha256(path)
    if found != remote.sha256:
        raise ValueError(
            f"{path} has sha256 {found}, but {remote.name} is pinned to {remote.sha256}; "
            f"to use another copy, read it as any runs file"
        )
    return path


def _download(remote: RemoteFile, target: Path) -> Path:
    hint = f"name a local copy in {remote.variable}"
    try:
        with urllib.request.urlopen(str(remote.url), timeout=60) as answer:
            content = answer.read()
    except (OSError, http.client.HTTPException) as error:  # no network, cut off, not HTTP at all
        raise ValueError(f"{remote.url} cannot be fetched: {error}; {hint}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != remote.sha256:
        raise ValueError(
            f"{remote.url} now has sha256 {found}, but {remote.sha256} is pinned; {hint}"
        )
    _keep(content, target)
    return target


def _keep(content: bytes, target: Path) -> None:
    """Write `content` whole or not at all."""
    part = None
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
            part = file.name
            file.write(content)
        os.replace(part, target)
        part = None
    except OSError as error:
        raise _no_cache(target.parent, error) from error
    finally:
        if part is not None:
            with suppress(OSError):
                os.unlink(part)
