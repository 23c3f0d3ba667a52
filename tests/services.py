"""A service with a small model, running on a thread, and clients of it."""

import io
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import soundfile
from members import LABELS, log_mel_member, made_bundle, steep
from members import sound as short_sound
from tones import RATE

from earmark.inference.model_file import save_bundle
from earmark.web.adoption import open_model
from earmark.web.app import make_app
from earmark.web.guard import Access
from earmark.web.jobs import Jobs
from earmark.web.library import Library
from earmark.web.limits import Limits
from earmark.web.server import bind, make_server
from earmark.web.service import Service

__all__ = ["LABELS", "RATE", "Running", "running", "sound", "wav", "write_model"]


def write_model(folder: Path, name: str = "small.earmark", **sizes) -> Path:
    """Write a small model whose scores differ from frame to frame; return its path."""
    member = steep(log_mel_member(0, **sizes), sound(8.0))
    return save_bundle(made_bundle(member), folder / name)


def sound(seconds: float, seed: int = 3) -> np.ndarray:
    """Return tones in noise; long ones repeat 10 seconds."""
    if seconds <= 10:
        return short_sound(seconds, seed)
    n_samples = round(seconds * RATE)
    return np.resize(short_sound(10.0, seed), n_samples)


def wav(seconds: float = 4.0, seed: int = 3, form: str = "WAV", rate: int = RATE) -> bytes:
    """Return an audio file with tones in it."""
    file = io.BytesIO()
    soundfile.write(file, sound(seconds, seed), rate, format=form)
    return file.getvalue()


class Running:
    """A running service: its parts, and a client."""

    def __init__(self, service, jobs, access, client):
        self.service, self.jobs, self.access, self.client = service, jobs, access, client

    def upload(self, content=None, name="a.wav"):
        """Upload a recording and wait until it is analysed; return what the service says of it."""
        content = wav() if content is None else content
        answer = self.client.post("/api/recordings", files={"file": (name, content)})
        assert answer.status_code in (201, 202), answer.text
        return self.wait(f"/api/recordings/{answer.json()['id']}", "working")

    def wait(self, path, while_status):
        """Ask until the status is another one; return the answer."""
        for _ in range(1200):
            found = self.client.get(path).json()
            if found["status"] != while_status:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{path} stays {while_status}")


@contextmanager
def running(model: Path, library: Path | None = None, *, base=None, token=None, **limits):
    """Serve a model on a free port of this machine, in a thread of this process."""
    own = Limits(**limits)
    with bind("127.0.0.1", 0) as listening, Library(library, own) as opened:
        service = Service(open_model(opened, model, threads=1), opened, own, model)
        access = Access("127.0.0.1", listening.getsockname()[1], token)
        jobs = Jobs(service, base)
        server = make_server(make_app(service, access, "test", jobs), own)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        url = f"http://127.0.0.1:{access.port}"
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            with httpx.Client(base_url=url, timeout=60.0, headers=headers) as client:
                yield Running(service, jobs, access, client)
        finally:
            server.should_exit = True
            thread.join(30.0)
            jobs.close()
            service.close()
            assert not thread.is_alive()


def frames(png: bytes) -> np.ndarray:
    """Return the pixels of a PNG."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(png)))
