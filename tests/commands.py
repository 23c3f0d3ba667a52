"""The command line, called in the process of the tests.

A new process takes seconds to import torch. Tests whose subject is the process itself (signals,
pipes, imports, kills) start one; all others call the same entry point here.
"""

import io
import logging
import signal
import sys
import warnings
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest.mock import patch

from earmark.cli import main


@dataclass(frozen=True)
class Done:
    """What a command left, with the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def call(*words, cwd="."):
    """Run `earmark` with these words in a folder, and undo what it sets up for its process."""
    logger = logging.getLogger("earmark")
    handlers, level = list(logger.handlers), logger.level
    on_sigterm = signal.getsignal(signal.SIGTERM)
    streams = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with ExitStack() as stack:
        stack.callback(signal.signal, signal.SIGTERM, on_sigterm)
        stack.callback(logger.setLevel, level)
        stack.callback(setattr, logger, "handlers", handlers)
        stack.enter_context(warnings.catch_warnings())
        stack.enter_context(patch.object(sys, "argv", ["earmark", *map(str, words)]))
        stack.enter_context(chdir(cwd))
        stack.enter_context(redirect_stdout(streams[0]))
        stack.enter_context(redirect_stderr(streams[1]))
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return Done(code, *(stream.buffer.getvalue().decode() for stream in streams))


def run(*words, cwd=".", code=0):
    """Run a command that must end with this exit code; bad input is never a traceback."""
    done = call(*words, cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done
