"""Hours of audio per core-hour, in one process and on a local cluster, and what a corpus takes.

The audio is ten-second WAV files, read from the page cache. Each way is measured in a process of
its own after a warm-up, which loads models and starts workers; the ways take turns in `ROUNDS`
rounds and the best of each counts. CPU time is that of all processes, with the scheduler's. It
takes three minutes on two idle cores: `make bench ONLY=scale`.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path

import librosa
import psutil
import soundfile

from benchmarks.features import CONFIG, SECONDS, made_clips, real_clips
from benchmarks.process import answer, measure
from earmark.data.store import build_store
from earmark.inference import folder
from earmark.inference.cluster import detect_on_cluster
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED
from earmark.metrics.report import TextTable
from earmark.runtime.cluster import running

ROUNDS = 2
N_CLIPS = 4 * folder.TOGETHER  # 1.4 hours of audio, in tasks that two workers can share
WORKERS = 2
CORPORA = {"AudioSet": 5_800, "a million hours": 1_000_000}
MACHINES = (32, 1_000)  # cores
RATE = 44100
BYTES_PER_HOUR = RATE * 2 * 3600  # 16-bit mono

Figures = dict[str, float]


def run(shared: Path) -> str:
    """Measure; return the results in Markdown. Noise is used where ESC-50 is not available."""
    esc50 = shared / "esc50"
    clips = real_clips(esc50) if esc50.is_dir() else made_clips()
    best: dict[tuple[str, str], Figures] = {}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as audio_folder:
        for number, clip in enumerate(clips):
            audio = librosa.resample(clip, orig_sr=CONFIG.sample_rate, target_sr=RATE)
            soundfile.write(f"{audio_folder}/{number:02d}.wav", audio, RATE)
        for _ in range(ROUNDS):
            for what in JOBS:
                for where in ("one", f"local:{WORKERS}"):
                    found = measure("benchmarks.scale", what, where, audio_folder)
                    before = best.get((what, where), found)
                    lower = {x: min(found[x], before[x]) for x in ("wall", "cpu")}
                    memory = max(found["memory"], before["memory"])
                    best[what, where] = {**lower, "memory": memory}
    kind = "real recordings (ESC-50)" if esc50.is_dir() else "noise"
    return report(best, kind, load)


def report(best: dict[tuple[str, str], Figures], kind: str, load: float) -> str:
    """Return the tables of what was measured."""
    hours = N_CLIPS * SECONDS / 3600
    text = (
        f"{N_CLIPS} clips of {SECONDS} s, {kind}: {hours:.2g} hours; the best of {ROUNDS}."
        " Features are log-mels of the default settings, written to a store; detection is from file"
        " to events, with the bundled model. One hour per core-hour is real time on one core."
        f" The load average of the machine was {load:.1f} before: the last column holds only if"
        " that is near 0."
    )
    there = best["detection", f"local:{WORKERS}"]
    rest = (
        f"A core that detects reads {hours * BYTES_PER_HOUR / there['cpu'] / 1e6:.0f} MB of such"
        f" files per second. A worker took {there['memory'] / 1e6:.0f} MB at most. What that makes"
        f" of a corpus, with the CPU time of the {WORKERS} workers:"
    )
    tables = throughput(best, hours).to_markdown(), sizes(best, hours).to_markdown()
    return "\n\n".join([text, tables[0], rest, tables[1]])


def throughput(best: dict[tuple[str, str], Figures], hours: float) -> TextTable:
    """Hours per core-hour of each way, and how much faster the workers are by the clock."""
    rows = []
    for what in JOBS:
        one, two = best[what, "one"], best[what, f"local:{WORKERS}"]
        per_core = [f"{hours * 3600 / way['cpu']:,.0f}" for way in (one, two)]
        rows.append((what, *per_core, f"{one['wall'] / two['wall']:.2f} x"))
    columns = (
        "job", "one process: hours per core-hour", f"{WORKERS} workers: hours per core-hour",
        f"{WORKERS} workers to one process, wall clock",
    )  # fmt: skip
    return TextTable("Throughput", columns, tuple(rows))


def sizes(best: dict[tuple[str, str], Figures], hours: float) -> TextTable:
    """Core-hours and days of each corpus."""
    rows = []
    store = float(CONFIG.grid.frame_rate) * CONFIG.n_features * 2 * 3600  # bytes per hour
    for corpus, n_hours in CORPORA.items():
        for what in JOBS:
            cost = best[what, f"local:{WORKERS}"]["cpu"] / 3600 / hours * n_hours
            times = [format_hours(cost / n_cores) for n_cores in MACHINES]
            size = f"{store * n_hours / 1e12:,.2g} TB" if what == "features" else "-"
            rows.append((f"{corpus} ({n_hours:,} h)", what, f"{cost:,.0f}", *times, size))
    columns = ("corpus", "job", "core-hours", *(f"on {x:,} cores" for x in MACHINES), "store")
    return TextTable("Sizes", columns, tuple(rows))


def format_hours(hours: float) -> str:
    if hours < 1:
        return f"{hours * 60:.0f} min"
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def features(where: str, audio_folder: str) -> Figures:
    def compute(files: dict[str, Path], scheduler: str | None) -> None:
        with tempfile.TemporaryDirectory() as store:
            how = {"processes": 1} if scheduler is None else {"scheduler": scheduler}
            build_store(store, files, CONFIG, **how)  # type: ignore[arg-type]

    return timed(compute, where, audio_folder)


def detection(where: str, audio_folder: str) -> Figures:
    detector = Detector.load(threads=1)

    def detect(files: dict[str, Path], scheduler: str | None) -> None:
        if scheduler is None:
            list(detector.detect_each(files))
        else:
            list(detect_on_cluster(BUNDLED, files, scheduler))

    return timed(detect, where, audio_folder)


def timed(
    job: Callable[[dict[str, Path], str | None], None], where: str, audio_folder: str
) -> Figures:
    """Return wall-clock and CPU seconds of a job after a warm-up."""
    paths = sorted(Path(audio_folder).glob("*.wav"))
    files = {
        f"{number} {path.name}": path
        for number, path in zip(range(N_CLIPS), cycle(paths), strict=False)
    }
    few = {path.name: path for path in paths[:16]}
    if where == "one":
        job(few, None)
        return measured(lambda: job(files, None))
    with running(where) as address:
        job(few, address)
        return measured(lambda: job(files, address))


def measured(call: Callable[[], None]) -> Figures:
    before, start = {pid: used for pid, used, _ in processes()}, time.perf_counter()
    call()
    wall = time.perf_counter() - start
    after = list(processes())
    return {
        "wall": wall,
        "cpu": sum(used - before.get(pid, 0) for pid, used, _ in after),
        "memory": max(memory for *_, memory in after),
    }


def processes() -> Iterator[tuple[int, float, int]]:
    """Id, CPU seconds and bytes of memory of this process and of all that it started."""
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        used = process.cpu_times()
        yield process.pid, used.user + used.system, process.memory_info().rss


JOBS = {"features": features, "detection": detection}

if __name__ == "__main__":
    answer(JOBS)
