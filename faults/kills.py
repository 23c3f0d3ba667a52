"""Part "kills": work is killed, its disk fails, its files vanish; the same call must continue.

Each task (`faults.tasks`) runs once undisturbed, which gives the result to expect, how long it
computes and the number of its file operations. The number of a case gives the kind of fault, and
its random numbers give the moments:

- SIGKILL after a share of the time that it computes, or at one file operation, of a write after
  half of its bytes; up to `MAX_KILLS` in a row;
- a disk that is full from an operation on, or one operation that fails;
- a disk that is too small, a file system in memory, if this user may mount one;
- a file that is removed or truncated, of work that was killed or is complete;
- two processes in one folder; a worker of a cluster that is killed.

Then the same call runs undisturbed. A case passes if

- each run ends with its result or with one of our errors,
- after a fault, every file is the whole new one, the old one, or not there, unless it is growing,
- nothing that was done is done again,
- at the end there are the files of the undisturbed run, no others, with the same content.

Processes are forked from this one, which has imported everything and computed nothing.
`python -m faults.kills TASK NUMBER SEED` runs one case and prints what became of it.
"""

import contextlib
import ctypes
import fnmatch
import hashlib
import json
import logging
import math
import os
import random
import re
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from earmark.errors import EarmarkError
from faults.operations import FAIL, FULL, KILL, Operations
from faults.results import Results

STALLED = 300.0  # seconds after which a run hangs
PR_SET_PDEATHSIG = 1  # of prctl: the process ends with its parent
CPUCLOCK_SCHED = 2  # of Linux: the clock of a process that counts what it computes
POLL = 0.002  # seconds between two looks at how long a process has computed
RANDOM, SMALL, REMOVED, TRUNCATED, TWO, WORKER = (
    "kill at a random moment",
    "small disk",
    "file removed",
    "file truncated",
    "two processes",
    "worker killed",
)
# The kinds of fault, in the order of cases.
KINDS = (RANDOM, KILL, RANDOM, FULL, KILL, RANDOM, REMOVED, KILL, RANDOM, TWO, KILL, TRUNCATED,
         RANDOM, FAIL, KILL, SMALL)  # fmt: skip
MAX_KILLS = 6  # of a case
# In JSON files: how long something took, and digests of models, which contain it.
UNEQUAL = ("seconds", "teachers")


@dataclass
class Outcome:
    """What became of one run.

    Args:
        ended: "result", "error" (ours), "foreign", "killed" or "hang".
        reason: the text of an error.
        begun: pieces of the work that it began, in order.
        done: those that it finished.
        n_operations: on files; those of a run that was killed are not known.
        has_struck: whether the fault at a file operation happened.
    """

    ended: str
    reason: str = ""
    begun: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    n_operations: int = 0
    has_struck: bool = False


