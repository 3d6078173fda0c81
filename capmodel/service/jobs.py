"""Long work in processes of its own, stopped by the clock and bounded in memory.

A job ends itself: an alarm raises inside it, and where that is not heard, the interpreter's
watchdog ends the process. The other jobs go on, and the next one gets a new process.
"""

import asyncio
import contextlib
import faulthandler
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from capmodel.service.errors import Refused, problem, refused_by_package
from capmodel.service.nursery import Nursery, end_with
from capmodel.service.settings import Settings

Job = Callable[[Mapping[str, Any]], Any]

_GRACE_S = 5.0  # between the alarm and the end of the process
_JOBS_PER_PROCESS = 200  # then a fresh process: what caches hold is given back
_LESS = "less work: a smaller file, fewer choices, or no simulation"


class _TimeUp(BaseException):
    """Raised by the alarm; a BaseException, so that no `except Exception` keeps it."""


def ending() -> Refused:
    """The answer to what is not done when the service ends."""
    text = "the service is ending; try again"
    return Refused(503, [problem("", "a service that goes on", text)], retry_s=5)


class Jobs:
    """Processes that answer one request each at a time. Use `start` once, `run` many times."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self.nursery = Nursery(_answer_jobs)
        self._threads: ThreadPoolExecutor | None = None
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.waiting = 0

    async def start(self) -> None:
        """Start one process and wait until it has loaded the calibrations."""
        self._closed = False
        try:
            await self._asked((_warm, {}, 300.0))
        except Refused as refused:
            raise RuntimeError(
                "the process for plans and fits ended as it started; a script that starts the "
                'service needs `if __name__ == "__main__":`'
            ) from refused

    def close(self) -> None:
        """End the processes at once; what they were doing is given up."""
        with self._lock:
            self._closed = True
            for one in self._all:
                one.end()
            self._all.clear()
            self._idle.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None
        self.nursery.close()

    @property
    def busy(self) -> bool:
        """Whether a further job would have to wait for another."""
        return self.waiting >= self._settings.jobs

    async def run(self, job: Job, body: Mapping[str, Any], timeout_s: float) -> Any:
        """The result of `job(body)`, computed elsewhere.

        Raises Refused: 422 with the package's own words, 503 where too many wait or the service
        ends, 504 where it takes longer than `timeout_s`. Cancelled, it ends the process at it.
        """
        if self._closed:
            raise ending()
        if self.waiting >= self._settings.waiting:
            text = f"at most {self._settings.waiting} requests of this kind at once"
            raise Refused(503, [problem("", text, f"too busy: {text}; try again")], retry_s=2)
        self.waiting += 1
        try:
            return await self._asked((job, body, timeout_s))
        finally:
            self.waiting -= 1

    async def _asked(self, call: tuple[Job, Mapping[str, Any], float]) -> Any:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._settings.jobs, "capmodel-job")
        asked = _Asked(call)
        try:
            loop = asyncio.get_running_loop()
            good, result = await loop.run_in_executor(self._threads, self._ask, asked)
        except asyncio.CancelledError:
            with self._lock:
                asked.given_up = True
                if asked.process is not None:
                    asked.process.end()
            raise
        if not good:
            raise result
        return result

    def _ask(self, asked: "_Asked") -> tuple[bool, Any]:
        """Whether it is a result, and it; by a process that no other thread asks meanwhile."""
        given_up = Refused(504, [problem("", _LESS, f"given up; expected {_LESS}")])
        with self._lock:
            process = self._idle.pop() if self._idle else None
        try:
            if process is None:
                process = _Process(self.nursery.make(), self._settings.job_memory_bytes)
            with self._lock:
                self._all.add(process)
                asked.process = process
                if self._closed or asked.given_up:
                    process.end()
            answer: tuple[bool, Any] = process.ask(asked.call)
        except (EOFError, OSError):  # it is no more
            if process is not None:
                self._forget(process)
            return False, ending() if self._closed else given_up
        except BaseException:
            if process is not None:
                self._forget(process)
            raise
        if process.answered >= _JOBS_PER_PROCESS:
            self._forget(process)
        else:
            with self._lock:
                asked.process = None
                if process in self._all and not asked.given_up:
                    self._idle.append(process)
        return answer

    def _forget(self, process: "_Process") -> None:
        with self._lock:
            self._all.discard(process)
        process.close()


@dataclass(slots=True)
class _Asked:
    """A call on its way: by which process, and whether nobody waits for it any more."""

    call: tuple[Job, Mapping[str, Any], float]
    process: "_Process | None" = None
    given_up: bool = False


class _Process:
    """One process and the connection to it."""

    def __init__(self, connection: Connection, memory_bytes: int):
        self._connection = connection
        self.answered = 0
        connection.send(memory_bytes)

    def ask(self, call: tuple[Job, Mapping[str, Any], float]) -> Any:
        self.answered += 1
        self._connection.send(call)
        return self._connection.recv()

    def end(self) -> None:
        """End it while another thread waits for it."""
        if sys.platform == "win32":
            self._connection.close()
            return
        with contextlib.suppress(OSError), socket.socket(fileno=self._connection.fileno()) as whole:
            try:
                whole.shutdown(socket.SHUT_RDWR)
            finally:
                whole.detach()

    def close(self) -> None:
        self._connection.close()


def _answer_jobs(connection: Connection) -> None:
    """What a job's process does: one call after the other, until nobody asks."""
    end_with(connection)
    _prepare(connection.recv())
    while True:
        job, body, timeout_s = connection.recv()
        try:
            answer = True, _timed(job, body, timeout_s)
        except Exception as error:  # noqa: BLE001  raised where the job was asked for
            answer = False, error
        connection.send(answer)


def _warm(_body: Mapping[str, Any]) -> int:
    from capmodel.service import warm_jobs

    return warm_jobs.LOADED


def _prepare(memory_bytes: int) -> None:
    """Bound a fresh process: its memory, its threads; Ctrl-C is the parent's business."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1, user_api="blas")
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        top = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        with contextlib.suppress(ValueError, OSError):  # a system that does not bound it
            resource.setrlimit(resource.RLIMIT_AS, (top, hard))
        os.nice(5)  # a short answer goes before a long one


def _timed(job: Job, body: Mapping[str, Any], timeout_s: float) -> Any:
    """`job(body)` within its time, every expected failure as a Refused."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        faulthandler.dump_traceback_later(timeout_s + _GRACE_S, exit=True, file=nowhere)
        _alarm(timeout_s)
        try:
            return job(body)
        except _TimeUp:
            message = f"stopped after {timeout_s:g} s; expected {_LESS}"
            raise Refused(504, [problem("", _LESS, message)]) from None
        except MemoryError:
            text = "less to hold in memory: a smaller file, or fewer requests"
            raise Refused(413, [problem("", text, f"out of memory; expected {text}")]) from None
        except (ValueError, RecursionError, OverflowError) as error:
            raise refused_by_package(error) from None
        finally:
            _alarm(0.0)
            faulthandler.cancel_dump_traceback_later()


def _alarm(seconds: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, _on_alarm)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _on_alarm(*_: object) -> None:
    raise _TimeUp
