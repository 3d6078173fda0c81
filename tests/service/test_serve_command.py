"""`capmodel serve` as a user starts it: refusals in one line, several workers, the end."""

import asyncio
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capmodel.service.start import bind

SERVE = [sys.executable, "-m", "capmodel", "serve"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--port", "70000"], "70000"),
        (["--port", "99999", "--workers", "2"], "99999"),
        (["--port", "-1"], "-1"),
        (["--port", "http"], "http"),
        (["--workers", "0"], "workers"),
        (["--workers", "65"], "65"),
        (["--jobs", "0"], "jobs"),
        (["--host", ""], "--host"),
        (["--host", "203.0.113.7"], "203.0.113.7"),
        (["--host", "a" * 300], "--host"),
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


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_answers_are_sent_at_once(host: str) -> None:
    """No answer on a kept connection waits for the client's word that the last one came.

    asyncio turns that wait off for sockets that say they are TCP, and for no others.
    """

    async def accepted() -> int:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_client(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            ours = writer.get_extra_info("socket")
            told.set_result(ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = bind(host, 0).socket
        async with await asyncio.start_server(on_client, sock=listening):
            with socket.create_connection(listening.getsockname()[:2]):
                return await asyncio.wait_for(told, 30)

    if host == "::1" and not _has_ipv6():
        pytest.skip("no IPv6 here")
    assert asyncio.run(accepted())


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@contextmanager
def running(*flags: str, temporary: Path | None = None) -> Iterator[tuple[subprocess.Popen, str]]:
    """A service at a free port and its address, once it says that it answers."""
    where = {} if temporary is None else {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*SERVE, "--port", "0", *flags], stderr=subprocess.PIPE, text=True,
        env={**os.environ, **where},
    ) as service:  # fmt: skip
        assert service.stderr is not None
        told = service.stderr.readline()
        found = re.search(r"http://\S+", told)
        assert found, told + service.stderr.read()
        try:
            yield service, found.group(0)
        finally:
            service.kill()
            service.communicate()


def ask(url: str) -> str:
    return str(urllib.request.urlopen(url, timeout=60).read().decode())


def is_gone(url: str) -> bool:
    """Whether soon nothing answers any more."""
    for _ in range(100):
        try:
            ask(f"{url}healthz")
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                return True
        except OSError:
            pass
        time.sleep(0.1)
    return False


@pytest.mark.slow
def test_two_workers_share_their_figures_and_end_together(tmp_path: Path) -> None:
    with running("--workers", "2", temporary=tmp_path) as (service, url):
        for _ in range(20):
            ask(f"{url}v1/gpus")
        time.sleep(0.2)
        counted = [
            line
            for line in ask(f"{url}metrics").splitlines()
            if line.startswith("capmodel_requests_total") and '"/v1/gpus"' in line
        ]
        assert sum(float(line.split()[-1]) for line in counted) == 20
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=60) == 0
        assert is_gone(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_ends_with_its_jobs(tmp_path: Path, sign: signal.Signals) -> None:
    with running("--prefix", "/cap", temporary=tmp_path) as (service, url):
        assert url.endswith("/cap/")
        assert ask(f"{url}v1/lab?n_tokens=2")
        service.send_signal(sign)
        assert service.wait(timeout=60) == 0
        assert is_gone(url)  # the port is free: no process of it is left
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_is_not_done_when_it_ends_is_told_so() -> None:
    """A search of the whole catalogue by many clients takes one process longer than the end."""
    plan = {"model": "llama-3-8b", "rate": 1, "input_len": 99, "output_len": 9}
    found: list[tuple[int, str]] = []

    def ask_for_a_plan(address: str) -> None:
        host = re.search(r"//(.*):(\d+)/", address)
        assert host
        client = http.client.HTTPConnection(host.group(1), int(host.group(2)), timeout=120)
        client.request("POST", "/v1/plan", json.dumps(plan), {"content-type": "application/json"})
        answer = client.getresponse()
        found.append((answer.status, answer.read().decode()))

    with running("--jobs", "1") as (service, url):
        clients = [threading.Thread(target=ask_for_a_plan, args=(url,)) for _ in range(24)]
        for client in clients:
            client.start()
        time.sleep(1.5)
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=60) == 0
        for client in clients:
            client.join()
        assert service.stderr is not None
        assert "Traceback" not in service.stderr.read()
    assert {status for status, _ in found} <= {200, 503}
    ended = [text for status, text in found if status == 503]
    assert ended
    assert all("the service is ending" in text for text in ended)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_killed_outright_it_leaves_no_process_that_keeps_the_port(workers: str) -> None:
    with running("--workers", workers) as (service, url):
        assert ask(f"{url}v1/lab?n_tokens=2")
        service.kill()
        service.wait(timeout=60)
        assert is_gone(url)


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced() -> None:
    with running("--workers", "2") as (service, url):
        assert ask(f"{url}healthz")
        workers = set()
        while len(workers) < 3:  # the nursery is among them: it too may die
            workers = set(map(int, children(service.pid)))
            time.sleep(0.05)
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        for _ in range(600):
            try:
                assert ask(f"{url}v1/lab?n_tokens=3")
                break
            except OSError:
                time.sleep(0.1)
        else:
            pytest.fail("nothing answers")
        assert not workers & set(map(int, children(service.pid)))


def children(pid: int) -> list[str]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    if not listed.exists():
        pytest.skip("no /proc here that lists the processes")
    return listed.read_text().split()


@pytest.mark.slow
def test_clients_that_went_away_hold_nobody_up() -> None:
    """Searches of the whole catalogue, more than may wait, by clients that do not."""
    plan = {"model": "llama-3-8b", "rate": 1, "input_len": 99, "output_len": 9}
    with running("--jobs", "1") as (_, url):
        found = re.search(r"//(.*):(\d+)/", url)
        assert found
        for _ in range(40):
            client = http.client.HTTPConnection(found.group(1), int(found.group(2)))
            client.request("POST", "/v1/plan", json.dumps(plan),
                           {"content-type": "application/json"})  # fmt: skip
            client.close()
        time.sleep(1)
        assert ask(f"{url}v1/lab?n_tokens=2")  # 503 where the others still waited