class Process:
    """A forked process that runs a function; what it reports stays if it is killed."""

    def __init__(self, function: Callable[[Callable[..., None]], None]) -> None:
        self._report = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the outcome
        self.cpu = 0.0
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            try:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                function(self._write)
            finally:
                os._exit(0)

    def _write(self, *values: Any) -> None:
        os.write(self._report.fileno(), json.dumps(values).encode() + b"\n")

    def wait(self, cpu_seconds: float = math.inf) -> bool:
        """Wait until it ends or has computed for some seconds; return whether it has ended.

        On a busy machine, the time that a process has computed says better where it is.
        """
        end = time.monotonic() + STALLED
        descriptor = os.pidfd_open(self.pid)
        try:
            while self.cpu_seconds() < cpu_seconds and time.monotonic() < end:
                pause = STALLED if math.isinf(cpu_seconds) else POLL
                if select.select([descriptor], [], [], pause)[0]:
                    return True
            return False
        finally:
            os.close(descriptor)

    def cpu_seconds(self) -> float:
        """Return the seconds that all its threads have computed."""
        # The clock of a process, as clock_getcpuclockid(3) returns it.
        return time.clock_gettime((~self.pid << 3) | CPUCLOCK_SCHED)

    def kill(self) -> None:
        """Kill it, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Wait for its end; return the signal that killed it, or 0."""
        _, status, usage = os.wait4(self.pid, 0)
        self.cpu = usage.ru_utime + usage.ru_stime
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0

    def lines(self) -> list[list[Any]]:
        """Return what it reported."""
        content = os.pread(self._report.fileno(), 1 << 24, 0)
        return [json.loads(line) for line in content.splitlines()]

    def outcome(self) -> Outcome:
        """Wait for its end; return what became of it."""
        hangs = not self.wait()
        if hangs:
            self.kill()
        code = self.end()
        outcome = Outcome("hang" if hangs else "killed")
        for kind, *values in self.lines():
            if kind == "ended":
                outcome.ended, outcome.reason, outcome.n_operations, outcome.has_struck = values
            elif kind == "begin":
                outcome.begun += values
            else:
                outcome.done += values
        if outcome.ended == "killed" and code != signal.SIGKILL:
            outcome.ended, outcome.reason = "foreign", f"ended by signal {code}"
        self._report.close()
        return outcome


class Bench:
    """The data, the undisturbed run and the folder of the cases of one task.

    Args:
        name: of the task.
        folder: a temporary one.
    """

    def __init__(self, name: str, folder: Path) -> None:
        from faults.tasks import TASKS, make_data

        self.name, self.task = name, TASKS[name]
        self.data, self.out = folder / "data", folder / "out"
        self.data.mkdir()
        self._machines: list[Process] = []
        _require(Process(lambda report: _quiet(lambda: make_data(self.data), report)).outcome())
        if name == "cluster":
            self._start_machines(folder)
        self.prepare()
        _require(self.start().outcome())  # the first one may load what later ones find loaded
        self.prepare()
        process = self.start(Operations(str(self.out)))
        whole = _require(process.outcome())
        self.seconds, self.n_operations = process.cpu, whole.n_operations
        self.pieces = {*whole.done}
        self.expected = contents(self.out)
        self.n_bytes = sum(path.stat().st_size for path in files(self.out))

    def prepare(self) -> None:
        """Make the folder of the work as it is before the first run."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        for name in self.task.start:
            source = self.data / name
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(source, self.out / name)

    def start(self, operations: Operations | None = None) -> Process:
        """Start a run of the task."""

        def run(report: Callable[..., None]) -> None:
            own = operations or Operations(str(self.out))
            if operations is not None:
                own.install()
            _quiet(lambda: self.task.run(self.data, self.out, report), report, own)

        return Process(run)

    def _start_machines(self, folder: Path) -> None:
        from faults.tasks import ADDRESS, run_scheduler

        def schedule(report: Callable[..., None]) -> None:
            _quiet(lambda: run_scheduler(lambda address: report("begin", address)), report)

        self._folder = folder
        self._machines.append(Process(schedule))
        _until(self._machines[0].lines)
        (self.data / ADDRESS).write_text(self._machines[0].lines()[0][1])
        for _ in range(2):
            self.add_worker()

    def add_worker(self) -> None:
        """Start a worker of the cluster."""
        from faults.tasks import ADDRESS, run_worker

        address = (self.data / ADDRESS).read_text()
        work = self._folder / "workers"
        self._machines.append(
            Process(lambda report: _quiet(lambda: run_worker(address, work), report))
        )

    def kill_worker(self) -> None:
        """Kill the oldest worker, and start another."""
        worker = self._machines.pop(1)
        worker.kill()
        worker.end()
        self.add_worker()

    def close(self) -> None:
        """End the processes of the cluster."""
        for process in self._machines:
            process.kill()
            process.end()


def _quiet(
    function: Callable[[], None], report: Callable[..., None], own: Operations | None = None
) -> None:
    """In a forked process: call a function and report how it ended."""
    import torch

    from faults.tasks import RefusedError

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    null = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(null, descriptor)
    ended, reason = "result", ""
    try:
        function()
    except (EarmarkError, RefusedError) as error:
        ended, reason = "error", str(error)
    except BaseException:
        ended, reason = "foreign", "".join(traceback.format_exc(limit=-6))[-2000:]
    n_operations, struck = (own.n_done, own.has_struck) if own is not None else (0, False)
    report("ended", ended, reason, n_operations, struck)


def _require(outcome: Outcome) -> Outcome:
    if outcome.ended != "result":
        raise RuntimeError(f"the undisturbed run ended with {outcome.ended}: {outcome.reason}")
    return outcome


def _until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + STALLED
    while not is_true():
        if time.monotonic() > end:
            raise RuntimeError("the cluster does not start")
        time.sleep(0.01)


def files(folder: Path) -> list[Path]:
    """Return all files of a folder."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def contents(folder: Path) -> dict[str, str]:
    """Return the name of each file -> a digest of what must be the same: all but durations."""
    found: dict[str, str] = {}
    for path in files(folder):
        # The scores of a service have the time of the upload in their name.
        name = re.sub(r"(scores/\w+)-\w+\.", r"\1.", path.relative_to(folder).as_posix())
        found[f"{name} again" if name in found else name] = digest(path)
    return found


