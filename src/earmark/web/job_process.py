"""A command of Earmark that ends with the process that started it, also if that is killed.

`python -m earmark.web.job_process tune ...` is `earmark tune ...`, stopped as by SIGTERM when its
standard input ends.
"""

import os
import runpy
import signal
import sys
import time
from threading import Thread

GRACE = 60.0  # seconds that the command has to write what it has


def end_with_parent() -> None:
    """Wait for the end of standard input, and then end this process."""
    while os.read(sys.stdin.fileno(), 1):  # a buffered reader would hold a lock at the exit
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    Thread(target=end_with_parent, daemon=True).start()
    sys.argv[0] = "earmark"
    runpy.run_module("earmark", run_name="__main__")
