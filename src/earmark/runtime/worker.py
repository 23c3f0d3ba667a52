"""What a worker of a cluster does with a chunk of items, once it has the right versions and files.

Conventions: the client sends what it has: the versions of its packages, and the sizes of the files
that the chunk needs. A worker that has anything else computes nothing and raises `ClusterError`.
"""

import hashlib
import os
import pickle
import platform
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from earmark.errors import ClusterError
from earmark.runtime.cores import one_thread

PACKAGES = ("torch", "numpy", "soundfile", "soxr")  # besides Earmark, what results depend on

PathLike = str | os.PathLike[str]

_ALONE = threading.Lock()  # of this process


def run_chunk(
    function: bytes,
    items: bytes,
    files: Mapping[str, int],
    versions: Mapping[str, str],
    alone: bool = False,
) -> list[Any]:
    """On a worker: check versions and files, then return the results of a chunk.

    >>> run_chunk(pickle.dumps(sorted), pickle.dumps([2, 1]), {}, code_versions())
    [1, 2]
    """
    differ = [name for name in versions if versions[name] != code_versions().get(name)]
    if differ:
        raise ClusterError(
            f"{_this_worker()} has {list_versions(code_versions(), differ)}, and the process that "
            f"sent the task {list_versions(versions, differ)}; install the same versions on both."
        )
    for path, size in files.items():
        own = file_sizes([path]).get(path)
        if own is None:
            raise ClusterError(
                f"{_this_worker()} cannot find {path}, which the machine that sent the task has; "
                "every machine needs the files under the same path, as on a shared file system."
            )
        if own != size:
            raise ClusterError(
                f"{_this_worker()} has another {path} than the machine that sent the task: {own} "
                f"bytes instead of {size}; every machine needs the same files."
            )
    call = _unpickled(function)
    with _ALONE if alone else nullcontext(), one_thread():
        return call(pickle.loads(items))  # noqa: S301 - from the client, which runs code here anyway


@lru_cache(maxsize=4)
def _unpickled(function: bytes) -> Callable[[list[Any]], list[Any]]:
    call: Callable[[list[Any]], list[Any]] = pickle.loads(function)  # noqa: S301 - as above
    return call


@cache
def code_versions() -> dict[str, str]:
    """Return the versions that results depend on; that of Earmark has a hash of its modules.

    >>> sorted(code_versions())
    ['earmark', 'numpy', 'soundfile', 'soxr', 'torch']
    """
    folder = Path(__file__).parents[1]
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(folder.rglob("*.py")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
    found = {}
    for name in ("earmark", *PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return {**found, "earmark": f"{found['earmark']} ({digest.hexdigest()})"}


def list_versions(versions: Mapping[str, str], names: Iterable[str] = ("earmark",)) -> str:
    """Return versions as text.

    >>> list_versions({"earmark": "0.1.0"})
    'earmark 0.1.0'
    """
    return ", ".join(f"{name} {versions.get(name, 'none')}" for name in names)


def _this_worker() -> str:
    from distributed import get_worker

    try:
        return f"Worker {get_worker().address} on {platform.node()}"
    except ValueError:  # not on a worker
        return f"This process on {platform.node()}"


def file_sizes(paths: Iterable[PathLike]) -> dict[str, int]:
    """Return the absolute path of each file that exists -> its bytes; -1 of a folder.

    >>> file_sizes(["/", "/nowhere.wav"])
    {'/': -1}
    """
    sizes = {}
    for path in map(Path, paths):
        with suppress(OSError):  # the function itself reports what does not exist here either
            sizes[str(path.absolute())] = -1 if path.is_dir() else path.stat().st_size
    return sizes
