"""Requests to the service of `earmark serve`, as files of raw HTTP, and what answers them.

Conventions: a file has one request: its line, its headers, an empty line, its body. It passes the
parser of the server (h11) and then the application, in this process and without a socket. An answer
below 400 is a result, one of 400 to 499 is our error, and one from 500 on is a failure, as is an
exception. A request whose body is shorter than it says is one of a client that has gone.

The service has one analysed recording. What a request adds is removed after it, and what it removes
is put back, so that a request does not depend on those before it.
"""

import asyncio
import atexit
import io
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from urllib.parse import unquote

import h11
import soundfile
from starlette.types import Message, Scope

from earmark.inference.model_file import save_bundle
from earmark.web.app import make_app
from earmark.web.guard import Access
from earmark.web.library import Library
from earmark.web.limits import Limits, RequestError
from earmark.web.served_model import ServedModel
from earmark.web.service import Service
from faults.mutation import TEXTS, change_bytes, change_json, change_text, odd_value, odd_wav
from faults.samples import small_bundle, tone

PORT = 8000
LIMITS = Limits(max_upload=1 << 20, max_duration=60.0, max_body=1 << 18, max_recordings=20)
NAME = "a.wav"  # of the recording
BOUNDARY = "a-boundary"


class NoAnswerError(Exception):
    """The service answers with a status from 500 on, or not at all."""


class _Served:
    """A service with one recording, in this process."""

    def __init__(self) -> None:
        self.folder = Path(mkdtemp())
        model = save_bundle(small_bundle(), self.folder / "model.earmark")
        self.library = Library(self.folder / "library", LIMITS)
        self.service = Service(ServedModel.load(model, threads=1), self.library, LIMITS)
        self.app = make_app(self.service, Access("127.0.0.1", PORT), "faults")
        self.runner = asyncio.Runner()
        self.restore()

    def restore(self) -> None:
        """Leave the one recording, analysed and not corrected."""
        for recording in self.library:
            if recording.name != NAME:
                self.service.remove(recording.id)
        if not len(self.library):
            path = self.library.work_path()
            path.write_bytes(_wav())
            self.service.add(path, NAME)[1].result()
        (recording,) = self.library
        if self.service.corrections.get(NAME) is not None:
            self.service.corrections.remove(NAME)
        self.id = recording.id

    def close(self) -> None:
        """End the threads and remove the files."""
        self.service.close()
        self.library.close()
        self.runner.close()


@cache
def _served() -> _Served:
    served = _Served()
    atexit.register(served.close)
    return served


def _wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, tone(0.5), 8000, format="WAV")
    return file.getvalue()


# Good requests, and bad ones.


def _form(content: bytes, name: str = "b.wav") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
    return head.encode() + b"\r\n" + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def _raw(method: str, target: str, headers: dict[str, str], body: bytes = b"") -> bytes:
    own = {"Host": f"127.0.0.1:{PORT}", **headers}
    if body:
        own["Content-Length"] = str(len(body))
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in own.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + body


