"""Cores: how many, how processes share them, and how threads wait."""

import os
import subprocess
import sys

import pytest

from earmark.errors import SettingError
from earmark.runtime.cores import limit_spinning, n_cores, share_of_cores
from earmark.runtime.processes import map_in_order
from earmark.runtime.switch import KERNELS, VARIABLE, custom_kernels, use_kernels


def test_processes_share_the_cores_and_each_gets_at_least_one(monkeypatch):
    monkeypatch.setattr("earmark.runtime.cores.n_cores", lambda: 8)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert [share_of_cores(n) for n in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # of 8 processes, 2 run on this machine
    assert share_of_cores(8) == 4
    assert n_cores() >= 1


def test_worker_processes_count_the_same_cores(monkeypatch):
    monkeypatch.setattr("earmark.runtime.processes.n_cores", lambda: 1)
    assert list(map_in_order(abs, range(200))) == list(range(200))  # in this process, with one core


def test_spinning_is_limited_unless_the_user_or_the_switch_decides(monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "7"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv(VARIABLE, "torch")
    limit_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ
    monkeypatch.setenv(VARIABLE, "earmark")
    limit_spinning()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


def test_the_switch_is_inherited_by_child_processes(monkeypatch):
    monkeypatch.setenv(VARIABLE, "earmark")
    assert custom_kernels()
    use_kernels("torch")
    assert not custom_kernels()
    code = "from earmark.runtime.switch import custom_kernels; print(custom_kernels())"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_an_unknown_value_of_the_switch_is_an_error(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torhc")
    with pytest.raises(SettingError, match="EARMARK_KERNELS 'torhc'; did you mean 'torch'"):
        custom_kernels()
    with pytest.raises(SettingError, match="Known: earmark, torch"):
        use_kernels("fast")
    assert KERNELS == ("earmark", "torch")
