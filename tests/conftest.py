"""Fixtures: real recordings and label tables next to the repository, and the oracle process."""

import logging
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from earmark.runtime.cores import limit_spinning
from oracles import Oracles

limit_spinning()  # of threads that wait for each other, as the commands do it

import torch  # noqa: E402

# A busy machine is no defect: how long an example takes is not checked.
settings.register_profile("any load", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any load")

# With two busy processes, two threads per process are many times slower than one.
torch.set_num_threads(1)

# A shell starts background jobs with SIGINT ignored, and their children inherit that; tests of
# interrupts need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _shared(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist: this test needs its real data")
    return folder


@pytest.fixture(autouse=True)
def _untouched_logging() -> Iterator[None]:
    """Undo what a command that runs in the process of the tests sets up for its own."""
    logger = logging.getLogger("earmark")
    handlers, level, show = list(logger.handlers), logger.level, warnings.showwarning
    yield
    logger.handlers = handlers
    logger.setLevel(level)
    warnings.showwarning = show


@pytest.fixture(scope="session", autouse=True)
def _history_is_not_drawn() -> Iterator[None]:
    """Leave out the picture of the history, a third of a short training; test_cli.py checks it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("earmark.training.finish.save", lambda figure, path: path)
        yield


@pytest.fixture(scope="session")
def esc50() -> Path:
    """The folder of ESC-50: audio/ and clips.tsv."""
    return _shared("esc50")


@pytest.fixture(scope="session")
def dcase2017() -> Path:
    """The folder of the DCASE 2017 task 4 label tables."""
    return _shared("dcase2017")


@pytest.fixture(scope="session")
def oracles() -> Iterator[Oracles]:
    """sed_eval and sed_scores_eval, in a separate environment."""
    if not Oracles.available():
        reason = "sed_eval and sed_scores_eval are not installed: run make setup"
        if os.environ.get("CI"):  # there, they must be compared
            pytest.fail(reason)
        pytest.skip(reason)
    with Oracles() as process:
        yield process