def digest(path: Path) -> str:
    """Return the digest of one file; raise if it is damaged."""
    from earmark.tensors import load_tensors

    content = path.read_bytes()
    if path.suffix in (".earmark", ".safetensors"):
        text, tensors = load_tensors(path, "file")
        parts = [repr((name, tensors[name].tolist())) for name in sorted(tensors)]
        content = "\n".join([json.dumps(_timeless(json.loads(text))), *parts]).encode()
    elif path.suffix == ".json":
        content = json.dumps(_timeless(json.loads(content))).encode()
    elif path.name == "history.tsv":
        content = b"\n".join(line.rpartition(b"\t")[0] for line in content.splitlines())
    return hashlib.sha256(content).hexdigest()


def _timeless(values: Any) -> Any:
    """Return values without those that are never the same."""
    if isinstance(values, Mapping):
        return {name: _timeless(own) for name, own in values.items() if name not in UNEQUAL}
    return [_timeless(own) for own in values] if isinstance(values, list) else values


class LossError(Exception):
    """What a case must not show."""


class Case:
    """One case of a task.

    Args:
        bench: of the task.
        number: of the case.
        seed: of all cases.
    """

    def __init__(self, bench: Bench, number: int, seed: int) -> None:
        self.bench, self.rng = bench, random.Random(f"{seed} {bench.name} {number}")
        self.kind = KINDS[number % len(KINDS)]
        if bench.name == "cluster" and number % 3 == 2:
            self.kind = WORKER
        self.struck: dict[str, int] = {}
        self._done: set[str] = set()

    def run(self) -> None:
        """Let the fault happen and continue; raise `LossError` if anything is lost."""
        self.bench.prepare()
        with self._disk() as grow:
            if self.kind in (RANDOM, KILL):
                for before in range(self.rng.randint(1, MAX_KILLS)):
                    if not self._kill(before):
                        break  # the work is complete
            elif self.kind in (FULL, FAIL):
                at = self.rng.randrange(self.bench.n_operations)
                operations = Operations(str(self.bench.out), at, self.kind)
                outcome = self._check(self.bench.start(operations).outcome())
                self._count(outcome.has_struck)
            elif self.kind == SMALL:
                self._count(self._check(self.bench.start().outcome()).ended == "error")
            elif self.kind == TWO:
                self._run_two()
            elif self.kind == WORKER:
                self._kill_worker()
            else:
                self._damage()
            grow()
            outcome = self._check(self.bench.start().outcome())
            if outcome.ended != "result":
                raise LossError(f"the last run ended with {outcome.ended}: {outcome.reason}")
            self._compare()

    def _count(self, happened: bool) -> None:
        if happened:
            self.struck[self.kind] = self.struck.get(self.kind, 0) + 1

    def _check(self, outcome: Outcome) -> Outcome:
        """Raise if a run ended as it must not, did again what was done, or left half a file."""
        if outcome.ended in ("foreign", "hang"):
            raise LossError(f"a run ended with {outcome.ended}: {outcome.reason}")
        again = [piece for piece in outcome.begun if piece in self._done]
        if again:
            raise LossError(f"done again: {', '.join(again)}")
        self._done |= {*outcome.done}
        if self._done == self.bench.pieces:
            self._done.clear()  # the next run need not know that all was done
        for path in files(self.bench.out):
            if re.fullmatch(r"\..*\.part(\.[^.]*)?", path.name) or path.suffix == ".spill":
                continue  # temporary; the last run must not leave them
            name = path.relative_to(self.bench.out).as_posix()
            if _matches(path, self.bench.task.growing):
                continue
            try:
                own = digest(path)
            except (ValueError, EarmarkError) as error:
                raise LossError(f"{name} is not whole: {error}") from error
            if own != self.bench.expected.get(name, own):
                raise LossError(f"{name} is another than that of an undisturbed run")
        return outcome

    def _compare(self) -> None:
        """Raise unless the folder is that of an undisturbed run."""
        found, expected = contents(self.bench.out), self.bench.expected
        for what, names in {
            "missing": expected.keys() - found.keys(),
            "left behind": found.keys() - expected.keys(),
            "other than in an undisturbed run": {
                name for name in found.keys() & expected.keys() if found[name] != expected[name]
            },
        }.items():
            if names:
                raise LossError(f"{what}: {', '.join(sorted(names))}")

    def _kill(self, before: int) -> bool:
        """Kill a run, after so many others; return whether it was killed before its end."""
        share = self.rng.random() ** (1 + before)  # of the work, of which less and less is left
        operations = None
        if self.kind == KILL:
            at = int(share * self.bench.n_operations)
            operations = Operations(str(self.bench.out), at, KILL)
        process = self.bench.start(operations)
        if operations is None and not process.wait(share * self.bench.seconds):
            process.kill()
        killed = self._check(process.outcome()).ended == "killed"
        self._count(killed)
        return killed

    def _run_two(self) -> None:
        """Run two processes in one folder; one of them at least must end with the result."""
        first = self.bench.start()
        first.wait(self.rng.random() * self.bench.seconds)
        second = self.bench.start()
        outcomes = [first.outcome(), second.outcome()]
        # Either may have done what the other found done; each alone does nothing twice.
        for outcome in outcomes:
            outcome.begun = [piece for piece in outcome.begun if piece not in self._done]
            self._check(outcome)
        if not any(outcome.ended == "result" for outcome in outcomes):
            reasons = ", ".join(outcome.reason for outcome in outcomes)
            raise LossError(f"of two processes, neither has a result: {reasons}")
        self._done.clear()  # the work is complete
        self._count(True)

    def _kill_worker(self) -> None:
        process = self.bench.start()
        ended = process.wait(self.rng.random() * self.bench.seconds)
        if not ended:
            self.bench.kill_worker()
        self._count(not ended)
        outcome = self._check(process.outcome())
        if outcome.ended != "result":
            raise LossError(f"a run whose worker ended has no result: {outcome.reason}")

    def _damage(self) -> None:
        """Remove or truncate a file of a run that was killed or has ended."""
        process = self.bench.start()
        process.wait(1.5 * self.rng.random() * self.bench.seconds)
        process.kill()
        self._check(process.outcome())
        self._done.clear()  # what depends on the file is done again
        able = [path for path in files(self.bench.out) if self._may_damage(path)]
        if not able:
            return
        path = self.rng.choice(able)
        content = path.read_bytes()
        if self.kind == REMOVED:
            path.unlink()
        else:
            path.write_bytes(content[: self.rng.randrange(len(content))])
        self._count(True)
        outcome = self.bench.start().outcome()
        if outcome.ended in ("foreign", "hang"):
            raise LossError(f"without {path.name} a run ended with {outcome.reason}")
        if outcome.ended == "error":  # it was refused; with the file it must continue
            path.write_bytes(content)
            self._done.clear()

    def _may_damage(self, path: Path) -> bool:
        return _matches(path, self.bench.task.damaged) and path.stat().st_size > 0

    @contextlib.contextmanager
    def _disk(self) -> Iterator[Callable[[], None]]:
        """Yield what makes the disk large again, of a case with a small one."""
        if self.kind != SMALL or not _can_mount():
            yield lambda: None
            return
        out = self.bench.out
        saved = out.with_name("saved")
        out.replace(saved)
        out.mkdir()
        taken = sum(path.stat().st_size + 4096 for path in files(saved))
        size = taken + 8192 + int(self.rng.random() * self.bench.n_bytes)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", out], check=True)
        try:
            shutil.copytree(saved, out, dirs_exist_ok=True)
            yield lambda: _grow(out)
        finally:
            subprocess.run(["umount", "-l", out], check=True)
            shutil.rmtree(saved)


