"""The server: uvicorn on a socket of ours, with clients that never finish a request ended.

Conventions: the socket is bound before the model is loaded, so that a port that is taken is noticed
at once. A client must have sent the head of a request within `Limits.idle_seconds`.
"""

import asyncio
import logging
import socket
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from earmark.errors import SettingError
from earmark.web.limits import Limits

BACKLOG = 128


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any that is free.

    >>> with bind("127.0.0.1", 0) as listening:
    ...     listening.getsockname()[1] > 0
    True
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM,
                                   flags=socket.AI_PASSIVE)  # fmt: skip
    except (OSError, UnicodeError, OverflowError) as error:
        raise SettingError(f"host {host!r} and port {port} cannot be used: {error}.") from error
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise SettingError(
            f"Cannot listen on {host}, port {port}: {error.strerror}; choose another port."
        ) from error
    return listening


def run(app: ASGIApp, listening: socket.socket, limits: Limits) -> None:
    """Serve until SIGINT or SIGTERM."""
    server = make_server(app, limits)
    with suppress(KeyboardInterrupt):  # uvicorn raises the signal again when it has ended
        server.run(sockets=[listening])


def make_server(app: ASGIApp, limits: Limits) -> uvicorn.Server:
    """Return a server that is ready to run."""

    class Protocol(_Patient):
        idle_seconds = limits.idle_seconds

    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        date_header=True,
        proxy_headers=False,
        limit_concurrency=limits.max_connections,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=32 * 1024,
    )
    return uvicorn.Server(config)


class _Patient(H11Protocol):
    """A connection that is closed if the head of a request does not come in time.

    uvicorn itself closes one that sends nothing between two requests (`timeout_keep_alive`).
    """

    idle_seconds = 20.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.idle_seconds, self._end)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_waiting and self._timer is None:  # for the rest of the next head
            self._timer = self.loop.call_later(self.idle_seconds, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if not self._is_waiting and self._timer is not None:
            self._timer.cancel()  # from now on, bodies and answers have their own limits
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        if self._is_waiting and not self.transport.is_closing():
            self.transport.close()

    @property
    def _is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete
