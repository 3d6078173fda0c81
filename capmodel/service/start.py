"""What a worker does first: the jobs' processes load while it loads itself."""

import multiprocessing
from typing import Any


def process_context() -> Any:
    """Processes forked from one that has everything loaded; spawned where there is no fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["capmodel.service.warm"])
    return context


def application() -> Any:
    """The ASGI application of a worker of `capmodel serve`."""
    if process_context().get_start_method() == "forkserver":
        from multiprocessing import forkserver

        forkserver.ensure_running()
    from capmodel.service.app import create_app

    return create_app()
