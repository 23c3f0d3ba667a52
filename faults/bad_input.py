"""Part "input": every reader gets files that are damaged, or well-formed and wrong.

Each case must end with a result or with one of our errors, within `HANG` seconds and `MEMORY` bytes
above what the process had before. Cases run in a child process (`python -m faults.bad_input READER
FIRST SEED`), which makes and reads one after the other and reports each on a line; the parent ends
a child that hangs, and starts the next at the case after. A file that failed is kept in the folder
`failures` of the results; one that is understood becomes a test, as a file in
`tests/data/bad_input/READER/`.
"""

import json
import os
import random
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path

from earmark.errors import EarmarkError
from faults.results import Results

HANG = 10.0  # seconds of processor time of a case; real time is limited to `STALLED`
STALLED = 120.0
MEMORY = 2 << 30  # bytes
CASES_PER_CHILD = 2000
START = 600.0  # seconds until the first case, imports and good files included
ROOT = Path(__file__).resolve().parents[1]


def case_rng(seed: int, reader: str, number: int) -> random.Random:
    """Return the random numbers of one case, which depend on nothing else."""
    return random.Random(f"{seed} {reader} {number}")


def outcome_of(read: object, path: Path) -> tuple[str, str]:
    """Return "result", "error" (ours) or "foreign", and the reason."""
    try:
        read(path)  # type: ignore[operator]
    except EarmarkError as error:
        text = str(error)
        if (
            not text
            or len(text) > 2000
            or not text.replace("\n", "").replace("\t", "").isprintable()
        ):
            return "unprintable", text[:300]
        return "error", ""
    except Exception:
        return "foreign", "".join(traceback.format_exc(limit=-4))[-1500:]
    return "result", ""


def cases(name: str, first: int, seed: int, folder: Path) -> Iterator[tuple[int, Path, bytes]]:
    """Yield the number of each case, its file, in a folder of good files, and its bytes."""
    from faults.readers import READERS, spoil

    reader = READERS[name]
    good, work = folder / "good", folder / "work"
    good.mkdir()
    files = [path.relative_to(good) for path in reader.make(good)]
    number = first
    while True:
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(good, work)
        path, content = spoil(reader, case_rng(seed, name, number), [work / own for own in files])
        path.write_bytes(content)
        yield number, path, content
        number += 1


def run_child(name: str, first: int, seed: int, failures: Path) -> None:
    """Make and read cases until the parent closes the pipe or the number of a child is reached."""
    import torch

    from faults.readers import READERS

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        limit = 0
        for number, path, content in cases(name, first, seed, Path(folder)):
            if not limit:
                limit = _address_space() + MEMORY
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
                before = _peak()
            started, cpu = time.monotonic(), time.process_time()
            print(json.dumps({"begin": number}), flush=True)
            kept = failures / f"{name}-{number}{path.suffix}"
            kept.write_bytes(content)  # also if the process dies
            signal.setitimer(signal.ITIMER_PROF, HANG)  # ends a process that computes for ever
            outcome, reason = outcome_of(READERS[name].read, path)
            signal.setitimer(signal.ITIMER_PROF, 0)
            if outcome in ("result", "error"):
                kept.unlink()
            report = {
                "outcome": outcome,
                "reason": reason,
                "seconds": time.monotonic() - started,
                "cpu": time.process_time() - cpu,
                "peak": _peak() - before,
            }
            print(json.dumps(report), flush=True)
            if number + 1 - first >= CASES_PER_CHILD:
                return


def _address_space() -> int:
    pages = Path("/proc/self/statm").read_text().split()[0]
    return int(pages) * resource.getpagesize()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def run(results: Results, seconds: float, n_cases: int, only: list[str], seed: int) -> None:
    """Run cases of all readers, in turn, until the time is up or each has its number of cases.

    Args:
        results: to continue and to fill.
        seconds: at most.
        n_cases: of each reader, those of earlier runs included.
        only: names of readers; all if empty.
        seed: of the cases.
    """
    from faults.readers import READERS

    end = time.monotonic() + seconds
    names = only or list(READERS)
    for at, name in enumerate(names):
        # What is left is shared by the readers that are left.
        until = time.monotonic() + (end - time.monotonic()) / (len(names) - at)
        while results.of(name).done < n_cases and time.monotonic() < until:
            _run_some(results, name, n_cases, until, seed)
            results.save()
        own = results.of(name)
        print(f"{name}: {own.done} cases, {own.outcomes}", flush=True)


def _run_some(results: Results, name: str, n_cases: int, until: float, seed: int) -> None:
    """Run one child until it ends, hangs, or enough is done."""
    own = results.of(name)
    failures = results.path.parent / "failures"
    failures.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "faults.bad_input", name, str(own.done), str(seed)]
    command.append(str(failures))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stderr is not None
    number, buffer, waited = own.done, b"", START
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while own.done < n_cases and time.monotonic() < until + STALLED:
                if not selector.select(timeout=waited):
                    _fail(results, name, number, "hang", f"no answer in {waited:.0f} s")
                    return
                data = os.read(child.stdout.fileno(), 1 << 16)
                if not data:
                    break
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    values = json.loads(line)
                    waited = STALLED
                    if "begin" in values:
                        number = values["begin"]
                        continue
                    own.add(values["outcome"])
                    own.seconds += values["seconds"]
                    own.peak_bytes = max(own.peak_bytes, values["peak"])
                    if values["outcome"] not in ("result", "error"):
                        own.failures.append({"case": number, **values})
                if time.monotonic() >= until:
                    return
        if child.wait() and own.done == number:  # it died in the middle of a case
            code = -child.returncode
            kind = "hang" if code == signal.SIGPROF else "crash"
            reason = child.stderr.read().decode(errors="replace")[-1500:]
            _fail(results, name, number, kind, f"signal or exit code {code}: {reason}")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()


def _fail(results: Results, name: str, number: int, outcome: str, reason: str) -> None:
    own = results.of(name)
    own.add(outcome)
    own.failures.append({"case": number, "outcome": outcome, "reason": reason})


if __name__ == "__main__":
    _, reader_name, first_case, of_seed, folder_of_failures = sys.argv
    run_child(reader_name, int(first_case), int(of_seed), Path(folder_of_failures))
