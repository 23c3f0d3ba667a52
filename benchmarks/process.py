"""Run one measurement in a separate process with fresh memory.

Conventions: a module of workers ends in `answer(WORKERS)`. Its processes use the threads that they
set themselves, or torch's default; thread settings in the caller's environment are removed. Those
of `benchmarks.peers` run in an environment with tools of the field, which `make bench` creates.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PEERS = ".venv-peers/bin/python"


def measure(module: str, *words: str) -> dict[str, Any]:
    """Run a worker of a module of benchmarks; return what it measured."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    environment |= {"PYTHONWARNINGS": "ignore", "PYTHONPATH": "src"}
    python = PEERS if module.startswith("benchmarks.peers.") else sys.executable
    done = subprocess.run(
        [python, "-m", module, *words],
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


def cpu_seconds(call: Callable[[], Any], times: int = 3) -> float:
    """The least CPU time of a call, over all threads, once it has been called before."""
    call()
    found = []
    for _ in range(times):
        before = time.process_time()
        call()
        found.append(time.process_time() - before)
    return min(found)


def peak_memory() -> float:
    """Bytes; not `ru_maxrss`, which begins with the peak of the process that started this one."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return float(status.split("VmHWM:")[1].split()[0]) * 1024
