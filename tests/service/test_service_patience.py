"""A connection that sends no whole request is let go; an answer that takes long is not."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from capmodel.service.patience import patient

WAIT_S = 0.5


async def slow(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(4 * WAIT_S)
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(slow, http=patient(WAIT_S), lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield listening.getsockname()
    server.should_exit = True
    thread.join()


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_request_that_never_comes_is_not_waited_for(
    address: tuple[str, int], begun: bytes
) -> None:
    with socket.create_connection(address, timeout=60) as client:
        client.sendall(begun)
        assert client.recv(99) == b""


def test_what_is_being_answered_is_waited_for_and_what_follows_is_not(
    address: tuple[str, int],
) -> None:
    with socket.create_connection(address, timeout=60) as client:
        for _ in range(2):
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"ok"):
                answer += client.recv(999) or pytest.fail(f"closed after {answer!r}")
        client.sendall(b"GET / HT")
        start = time.monotonic()
        assert client.recv(99) == b""
        assert time.monotonic() - start < 30
