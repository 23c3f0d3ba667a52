"""The service under load, with slow, broken and hostile clients: `python -m benchmarks.service`.

It starts `earmark serve` on a small model in a process of its own, sends 2,000 requests, 32 at a
time, and checks that every answer is right, and that memory, open files and threads do not grow.
tests/test_web_load.py sends fewer.
"""

import io
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile
from numpy.typing import NDArray

from earmark.data.features import FeatureConfig
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle, save_bundle
from earmark.nn.model import ModelConfig

RATE = 8000
LABELS = ("high", "low")
N_REQUESTS, AT_ONCE = 2000, 32
WARM_UP = 400  # requests before memory is measured
MAX_GROWTH = 64.0  # MB of the process, between the warm-up and the end


@dataclass
class Sounds:
    """Recordings, and the events that the detector finds in each.

    Args:
        contents: audio files.
        events: what `POST /detect` must answer, per file.
    """

    contents: list[bytes]
    events: list[list[dict[str, Any]]]

    @classmethod
    def make(cls, model: Path, n_sounds: int = 8) -> "Sounds":
        """Return recordings of different lengths and formats."""
        detector = Detector.load(model, threads=1)
        contents, events = [], []
        for seed in range(n_sounds):
            file = io.BytesIO()
            soundfile.write(file, make_sound(seed), RATE, format=("WAV", "FLAC", "OGG")[seed % 3])
            contents.append(file.getvalue())
            found = detector.detect(io.BytesIO(contents[-1]))
            events.append(
                [
                    {"onset": e.onset, "offset": e.offset, "event_label": e.label, "score": e.score}
                    for e in found
                ]
            )
        return cls(contents, events)


def make_sound(seed: int) -> NDArray[np.float64]:
    """Return noise with high and low tones in turn, of 1 to 9 seconds."""
    rng = np.random.default_rng(seed)
    seconds = np.arange(round(rng.uniform(1, 9) * RATE)) / RATE
    pitch = np.where(np.sin(seconds * (1 + seed)) > 0, 440, 2200)
    wave: NDArray[np.float64] = 0.1 * np.sin(2 * np.pi * pitch * seconds)
    return wave + 0.01 * rng.standard_normal(len(wave))


