"""The body of a request -> a file, as it arrives, in constant memory.

Conventions: the body is a multipart form whose field `file` is the recording, as browsers and
`curl -F` send it, or the bytes of the recording themselves. Nothing stays of an upload that fails.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect, Request

from earmark.web.limits import Limits, RequestError

GATHERED = 1 << 20  # bytes that are written at a time
MAX_HEADER = 8192  # bytes of the headers of one part of a form
FORM = "multipart/form-data"


class Upload(NamedTuple):
    """A file that was received, and the name that the client gave it.

    >>> Upload(Path("work/1.part"), "dog.wav").name
    'dog.wav'
    """

    path: Path
    name: str


@asynccontextmanager
async def received(
    request: Request, path: Path, limits: Limits, name: str = ""
) -> AsyncIterator[Upload]:
    """Receive the recording of a request to a file, which is removed at the end if still there.

    Args:
        request: with the recording.
        path: where to write it.
        limits: on its size and its time.
        name: that it has unless the form gives it one.
    """
    try:
        with path.open("wb") as file:
            try:
                async with asyncio.timeout(limits.upload_seconds):
                    name = await _receive(request, file, limits) or name
            except TimeoutError:
                raise RequestError(
                    408, "The upload took too long; send it again over a faster connection."
                ) from None
            except ClientDisconnect:
                raise RequestError(400, "The upload ended before its end; send it again.") from None
        if not path.stat().st_size:
            raise RequestError(
                422, "The recording is empty (0 bytes); send its file as the field file."
            )
        yield Upload(path, name or "recording")
    finally:
        path.unlink(missing_ok=True)


async def _receive(request: Request, file: IO[bytes], limits: Limits) -> str:
    """Write the recording of a request to an open file; return the name that a form gives it."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    form = None
    if kind.decode("latin-1").lower() == FORM:
        boundary = options.get(b"boundary", b"")
        if not boundary:
            raise RequestError(
                422, "The form has no boundary; let your client set the content type."
            )
        form = _Form(boundary)
    held, n_bytes = bytearray(), 0
    async for chunk in request.stream():  # the guard ends a client that sends nothing
        n_bytes += len(chunk)
        if n_bytes > limits.max_upload:
            raise too_large(limits)
        held += form.feed(chunk) if form is not None else chunk
        if len(held) >= GATHERED:
            await asyncio.to_thread(file.write, bytes(held))
            held.clear()
    file.write(held)
    return "" if form is None else form.finish()


def too_large(limits: Limits) -> RequestError:
    """Return the error of a recording that is too large.

    >>> too_large(Limits(max_upload=2**20)).status
    413
    """
    return RequestError(
        413,
        f"The recording is larger than {limits.max_upload / 2**20:g} MB, the limit of this "
        "service; send a part of it, or compress it.",
    )


class _Form:
    """A multipart form that is read in pieces; its field `file` is passed on."""

    def __init__(self, boundary: bytes) -> None:
        self._out = bytearray()
        self._field, self._value = bytearray(), bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._is_file, self._n_files, self._name, self._is_complete = False, 0, "", False
        callbacks: dict[str, Callable[..., Any]] = {
            "on_part_begin": self._headers.clear,
            "on_header_field": self._on_field,
            "on_header_value": self._on_value,
            "on_header_end": self._on_header,
            "on_headers_finished": self._on_part,
            "on_part_data": self._on_data,
            "on_end": self._on_end,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]
        except FormParserError as error:
            raise self._wrong() from error

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of the recording that a piece of the form has."""
        try:
            self._parser.write(chunk)
        except FormParserError as error:
            raise self._wrong() from error
        found = bytes(self._out)
        self._out.clear()
        return found

    def finish(self) -> str:
        """Return the name of the file; raise unless the form was complete and has one."""
        if not self._n_files:
            raise RequestError(422, "The form has no field file with a recording.")
        if not self._is_complete:
            raise RequestError(422, "The form ends before its end; send it again.")
        return self._name

    def _wrong(self) -> RequestError:
        return RequestError(422, "The form cannot be read; send the recording as its field file.")

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._check_size()

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._check_size()

    def _check_size(self) -> None:
        if len(self._field) + len(self._value) > MAX_HEADER or len(self._headers) > 16:
            raise self._wrong()

    def _on_header(self) -> None:
        self._headers[bytes(self._field).lower()] = bytes(self._value)
        self._field.clear()
        self._value.clear()

    def _on_part(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        self._is_file = options.get(b"name") == b"file"
        if self._is_file:
            self._n_files += 1
            self._name = options.get(b"filename", b"").decode("utf-8", "replace")
        if self._n_files > 1:
            raise RequestError(
                422, "The form has more than one file; send one recording at a time."
            )

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self._out += data[start:end]

    def _on_end(self) -> None:
        self._is_complete = True
