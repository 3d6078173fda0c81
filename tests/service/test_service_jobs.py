"""A job is ended by the clock, by its memory or by its own death; the next one is answered."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import capmodel.service.jobs as jobs_module
from capmodel.service.errors import Refused
from capmodel.service.jobs import Jobs
from capmodel.service.settings import MIB, Settings


def fine(body: Mapping[str, Any]) -> Any:
    return {"pid": os.getpid(), "parent": os.getppid(), **body}


def slow(_body: Mapping[str, Any]) -> None:
    time.sleep(60)


def deaf(_body: Mapping[str, Any]) -> None:
    """In LAPACK for most of a minute: no signal is heard there."""
    np.linalg.svd(np.tri(5000))


def greedy(_body: Mapping[str, Any]) -> int:
    return int(np.ones(1 << 32).sum())  # 32 GiB


def dying(_body: Mapping[str, Any]) -> None:
    os.abort()


def wrong(_body: Mapping[str, Any]) -> None:
    raise ValueError("Got batch_size=0, but expected a positive number")


def deep(body: Mapping[str, Any]) -> Any:
    return deep(body)


def refusal(job: Callable[[Mapping[str, Any]], Any], timeout_s: float = 20.0) -> Refused:
    """What `job` is refused with; a good job is answered after it."""

    async def ask() -> Refused:
        jobs = Jobs(Settings(jobs=1, job_memory_bytes=4096 * MIB))
        try:
            with pytest.raises(Refused) as refused:
                await jobs.run(job, {}, timeout_s)
            assert (await jobs.run(fine, {"x": 1}, 60.0))["x"] == 1
            assert jobs.waiting == 0
            return refused.value
        finally:
            jobs.close()

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("job", "timeout_s", "status", "words"),
    [
        (slow, 0.2, 504, "stopped after 0.2 s"),
        (greedy, 20.0, 413, "out of memory"),
        (dying, 20.0, 504, "given up"),
        (wrong, 20.0, 422, "a positive number"),
        (deep, 20.0, 422, "too large"),
    ],
)
def test_a_bad_job_ends_and_the_next_is_answered(
    job: Callable[[Mapping[str, Any]], Any], timeout_s: float, status: int, words: str
) -> None:
    refused = refusal(job, timeout_s)
    assert refused.status == status
    assert words in refused.problems[0].message


@pytest.mark.slow
def test_a_job_that_hears_no_signal_is_ended_with_its_process() -> None:
    refused = refusal(deaf, 6.0)  # to be in LAPACK by then, on a busy machine too
    assert refused.status == 504
    assert "given up" in refused.problems[0].message  # the process, not the alarm


def test_close_ends_what_runs() -> None:
    async def ask() -> int:
        jobs = Jobs(Settings(jobs=1))
        pid = int((await jobs.run(fine, {}, 60.0))["pid"])
        running = asyncio.create_task(jobs.run(slow, {}, 60.0))
        await asyncio.sleep(0.3)
        jobs.close()
        with pytest.raises(Refused):
            await running
        return pid

    start = time.monotonic()
    pid = asyncio.run(ask())
    assert time.monotonic() - start < 50
    assert ends(pid)


def ends(pid: int) -> bool:
    """Whether a process is soon no more."""
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_one_that_dies_takes_no_other_along() -> None:
    async def ask() -> Any:
        jobs = Jobs(Settings(jobs=2))
        try:
            other = asyncio.create_task(jobs.run(slow, {}, 3.0))
            await asyncio.sleep(0.5)
            with pytest.raises(Refused, match="given up"):
                await jobs.run(dying, {}, 60.0)
            with pytest.raises(Refused, match="stopped after 3 s"):
                await other
        finally:
            jobs.close()

    asyncio.run(ask())


def test_a_nursery_that_dies_is_made_anew() -> None:
    async def ask() -> None:
        jobs = Jobs(Settings(jobs=1))
        try:
            first = await jobs.run(fine, {}, 60.0)
            os.kill(first["parent"], signal.SIGKILL)
            assert (await jobs.run(fine, {}, 60.0))["pid"] == first["pid"]
            with pytest.raises(Refused, match="given up"):
                await jobs.run(dying, {}, 60.0)
            assert (await jobs.run(fine, {}, 60.0))["parent"] != first["parent"]
        finally:
            jobs.close()

    asyncio.run(ask())


def test_a_process_that_has_answered_much_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "_JOBS_PER_PROCESS", 3)

    async def ask() -> list[int]:
        jobs = Jobs(Settings(jobs=1))
        try:
            return [(await jobs.run(fine, {}, 60.0))["pid"] for _ in range(7)]
        finally:
            jobs.close()

    pids = asyncio.run(ask())
    assert [pids.count(pid) for pid in dict.fromkeys(pids)] == [3, 3, 1]
    assert all(ends(pid) for pid in pids)


def test_a_job_that_nobody_waits_for_makes_room() -> None:
    async def ask() -> float:
        jobs = Jobs(Settings(jobs=1))
        try:
            await jobs.run(fine, {}, 60.0)
            left = [asyncio.create_task(jobs.run(slow, {}, 60.0)) for _ in range(5)]
            await asyncio.sleep(0.5)
            for task in left:
                task.cancel()
            start = time.monotonic()
            assert (await jobs.run(fine, {"x": 2}, 60.0))["x"] == 2
            assert jobs.waiting == 0
            return time.monotonic() - start
        finally:
            jobs.close()

    assert asyncio.run(ask()) < 20  # each of the slow ones takes a minute
