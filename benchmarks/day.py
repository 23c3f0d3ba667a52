"""Detect in a file of 10 minutes and in one of 24 hours: peak memory, which must not grow.

Every point is a separate process: `Detector.detect` on a wav file at 8 kHz that is generated as it
is read, so that nothing but its length differs. The network is small and untrained; time is the CPU
time of all threads without the start-up.
"""

import io
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.process import answer, measure, peak_memory
from earmark.audio.decode import read_audio
from earmark.data.features import FeatureConfig, log_mel
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle
from earmark.nn.model import Model, ModelConfig

MODULE = "benchmarks.day"
RATE = 8000
MINUTES = (10, 60, 24 * 60)
LIMIT = 100  # MB that a day may take more than 10 minutes
LABELS = tuple(f"class {number}" for number in range(17))

Figures = dict[str, float]


def run(shared: Path) -> str:
    """Return the table in Markdown."""
    found = {minutes: measure(MODULE, "detect", str(minutes)) for minutes in MINUTES}
    rows = ["| minutes | CPU s | events | peak memory |", "|---:|---:|---:|---:|"]
    for minutes, figures in found.items():
        rows.append(
            f"| {minutes:,} | {figures['seconds']:.1f} | {figures['events']:,.0f} |"
            f" {figures['memory MB']:.0f} MB |"
        )
    more = found[MINUTES[-1]]["memory MB"] - found[MINUTES[0]]["memory MB"]
    return (
        f"`Detector.detect` on a wav file at {RATE // 1000} kHz that is generated as it is read, a"
        f" small untrained network with {len(LABELS)} classes. Each length is a separate process."
        "\n\n" + "\n".join(rows) + "\n\n"
        f"24 hours take {more:.0f} MB more than 10 minutes, of {LIMIT} MB allowed; of what grows"
        " there is the list of events."
    )


class NoiseFile(io.RawIOBase):
    """A wav file of noise whose level rises and falls, of any length, generated as it is read."""

    def __init__(self, minutes: int) -> None:
        noise = np.random.default_rng(0).standard_normal((30, 2 * RATE))
        levels = 0.02 + 0.02 * np.sin(np.arange(30))[:, None]
        self._minute = (noise * levels * 32768).astype("<i2").tobytes()
        n_bytes = minutes * len(self._minute)
        form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
        self._head = b"".join(
            [b"RIFF", struct.pack("<I", n_bytes + 36), b"WAVE", form, b"data"]
        ) + struct.pack("<I", n_bytes)
        self._size, self._at = len(self._head) + n_bytes, 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be seeked in."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a byte."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        """Return the byte it is at."""
        return self._at

    def readinto(self, target: Any) -> int:
        """Fill a buffer."""
        view = memoryview(target).cast("B")
        n_bytes = min(len(view), self._size - self._at)
        done = 0
        while done < n_bytes:
            begin = len(self._head)
            if self._at < begin:
                part = self._head[self._at : self._at + n_bytes - done]
            else:
                first = (self._at - begin) % len(self._minute)
                part = self._minute[first : first + n_bytes - done]
            view[done : done + len(part)] = part
            done += len(part)
            self._at += len(part)
        return done


def made_detector() -> Detector:
    torch.manual_seed(0)
    features = FeatureConfig(sample_rate=RATE, n_mels=16, f_max=4000.0, mean=(-8.0,), std=(3.0,))
    config = ModelConfig.preset(
        "paper-fast",
        len(LABELS),
        n_mels=16,
        channels=(8, 8, 8, 8),
        last_channels=16,
        n_recurrent=16,
    )
    model = Model(config).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    waveform, _ = read_audio(NoiseFile(1))
    noise = log_mel(waveform, features)
    with torch.no_grad():
        model(noise.unsqueeze(0))  # its batch norms know the noise, and its outputs are around 0
        hidden = model.eval()(noise.unsqueeze(0)).hidden
        logits = hidden @ model.classifier.weight.T
        scale = 2 / logits.std((0, 1))
        model.classifier.weight *= scale[:, None]
        model.classifier.bias[:] = -scale * logits.mean((0, 1))
    member = Member(features, config, model.eval().state_dict())
    decoding = Decoding.uniform(LABELS, 0.9, low_threshold=0.5, median=0.24, min_duration=0.5)
    return Detector(Bundle(LABELS, (member,), decoding))


def detect(minutes: str) -> Figures:
    detector = made_detector()
    detector.detect(NoiseFile(1))
    before = time.process_time()
    events = detector.detect(NoiseFile(int(minutes)))
    seconds = time.process_time() - before
    return {"seconds": seconds, "events": len(events), "memory MB": peak_memory() / 1e6}


if __name__ == "__main__":
    answer({"detect": detect})
