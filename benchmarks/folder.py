"""Detect in a folder of short recordings: together, and one file at a time without batches.

Both in one process, in turns, each in `ROUNDS` rounds of which the best counts; the model is the
bundled one, and recordings are 1 to 3 s at 44.1 kHz. Another number of recordings:
`python -m benchmarks.folder compare 200`.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.process import answer, measure
from earmark.audio.encode import write_audio
from earmark.formats.events import Event
from earmark.inference.detector import Detector
from earmark.runtime.cores import n_cores

MODULE = "benchmarks.folder"
N_FILES, ROUNDS, RATE = 1000, 3, 44100

Figures = dict[str, Any]


def run(shared: Path) -> str:
    """Return the table in Markdown."""
    found = measure(MODULE, "compare", str(N_FILES))
    rows = ["| entry | files/s | CPU ms per file | ratio |", "|---|---:|---:|---:|"]
    for entry in ("one file at a time", "together"):
        seconds, cpu = found[entry], found[f"{entry}, CPU"]
        rows.append(
            f"| {entry} | {N_FILES / seconds:.0f} | {cpu * 1e3 / N_FILES:.1f} |"
            f" {found['one file at a time'] / seconds:.2f} x |"
        )
    return (
        f"{N_FILES:,} recordings of 1 to 3 s at {RATE / 1000:g} kHz, the bundled model,"
        f" {n_cores()} cores; the best of {ROUNDS} rounds that take turns. One file at a time is"
        " `Detector.detect` per file, together is `Detector.detect_each`.\n\n"
        + "\n".join(rows)
        + f"\n\nScores of events differ by {found['difference']:.0e} at most; events that differ:"
        f" {found['events that differ']}, of {found['events']}."
    )


def compare(count: str) -> Figures:
    detector = Detector.load()
    with tempfile.TemporaryDirectory() as folder:
        files = write_recordings(Path(folder), int(count))
        ways = {
            "one file at a time": lambda: {name: detector.detect(x) for name, x in files.items()},
            "together": lambda: {x.name: x.events for x in detector.detect_each(files)},
        }
        best: Figures = {}
        results: dict[str, dict[str, list[Event]]] = {}
        for number in range(ROUNDS + 1):
            for name, way in ways.items():
                before, before_cpu = time.perf_counter(), time.process_time()
                results[name] = way()
                seconds = time.perf_counter() - before
                cpu = time.process_time() - before_cpu
                if number:  # the first round starts threads and fills caches
                    best[name] = min(best.get(name, seconds), seconds)
                    best[f"{name}, CPU"] = min(best.get(f"{name}, CPU", cpu), cpu)
    alone, together = results.values()
    differences, n_different = [0.0], 0
    for name, events in alone.items():
        pairs = list(zip(events, together[name], strict=False))
        same = len(events) == len(together[name]) and all(
            (a.onset, a.offset, a.label) == (b.onset, b.offset, b.label) for a, b in pairs
        )
        n_different += not same
        if same:
            differences += [abs((a.score or 0) - (b.score or 0)) for a, b in pairs]
    return {
        **best,
        "ratio": best["one file at a time"] / best["together"],
        "difference": max(differences),
        "events that differ": n_different,
        "events": sum(map(len, alone.values())),
    }


def write_recordings(folder: Path, count: int) -> dict[str, Path]:
    """Write tones in noise, whose lengths differ."""
    rng = np.random.default_rng(0)
    files = {}
    for number in range(count):
        times = np.arange(int(rng.uniform(1, 3) * RATE)) / RATE
        wave = 0.02 * rng.standard_normal(len(times))
        wave += 0.2 * np.sin(2 * np.pi * rng.uniform(200, 4000) * times) * (times % 1 < 0.5)
        files[f"{number}.wav"] = folder / f"{number}.wav"
        write_audio(files[f"{number}.wav"], wave, RATE)
    return files


if __name__ == "__main__":
    answer({"compare": compare})
