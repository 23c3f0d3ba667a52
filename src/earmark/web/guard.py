"""Who may ask: the checks of every request before it reaches the service.

Conventions: the service believes a request if

- its Host is a name of this service, so that a foreign name that was pointed at this machine (DNS
  rebinding) gets nothing;
- its Origin, where a browser sends one, is this service, and the browser does not say that another
  site asks: a page of another site cannot drive it;
- it has the token, if there is one, in `Authorization: Bearer`, in the cookie of the page, or once
  in the address of the page as `?token=`.

Every answer forbids scripts, styles and frames from elsewhere. A request that is refused here has
not been read. Slow clients and large bodies are ended here as well.
"""

import asyncio
import ipaddress
import secrets
import socket
from collections.abc import Collection, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from earmark.web.limits import Limits

LOOPBACK = ("localhost", "127.0.0.1", "::1")
COOKIE = "earmark_token"
UPLOADS = ("/detect", "/api/recordings")  # whose bodies are recordings
DRAIN = 5.0  # seconds that a refused body is read on, so that its client sees the answer

HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' blob: data:; media-src 'self' "
    "blob:; worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "microphone=(self), camera=(), geolocation=()",
}

# Sends the browser on without the token in the address. A redirect would be part of the navigation
# that brought it here, possibly from another site, and such a one sends no SameSite=Strict cookie.
_WELCOME = '<!doctype html><meta http-equiv="refresh" content="0; url=/"><title>Earmark</title>'


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Args:
        host: that the service listens on.
        port: that it listens on.
        token: that is needed; None if none is.
        names: further names of this service, such as that of a proxy in front of it.

    >>> Access("127.0.0.1", 8000).accepts_host("localhost:8000")
    True
    >>> Access("127.0.0.1", 8000).accepts_host("evil.example")
    False
    """

    host: str
    port: int
    token: str | None = None
    names: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        return is_loopback(self.host)

    def accepts_host(self, host: str) -> bool:
        """Return whether the Host of a request names this service."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        own = self.host.strip("[]").lower()
        known: Collection[str] = (*LOOPBACK, own, *(each.lower() for each in self.names))
        if name in known:
            return True
        if self.is_loopback:
            return False
        # The token guards a service that others can reach; numbers cannot be rebound.
        return name == socket.gethostname().lower() or _is_address(name)

    def accepts_token(self, token: str) -> bool:
        """Return whether this is the token, in a time that does not depend on what is wrong."""
        own = (self.token or "").encode()
        return secrets.compare_digest(token.encode("utf-8", "replace"), own)

    @property
    def cookie(self) -> str:
        """The name of the cookie: cookies are shared by all ports of a host."""
        return f"{COOKIE}_{self.port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Guard:
    """An ASGI application in front of another, which only sees what may pass.

    Args:
        app: the application.
        access: who may ask.
        limits: on bodies and time.
    """

    def __init__(self, app: ASGIApp, access: Access, limits: Limits) -> None:
        self.app, self.access, self.limits = app, access, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        body = _Body(receive, self._max_body(scope["path"]), self.limits.idle_seconds)
        answer = self._refuse(scope, headers)
        if answer is None and body.is_too_long(headers):
            await body.drain()
            answer = self._too_large(scope["path"])
        guarded = self._guarded(send)
        if answer is not None:
            await answer(scope, receive, guarded)
            return
        await self.app(scope, body, guarded)

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a request that may not pass; None if it may."""
        host = headers.get("host", "")
        if not self.access.accepts_host(host):
            return _problem(
                421,
                "This service is not known by the name of the request; use the address that "
                "earmark serve printed, or start it with that name as --allow-host.",
            )
        if not self._is_own_site(scope, headers, host):
            return _problem(403, "Another site may not use this service.")
        return None if self.access.token is None else self._ask_token(scope, headers)

    def _ask_token(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the answer to a request without the token, or to the one that brings it."""
        if scope["path"] == "/" and scope["method"] == "GET":
            given = QueryParams(scope.get("query_string", b"")).get("token", "")
            if self.access.accepts_token(given):
                welcome = HTMLResponse(_WELCOME)
                welcome.set_cookie(
                    self.access.cookie, given, httponly=True, samesite="strict", path="/"
                )
                return welcome
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.access.accepts_token(given.strip()):
            return None
        # Cookies of other services on this machine come along; some have no valid form.
        if self.access.accepts_token(
            cookie_parser(headers.get("cookie", "")).get(self.access.cookie, "")
        ):
            return None
        return _problem(
            401,
            "This service needs its token: open the address that earmark serve printed, or send "
            "the header Authorization: Bearer TOKEN.",
            {"www-authenticate": "Bearer"},
        )

    def _is_own_site(self, scope: Scope, headers: Headers, host: str) -> bool:
        """Return whether a page of this service asks, or no page at all."""
        origin = headers.get("origin")
        if origin is not None:
            try:
                parts = urlsplit(origin)
            except ValueError:
                return False
            if parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
                return False
        site = headers.get("sec-fetch-site", "none")
        # A link on another site may lead to the page; nothing else may come from there.
        is_link = scope["method"] in ("GET", "HEAD") and scope["path"] in ("/", "/docs")
        return site in ("none", "same-origin") or (
            is_link and headers.get("sec-fetch-mode") == "navigate"
        )

    def _max_body(self, path: str) -> float:
        # A form is a little longer than the recording in it, which is counted by itself.
        return self.limits.max_upload + (1 << 16) if path in UPLOADS else self.limits.max_body

    def _too_large(self, path: str) -> Response:
        size = (self.limits.max_upload if path in UPLOADS else self.limits.max_body) / 2**20
        what = "recording" if path in UPLOADS else "request"
        return _problem(413, f"The {what} is larger than {size:g} MB, the limit of this service.")

    def _guarded(self, send: Send) -> Send:
        """Return a send that adds the headers, and ends a client that does not read."""

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message.get("headers", [])}
                added = {name.encode(): value.encode() for name, value in HEADERS.items()}
                added[b"server"] = b"earmark"
                if b"cache-control" not in own:
                    added[b"cache-control"] = b"no-store"
                more = [pair for pair in added.items() if pair[0] not in own]
                message["headers"] = [*message.get("headers", []), *more]
            async with asyncio.timeout(max(60.0, self.limits.idle_seconds)):
                await send(message)

        return send_on


