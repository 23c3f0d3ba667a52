"""A scheduler and workers on the loopback address, each a real process, and tasks for them."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

HOST = "127.0.0.1"
TIMEOUT = 240  # seconds: a busy machine may take that long to start Python


def until(is_true, what):
    """Wait until something is true."""
    end = time.monotonic() + TIMEOUT
    while not is_true():
        assert time.monotonic() < end, f"{what} did not happen in {TIMEOUT} s"
        time.sleep(0.02)


class Machines:
    """A scheduler, and the workers that are added to it."""

    def __init__(self, folder, **environment):
        self.folder, self.workers = folder, []
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
        file = folder / "scheduler.json"
        self.scheduler = self._start(
            "scheduler", "--port", "0", "--no-dashboard", "--dashboard-address", f"{HOST}:0",
            "--scheduler-file", file,
        )  # fmt: skip
        until(file.exists, "the start of the scheduler")
        until(file.read_text, "the start of the scheduler")
        self.address = json.loads(file.read_text())["address"]

    def add_worker(self, *options, **environment):
        worker = self._start(
            "worker", self.address, "--nthreads", "1", "--memory-limit", "0",
            "--no-dashboard", "--dashboard-address", f"{HOST}:0",
            "--local-directory", self.folder, "--death-timeout", str(TIMEOUT), *options,
            **{"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
        )  # fmt: skip
        self.workers.append(worker)
        return worker

    def with_workers(self, n_workers):
        """Start workers until there are that many, and wait until the scheduler knows them."""
        from distributed import Client

        while sum(worker.poll() is None for worker in self.workers) < n_workers:
            self.add_worker("--no-nanny")
        with Client(self.address, set_as_default=False) as client:
            until(lambda: len(client.nthreads()) == n_workers, f"the start of {n_workers} workers")
        return self

    def with_a_worker(self):
        """Start a worker if none lives; return True."""
        if all(worker.poll() is not None for worker in self.workers):
            self.add_worker("--no-nanny")
        return True

    def kill_worker(self):
        """Kill the oldest worker that lives, as a machine that loses power; return its id."""
        worker = next(worker for worker in self.workers if worker.poll() is None)
        worker.kill()
        worker.wait()
        return worker.pid

    def end(self):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def _start(self, kind, *words, **environment):
        with (self.folder / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, words),
                 "--host", HOST],
                env={**self.environment, **environment}, cwd=self.folder, stdout=log, stderr=log,
            )  # fmt: skip


def wait_for_go(folder, item):
    """Note that the item was started, wait for the file `go`, and return item and process."""
    (folder / f"{item}-{os.getpid()}").touch()
    until((folder / "go").exists, "go")
    return item, os.getpid()


def exit_at(bad, item):
    """Return the item, or end the worker process."""
    if item == bad:
        os._exit(3)
    return item


def import_missing(item):
    """Import something that no worker has."""
    import no_such_module  # noqa: F401


def started(folder):
    """Return (item, process) of every start."""
    return [tuple(map(int, path.name.split("-"))) for path in Path(folder).glob("*-*")]