@dataclass
class Report:
    """What the clients saw: how many of each kind, and what was wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Load:
    """Sends requests of many kinds to a service.

    Args:
        url: of the service.
        sounds: to send.
        patience: seconds that a slow client takes.
    """

    def __init__(self, url: str, sounds: Sounds, patience: float = 0.5) -> None:
        self.url, self.sounds, self.patience = url, sounds, patience
        self._address = ("127.0.0.1", httpx.URL(url).port or 80)
        self._local = threading.local()
        self._clients: list[httpx.Client] = []
        self.kinds: Sequence[tuple[str, int, Callable[[int], None]]] = (
            ("detect", 10, self.detect),
            ("detect with settings", 3, self.detect_low),
            ("upload, ask, delete", 4, self.use_library),
            ("slow upload", 1, self.slow),
            ("leaves in the upload", 1, self.leave),
            ("connects and says nothing", 1, self.silent),
            ("no audio", 2, self.no_audio),
            ("truncated audio", 1, self.truncated),
            ("header bomb", 1, self.bomb),
            ("another site", 1, self.other_site),
            ("another name", 1, self.other_name),
            ("path outside", 1, self.outside),
            ("wrong JSON", 1, self.wrong_json),
            ("too large", 1, self.too_large),
        )

    def run(self, n_requests: int, at_once: int, seed: int = 0) -> Report:
        """Send so many requests, so many at a time; return what came of it."""
        weights = np.array([weight for _, weight, _ in self.kinds], float)
        rng = np.random.default_rng(seed)
        order = rng.choice(len(self.kinds), n_requests, p=weights / weights.sum())
        report, lock, begin = Report(), threading.Lock(), time.monotonic()

        def send(at: int) -> None:
            name, _, function = self.kinds[order[at]]
            problem = ""
            try:
                function(at)
            except Exception as error:
                problem = f"{name}: {type(error).__name__}: {str(error)[:300]}"
            with lock:
                report.counts[name] += 1
                if problem:
                    report.wrong.append(problem)

        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(send, range(n_requests)))
        report.seconds = time.monotonic() - begin
        return report

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()

    @property
    def client(self) -> httpx.Client:
        """The client of this thread."""
        if not hasattr(self._local, "client"):
            self._local.client = httpx.Client(base_url=self.url, timeout=300.0)
            self._clients.append(self._local.client)
        client: httpx.Client = self._local.client
        return client

    def detect(self, at: int) -> None:
        """Detect in a form."""
        index = at % len(self.sounds.contents)
        files = {"file": ("a.wav", self.sounds.contents[index])}
        answer = self.client.post("/detect", files=files)
        self._expect(answer, 200)
        assert answer.json()["events"] == self.sounds.events[index], "other events"

    def detect_low(self, at: int) -> None:
        """Detect in raw bytes, one class only."""
        index = at % len(self.sounds.contents)
        content = self.sounds.contents[index]
        answer = self.client.post("/detect", params={"classes": "low"}, content=content)
        self._expect(answer, 200)
        wanted = [e for e in self.sounds.events[index] if e["event_label"] == "low"]
        assert answer.json()["events"] == wanted, "other events"

    def use_library(self, at: int) -> None:
        """Add a recording, ask everything about it, and delete it."""
        index = at % len(self.sounds.contents)
        content = self.sounds.contents[index]
        answer = self.client.post("/api/recordings", files={"file": (f"{at}.wav", content)})
        assert answer.status_code in (201, 202), answer.text
        path = f"/api/recordings/{answer.json()['id']}"
        while (own := self.client.get(path).json())["status"] == "working":
            time.sleep(0.1)
        assert own["n_events"] == len(self.sounds.events[index]), "other events"
        events = self.client.post(f"{path}/events", json={})
        assert events.json()["events"] == self.sounds.events[index], "other events"
        part = self.client.get(f"{path}/audio", headers={"range": "bytes=10-19"})
        assert part.content == content[10:20], "other audio"
        self._expect(self.client.get(f"{path}/tile?level=0&index=0"), 200)
        self._expect(self.client.get(f"{path}/scores?points=20"), 200)
        self._expect(self.client.get(f"{path}/hierarchy?label=low&time=1"), 200)
        self._expect(self.client.delete(path), 204)

    def slow(self, at: int) -> None:
        """Send a recording in drips."""
        index = at % len(self.sounds.contents)
        content = self.sounds.contents[index]

        def drip() -> Iterator[bytes]:
            for first in range(0, len(content), len(content) // 5 + 1):
                time.sleep(self.patience / 5)
                yield content[first : first + len(content) // 5 + 1]

        answer = self.client.post("/detect", content=drip())
        self._expect(answer, 200)
        assert answer.json()["events"] == self.sounds.events[index], "other events"

    def leave(self, at: int) -> None:
        """Leave in the middle of an upload."""
        head = b"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000\r\n\r\nRIFF"
        with socket.create_connection(self._address, 30) as client:
            client.sendall(head)

    def silent(self, at: int) -> None:
        """Connect, and say nothing."""
        with socket.create_connection(self._address, 30):
            time.sleep(self.patience)

    def no_audio(self, at: int) -> None:
        """Send noise."""
        content = np.random.default_rng(at).bytes(1 + at % 5000)
        answer = self.client.post("/detect", content=content)
        self._expect(answer, 422)

    def truncated(self, at: int) -> None:
        """Send half of a recording."""
        content = self.sounds.contents[at % 2 * 3]  # a wav
        self._expect(self.client.post("/detect", content=content[: len(content) // 2]), 422)

    def bomb(self, at: int) -> None:
        """Send a header that claims huge sizes."""
        wav = b"RIFF" + struct.pack("<I", 12036) + b"WAVEfmt " + struct.pack(
            "<IHHIIHH", 16, 1, 64, 2**31 - 1, 2**31 - 1, 128, 16
        ) + b"data" + struct.pack("<I", 12000) + bytes(12000)  # fmt: skip
        self._expect(self.client.post("/api/recordings", content=wav), 422)

    def other_site(self, at: int) -> None:
        """Ask as a page of another site does."""
        headers = {"origin": "https://evil.example"}
        self._expect(self.client.post("/detect", content=b"x", headers=headers), 403)

    def other_name(self, at: int) -> None:
        """Ask for another name, as after DNS rebinding."""
        self._expect(self.client.get("/api/recordings", headers={"host": "evil.example"}), 421)

    def outside(self, at: int) -> None:
        """Ask for files outside of the service's."""
        for path in (b"/page/../../../../etc/passwd", b"/api/recordings/..%2f..%2fetc/audio"):
            url = httpx.URL(self.url).copy_with(raw_path=path)
            answer = self.client.get(url)
            self._expect(answer, 404)
            assert b"root:" not in answer.content

    def wrong_json(self, at: int) -> None:
        """Send half of a JSON text."""
        headers = {"content-type": "application/json"}
        answer = self.client.post("/api/recordings/0/events", content=b'{"a": ', headers=headers)
        self._expect(answer, 422)

    def too_large(self, at: int) -> None:
        """Announce a body of 100 TB."""
        with socket.create_connection(self._address, 30) as client:
            head = b"POST /detect HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            client.sendall(head + b"Content-Length: 99999999999999\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: client.recv(10000), b""))
        assert not answer or answer.split()[1] == b"413", answer[:100]

    @staticmethod
    def _expect(answer: httpx.Response, status: int) -> None:
        assert answer.status_code == status, f"{answer.status_code}: {answer.text[:200]}"


