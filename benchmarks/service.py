"""The service under load, on this machine alone: start, one client, many clients, memory.

    python benchmarks/service.py [--workers 1] [--seconds 60] [--clients 32] [--json]

Everything goes to an address of this machine. Each request has inputs of its own.
"""

import argparse
import http.client
import itertools
import json
import os
import platform
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

MODELS = ("llama-3-8b", "llama-3-70b", "qwen3-32b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-120b")
GPUS = ("h100-sxm", "h200", "a100-80gb-sxm", "mi300x")
Request = tuple[str, dict[str, Any]]


def predict(n: int) -> Request:
    """The n-th prediction; no two alike."""
    return "/v1/predict", {
        "model": MODELS[n % 6], "gpu": GPUS[n % 4], "tp": (1, 2, 4)[n % 3],
        "batch_size": 1 + n % 256, "context_len": 128 + n,
    }  # fmt: skip


def kv(n: int) -> Request:
    """The n-th question about a cache."""
    return "/v1/kv", {"model": MODELS[n % 6], "gpu": GPUS[n % 4], "tp": 8, "context_len": 512 + n}


def plan(n: int, simulate: bool = False) -> Request:
    """The n-th plan, of one GPU and every tp and dtype, as the planner page asks."""
    return "/v1/plan", {
        "model": "llama-3-70b", "gpu": "h100-sxm", "rate": 1 + 0.001 * n,
        "input_len": 500 + n % 999, "output_len": 100 + n % 77, "slo_ttft_p95": 2,
        "slo_tpot_p95": 0.08, "simulate": simulate,
    }  # fmt: skip


def mixed(n: int) -> Request:
    """Nine predictions and caches to one plan without simulation."""
    draw = random.Random(n).random()
    return plan(n) if draw < 0.1 else (predict(n) if draw < 0.55 else kv(n))


class Client:
    """One connection that is kept."""

    def __init__(self, port: int):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def send(self, request: Request) -> tuple[float, int]:
        """Seconds until the whole answer is here, and its status."""
        path, body = request
        start = time.perf_counter()
        self._connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = self._connection.getresponse()
        answer.read()
        return time.perf_counter() - start, answer.status


@contextmanager
def service(workers: int) -> Iterator[tuple[int, int, float]]:
    """A running service: its port, process id and how long it took to answer [s]."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "capmodel", "serve", "--port", str(port),
               "--workers", str(workers)]  # fmt: skip
    start = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        try:
            while not _answers(port):
                if running.poll() is not None:
                    raise RuntimeError("capmodel serve ended; start it by hand to see why")
                time.sleep(0.02)
            yield port, running.pid, time.perf_counter() - start
        finally:
            running.terminate()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def together(
    port: int, clients: int, seconds: float, make: Callable[[int], Request]
) -> dict[str, list[tuple[float, int]]]:
    """What `clients` see that ask without pause: latencies [s] and statuses by path."""
    numbers = itertools.count()
    seen: dict[str, list[tuple[float, int]]] = {}
    lock = threading.Lock()
    until = time.perf_counter() + seconds

    def one() -> None:
        client = Client(port)
        while time.perf_counter() < until:
            request = make(next(numbers))
            found = client.send(request)
            with lock:
                seen.setdefault(request[0], []).append(found)

    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def family(pid: int) -> list[int]:
    """`pid` and all processes under it."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def resident_mib(pid: int) -> float:
    """Memory of its own (not of files), shared pages counted by their share [MiB]."""
    total = 0
    for one in family(pid):
        for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss_Anon:"):
                total += int(line.split()[1])
    return total / 1024


def cpu_s(pid: int) -> float:
    """CPU time of the service so far [s]."""
    ticks = 0
    for one in family(pid):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def row(name: str, found: list[tuple[float, int]], cpu: float | None = None) -> dict[str, Any]:
    """Quantiles of one kind of request [ms]."""
    times = 1e3 * np.array([seconds for seconds, _ in found])
    return {
        "what": name, "requests": len(found),
        "errors": sum(status != 200 for _, status in found),
        **{f"p{q}_ms": round(float(np.percentile(times, q)), 1) for q in (50, 95, 99)},
        "max_ms": round(float(times.max()), 1),
        "cpu_ms_each": None if cpu is None else round(1e3 * cpu / len(found), 2),
    }  # fmt: skip


def measure(workers: int, clients: int, seconds: float) -> dict[str, Any]:
    """All figures of one service."""
    rows = []
    with service(workers) as (port, pid, up_s):
        up_cpu = cpu_s(pid)
        alone = Client(port)
        for n in range(60):
            alone.send(predict(n)), alone.send(kv(n))

        def timed(name: str, ask: Callable[[], list[tuple[float, int]]]) -> None:
            before = cpu_s(pid)
            print(f"{name} ...", file=sys.stderr)
            found = ask()
            rows.append(row(name, found, cpu_s(pid) - before))
            print(rows[-1], file=sys.stderr)

        timed("predict, one client", lambda: [alone.send(predict(n)) for n in range(100, 600)])
        timed("kv, one client", lambda: [alone.send(kv(n)) for n in range(100, 600)])
        timed("plan, one client", lambda: [alone.send(plan(n)) for n in range(40)])
        timed(
            "simulated plan, 2 clients",
            lambda: together(port, 2, seconds / 3, lambda n: plan(n, True))["/v1/plan"],
        )
        print(f"{clients} clients ...", file=sys.stderr)
        before = cpu_s(pid)
        seen = together(port, clients, seconds, mixed)
        cpu = cpu_s(pid) - before
        everything = [one for found in seen.values() for one in found]
        rows.append(row(f"all, {clients} clients", everything, cpu))
        rows += [row(f"  {path}", found) for path, found in sorted(seen.items())]
        print(rows[-4:], file=sys.stderr)
        print("memory ...", file=sys.stderr)
        memory = [resident_mib(pid)]
        alone = Client(port)  # the first one was idle for longer than a connection is kept
        for start in (0, 5_000):
            for n in range(start, start + 5_000):
                alone.send(predict(10_000 + n) if n % 2 else kv(10_000 + n))
            memory.append(resident_mib(pid))
            print(f"{memory[-1]:.1f} MiB", file=sys.stderr)
    return {
        "workers": workers, "cores": os.cpu_count(), "python": platform.python_version(),
        "load_average": os.getloadavg()[0], "up_s": round(up_s, 2), "up_cpu_s": round(up_cpu, 2),
        "memory_mib": [round(value, 1) for value in memory], "rows": rows,
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measure(asked.workers, asked.clients, asked.seconds)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{found['workers']} worker(s), {found['cores']} cores, load average "
        f"{found['load_average']:.1f}: up after {found['up_s']} s ({found['up_cpu_s']} s of CPU)"
    )
    print(
        f"{'':28} {'n':>7} {'errors':>6} {'p50':>8} {'p95':>8} {'p99':>8} {'max':>8}  CPU each [ms]"
    )
    for one in found["rows"]:
        print(
            f"{one['what']:28} {one['requests']:7,} {one['errors']:6} {one['p50_ms']:8} "
            f"{one['p95_ms']:8} {one['p99_ms']:8} {one['max_ms']:8}  {one['cpu_ms_each'] or ''}"
        )
    print(f"Memory [MiB] before and after 5,000 and 10,000 requests: {found['memory_mib']}")


if __name__ == "__main__":
    main()
