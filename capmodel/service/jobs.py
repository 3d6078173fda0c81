"""Long work in processes of its own, stopped by the clock and bounded in memory.

A job ends itself: an alarm raises inside it, and where that is not heard, the interpreter's
watchdog ends the process. The pool is then made anew.
"""

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection, wait
from typing import Any

from capmodel.service.errors import Refused, problem, refused_by_package
from capmodel.service.settings import Settings
from capmodel.service.start import process_context

Job = Callable[[Mapping[str, Any]], Any]

_GRACE_S = 5.0  # between the alarm and the end of the process
_TASKS_PER_PROCESS = 200  # then a fresh process: what caches hold is given back


class _TimeUp(BaseException):
    """Raised by the alarm; a BaseException, so that no `except Exception` keeps it."""


class Jobs:
    """Processes that answer one request each at a time. Use `start` once, `run` many times."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._pool: ProcessPoolExecutor | None = None
        self._lifeline: tuple[Connection, Connection] | None = None
        self.waiting = 0

    async def start(self) -> None:
        """Start one process and wait until it has loaded the calibrations."""
        await asyncio.get_running_loop().run_in_executor(self._running_pool(), _warm)

    def close(self) -> None:
        """End the processes at once; what they were doing is given up."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        if self._lifeline is not None:
            for end in self._lifeline:
                end.close()
            self._lifeline = None

    @property
    def busy(self) -> bool:
        """Whether a further job would have to wait for another."""
        return self.waiting >= self._settings.jobs

    async def run(self, job: Job, body: Mapping[str, Any], timeout_s: float) -> Any:
        """The result of `job(body)`, computed elsewhere.

        Raises Refused: 422 with the package's own words, 503 where too many wait, 504 where it
        takes longer than `timeout_s`.
        """
        if self.waiting >= self._settings.waiting:
            text = f"at most {self._settings.waiting} requests of this kind at once"
            raise Refused(503, [problem("", text, f"too busy: {text}; try again")], retry_s=2)
        self.waiting += 1
        try:
            pool = self._running_pool()
            call = asyncio.get_running_loop().run_in_executor(pool, _timed, job, body, timeout_s)
            return await call
        except BrokenProcessPool:
            if self._pool is pool:
                self._pool = None
            text = "less work: a smaller file, fewer choices, or no simulation"
            raise Refused(
                504, [problem("", text, f"given up; expected {text}")], retry_s=None
            ) from None
        finally:
            self.waiting -= 1

    def _running_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = process_context()
            if self._lifeline is None:
                self._lifeline = context.Pipe(duplex=False)
            self._pool = ProcessPoolExecutor(
                max_workers=self._settings.jobs,
                mp_context=context,
                initializer=_prepare,
                initargs=(self._settings.job_memory_bytes, self._lifeline[0]),
                max_tasks_per_child=_TASKS_PER_PROCESS,
            )
        return self._pool


def _warm() -> int:
    from capmodel.service import warm

    return warm.LOADED


def _prepare(memory_bytes: int, lifeline: Connection) -> None:
    """Bound a fresh process: its memory, its threads; Ctrl-C is the parent's business."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1, user_api="blas")
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        top = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        with contextlib.suppress(ValueError, OSError):  # a system that does not bound it
            resource.setrlimit(resource.RLIMIT_AS, (top, hard))
        os.nice(5)  # a short answer goes before a long one


def _end_with_parent(lifeline: Connection) -> None:
    """End this process when the service closes its end, or is no more."""
    wait([lifeline])
    os._exit(0)


def _timed(job: Job, body: Mapping[str, Any], timeout_s: float) -> Any:
    """`job(body)` within its time, every expected failure as a Refused."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        faulthandler.dump_traceback_later(timeout_s + _GRACE_S, exit=True, file=nowhere)
        _alarm(timeout_s)
        try:
            return job(body)
        except _TimeUp:
            text = "less work: a smaller file, fewer choices, or no simulation"
            message = f"stopped after {timeout_s:g} s; expected {text}"
            raise Refused(504, [problem("", text, message)]) from None
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
