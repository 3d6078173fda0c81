"""`capmodel serve` as a user starts it: refusals in one line, several workers, the end."""

import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

SERVE = [sys.executable, "-m", "capmodel", "serve"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--port", "70000"], "70000"),
        (["--workers", "0"], "workers"),
        (["--prefix", "/a b"], "--prefix"),
        (["--prefix", "/../x"], "--prefix"),
        (["--host", "no such host"], "no such host"),
    ],
)
def test_bad_flags_are_one_line_and_exit_2(flags: list[str], words: str) -> None:
    done = subprocess.run([*SERVE, *flags], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run([*SERVE, "--port", port], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert port in done.stderr


@pytest.mark.slow
def test_two_workers_share_their_figures_and_end_together() -> None:
    port = free_port()
    with subprocess.Popen([*SERVE, "--port", str(port), "--workers", "2"],
                          stderr=subprocess.PIPE, text=True) as service:  # fmt: skip
        url = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/healthz", timeout=5)
                break
            except OSError:
                assert service.poll() is None
                time.sleep(0.2)
        for _ in range(20):
            urllib.request.urlopen(f"{url}/v1/gpus", timeout=30).read()
        time.sleep(0.2)
        text = urllib.request.urlopen(f"{url}/metrics", timeout=30).read().decode()
        counted = [
            line
            for line in text.splitlines()
            if line.startswith("capmodel_requests_total") and '"/v1/gpus"' in line
        ]
        assert sum(float(line.split()[-1]) for line in counted) == 20
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=60)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/healthz", timeout=5)
