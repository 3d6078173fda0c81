"""A command that is told to end ends as Ctrl-C ends it."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_tidily() -> Iterator[None]:
    """A SIGTERM (timeout, a batch system) ends as Ctrl-C does: no half-written file and no
    process stays."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
