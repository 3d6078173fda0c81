"""One BLAS thread: the lab's matrices are small, and threads that wait for each other cost more.

On a busy two-core machine the compression table took ten times the processor time with two.
"""

from contextlib import AbstractContextManager

from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]


def one_thread() -> AbstractContextManager[object]:
    """Limit BLAS to one thread inside the block."""
    limits: AbstractContextManager[object] = threadpool_limits(limits=1, user_api="blas")
    return limits