def make(folder: Path) -> list[Path]:
    """Write good requests, of most routes."""
    own = f"/api/recordings/{_served().id}"
    form = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    values = {"Content-Type": "application/json"}
    rules: dict[str, Any] = {
        "sensitivity": "high",
        "min_score": 0.1,
        "rules": {"threshold": 0.3, "max_gap": 0.1, "median": 0.2},
        "class_rules": {"dog": {"threshold": 0.4, "clip_threshold": 0.2}},
        "classes": ["dog", "cat"],
    }
    correction = {
        "events": [{"onset": 0.1, "offset": 0.3, "event_label": "dog", "score": 0.5}],
        "tags": {"cat": False},
        "checked": "events",
    }
    query = "sensitivity=high&min_score=0.2&classes=dog,cat&filename=c.wav"
    raw = {"Content-Type": "application/octet-stream"}
    site = {"Origin": f"http://127.0.0.1:{PORT}", "Sec-Fetch-Site": "same-origin", "Cookie": "a=b"}
    requests = {
        "detect-raw": _raw("POST", f"/detect?{query}", raw, _wav()),
        "detect-form": _raw("POST", "/detect?sensitivity=-1.5", form, _form(_wav())),
        "upload-form": _raw("POST", "/api/recordings", form, _form(_wav())),
        "upload-raw": _raw("POST", "/api/recordings?filename=%C3%A9.wav", raw, _wav()),
        "recordings": _raw("GET", "/api/recordings", site),
        "recording": _raw("GET", own, {}),
        "audio": _raw("GET", f"{own}/audio", {"Range": "bytes=10-99"}),
        "tile": _raw("GET", f"{own}/tile?level=0&index=0", {"If-None-Match": '"x"'}),
        "scores": _raw("GET", f"{own}/scores?start=0.1&end=0.4&points=20&labels=dog", {}),
        "hierarchy": _raw("GET", f"{own}/hierarchy?label=dog&time=0.2", {}),
        "export": _raw("GET", f"{own}/export?format=jams", {}),
        "export-rules": _raw("POST", f"{own}/export?format=csv", values, _json(rules)),
        "events": _raw("POST", f"{own}/events", values, _json(rules)),
        "correct": _raw("PUT", f"{own}/corrections", values, _json(correction)),
        "corrections": _raw("GET", f"{own}/corrections", {}),
        "strong": _raw("GET", "/api/corrections/strong.tsv", {}),
        "model": _raw("GET", "/api/model", site),
        "page": _raw("GET", "/page/index.html", {"If-Modified-Since": "Tue, 01 Jan 2030"}),
        "delete": _raw("DELETE", own, site),
    }
    for name, content in requests.items():
        (folder / f"{name}.http").write_bytes(content)
    return [folder / f"{name}.http" for name in requests]


def _json(values: dict[str, Any]) -> bytes:
    return json.dumps(values).encode()


TARGETS = (
    *("/api/tune", "/api/train", "/api/jobs", "/api/jobs/x", "/api/jobs/x/adopt", "/health"),
    *("/api/jobs/x/model", "/api/corrections/weak.tsv", "/docs", "/openapi.json", "/", "*"),
    *("/page/../../../etc/passwd", "/page/%2e%2e/%2e%2e/etc/passwd", "/page/%00", "/page/%ff"),
    *("//127.0.0.1/", "http://other/", "/api/recordings/../../x", "/%", "/?", "/page", "/page/"),
)


