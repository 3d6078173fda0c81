"""Running the service: everything is loaded once, then the workers are forked and watched."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from capmodel.service.settings import Settings

if TYPE_CHECKING:
    from capmodel.service.jobs import Jobs

_AGAIN_S = 1.0  # before a worker that died young is started again
_END_S = 3  # that jobs have to end when the service is told to
_IDLE_S = 30.0  # that a connection may wait for its next request


@dataclass(frozen=True, slots=True)
class Listening:
    """A socket that is bound but does not listen yet: who comes early is refused, not kept."""

    socket: socket.socket
    url: str


def bind(host: str, port: int, prefix: str = "") -> Listening:
    """A socket at `host` and `port` (0: a free one). Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)[0]
    family, kind, protocol, _, address = found
    bound = socket.socket(family, kind, protocol)  # asyncio sends at once where it is told TCP
    try:
        if os.name == "posix":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    shown = f"[{host}]" if family == socket.AF_INET6 else host
    return Listening(bound, f"http://{shown}:{bound.getsockname()[1]}{prefix}/")


def run_service(listening: Listening, workers: int, settings: Settings, access_log: bool) -> None:
    """Serve until told to end. Returns after Ctrl-C or SIGTERM, when every process has ended."""
    with tempfile.TemporaryDirectory(prefix="capmodel-metrics-") as folder:
        if workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        signal.signal(signal.SIGTERM, _end)
        try:
            _serve(listening, workers, settings, access_log)
        except (KeyboardInterrupt, _Ended):
            return
        finally:
            listening.socket.close()


class _Ended(BaseException):
    """Told to end by SIGTERM."""


def _end(*_: object) -> None:
    raise _Ended


def _serve(listening: Listening, workers: int, settings: Settings, access_log: bool) -> None:
    gc.disable()  # imports make no rubbish worth looking for
    from capmodel.service import warm  # noqa: F401  what workers and jobs share
    from capmodel.service.jobs import Jobs

    jobs = Jobs(settings)
    if hasattr(os, "fork"):
        gc.freeze()  # what is loaded is shared, and stays so
        jobs.nursery.fork(listening.socket)  # it loads the rest of the jobs' while this goes on
    from capmodel.service.app import create_app

    app = create_app(settings, jobs)
    gc.freeze()
    gc.enable()
    listening.socket.listen(2048)
    print(f"capmodel answers at {listening.url} (Ctrl-C ends it)", file=sys.stderr, flush=True)
    if workers == 1:
        _run(app, jobs, listening, access_log)
    else:
        _watch(app, jobs, listening, workers, access_log)


def _run(app: Any, jobs: "Jobs", listening: Listening, access_log: bool) -> None:
    """Answer requests in this process."""
    import uvicorn

    from capmodel.service.patience import patient

    config = uvicorn.Config(
        app,
        http=patient(_IDLE_S),
        log_level="info",
        access_log=access_log,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(_IDLE_S),
        limit_concurrency=1000,
        timeout_graceful_shutdown=_END_S + 2,
    )

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """What is not done in some seconds is answered too: that the service is ending."""
            asyncio.get_running_loop().call_later(_END_S, jobs.close)
            await super().shutdown(sockets)

    Server(config).run(sockets=[listening.socket])


def _watch(app: Any, jobs: "Jobs", listening: Listening, workers: int, access_log: bool) -> None:
    """Keep `workers` processes; end them all when told to end."""
    started: dict[int, float] = {}
    watched, held = os.pipe()  # `held` is open in this process only

    def fork() -> None:
        pid = os.fork()
        if pid:
            started[pid] = time.monotonic()
            return
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(held)
            threading.Thread(target=_end_after, args=(watched,), daemon=True).start()
            _run(app, jobs, listening, access_log)
            code = 0
        except (KeyboardInterrupt, _Ended):
            code = 0
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    try:
        for _ in range(workers):
            fork()
        while True:
            pid, _ = os.wait()
            born = started.pop(pid, None)
            if born is None:
                continue
            _forget_figures(pid)
            if time.monotonic() - born < _AGAIN_S:
                time.sleep(_AGAIN_S)
            fork()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in started:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def _end_after(watched: int) -> None:
    """End this worker when the process that watches it is no more."""
    os.read(watched, 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _forget_figures(pid: int) -> None:
    """What a worker that is no more was doing is not counted any longer."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)
