"""The machine: cores to share, and memory that is kept for a while."""

import subprocess
import sys

import pytest

from earmark.runtime.machine import keep_memory, n_cores, share_of_cores


def test_processes_share_the_cores_and_each_has_one(monkeypatch):
    monkeypatch.setattr("earmark.runtime.machine.n_cores", lambda: 8)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert [share_of_cores(n) for n in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # of 8 processes, 2 are on this machine
    assert share_of_cores(8) == 4
    assert n_cores() >= 1


PAGES = """
import resource, sys
from contextlib import nullcontext
import torch
from earmark.runtime.machine import keep_memory

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


@pytest.mark.skipif(sys.platform != "linux", reason="keep_memory does nothing but with glibc")
def test_memory_is_used_again_within_and_given_back_at_the_end():
    def run(word):
        done = subprocess.run(
            [sys.executable, "-c", PAGES, word], capture_output=True, text=True, check=True
        )
        n_faults, small = done.stdout.split()
        return int(n_faults), small == "True"

    kept, plain = run("keep"), run("plain")
    assert kept[0] < plain[0] / 3
    assert kept[1]
    assert plain[1]


def test_elsewhere_it_does_nothing(monkeypatch):
    monkeypatch.setattr("sys.platform", "win32")
    with keep_memory():
        pass


AFTERWARDS = """
import resource
import numpy as np
from earmark.runtime.machine import keep_memory

def faults(size):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(300):
        np.ones(size, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults(2**21)  # glibc learns how large arrays are
before = faults(2**21)
with keep_memory():
    with keep_memory():
        faults(2**26)
    within = faults(2**26)  # of those who are within, one has left
print(before, faults(2**21), within)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="keep_memory does nothing but with glibc")
def test_it_lasts_until_the_last_leaves_and_harms_nobody_afterwards():
    command = [sys.executable, "-c", AFTERWARDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    before, after, within = map(int, done.stdout.split())
    assert after < before + 2000  # 300 arrays of 512 pages each, if they were given back every time
    assert within < 20_000  # 300 of 16,384
