"""Map a function over items on a Dask cluster: many machines, or worker processes of this one.

Conventions: a scheduler is "local", "local:4" (worker processes on this machine, which no other can
reach) or the address of one that runs, such as "tcp://host:8786". Dask is imported when it is used;
`pip install earmark[cluster]` installs it.

Items are sent in chunks, and each chunk is one task of Dask. Paths must name the same files on all
machines. Before a worker computes anything it checks that it has the versions of this process and
the files of the chunk, with the same sizes; otherwise the whole map raises `ClusterError`.

When a worker ends, by a crash or with its machine, Dask gives its tasks to the others; the result
of an item is yielded once in any case. A task may itself be what ends its workers, because memory
runs out or a library crashes. When it has ended more than `allowed-failures` of them (a setting of
Dask, 3), its items are computed again, one at a time while nothing else is under way, so that the
item to blame is known by name.
"""

import logging
import math
import os
import pickle
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from uuid import uuid4

from earmark.errors import ClusterError, SettingError
from earmark.runtime.cores import n_cores
from earmark.runtime.worker import code_versions, file_sizes, list_versions, run_chunk

if TYPE_CHECKING:
    from distributed import Client, Future

LOCAL = "local"
CONNECT = 10.0  # seconds in which a scheduler must answer
PATIENCE = 30.0  # seconds without a result after which the workers are counted
CLOSE = 30.0  # seconds in which a local cluster must end
CHUNK_BYTES = 1 << 26  # of files, after which a chunk is full
CHUNKS_PER_THREAD = 4  # at least, where there are enough items, so that all threads end together

Item = TypeVar("Item")
Result = TypeVar("Result")
PathLike = str | os.PathLike[str]

logger = logging.getLogger(__name__)


def _no_files(_: Any) -> tuple[PathLike, ...]:
    return ()


@dataclass(frozen=True)
class Cluster(Generic[Item]):
    """Where to map, and what is known about the items.

    Args:
        scheduler: "local", "local:4", or the address of a scheduler; see the module.
        name: returns the name of an item, for messages.
        files: returns the files and folders that a worker needs for an item. Those that exist here
            must exist there.
        killed: returns the result of an item that ended every worker that tried it; by default the
            error is raised.
        per_task: items per task at most.
        group: in place of `per_task`, items in a row with the same group make one task.
        alone: whether an item needs a process to itself, as a training does, whose random numbers
            are those of the process. Of several threads of a worker, the others then wait.
        ahead: tasks per thread of the cluster that may be under way while a result is awaited.

    >>> Cluster("tcp://10.0.0.1:8786", per_task=32).scheduler
    'tcp://10.0.0.1:8786'
    >>> Cluster("everywhere")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: scheduler must be 'local', 'local:4' (worker processes) or an
    address such as 'tcp://host:8786'. Got 'everywhere'.
    """

    scheduler: str
    name: Callable[[Item], str] = str
    files: Callable[[Item], Iterable[PathLike]] = _no_files
    killed: Callable[[Item, ClusterError], Any] | None = None
    per_task: int = 1
    group: Callable[[Item], Hashable] | None = None
    alone: bool = False
    ahead: int = 8

    def __post_init__(self) -> None:
        parse_scheduler(self.scheduler)


def parse_scheduler(scheduler: str) -> int:
    """Return the number of worker processes of a local cluster, or 0 for an address.

    >>> parse_scheduler("local:4"), parse_scheduler("tcp://10.0.0.1:8786")
    (4, 0)
    """
    if scheduler == LOCAL:
        return n_cores()
    if found := re.fullmatch(rf"{LOCAL}:([1-9]\d*)", str(scheduler)):
        return int(found[1])
    if re.fullmatch(r"[a-z]+://\S+", str(scheduler)):
        return 0
    raise SettingError(
        "scheduler must be 'local', 'local:4' (worker processes) or an address such as "
        f"'tcp://host:8786'. Got {scheduler!r}."
    )


def as_given(message: str, path: Path) -> str:
    """Return the message of a worker, which has absolute paths, with a path as it was given here.

    >>> as_given(f"{Path('a.wav').absolute()} is empty.", Path("a.wav"))
    'a.wav is empty.'
    """
    return message.replace(str(path.absolute()), str(path))


