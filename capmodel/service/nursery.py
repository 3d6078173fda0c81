"""Processes for jobs, forked from one that has everything loaded and answers no requests.

`capmodel serve` loads once, forks the nursery and then its workers: all share what was loaded.
A worker asks the nursery for a process over a socket, and gets the other end of a connection to
it. A process that was forked so holds no client's connection and no worker's lock. Where there
is no fork, each process is started and loads by itself.
"""

import contextlib
import gc
import multiprocessing
import os
import select
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Task = Callable[[Connection], None]


class Nursery:
    """Makes processes that run `task(connection)` and end when the connection does."""

    def __init__(self, task: Task):
        self._task = task
        self._control: socket.socket | None = None
        self._lock = threading.Lock()

    def fork(self, *without: socket.socket) -> None:
        """Fork the nursery off this process, which has loaded and runs no threads of its own.

        `without` are sockets that it must not keep open.
        """
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            try:
                for one in (ours, *without):
                    one.close()
                _tend(theirs, self._task)
            except BaseException:  # noqa: BLE001  told, and then it ends
                traceback.print_exc()
            finally:
                os._exit(1)  # whatever it was, this is no second service
        theirs.close()
        self._control = ours

    def make(self) -> Connection:
        """A connection to a fresh process."""
        if not hasattr(os, "fork"):
            ours, theirs = multiprocessing.get_context("spawn").Pipe()
            _start(self._task, theirs)
            return ours
        near, far = socket.socketpair()
        with far, self._lock:
            if self._control is None:
                self._control = self._started()
            try:
                socket.send_fds(self._control, [b"+"], [far.fileno()])
            except OSError:  # the nursery is no more: a new one
                self._control = self._started()
                socket.send_fds(self._control, [b"+"], [far.fileno()])
        return Connection(near.detach())

    def close(self) -> None:
        """Let the nursery end. Processes that it has made end with their connections."""
        with self._lock:
            if self._control is not None:
                self._control.close()
                self._control = None

    def _started(self) -> socket.socket:
        """A nursery of a process that loads by itself, for a service that runs in another's."""
        ours, theirs = socket.socketpair()
        with theirs:
            _start(_tend, theirs, self._task)
        return ours


def _start(function: Callable[..., None], *given: Any) -> None:
    """Start a process whose interpreter is a new one."""
    forking = "forkserver" in multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if forking else "spawn")
    if forking:
        context.set_forkserver_preload(["capmodel.service.warm_jobs"])
    context.Process(target=function, args=given, daemon=True).start()


def _tend(control: socket.socket, task: Task) -> None:
    """Fork a process for each connection that comes through `control`; end with it."""
    from capmodel.service import warm_jobs  # noqa: F401  what its children find loaded

    gc.freeze()
    gc.enable()  # where the service put it off while it loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the service's business
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system buries the dead
    while True:
        word, handles, _, _ = socket.recv_fds(control, 1, 1)
        if not word:
            with contextlib.suppress(ChildProcessError):
                os.wait()  # until the last has ended
            os._exit(0)
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            with contextlib.suppress(EOFError, OSError):
                task(Connection(handles[0]))
            os._exit(0)
        os.close(handles[0])


def end_with(connection: Connection) -> None:
    """End this process when the other end of `connection` closes, whatever it is doing."""

    def watch() -> None:
        gone = select.poll()
        gone.register(connection.fileno(), 0)  # a hang-up is told without being asked for
        gone.poll()
        os._exit(0)

    if hasattr(select, "poll"):  # elsewhere it ends when it next looks for work
        threading.Thread(target=watch, daemon=True).start()
