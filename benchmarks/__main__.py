"""Benchmarks -> the figures of docs/: `make bench`, or `make bench ONLY="scoring psds"`.

A benchmark returns Markdown. It goes into its page, between two marks that carry its name, as soon
as it is there: a run that is stopped loses only what it had not measured yet. Each has a process of
its own, since the number of threads counts only before NumPy and torch are imported.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks import (
    day,
    detection,
    features,
    folder,
    growth,
    hour,
    kernels,
    microbatch,
    page,
    profile,
    psds,
    runtimes,
    scale,
    scoring,
    sources,
    startup,
    training,
)
from earmark.files import atomic_write

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
END = "<!-- end -->"
HERE = "--here"


class Benchmark(NamedTuple):
    """What to run, and the page that its results go to."""

    run: Callable[[Path], str]
    page: str
    one_thread: bool = False  # for every tool in it


BENCHMARKS = {
    "features": Benchmark(features.run, "docs/speed.md", one_thread=True),
    "training": Benchmark(training.run, "docs/speed.md"),
    "microbatch": Benchmark(microbatch.run, "docs/speed.md"),
    "detection": Benchmark(detection.run, "docs/speed.md"),
    "runtimes": Benchmark(runtimes.run, "docs/speed.md"),
    "kernels": Benchmark(kernels.run, "docs/speed.md"),
    "profile": Benchmark(profile.run, "docs/speed.md"),
    "startup": Benchmark(startup.run, "docs/speed.md"),
    "growth": Benchmark(growth.run, "docs/speed.md"),
    "day": Benchmark(day.run, "docs/long-and-live.md"),
    "folder": Benchmark(folder.run, "docs/long-and-live.md"),
    "page": Benchmark(page.run, "docs/speed.md"),
    "hour": Benchmark(hour.run, "docs/systems.md"),
    "scale": Benchmark(scale.run, "docs/scale.md"),
    "scoring": Benchmark(scoring.run, "docs/metrics.md", one_thread=True),
    "psds": Benchmark(psds.run, "docs/metrics.md", one_thread=True),
    "sources": Benchmark(sources.run, "docs/results.md"),
}


def describe_machine() -> str:
    """Return the processor and versions that the figures hang on, in one line."""
    cpu, best = platform.machine(), torch.backends.cpu.get_cpu_capability()
    about = Path("/proc/cpuinfo")
    if about.exists():
        lines = about.read_text(encoding="utf-8").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        cpu = " ".join([*names[:1], cpu])
    return (
        f"Machine: {cpu} ({best}), {os.cpu_count()} cores; Python {platform.python_version()},"
        f" torch {torch.__version__}, NumPy {np.__version__}; {date.today()}."
    )


def write_part(page: Path, name: str, text: str) -> None:
    """Put the text between the marks of its name."""
    begin = f"<!-- made by `make bench`: {name} -->"
    before, mark, rest = page.read_text(encoding="utf-8").partition(begin)
    _, end, after = rest.partition(END)
    if not (mark and end):
        sys.exit(f"{page} has no part {begin} ... {END}.")
    whole = f"{before}{begin}\n\n{text.strip()}\n\n{END}{after}"
    atomic_write(page, whole.encode())


def main() -> None:
    """Run the benchmarks that are named, or all."""
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"There is no benchmark {unknown[0]!r}. Known: {', '.join(BENCHMARKS)}.")
    for name in names:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", HERE, name],
            env=environment_of(BENCHMARKS[name]),
            check=False,
        )
        if done.returncode:
            sys.exit(f"The benchmark {name!r} failed.")


def environment_of(benchmark: Benchmark) -> dict[str, str]:
    """Return the environment of its process: one thread for every tool in it, or their default."""
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    one = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")}
    return clean | (one if benchmark.one_thread else {})


def run_here(name: str) -> None:
    """Run one benchmark in this process, and write what it returns."""
    benchmark = BENCHMARKS[name]
    text = f"{benchmark.run(SHARED)}\n\n{describe_machine()}"
    write_part(ROOT / benchmark.page, name, text)
    print(f"{name} -> {benchmark.page}\n\n{text}\n", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [HERE]:
        run_here(sys.argv[2])
    else:
        main()
