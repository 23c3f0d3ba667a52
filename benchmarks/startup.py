"""Wall-clock and CPU time of complete commands: `earmark --help` and `earmark detect`."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.detection import made_bundle
from earmark.audio.encode import write_audio
from earmark.inference.model_file import save_bundle

ROUNDS = 5
EARMARK = Path(sys.executable).with_name("earmark")


def run(shared: Path) -> str:
    """Measure, and return the times as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        audio = Path(folder, "ten.wav")
        write_audio(audio, 0.1 * np.random.default_rng(0).standard_normal(320_000), 32000)
        model = save_bundle(made_bundle("paper"), Path(folder, "paper.earmark"))
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "earmark --help": [str(EARMARK), "--help"],
            "python -c 'import torch'": [sys.executable, "-c", "import torch"],
            "earmark detect ten.wav (10 s, `paper`)": [
                str(EARMARK), "detect", str(audio), "--model", str(model),
            ],
        }  # fmt: skip
        figures: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                figures[name].append(measure(command))
    rows = ["| command | wall clock | CPU |", "|---|---:|---:|"]
    for name, found in figures.items():
        clock, cpu = (min(values) for values in zip(*found, strict=True))
        shown = name if "`" in name else f"`{name}`"
        rows.append(f"| {shown} | {clock:.2f} s | {cpu:.2f} s |")
    return (
        f"The best of {ROUNDS} rounds in which the commands alternate, each in a new process.\n\n"
        + "\n".join(rows)
    )


def measure(command: list[str]) -> tuple[float, float]:
    """Return the seconds of wall-clock and of CPU time."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    used, before = children(), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - before, children() - used


def children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