def write_model(folder: Path) -> Path:
    """Write a small untrained model; return its path."""
    import torch

    torch.manual_seed(0)
    features = FeatureConfig(sample_rate=RATE, n_mels=16, f_max=4000.0, mean=(-8.0,), std=(3.0,))
    config = ModelConfig.preset(
        "fast", 2, n_mels=16, channels=(4, 4, 4, 4), last_channels=8, n_recurrent=4
    )
    member = Member(features, config, config.build().state_dict(), 4.0)
    detector = Detector(Bundle(LABELS, (member,), Decoding.uniform(LABELS)), threads=1)
    scores = detector.frame_scores(make_sound(0), RATE).scores
    # Half of the frames of each class are above such a threshold, so that there are many events.
    rules = tuple(Rule(x, x) for x in np.median(scores, axis=0).tolist())
    bundle = Bundle(LABELS, (member,), Decoding(LABELS, rules))
    return save_bundle(bundle, folder / "small.earmark")


@dataclass(frozen=True)
class Usage:
    """What a process uses: memory in MB, open files, threads."""

    memory: float
    files: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Usage":
        """Return the usage of a process now (Linux)."""
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        memory = int(status["VmRSS"].split()[0]) / 1024
        files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - only counted
        return cls(memory, files, int(status["Threads"]))


def settle(pid: int, url: str) -> Usage:
    """Return the usage of a service once its connections have closed."""
    least = Usage.of(pid)
    until = time.monotonic() + 40
    while time.monotonic() < until:
        time.sleep(2)
        now = Usage.of(pid)
        if now.files >= least.files and now.threads >= least.threads:
            break
        least = now
    assert httpx.get(f"{url}/health", timeout=60).status_code == 200
    time.sleep(12)  # the connection of that request ends, too
    return Usage.of(pid)


def run(n_requests: int = N_REQUESTS, at_once: int = AT_ONCE) -> str:
    """Send the requests to a service in a process of its own; return the figures as text."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_model(folder)
        sounds = Sounds.make(model)
        command = [sys.executable, "-m", "earmark", "serve", str(model), "--port", "0"]
        service = subprocess.Popen(
            [*command, "--threads", "1"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": name},
        )
        assert service.stdout is not None
        try:
            url = service.stdout.readline().split()[1].rstrip("/")
            load = Load(url, sounds)
            warm = load.run(min(WARM_UP, n_requests), at_once, seed=1)
            load.close()
            before = settle(service.pid, url)
            load = Load(url, sounds)
            report = load.run(n_requests, at_once)
            load.close()
            after = settle(service.pid, url)
            left = [str(path) for path in folder.rglob("work/*")]
        finally:
            service.send_signal(signal.SIGINT)
            code = service.wait(60)
        gone = not list(folder.glob("earmark-serve-*/*/"))
    wrong = [*warm.wrong, *report.wrong]
    lines = [
        f"{n_requests} requests, {at_once} at a time, in {report.seconds:.0f} s; "
        f"{len(wrong)} wrong answers",
        *(f"  {count:5d}  {name}" for name, count in report.counts.most_common()),
        *(f"  wrong: {text}" for text in wrong[:10]),
        f"after a warm-up of {sum(warm.counts.values())} requests -> at the end:",
        f"  memory {before.memory:.0f} -> {after.memory:.0f} MB",
        f"  open files {before.files} -> {after.files}",
        f"  threads {before.threads} -> {after.threads}",
        f"temporary files left: {len(left)}; library removed at the end: {gone}; exit code {code}",
    ]
    is_good = (
        not wrong
        and after.memory - before.memory < MAX_GROWTH
        and after.files <= before.files + 2
        and after.threads <= before.threads + 2
        and not left
        and gone
        and code == 0
    )
    return "\n".join([*lines, "held" if is_good else "NOT held"])


if __name__ == "__main__":
    numbers = [int(text) for text in sys.argv[1:]]
    text = run(*numbers)
    print(text)
    sys.exit("NOT held" in text)