@contextmanager
def running(scheduler: str) -> Iterator[str]:
    """Yield the address of a scheduler; a local cluster is started for the `with` block.

    Several maps in the block then share its worker processes.

    >>> with running("tcp://10.0.0.1:8786") as address:
    ...     address
    'tcp://10.0.0.1:8786'
    """
    n_workers = parse_scheduler(scheduler)
    if not n_workers:
        yield scheduler
        return
    _import_dask()
    # A process of its own, so that the user's script needs no `if __name__ == "__main__":`. It ends
    # when its standard input does, thus also when this process is killed.
    process = subprocess.Popen(
        [sys.executable, "-m", "earmark.runtime.local_cluster", str(n_workers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the other
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise ClusterError(f"The local cluster {scheduler!r} did not start; see above for why.")
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(CLOSE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def map_on_cluster(
    function: Callable[[list[Item]], list[Result]],
    items: Collection[Item],
    cluster: Cluster[Item],
    in_order: bool = True,
) -> Generator[Result, None, None]:
    """Yield one result per item, in order or as they are done.

    Args:
        function: from a chunk of items to their results; it must be importable by name.
        items: what it is called with. Without any, the scheduler is not asked.
        cluster: where, and what is known about the items.
        in_order: in the order of the items; otherwise in that in which tasks finish.

    >>> list(map_on_cluster(sorted, [], Cluster("tcp://10.0.0.1:8786")))
    []
    """
    if not items:
        return
    with running(cluster.scheduler) as address, _connected(address) as client:
        tasks = _Tasks(client, address, function, cluster)
        try:
            for chunk in _chunks(items, cluster, tasks.n_threads()):
                tasks.submit(chunk)
                while len(tasks.pending) >= cluster.ahead * tasks.n_threads():
                    yield from tasks.next_results(in_order)
            while tasks.pending:
                yield from tasks.next_results(in_order)
        finally:
            tasks.cancel()


class _Chunk(NamedTuple):
    items: list[Any]
    files: dict[str, int]  # path -> bytes, or -1 for a folder


def _chunks(items: Collection[Item], cluster: Cluster[Item], n_threads: int) -> Iterator[_Chunk]:
    """Yield the items in chunks of at most `per_task`, fewer where items are few or files large."""
    if cluster.group is not None:
        for _, group in groupby(items, cluster.group):
            own = list(group)
            yield _Chunk(own, file_sizes(chain.from_iterable(map(cluster.files, own))))
        return
    most = min(cluster.per_task, math.ceil(len(items) / (CHUNKS_PER_THREAD * n_threads)))
    chunk = _Chunk([], {})
    for item in items:
        chunk.items.append(item)
        chunk.files.update(file_sizes(cluster.files(item)))
        if len(chunk.items) >= most or sum(chunk.files.values()) >= CHUNK_BYTES:
            yield chunk
            chunk = _Chunk([], {})
    if chunk.items:
        yield chunk


class _Call:
    """A call of `run_chunk`, made by unpickling it.

    As a task, `run_chunk` itself would have to be imported by the scheduler, and a worker without
    this Earmark would end when it receives it. Unpickling fails inside of the task, as an error.
    """

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> tuple[Callable[..., list[Any]], tuple[Any, ...]]:
        return run_chunk, self.arguments


class _Task(NamedTuple):
    chunk: _Chunk
    future: "Future[Any]"


class _Tasks:
    """The tasks under way, in the order in which they were submitted."""

    def __init__(
        self,
        client: "Client",
        address: str,
        function: Callable[[list[Any]], list[Any]],
        cluster: Cluster[Any],
    ) -> None:
        self.client, self.address, self.cluster = client, address, cluster
        self.pending: deque[_Task] = deque()
        self._function = pickle.dumps(function)
        self._counted = -math.inf
        self._n_threads = 1

    def n_threads(self) -> int:
        """Return the threads of all workers, counted again now and then: workers come and go."""
        if time.monotonic() - self._counted > 5:
            with self._scheduler_lost():
                threads = self.client.nthreads().values()
            n_threads = len(threads) if self.cluster.alone else sum(threads)
            if n_threads < sum(threads) and self._counted < 0:
                logger.warning(
                    "Workers at %s have several threads, of which one is used: a run needs a "
                    "process to itself. Start them with --nthreads 1.",
                    self.address,
                )
            self._n_threads, self._counted = max(1, n_threads), time.monotonic()
        return self._n_threads

    def submit(self, chunk: _Chunk) -> _Task:
        """Send a chunk."""
        call = _Call(
            self._function,
            pickle.dumps(chunk.items),
            chunk.files,
            code_versions(),
            self.cluster.alone,
        )
        with self._scheduler_lost():
            future = self.client.submit(
                pickle.loads, pickle.dumps(call), key=f"earmark-{uuid4().hex}", pure=False
            )
        self.pending.append(task := _Task(chunk, future))
        return task

    def next_results(self, in_order: bool) -> list[Any]:
        """Wait for the first task, or for any; return its results."""
        waiting = [self.pending[0]] if in_order else list(self.pending)
        done = self._wait(waiting)
        self.pending.remove(done)
        return self._results(done)

    def cancel(self) -> None:
        """Cancel what is under way. A worker finishes the task that it is in, for nobody."""
        if self.pending and self.client.status == "running":
            self.client.cancel([task.future for task in self.pending], force=True)
        self.pending.clear()

    def _wait(self, tasks: list[_Task], for_all: bool = False) -> _Task:
        """Wait for any of some tasks, or for all, and return one that is done."""
        from distributed import wait

        while True:
            try:
                with self._scheduler_lost(), self.client.as_current():
                    wait(
                        [task.future for task in tasks],
                        timeout=PATIENCE,
                        return_when="ALL_COMPLETED" if for_all else "FIRST_COMPLETED",
                    )
            except TimeoutError:
                self._warn_without_workers()
            else:
                # A worker that ends takes results with it, which are then computed again.
                done = [task for task in tasks if task.future.done()]
                if done:
                    return done[0]

    def _warn_without_workers(self) -> None:
        with self._scheduler_lost():
            none = not self.client.nthreads()
        if none:
            logger.warning("There are no workers at %s; waiting for one.", self.address)

    def _results(self, task: _Task) -> list[Any]:
        from distributed import KilledWorker

        try:
            return self._result_of(task)
        except KilledWorker:
            # Others may have died with it: a worker holds a task or two besides the one it is in.
            logger.warning("Workers ended in a task; its items are computed one by one.")
            if self.pending:
                self._wait(list(self.pending), for_all=True)
            return [self._result_alone(item) for item in task.chunk.items]

    def _result_alone(self, item: Any) -> Any:
        from distributed import KilledWorker

        task = self.submit(_Chunk([item], file_sizes(self.cluster.files(item))))
        self._wait([task])
        self.pending.remove(task)
        try:
            return self._result_of(task)[0]
        except KilledWorker as reason:
            error = ClusterError(
                f"{self.cluster.name(item)} ended {reason.allowed_failures + 1} workers, each "
                f"while it was the only task; the last was {reason.last_worker.address}. Perhaps "
                "memory ran out: give workers more, or leave it out."
            )
            if self.cluster.killed is None:
                raise error from reason
            return self.cluster.killed(item, error)

    def _result_of(self, task: _Task) -> list[Any]:
        try:
            results = self._fetch(task)
        except (ImportError, AttributeError) as error:
            if _in_earmark(error):
                raise
            raise ClusterError(
                f"A worker of {self.address} cannot import this Earmark ({error}); install "
                f"{list_versions(code_versions())} on every worker."
            ) from error
        return results

    def _fetch(self, task: _Task) -> list[Any]:
        """Return what a task computed; wait if its worker ended and another computes it again."""
        while True:
            try:
                with self._scheduler_lost():
                    results: list[Any] = task.future.result(timeout=PATIENCE)
                    return results
            except TimeoutError:
                if task.future.status == "error":  # of the task itself
                    raise
                self._warn_without_workers()

    @contextmanager
    def _scheduler_lost(self) -> Iterator[None]:
        from distributed.comm import CommClosedError

        try:
            yield
        except (CancelledError, CommClosedError) as error:
            raise ClusterError(
                f"The connection to the scheduler {self.address} was lost; run it again when the "
                "scheduler is back."
            ) from error


@contextmanager
def _connected(address: str) -> "Iterator[Client]":
    _import_dask()
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"There is no Dask scheduler at {address}: no answer within {CONNECT:g} s. Start one "
            "with `dask scheduler`, or use scheduler='local' for this machine."
        ) from error
    try:
        yield client
    finally:
        client.close()


def _import_dask() -> None:
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise ClusterError(
            f"A cluster needs Dask ({error}): pip install 'earmark[cluster]'."
        ) from error


def _in_earmark(error: BaseException) -> bool:
    """Whether an error was raised by what a task computes, and not when it was unpacked."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name == run_chunk.__name__:
            return True
        trace = trace.tb_next
    return False
