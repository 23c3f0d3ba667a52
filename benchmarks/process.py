"""A worker and its words -> what it measured, in a process of its own with fresh memory.

Conventions: a module of workers ends in `answer(WORKERS)`. Its processes have the threads that they
set themselves, or torch's default: what the caller's environment says of threads is left behind.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def measure(module: str, *words: str) -> dict[str, Any]:
    """Run a worker of a module of benchmarks; return what it measured."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment["PYTHONWARNINGS"] = "ignore"
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    if done.returncode:
        raise RuntimeError(f"The benchmark {' '.join(words)} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(*words, found, flush=True)
    return found


def answer(workers: Mapping[str, Callable[..., dict[str, Any]]]) -> None:
    """Run the worker that the command line names, and print what it measured."""
    name, *words = sys.argv[1:]
    print(json.dumps(workers[name](*words)))


def peak_memory() -> float:
    """Bytes; not `ru_maxrss`, which begins with the peak of the process that started this one."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(status.split("VmHWM:")[1].split()[0]) * 1024
