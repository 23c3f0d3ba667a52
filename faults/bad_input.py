"""Part "input": every reader gets files that are damaged, or well-formed and wrong.

Each case must end with a result or with one of our errors, within `HANG` seconds and `MEMORY` bytes
above what the process had before. Cases run in forked child processes, one per core, each of which
makes and reads thousands of cases, one after the other, in a folder in memory. A child counts in
memory that it shares with the parent. A case that hangs ends its child; the next child continues
after it. A file that failed is kept in the folder `failures` of the results; one that is understood
becomes a test, as a file in `tests/data/bad_input/READER/`.
"""

import filecmp
import multiprocessing
import os
import random
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from earmark.errors import MAX_MESSAGE, EarmarkError, printable
from faults.guided import IN_MEMORY
from faults.results import Results

HANG = 10.0  # seconds of processor time of a case; real time is limited to `STALLED`
STALLED = 300.0  # on a busy machine, a second of processor time may take a minute
MEMORY = 2 << 30  # bytes
START = 600.0  # seconds until the first case, good files included
ROUNDS = 4  # the cases of a reader are run in so many parts, so that all readers have their turn

# What a child shares with its parent, by position.
NEXT, RESULTS, ERRORS, FAILED, SECONDS, SLOWEST, PEAK, STOP = range(8)


def case_rng(seed: int, reader: str, number: int) -> random.Random:
    """Return the random numbers of one case, which depend on nothing else."""
    return random.Random(f"{seed} {reader} {number}")


def outcome_of(read: object, path: Path) -> tuple[str, str]:
    """Return "result", "error" (ours) or "foreign", and the reason."""
    try:
        read(path)  # type: ignore[operator]
    except EarmarkError as error:
        text = str(error)
        if not text or len(text) > MAX_MESSAGE or text != printable(text):
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
    files = [work / path.relative_to(good) for path in reader.make(good)]
    folder_of_cases = RestoredFolder(good, work)
    number = first
    while True:
        path, content = spoil(reader, case_rng(seed, name, number), files)
        path.write_bytes(content)
        yield number, path, content
        number += 1
        folder_of_cases.restore()


class RestoredFolder:
    """A copy of a folder in which whatever was changed can be undone.

    A file is as it was if its size and its time are, since the time of good files is in the past.

    Args:
        good: the folder.
        work: the copy, which is made.
    """

    def __init__(self, good: Path, work: Path) -> None:
        shutil.copytree(good, work)
        self._work = str(work)
        self._good: dict[str, tuple[bytes, os.stat_result]] = {}
        for path in sorted(work.rglob("*")):
            if path.is_file():
                self._good[str(path)] = path.read_bytes(), path.stat()

    def restore(self) -> None:
        """Write what was changed or removed as it was, and remove what is new."""
        missing = dict(self._good)
        for folder, _, names in os.walk(self._work):
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118 - pathlib takes ten times as long
                if path not in missing:
                    os.unlink(path)  # noqa: PTH108
                    continue
                now, before = os.stat(path), missing[path][1]  # noqa: PTH116
                if (now.st_mtime_ns, now.st_size) == (before.st_mtime_ns, before.st_size):
                    del missing[path]
        for path, (content, before) in missing.items():
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(content)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def run_child(
    name: str, first: int, end: int, seed: int, folder: Path, shared: Any, failures: Connection
) -> None:
    """Make and read the cases from `first` to `end`, or until the parent ends or sets `STOP`."""
    import torch

    from faults.readers import READERS

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent stops its children
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _be_quiet(folder)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    tempfile.tempdir = str(folder)
    read = READERS[name].read
    before, cpu, parent = 0, 0.0, os.getppid()
    for number, path, content in cases(name, first, seed, folder):
        if not before:
            limit = _address_space() + MEMORY
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            before, cpu = _peak(), time.process_time()
        signal.setitimer(signal.ITIMER_PROF, HANG)  # ends a process that computes for ever
        outcome, reason = outcome_of(read, path)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if outcome == "result":
            shared[RESULTS] += 1
        elif outcome == "error":
            shared[ERRORS] += 1
        else:
            shared[FAILED] += 1
            failures.send((number, outcome, reason, path.name, content))
        now = time.process_time()  # with the time to make the case
        shared[SECONDS] += now - cpu
        shared[SLOWEST] = max(shared[SLOWEST], now - cpu)
        cpu = now
        shared[PEAK] = _peak() - before
        shared[NEXT] = number + 1
        if os.getppid() != parent:  # it was killed
            shutil.rmtree(folder, ignore_errors=True)
            return
        if number + 1 == end or shared[STOP]:
            return


