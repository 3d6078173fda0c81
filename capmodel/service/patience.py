"""Connections on which no whole request comes are let go: enough of them shut all others out."""

import asyncio
from typing import Any


def patient(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which waits `seconds` for a request, and at most twice that [s].

    A request being answered may take longer; the body of one has a limit of its own.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Patient(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _looking: asyncio.TimerHandle | None = None
        _seen: Any = False  # the request answered last when looked at: nobody's at first

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._look()

        def connection_lost(self, exc: Exception | None) -> None:
            if self._looking is not None:
                self._looking.cancel()
            super().connection_lost(exc)

        def _look(self) -> None:
            last = self.cycle
            if last is None or last.response_complete:
                if last is self._seen:
                    self.transport.close()
                    return
                self._seen = last
            else:
                self._seen = False
            self._looking = self.loop.call_later(seconds, self._look)

    return Patient