def _grow(out: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=256m", str(out)], check=True)


def _can_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        tried = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder]
        try:
            if subprocess.run(tried, capture_output=True, check=False).returncode:
                return False
        except OSError:
            return False
        subprocess.run(["umount", folder], check=True)
    return True


def _matches(path: Path, patterns: tuple[str, ...]) -> bool:
    whole = path.as_posix()
    return any(
        fnmatch.fnmatch(path.name, own) or fnmatch.fnmatch(whole, f"*/{own}") for own in patterns
    )


def run(results: Results, seconds: float, n_cases: int, only: list[str], seed: int) -> None:
    """Run cases of all tasks, in turn, until the time is up or each has its number of cases.

    Args:
        results: to continue and to fill.
        seconds: at most.
        n_cases: of each task, those of earlier runs included.
        only: names of tasks; all if empty.
        seed: of the cases.
    """
    from faults.tasks import TASKS

    end = time.monotonic() + seconds
    names = only or list(TASKS)
    for at, name in enumerate(names):
        # What is left is shared by the tasks that are left.
        until = time.monotonic() + (end - time.monotonic()) / (len(names) - at)
        own = results.of(name)
        if own.done < n_cases:
            with opened(name) as bench:
                while own.done < n_cases and time.monotonic() < until:
                    _run_case(results, bench, own.done, seed)
                    results.save()
        print(f"{name}: {own.done} cases, {own.outcomes}, {own.faults}", flush=True)


@contextlib.contextmanager
def opened(name: str) -> Iterator[Bench]:
    """Yield the bench of a task, in a temporary folder."""
    import torch

    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(name, Path(os.path.realpath(folder)))
        try:
            yield bench
        finally:
            bench.close()


def _run_case(results: Results, bench: Bench, number: int, seed: int) -> None:
    own, case, started = results.of(bench.name), Case(bench, number, seed), time.monotonic()
    try:
        case.run()
    except LossError as error:
        own.add("lost")
        own.failures.append({"case": number, "kind": case.kind, "reason": str(error)})
    else:
        own.add("same result")
    for kind, n_times in case.struck.items():
        own.faults[kind] = own.faults.get(kind, 0) + n_times
    own.seconds += time.monotonic() - started


if __name__ == "__main__":
    _, task_name, case_number, of_seed = sys.argv
    with opened(task_name) as made:
        the_case = Case(made, int(case_number), int(of_seed))
        print(f"{the_case.kind}; {made.seconds:.2f} s, {made.n_operations} operations undisturbed")
        the_case.run()
        print(the_case.struck)
