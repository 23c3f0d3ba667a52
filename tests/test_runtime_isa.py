"""Instruction sets: a CPU that advertises AMX without granting it must not crash anything."""

import logging
import os
import subprocess
import sys

import pytest
import torch

from earmark.errors import SettingError
from earmark.runtime import isa
from earmark.training import launch
from earmark.training.launch import resolve_precision

FLAGS = "processor\t: 0\nflags\t\t: fpu avx512_bf16 {} avx512_fp16\n"


@pytest.fixture
def fresh(monkeypatch):
    """A process without a cap; what a test sets is undone."""
    for name in (isa.VARIABLE, isa.ANSWER):
        monkeypatch.setenv(name, "")  # so that monkeypatch restores the variable
        monkeypatch.delenv(name)
    isa.log_instruction_set.cache_clear()
    isa._bfloat16_works.cache_clear()
    yield monkeypatch
    isa.log_instruction_set.cache_clear()
    isa._bfloat16_works.cache_clear()


def advertise(monkeypatch, *, works):
    monkeypatch.setattr(isa, "advertises_amx", lambda: True)
    monkeypatch.setattr(isa, "amx_works", lambda: works)


def test_amx_is_read_from_the_cpu_flags(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for text, expected in (("amx_bf16 amx_tile", True), ("avx512f", False), ("amx_tiles", False)):
        (tmp_path / "cpuinfo").write_text(FLAGS.format(text))
        assert isa.advertises_amx(tmp_path / "cpuinfo") is expected
    (tmp_path / "cpuinfo").write_text("")
    assert not isa.advertises_amx(tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(FLAGS.format("amx_tile"))
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert not isa.advertises_amx(tmp_path / "cpuinfo")


def test_bfloat16_is_fast_with_amx_that_works_and_on_amd_with_its_instructions(tmp_path, fresh):
    fresh.setattr("platform.machine", lambda: "x86_64")
    cpuinfo = tmp_path / "cpuinfo"
    for vendor, flags, works, expected in (
        ("AuthenticAMD", "avx512_bf16", False, True),
        ("AuthenticAMD", "avx2", False, False),
        ("GenuineIntel", "avx512_bf16", False, False),
        ("GenuineIntel", "avx512_vnni", False, False),
        ("GenuineIntel", "avx512_bf16 amx_tile", True, True),
        ("GenuineIntel", "avx512_bf16 amx_tile", False, False),
    ):
        fresh.setattr(isa, "amx_works", lambda works=works: works)
        fresh.setattr(isa, "cap_instruction_set", lambda works=works: not works)
        cpuinfo.write_text(f"vendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n")
        assert isa.bfloat16_is_fast(cpuinfo) is expected, (vendor, flags, works)
        fresh.setattr(launch, "bfloat16_is_fast", lambda: isa.bfloat16_is_fast(cpuinfo))
        precision = resolve_precision("auto", torch.device("cpu"))
        assert precision == ("bf16-mixed" if expected else "32-true")


def test_onednn_is_capped_where_amx_is_advertised_and_does_not_work(fresh, caplog):
    advertise(fresh, works=False)
    assert isa.cap_instruction_set()
    assert os.environ[isa.VARIABLE] == isa.BELOW_AMX
    assert isa.cap_instruction_set()  # calling it again changes nothing
    with caplog.at_level(logging.INFO, "earmark"):
        isa.log_instruction_set()
        isa.log_instruction_set()
    assert [record.getMessage() for record in caplog.records] == [
        "This CPU advertises AMX but the system does not grant it; oneDNN is limited to "
        "AVX512_CORE_FP16 (environment variable ONEDNN_MAX_CPU_ISA)."
    ]


def test_nothing_is_capped_where_amx_works_or_is_not_advertised(fresh, caplog):
    advertise(fresh, works=True)
    with caplog.at_level(logging.INFO, "earmark"):
        assert not isa.cap_instruction_set()
        isa.log_instruction_set()
    fresh.setattr(isa, "amx_works", lambda: pytest.fail("AMX is tried again"))
    assert not isa.cap_instruction_set()
    fresh.delenv(isa.ANSWER)
    fresh.setattr(isa, "advertises_amx", lambda: False)
    assert not isa.cap_instruction_set()
    assert isa.VARIABLE not in os.environ
    assert not caplog.records


def test_the_users_own_cap_is_kept(fresh):
    advertise(fresh, works=False)
    fresh.setenv(isa.VARIABLE, "AVX2")
    assert not isa.cap_instruction_set()
    assert os.environ[isa.VARIABLE] == "AVX2"


def test_the_trial_of_amx_agrees_with_the_machine():
    """Without AMX the instructions crash, in the child process only."""
    refused = os.environ.get(isa.ANSWER) == "refused"
    assert isa.amx_works() is (isa.advertises_amx() and not refused)


def test_a_program_without_a_python_to_try_with_is_capped(fresh):
    fresh.setattr(isa, "advertises_amx", lambda: True)
    fresh.setattr("sys.frozen", True, raising=False)
    assert isa.cap_instruction_set()


def test_a_child_that_imports_earmark_does_not_try_again(fresh):
    code = "import os, sys; sys.exit(os.environ.get('EARMARK_AMX') != 'being tried')"
    assert isa._survives(code, timeout=60)


def test_a_crash_in_a_trial_is_reported_as_failure():
    assert isa._survives("pass", timeout=60)
    assert not isa._survives("import os, signal; os.kill(os.getpid(), signal.SIGILL)", timeout=60)
    assert not isa._survives("raise SystemExit(3)", timeout=60)


def test_bfloat16_that_crashes_is_an_error(fresh):
    fresh.setattr(isa, "_TRY_BFLOAT16", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    with pytest.raises(SettingError, match=r"cannot compute in bfloat16 .*precision=32-true"):
        isa.check_bfloat16()
    from earmark.training.config import RunConfig
    from earmark.training.launch import make_fabric

    with pytest.raises(SettingError, match="cannot compute in bfloat16"):
        make_fabric(RunConfig(device="cpu"), "bf16-mixed")
    assert make_fabric(RunConfig(device="cpu")).device.type == "cpu"


SCRIPT = """
import os, sys
import earmark.runtime.isa as isa
isa.advertises_amx = lambda *_: True
isa.amx_works = lambda: False
isa.cap_instruction_set()
import torch
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
    print(pool.submit(os.getenv, isa.VARIABLE).result())
with torch.autocast("cpu", dtype=torch.bfloat16):
    torch.nn.GRU(64, 64)(torch.ones(2, 8, 64))
    print(torch.nn.Linear(64, 64)(torch.ones(64, 64)).dtype)
"""


def test_a_capped_process_computes_bfloat16_and_its_children_inherit_the_cap():
    assert run(SCRIPT).split() == [isa.BELOW_AMX, "torch.bfloat16"]


BROKEN_MACHINE = """
import io, os, pathlib, platform, subprocess, sys

platform.machine = lambda: "x86_64"
read = pathlib.Path.open

def read_flags(self, *arguments, **named):
    if str(self) == "/proc/cpuinfo":
        return io.StringIO("flags : fpu amx_tile amx_bf16\\n")
    return read(self, *arguments, **named)

def crash(*arguments, **named):
    return subprocess.CompletedProcess(arguments, -4)

pathlib.Path.open, subprocess.run = read_flags, crash
import earmark
print(os.environ.get("ONEDNN_MAX_CPU_ISA"), "torch" in sys.modules)
"""


def test_importing_earmark_on_the_broken_machine_is_enough():
    assert run(BROKEN_MACHINE) == "AVX512_CORE_FP16 False"


def test_importing_earmark_elsewhere_starts_no_process():
    starts = str(isa.advertises_amx())
    code = "import sys, earmark; print('subprocess' in sys.modules)"
    assert run(code) == starts


def run(code):
    """What a new process prints that inherits no result of a trial."""
    clean = {k: v for k, v in os.environ.items() if k not in (isa.VARIABLE, isa.ANSWER)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=clean
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()