def _be_quiet(folder: Path) -> None:
    """Send what decoders print to a file, which has the last words of a child that crashes."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)


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
        n_cases: of each reader at most, those of earlier runs included.
        only: names of readers; all if empty.
        seed: of the cases.
    """
    from faults.readers import READERS

    end = time.monotonic() + seconds
    wanted = {name: min(n_cases, READERS[name].n_cases) for name in only or READERS}
    turns = deque(
        (name, wanted[name] * n // ROUNDS) for n in range(1, ROUNDS + 1) for name in wanted
    )
    children: list[_Child] = []
    try:
        while turns or children:
            if time.monotonic() >= end:
                turns.clear()
                for child in children:
                    child.shared[STOP] = 1
            _start(children, turns, results, seed)
            if children:
                wait([own for child in children for own in child.sources], timeout=1.0)
            for child in [own for own in children if own.has_ended()]:
                children.remove(child)
                child.close()
                turns.appendleft((child.name, child.until))  # what is left, if it died
                results.save()
    finally:
        for child in children:  # after an interrupt
            child.shared[STOP] = 1
        for child in children:
            child.close()
        results.save()
    for name in wanted:
        print(f"{name}: {results.of(name).done} cases, {results.of(name).outcomes}", flush=True)


def _start(
    children: "list[_Child]", turns: deque[tuple[str, int]], results: Results, seed: int
) -> None:
    """Start a child per free core, for the next turns of readers that have none."""
    for _ in range(len(turns)):
        if len(children) >= (os.cpu_count() or 1):
            return
        name, until = turns.popleft()
        if any(child.name == name for child in children):
            turns.append((name, until))
        elif results.of(name).done < until:
            children.append(_Child(results, name, until, seed))


class _Child:
    """A process that runs cases of one reader, as its parent sees it."""

    def __init__(self, results: Results, name: str, until: int, seed: int) -> None:
        self.name, self.until, self.seed = name, until, seed
        self._own, self._failures = results.of(name), results.path.parent / "failures"
        context = multiprocessing.get_context("fork")
        self.shared = context.RawArray("d", 8)
        self.shared[NEXT] = self._first = self._own.done
        base = IN_MEMORY if IN_MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="faults-", dir=base))
        self._failed, sending = context.Pipe(duplex=False)
        self.process = context.Process(
            target=run_child,
            args=(name, self._first, until, seed, self.folder, self.shared, sending),
        )
        self.process.start()
        sending.close()
        self._seen, self._since = -1.0, time.monotonic() + START - STALLED

    @property
    def sources(self) -> list[Any]:
        """What to wait for."""
        return [self.process.sentinel, *([] if self._failed.closed else [self._failed])]

    def has_ended(self) -> bool:
        """Take note of failures and of progress; return whether the process has ended."""
        self._take_failures()
        if self.shared[NEXT] != self._seen and self.shared[NEXT] != self._first:
            self._seen, self._since = self.shared[NEXT], time.monotonic()
        if time.monotonic() - self._since > STALLED and self.process.is_alive():
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def _take_failures(self) -> None:
        try:
            while not self._failed.closed and self._failed.poll():
                self._keep(*self._failed.recv())
        except EOFError:
            self._failed.close()

    def _keep(self, number: int, outcome: str, reason: str, file: str, content: bytes) -> None:
        self._own.failures.append({"case": number, "outcome": outcome, "reason": reason})
        self._own.outcomes[outcome] = self._own.outcomes.get(outcome, 0) + 1
        self._failures.mkdir(parents=True, exist_ok=True)
        (self._failures / f"{self.name}-{number}-{file}").write_bytes(content)

    def close(self) -> None:
        """Count what was done, and the case in which the process died, if it did."""
        self.process.join(STALLED)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self._take_failures()
        self._failed.close()
        shared, own = self.shared, self._own
        own.add("result", int(shared[RESULTS]))
        own.add("error", int(shared[ERRORS]))
        own.done += int(shared[FAILED])
        own.seconds += shared[SECONDS]
        own.slowest = max(own.slowest, shared[SLOWEST])
        own.peak_bytes = max(own.peak_bytes, int(shared[PEAK]))
        code = self.process.exitcode or 0
        if code and code != -signal.SIGTERM:
            kind = "hang" if code in (-signal.SIGPROF, -signal.SIGKILL) else "crash"
            log = self.folder / "log"
            words = log.read_bytes()[-1500:].decode(errors="replace") if log.exists() else ""
            file, content = self._current()
            self._keep(own.done, kind, f"exit code {code}: {words}", file, content)
            own.done += 1
        shutil.rmtree(self.folder, ignore_errors=True)

    def _current(self) -> tuple[str, bytes]:
        """Return name and content of the file in which the process died."""
        good, work = self.folder / "good", self.folder / "work"
        for path in sorted(work.rglob("*")):
            other = good / path.relative_to(work)
            if path.is_file() and not (other.exists() and filecmp.cmp(path, other, shallow=False)):
                return path.name, path.read_bytes()
        return "none", b""