class _Body:
    """The receive of a request, which ends a body that is longer than allowed, or does not come."""

    def __init__(self, receive: Receive, max_body: float, idle_seconds: float) -> None:
        self._receive, self._max_body, self._idle_seconds = receive, max_body, idle_seconds
        self._n_bytes, self._is_complete = 0, False

    def is_too_long(self, headers: Headers) -> bool:
        """Return whether the header already says so."""
        length = headers.get("content-length", "")
        return length.isascii() and length.isdigit() and int(length[:18]) > self._max_body

    async def __call__(self) -> MutableMapping[str, Any]:
        try:
            # After the body, an application may wait for the end of the connection.
            async with asyncio.timeout(None if self._is_complete else self._idle_seconds):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408, f"Nothing was received for {self._idle_seconds:g} s; send the request again."
            ) from None
        self._is_complete = not message.get("more_body", False)
        if message["type"] == "http.request":
            self._n_bytes += len(message.get("body", b""))
            if self._n_bytes > self._max_body:
                raise HTTPException(413, "The request is larger than this service allows.")
        return message

    async def drain(self) -> None:
        """Read on for a while: a connection that closes on unread bytes loses the answer."""
        try:
            async with asyncio.timeout(DRAIN):
                while (message := await self._receive())["type"] == "http.request":
                    if not message.get("more_body"):
                        return
        except TimeoutError:
            return


def _problem(status: int, detail: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": detail}, status, headers)
