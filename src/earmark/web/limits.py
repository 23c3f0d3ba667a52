"""How much a client may ask for, and the watch that stops work beyond it.

Conventions: sizes are in bytes and times in seconds. What goes beyond a limit is refused with one
sentence and a status: 413 for what is too large or too long, 408 for a client that is too slow,
503 for too much at once or work that takes too long.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from threading import Event
from time import monotonic

from earmark.errors import EarmarkError, SettingError

MB = 1 << 20
MOST = 1e15  # of any limit; what is larger, or infinite, is a mistake
MOST_ACTIVE = 256  # each is a thread


class RequestError(EarmarkError):
    """A request that the service does not answer, with the HTTP status that says why.

    >>> RequestError(413, "The recording is too long.").status
    413
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class StoppedError(EarmarkError):
    """Work that nobody wants any more: its client has gone, or the service ends.

    >>> raise StoppedError("The service ends.")
    Traceback (most recent call last):
        ...
    earmark.web.limits.StoppedError: The service ends.
    """


@dataclass(frozen=True)
class Limits:
    """The limits of a service.

    Args:
        max_upload: bytes of a recording.
        max_duration: seconds of a recording.
        max_seconds: that `POST /detect` may take, from the end of the upload on.
        max_active: recordings that are analysed at a time.
        max_waiting: recordings that may wait for their turn.
        max_connections: open at a time.
        max_recordings: in the library.
        max_library: bytes of all recordings in the library.
        max_body: bytes of a request that is no recording.
        idle_seconds: that a client may let pass between two parts of a request or of an answer.
        upload_seconds: that an upload may take.

    >>> Limits(max_active=0)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: max_active must be a number above 0. Got 0.
    """

    max_upload: float = 1024 * MB
    max_duration: float = 12 * 3600.0
    max_seconds: float = 300.0
    max_active: int = 2
    max_waiting: int = 64
    max_connections: int = 256
    max_recordings: int = 10_000
    max_library: int = 100 * 1024 * MB
    max_body: int = 8 * MB
    idle_seconds: float = 20.0
    upload_seconds: float = 3600.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not (isinstance(value, int | float) and value > 0):
                raise SettingError(f"{name} must be a number above 0. Got {value!r}.")
            most = MOST_ACTIVE if name == "max_active" else MOST
            if value > most:
                raise SettingError(f"{name} must be at most {most:g}. Got {value!r}.")

    def to_dict(self) -> dict[str, float]:
        """Return all limits by name.

        >>> Limits(max_active=1).to_dict()["max_active"]
        1
        """
        return asdict(self)


class Watch:
    """Looks after one piece of work: how far it is, and whether it must stop.

    Args:
        max_duration: seconds of audio that the work may read.
        max_seconds: that it may take from now on; None is any time.
        is_stopped: also asked at every check.

    >>> watch = Watch(max_duration=60.0)
    >>> watch.check(59.0)
    >>> watch.check(61.0)
    Traceback (most recent call last):
        ...
    earmark.web.limits.RequestError: The recording is longer than 1 minute, the limit of this ...
    """

    def __init__(
        self,
        max_duration: float,
        max_seconds: float | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.max_duration = max_duration
        self.max_seconds = max_seconds
        self.duration = 0.0  # seconds of audio that were read
        self._deadline = None if max_seconds is None else monotonic() + max_seconds
        self._is_stopped, self._stop = is_stopped, Event()

    def stop(self) -> None:
        """Let the next check raise `StoppedError`.

        >>> watch = Watch(60.0)
        >>> watch.stop()
        >>> watch.check()
        Traceback (most recent call last):
            ...
        earmark.web.limits.StoppedError: The work was stopped.
        """
        self._stop.set()

    def check(self, duration: float = 0.0) -> None:
        """Raise if the work must end, given how many seconds of audio it has read so far."""
        self.duration = max(duration, self.duration)
        if self._stop.is_set() or self._is_stopped():
            raise StoppedError("The work was stopped.")
        if duration > self.max_duration:
            raise RequestError(
                413,
                f"The recording is longer than {in_words(self.max_duration)}, the limit of this "
                "service; cut it.",
            )
        if self._deadline is not None and monotonic() > self._deadline:
            raise RequestError(
                503,
                f"The work took longer than {in_words(self.max_seconds or 0)}, the limit of this "
                "service; send a shorter recording, or try again later.",
            )


def in_words(seconds: float) -> str:
    """Return a length of time as one says it.

    >>> in_words(90), in_words(60), in_words(43200)
    ('90 seconds', '1 minute', '12 hours')
    """
    for unit, name in ((3600, "hour"), (60, "minute")):
        if seconds >= unit and seconds % unit == 0:
            count = int(seconds // unit)
            return f"{count} {name}" + ("s" if count > 1 else "")
    return f"{seconds:g} second" + ("" if seconds == 1 else "s")
