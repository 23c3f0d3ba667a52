"""Memory: freed memory is kept for a while, then given back."""

import os
import subprocess
import sys

import pytest

from earmark.runtime.memory import keep_memory
from earmark.runtime.switch import VARIABLE

PAGES = """
import resource, sys
from contextlib import nullcontext
import torch
from earmark.runtime.memory import keep_memory

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

torch.set_num_threads(1)
start = resident() * resource.getpagesize()
with keep_memory() if sys.argv[1] == "keep" else nullcontext():
    before = faults()
    maps = torch.zeros(10, 2**20)
    for _ in range(100):
        maps = maps + 1
    print(faults() - before)
    del maps
print(resident() * resource.getpagesize() < 2**28 + start)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="keep_memory needs glibc")
def test_memory_is_reused_within_and_given_back_at_the_end():
    def run(argument, kernels="earmark"):
        done = subprocess.run(
            [sys.executable, "-c", PAGES, argument],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {VARIABLE: kernels},
        )
        n_faults, small = done.stdout.split()
        return int(n_faults), small == "True"

    kept, plain, switched_off = run("keep"), run("plain"), run("keep", kernels="torch")
    assert kept[0] < plain[0] / 3
    assert switched_off[0] > plain[0] / 2
    assert kept[1]
    assert plain[1]


def test_without_glibc_nothing_happens(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    with keep_memory():
        pass


AFTERWARDS = """
import resource
import numpy as np
from earmark.runtime.memory import keep_memory

def faults(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(300):
        np.ones(size, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(2**21)  # glibc adapts to the size of the arrays
before = faults(2**21)
with keep_memory():
    with keep_memory():
        faults(2**26)
    within = faults(2**26)  # one of two nested blocks has ended
print(before, faults(2**21), within)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="keep_memory needs glibc")
def test_it_lasts_until_the_last_block_ends_and_leaves_no_harm():
    command = [sys.executable, "-c", AFTERWARDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, within = map(int, done.stdout.split())
    assert after < before + 2000  # 300 arrays of 512 pages each, if they were given back every time
    assert within < 20_000  # 300 of 16,384
