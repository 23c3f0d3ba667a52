"""A model file -> a running service; what the command `serve` calls."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from earmark.errors import SettingError
from earmark.inference.model_file import find_model
from earmark.web.adoption import open_model
from earmark.web.app import make_app
from earmark.web.guard import Access, is_loopback
from earmark.web.jobs import Jobs
from earmark.web.library import Library
from earmark.web.limits import Limits
from earmark.web.server import bind, run
from earmark.web.service import Service

SHORTEST_TOKEN = 16  # characters


@dataclass(frozen=True)
class Settings:
    """Where and for whom a service is.

    Args:
        host: address to listen on.
        port: to listen on; 0 is any that is free.
        token: what clients must send; where one is needed and none given, one is made.
        names: further names of the service.
        library: folder of the recordings; None is a temporary one.
        limits: on what clients may ask for.
        base: table of tags and folder of its recordings, which trainings learn from besides the
            corrections; None is none.

    >>> Settings(host="0.0.0.0").with_token().token is None
    False
    >>> Settings().with_token().token is None
    True
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    names: tuple[str, ...] = ()
    library: Path | None = None
    limits: Limits = field(default_factory=Limits)
    base: tuple[Path, Path] | None = None

    def with_token(self) -> "Settings":
        """Return the settings with a token, if others can reach the service."""
        if self.token is not None:
            if len(self.token) < SHORTEST_TOKEN or not self.token.isascii():
                raise SettingError(
                    f"token must have {SHORTEST_TOKEN} ASCII characters or more. Got "
                    f"{len(self.token)}; leave it out to have one made."
                )
            return self
        if is_loopback(self.host):
            return self
        return replace(self, token=secrets.token_urlsafe(24))


def serve(
    model: Path,
    settings: Settings,
    *,
    device: str = "cpu",
    threads: int = 0,
    encoder: Path | None = None,
    announce: Callable[[str], None] = print,
) -> None:
    """Serve a model until SIGINT or SIGTERM.

    Args:
        model: the model file; "everyday" is the bundled one.
        settings: where and for whom.
        device: as in `Detector.load`.
        threads: as in `Detector.load`.
        encoder: as in `Detector.load`.
        announce: called with the address, in one line, as soon as it answers.
    """
    settings, model = settings.with_token(), find_model(model)
    with bind(settings.host, settings.port) as listening:
        port = listening.getsockname()[1]
        access = Access(settings.host, port, settings.token, settings.names)
        with Library(settings.library, settings.limits) as library:
            served = open_model(library, model, device, threads, encoder)
            service = Service(served, library, settings.limits, model)
            try:
                jobs = Jobs(service, settings.base)
                app = make_app(service, access, version("earmark"), jobs)
                announce(f"{served.name}: {address(access)} (Ctrl-C ends it)")
                run(app, listening, settings.limits)
            finally:
                service.close()


def address(access: Access) -> str:
    """Return the address of the page, with the token if there is one.

    >>> address(Access("0.0.0.0", 8000, "secret"))
    'http://...:8000/?token=secret'
    >>> address(Access("127.0.0.1", 8000))
    'http://127.0.0.1:8000/'
    """
    import socket

    host = access.host
    if host in ("0.0.0.0", "::", ""):
        host = socket.gethostname()
    elif ":" in host:
        host = f"[{host.strip('[]')}]"
    query = f"?token={quote(access.token, safe='')}" if access.token is not None else ""
    return f"http://{host}:{access.port}/{query}"
