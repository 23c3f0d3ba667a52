"""Real recordings and label tables that lie beside the repository, for the tests that want them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from oracles import Oracles

# Two busy processes of two threads each run many times slower than of one thread each.
torch.set_num_threads(1)

SHARED = Path(__file__).resolve().parents[2] / "shared"


def _shared(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not at hand: this test needs its real data")
    return folder


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
    """sed_eval and sed_scores_eval, in their own environment."""
    if not Oracles.available():
        told = "the field's scorers are not at hand: make setup installs them"
        if os.environ.get("CI"):  # there they are to be compared with
            pytest.fail(told)
        pytest.skip(told)
    with Oracles() as process:
        yield process
