"""What the service allows, in one place. Every bound is told to the client that passes it."""

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Settings:
    """Bounds of one worker.

    prefix: path under which a proxy publishes the service ("" or "/planner"). jobs: processes
    that plan, fit and grade. *_bytes: of a request's body [byte]. upload_rows: rows of all runs
    of a request. *_s: after which an answer is given up [s]. job_memory_bytes: address space of
    a job [byte]. waiting: jobs accepted at once; more are told to come back.
    """

    prefix: str = ""
    jobs: int = 2
    body_bytes: int = 4 * MIB
    upload_bytes: int = 16 * MIB
    upload_rows: int = 30_000
    body_timeout_s: float = 20.0
    plan_timeout_s: float = 30.0
    fit_timeout_s: float = 180.0
    job_memory_bytes: int = 4096 * MIB
    waiting: int = 32
