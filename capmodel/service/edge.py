"""What holds for every request, before and after its route: prefix, bounds, headers."""

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from capmodel.service.errors import Problem, problem
from capmodel.service.handlers import problem_response
from capmodel.service.settings import Settings

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "manifest-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}
_UPLOADS = ("/v1/fit", "/v1/grade")


class Edge:
    """ASGI middleware around the application.

    A path under `settings.prefix` is answered as without it. A body that is too long, too slow,
    packed, or posted by a page of another site is refused before it is read whole.
    """

    def __init__(self, app: ASGIApp, settings: Settings):
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope = self._under_prefix(scope)
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server leaves the body out
        headers = Headers(scope=scope)
        most = self._most_bytes(scope)
        static = scope["path"].startswith(f"{self._settings.prefix}/static/")
        refusal = _refusal(headers, scope["method"], most)
        body = _Body(receive, most, self._settings.body_timeout_s)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
                answer.setdefault("cache-control", "no-cache" if static else "no-store")
            await send(message)

        if refusal is not None:
            response = problem_response(*refusal)
            response.headers["connection"] = "close"
            await response(scope, receive, with_headers)
            return
        await self._app(scope, body.receive, with_headers)

    def _under_prefix(self, scope: Scope) -> Scope:
        prefix = self._settings.prefix
        if not prefix:
            return scope
        path = scope["path"]
        if not (path == prefix or path.startswith(prefix + "/")):
            path = prefix + path  # the proxy has taken the prefix away
        return {**scope, "path": path, "root_path": prefix}

    def _most_bytes(self, scope: Scope) -> int:
        upload = scope["path"].removeprefix(self._settings.prefix) in _UPLOADS
        return self._settings.upload_bytes if upload else self._settings.body_bytes


class _Body:
    """Receives a body, counting its bytes and its time. Raises HTTPException over either."""

    def __init__(self, receive: Receive, most: int, seconds: float):
        self._receive = receive
        self._most = most
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._seconds = seconds
        self._bytes = 0
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            detail = f"expected the whole body within {self._seconds:g} s"
            raise HTTPException(408, detail) from None
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._bytes > self._most:
                raise HTTPException(413, _too_long(self._most).message)
        return message


def _refusal(headers: Headers, method: str, most: int) -> tuple[int, list[Problem]] | None:
    length = headers.get("content-length", "")
    if length.isdigit() and int(length[:19]) > most:
        return 413, [_too_long(most)]
    if headers.get("content-encoding", "identity").lower() != "identity":
        expected = "a body that is not packed (no Content-Encoding)"
        return 415, [problem("", expected, f"expected {expected}")]
    if method not in ("GET", "HEAD", "OPTIONS") and headers.get("sec-fetch-site") == "cross-site":
        expected = "a request from this service's own pages, or from no page"
        return 403, [problem("", expected, f"expected {expected}")]
    return None


def _too_long(most: int) -> Problem:
    expected = f"a body of at most {most >> 20} MiB"
    return problem("", expected, f"expected {expected}")
