"""A scheduler and worker processes on this machine: `python -m earmark.runtime.local_cluster 4`.

Conventions: `earmark.runtime.cluster.running` starts it and reads the address of the scheduler from
its standard output. It ends when its standard input does. It listens on the loopback address only
and has no dashboard. Workers have one thread each; one that ends is started again.
"""

import logging
import sys
import tempfile
from typing import Any

from earmark.errors import SettingError

HOST = "127.0.0.1"


def settings(n_workers: int) -> dict[str, Any]:
    """Return the arguments of Dask's `LocalCluster`.

    >>> settings(4)["n_workers"], settings(4)["host"]
    (4, '127.0.0.1')
    """
    if n_workers < 1:
        raise SettingError(f"n_workers must be 1 or more. Got {n_workers}.")
    return {
        "n_workers": n_workers,
        "threads_per_worker": 1,
        "host": HOST,
        "dashboard_address": f"{HOST}:0",  # the scheduler has an HTTP server in any case
        "scheduler_kwargs": {"dashboard": False},
        "memory_limit": 0,  # Dask would end a worker that takes more than its share
        "silence_logs": logging.CRITICAL,
    }


def main() -> None:
    """Run the cluster until standard input ends."""
    import dask
    from distributed import LocalCluster

    with tempfile.TemporaryDirectory() as folder:
        quiet = {
            "temporary-directory": folder,
            "distributed.scheduler.http.routes": [],
            "distributed.worker.http.routes": [],
            # By default every process samples its own stack 100 times per second.
            "distributed.worker.profile.enabled": False,
            "distributed.admin.tick.interval": "500ms",
        }
        with dask.config.set(quiet), LocalCluster(**settings(int(sys.argv[1]))) as cluster:
            print(cluster.scheduler_address, flush=True)
            sys.stdin.read()


if __name__ == "__main__":
    main()
