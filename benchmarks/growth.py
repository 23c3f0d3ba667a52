"""Measure how time and memory grow with recording length, clips in a store, and classes.

Every point is measured in a separate process. Time is the CPU time of all its threads without the
start-up; memory is the peak of the process, of which torch alone takes about 220 MB.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.detection import made_bundle
from benchmarks.process import answer, cpu_seconds, measure, peak_memory
from earmark.audio.encode import write_audio
from earmark.audio.waveform import Waveform
from earmark.data.features import FeatureConfig
from earmark.data.store import FeatureStore, build_store
from earmark.errors import DataError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.detector import Detector
from earmark.metrics.segment import segment_scores
from earmark.plots.figure import INK, line_style, new_figure, save

PICTURE = Path("docs/images/growth.png")
MINUTES = (1, 10, 60, 6 * 60, 24 * 60)
CLIPS = (1_000, 10_000, 100_000)
CLASSES = (1, 10, 100, 1_000)
SMALL = FeatureConfig(sample_rate=8000, n_mels=16, f_max=4000.0)

Figures = dict[str, float]
Series = dict[int, Figures]


def run(shared: Path) -> str:
    """Measure, plot docs/images/growth.png, and return the tables in Markdown."""
    length = {minutes: measure_at("length", minutes) for minutes in MINUTES}
    clips = {count: measure_at("clips", count) for count in CLIPS}
    classes = {count: measure_at("classes", count) for count in CLASSES}
    text = "\n\n".join(
        [
            "Every point is a separate process; time is the CPU time of all its threads.",
            f"![Time and memory against length, clips and classes](images/{PICTURE.name})",
            "**Length of a recording**, preset `paper-fast`, 17 classes, noise in blocks of 2 s:"
            " log-mel, network, merge, decode, with all frame-level scores kept (`frame_scores`)."
            " Memory grows with these, two numbers per class and frame, and the pieces they are"
            " assembled from; `detect` keeps none (docs/long-and-live.md).",
            table(length, {"minutes": "{:,}"}, ["seconds", "seconds per minute", "scores MB"]),
            "**Clips in a store**, one second each, 16 mels: build in one process, open, and read"
            " 10,000 at random. Memory grows with the index, one entry per clip.",
            table(clips, {"clips": "{:,}"}, ["build s", "open s", "read us per clip"]),
            "**Classes**: frame-level scores of 84 s of noise by preset `paper-fast` on one thread,"
            " events from 10 minutes of frame-level scores, and segment-based metrics of 1,000"
            " files with ten events each.",
            table(classes, {"classes": "{:,}"}, ["predict s", "decode s", "metrics s"]),
        ]
    )
    draw(text, PICTURE)
    return text


def table(series: Series, first: dict[str, str], columns: list[str]) -> str:
    ((name, form),) = first.items()
    columns = [*columns, "memory MB"]
    rows = [f"| {name} | {' | '.join(columns)} |", "|---:" * (len(columns) + 1) + "|"]
    for at, figures in series.items():
        cells = [
            f"{figures[column]:,.3g}" if figures[column] < 1000 else f"{figures[column]:,.0f}"
            for column in columns
        ]
        rows.append(f"| {form.format(at)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def read_series(text: str, name: str) -> Series:
    """Return what `table` wrote, of the table whose first column has this name."""
    _, head, rest = text.partition(f"| {name} |")
    first, _, *rows = rest.partition("\n\n")[0].splitlines()
    columns = [column.strip() for column in first.strip(" |").split("|")]
    series = {}
    for row in rows:
        at, *cells = (float(cell.replace(",", "")) for cell in row.strip(" |").split("|"))
        series[int(at)] = dict(zip(columns, cells, strict=True))
    if not (head and series):
        raise DataError(f"There is no table of {name}; make bench ONLY=growth measures it.")
    return series


def draw(text: str, path: Path) -> None:
    """Plot time and memory of the three tables in a text, such as the page that has them."""
    figure = new_figure(figsize=(10, 5.5))
    axes = figure.subplots(2, 3)
    columns = [
        ("minutes of recording", read_series(text, "minutes"), ["seconds"]),
        ("clips in the store", read_series(text, "clips"), ["build s", "open s"]),
        ("classes", read_series(text, "classes"), ["predict s", "decode s", "metrics s"]),
    ]
    for column, (name, series, times) in enumerate(columns):
        for number, what in enumerate(times):
            style = line_style(number) | {"marker": "os^"[number]}
            values = [figures[what] for figures in series.values()]
            label = what.removesuffix(" s")
            axes[0, column].loglog(list(series), values, label=label, **style)
        if len(times) > 1:
            axes[0, column].legend(frameon=False)
        memory = [figures["memory MB"] for figures in series.values()]
        axes[1, column].semilogx(list(series), memory, "-o", color=INK)
        axes[1, column].set_ylim(0, 1.15 * max(memory))
        axes[1, column].set_xlabel(name)
    axes[0, 0].set_ylabel("CPU seconds")
    axes[1, 0].set_ylabel("peak memory, MB")
    figure.suptitle("Time and memory of a process, by what it has to do", fontsize="medium")
    save(figure, path)


def measure_at(name: str, count: int) -> Figures:
    """Measure one point."""
    return measure("benchmarks.growth", name, str(count))


class NoiseDetector(Detector):
    """A detector whose source is a number of minutes of noise, generated on the fly."""

    def _blocks(self, source: Any, sample_rate: int | None) -> dict[int, Iterable[Waveform]]:
        return {rate: noise_blocks(source, rate) for rate in self.ensemble.sample_rates}


def noise_blocks(minutes: int, sample_rate: int) -> Iterator[Waveform]:
    """Yield noise whose level rises and falls, in blocks of 2 s."""
    noise = np.random.default_rng(0).standard_normal(2 * sample_rate, dtype=np.float32)
    for number in range(30 * minutes):
        yield np.float32(0.05 + 0.05 * np.sin(number)) * noise


def measure_length(minutes: int) -> Figures:
    detector = NoiseDetector(made_bundle("paper-fast"))
    detector.detect(1)  # type: ignore[arg-type]
    before = time.process_time()
    scores = detector.frame_scores(minutes)  # type: ignore[arg-type]
    detector.decode(scores)
    seconds = time.process_time() - before
    return {
        "seconds": seconds,
        "seconds per minute": seconds / minutes,
        "scores MB": (scores.scores.nbytes + scores.clip_scores.nbytes) / 1e6,
    }


def measure_clips(count: int) -> Figures:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        write_audio(
            f"{folder}/clip.wav", 0.1 * rng.standard_normal(SMALL.sample_rate), SMALL.sample_rate
        )
        files = {f"clip {number}": Path(folder, "clip.wav") for number in range(count)}
        before = time.process_time()
        build_store(f"{folder}/store", files, SMALL, processes=1)
        build = time.process_time() - before
        before = time.process_time()
        store = FeatureStore.open(f"{folder}/store", SMALL)
        opening = time.process_time() - before
        names = [store.names[at] for at in rng.integers(0, count, 10_000)]
        before = time.process_time()
        total = sum(float(store[name][0, 0]) for name in names)
        reading = time.process_time() - before
        assert np.isfinite(total)
    return {"build s": build, "open s": opening, "read us per clip": reading * 1e6 / len(names)}


def measure_classes(count: int) -> Figures:
    torch.set_num_threads(1)
    detector = Detector(made_bundle("paper-fast", count), threads=1)
    rng = np.random.default_rng(0)
    labels, noise = detector.labels, 0.1 * rng.standard_normal(84 * 32000, dtype=np.float32)
    values = rng.random((7500, count), dtype=np.float32) ** 8
    scores = FrameScores(values, labels, FrameGrid(12.5), duration=600.0)
    decoding = Decoding.uniform(labels, 0.6, low_threshold=0.4, median=0.24)
    tables = []
    for _ in range(2):
        onsets = rng.uniform(0, 9, (1000, 10))
        tables.append(
            {
                f"{number}.wav": [
                    Event(onset, onset + 1, labels[at])
                    for onset, at in zip(own, rng.integers(0, count, 10), strict=True)
                ]
                for number, own in enumerate(onsets)
            }
        )
    jobs: dict[str, Callable[[], Any]] = {
        "predict s": lambda: detector.frame_scores(noise, 32000),
        "decode s": lambda: decode_events(scores, decoding),
        "metrics s": lambda: segment_scores(*tables, labels),
    }
    return {name: cpu_seconds(job) for name, job in jobs.items()}


def with_memory(work: Callable[[int], Figures], count: str) -> Figures:
    """Return the measurements and the peak memory of the process."""
    return {**work(int(count)), "memory MB": peak_memory() / 1e6}


WORKERS = {
    "length": partial(with_memory, measure_length),
    "clips": partial(with_memory, measure_clips),
    "classes": partial(with_memory, measure_classes),
}

if __name__ == "__main__":
    answer(WORKERS)
