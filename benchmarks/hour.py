"""Detect in an hour of noise with each system of Table 3, in fast width: time and memory.

Every point is measured in a separate process, with an untrained network. Time is the CPU time of
all threads without the start-up; memory is the peak of the process, of which torch alone takes
about 220 MB.
"""

import time
from pathlib import Path

import torch

from benchmarks.growth import Figures, NoiseDetector
from benchmarks.process import answer, measure, peak_memory
from earmark.inference.decoding import Decoding
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle
from earmark.metrics.report import TextTable
from earmark.training.settings import PRESETS

NAMES = ("wang-fast", "surrey-fast", "gccaps-fast", "mlms8-fast", "emsi-like-fast")
MINUTES = (6, 60)
LABELS = tuple(f"class {number}" for number in range(17))


def run(shared: Path) -> str:
    """Return the table in Markdown."""
    rows = []
    for name in NAMES:
        short, long = (measure("benchmarks.hour", "detect", name, str(x)) for x in MINUTES)
        times = (f"{figures['seconds']:.1f} s" for figures in (short, long))
        memory = (f"{figures['memory MB']:.0f} MB" for figures in (short, long))
        rows.append((f"`{name}`", *times, *memory))
    columns = ("preset", *(f"{x} min, CPU" for x in MINUTES), *(f"{x} min, peak" for x in MINUTES))
    return TextTable("Detection in noise, 17 classes", columns, tuple(rows)).to_markdown()


def detect(name: str, minutes: str) -> Figures:
    detector = NoiseDetector(made_bundle(name))
    detector.detect(1)  # type: ignore[arg-type]
    before = time.process_time()
    detector.detect(int(minutes))  # type: ignore[arg-type]
    return {"seconds": time.process_time() - before, "memory MB": peak_memory() / 1e6}


def made_bundle(name: str) -> Bundle:
    """An untrained network of a preset, whose batch norms have seen noise."""
    torch.manual_seed(0)
    settings = PRESETS[name].for_classes(len(LABELS))
    network = settings.model.build().train()
    with torch.no_grad():
        network(torch.randn(2, 250, settings.model.n_features))
    member = Member(settings.features, settings.model, network.state_dict())
    return Bundle(LABELS, (member,), Decoding.uniform(LABELS, 0.99, min_duration=0.5))


if __name__ == "__main__":
    answer({"detect": detect})