def craft(rng: random.Random, path: Path) -> bytes:
    """Return a request with a changed method, target, header or body, and the right length."""
    head, _, body = path.read_bytes().partition(b"\r\n\r\n")
    line, *headers = head.decode("latin-1").split("\r\n")
    method, target, version = line.split(" ")
    for _ in range(rng.randint(1, 2)):
        kind = rng.randrange(8)
        if kind == 0:
            method = rng.choice(("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "X"))
        elif kind == 1:
            target = rng.choice(TARGETS) + rng.choice(("", "?" + target.partition("?")[2]))
        elif kind in (2, 3):
            place, _, query = target.partition("?")
            fields = change_text(rng, query.replace("&", "\n") or f"x\n{odd_value(rng)}")
            target = f"{place}?{_quoted(rng, fields.replace(chr(10), '&'))}"
        elif kind == 4:
            target = _quoted(rng, change_text(rng, target.replace("/", ":")).replace(":", "/"))
            target = target if target.startswith("/") else f"/{target}"
        elif kind == 5 or not body:
            headers = _change_headers(rng, headers)
        else:
            body = _change_body(rng, body)
    headers = [own for own in headers if not own.lower().startswith("content-length")]
    if body:
        headers.append(f"Content-Length: {len(body)}")
    lines = [f"{method} {target[:60_000]} {version}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body


def _quoted(rng: random.Random, text: str) -> str:
    """Return a text as it may be in a target: what may not is percent-encoded."""
    safe = rng.choice(("&=/?:,", "&=/?:,%", ""))
    encoded = text.encode("utf-8", "surrogatepass")
    return "".join(
        chr(own) if chr(own) in safe or (own < 128 and chr(own).isalnum()) else f"%{own:02X}"
        for own in encoded
    )


NAMES = (
    *("Host", "Origin", "Range", "If-Range", "If-None-Match", "If-Modified-Since", "Cookie"),
    *("Authorization", "Content-Type", "Accept", "Expect", "Transfer-Encoding", "Sec-Fetch-Site"),
    *("Sec-Fetch-Mode", "X-Forwarded-For", "Upgrade", "Connection", "Content-Encoding", "X"),
)
VALUES = (
    *("bytes=0-", "bytes=-1", "bytes=5-1", "bytes=0-0,2-3,-1", "bytes=99999999999999999999-", "*"),
    *("chunked", "gzip", "null", "http://[", "http://other", "[::1", "localhost:99999", "a@b:c"),
    *("multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=é"),
    *('multipart/form-data; boundary="', "application/json; charset=x", "Bearer", "Bearer é"),
    *("text/plain", "application/x-www-form-urlencoded", "100-continue", "cross-site", "\x80\xff"),
)


def _change_headers(rng: random.Random, headers: list[str]) -> list[str]:
    value = str(rng.choice(rng.choice((VALUES, TEXTS))))[:5000]
    value = "".join(own for own in value if own not in "\r\n\x00")
    changed = f"{rng.choice(NAMES)}: {value}"
    kind = rng.randrange(3)
    if kind == 0 or not headers:
        return [*headers, changed]
    at = rng.randrange(len(headers))
    if kind == 1:
        return [*headers[:at], *headers[at + 1 :]]
    return [*headers[:at], f"{headers[at].partition(':')[0]}: {value}", *headers[at + 1 :]]


def _change_body(rng: random.Random, body: bytes) -> bytes:
    if body.startswith(b"{"):
        return change_json(rng, body.decode()).encode()
    kind = rng.randrange(4)
    if kind == 0:
        return change_bytes(rng, body)
    if not body.startswith(b"--"):
        return odd_wav(rng) if kind == 1 else change_bytes(rng, body)
    head, _, rest = body.partition(b"\r\n\r\n")
    if kind == 1:
        return _form(odd_wav(rng), str(odd_value(rng)).encode("utf-8", "replace").decode())
    if kind == 2:
        return change_text(rng, head.decode("latin-1")).encode("utf-8", "replace") + (
            b"\r\n\r\n" + rest
        )
    return rng.choice((body * 2, head, rest, body[:-4], b"\r\n" + body, body + b"x", head * 40))


# The answer.


def read(path: Path) -> object:
    """Send the request of a file; return its status, or raise what became of it."""
    served = _served()
    try:
        status, content = served.runner.run(_answer(served, path.read_bytes()))
    finally:
        served.restore()
    if status >= 500:
        raise NoAnswerError(f"status {status}: {content[:300]!r}")
    if status >= 400:
        raise RequestError(status, _detail(content))
    return status


def _detail(content: bytes) -> str:
    """Return the sentence of an error; of a wrong Range it is plain text, and HEAD has none."""
    if not content.startswith(b"{"):
        return content.decode() or "No content."
    detail: str = json.loads(content)["detail"]
    return detail


async def _answer(served: _Served, raw: bytes) -> tuple[int, bytes]:
    """Return status and content of the answer to a request."""
    parsed = h11.Connection(h11.SERVER, max_incomplete_event_size=32 * 1024)
    try:
        parsed.receive_data(raw)
        request = parsed.next_event()
        if not isinstance(request, h11.Request):  # it ends within its head
            return 400, b""
        parts = list(_body_events(parsed))
    except h11.RemoteProtocolError:  # which the server answers, before the application
        return 400, b""
    waiting = iter(parts)
    started: list[int] = []
    content = bytearray()

    async def receive() -> Message:
        return next(waiting, {"type": "http.disconnect"})

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            started.append(message["status"])
        else:
            content.extend(message.get("body", b""))

    await served.app(_scope(request), receive, send)
    if not started:
        raise NoAnswerError("The application has ended without an answer.")
    return started[0], bytes(content)


def _body_events(parsed: h11.Connection) -> Iterator[Message]:
    while True:
        event = parsed.next_event()
        if isinstance(event, h11.Data):
            yield {"type": "http.request", "body": bytes(event.data), "more_body": True}
        elif isinstance(event, h11.EndOfMessage):
            yield {"type": "http.request", "body": b"", "more_body": False}
            return
        else:  # the client has gone
            return


def _scope(request: h11.Request) -> Scope:
    """Return a request as uvicorn passes it on."""
    raw_path, _, query = request.target.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": request.http_version.decode("ascii"),
        "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 50_000),
        "scheme": "http",
        "method": request.method.decode("ascii"),
        "root_path": "",
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "headers": list(request.headers),
        "state": {},
    }
