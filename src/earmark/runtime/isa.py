"""Limit oneDNN to CPU instructions that work on this machine.

Some virtual machines list AMX among their CPU flags while the system grants no AMX state. oneDNN,
which computes bfloat16 for torch on a CPU, then ends the process with SIGILL. So AMX is tried once
in a child process, and if that fails, an environment variable limits oneDNN to the instruction set
below AMX.

Conventions: `cap_instruction_set` runs when `earmark` is imported. oneDNN reads the variable when
it is first used, not when torch is imported, so `import torch` may come first. Child processes
inherit the variable and do not try again. A value that the user has set is kept.
"""

import logging
import os
import platform
import sys
from functools import lru_cache
from pathlib import Path

from earmark.errors import SettingError

logger = logging.getLogger(__name__)

VARIABLE = "ONEDNN_MAX_CPU_ISA"
BELOW_AMX = "AVX512_CORE_FP16"  # an upper bound; a CPU without these instructions uses fewer
ANSWER = "EARMARK_AMX"  # "works" or "refused" once tried, for child processes

# Asks the kernel for the AMX state, then runs the instructions that oneDNN would generate:
#   ldtilecfg [rdi]; tilezero tmm0..2; tdpbf16ps tmm0, tmm1, tmm2; tilerelease; ret
# Exits with 0 if all of it worked; otherwise with another code, or by a signal.
_TRY_AMX = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None, use_errno=True)
ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA = 158, 0x1023, 18
if libc.syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA) != 0:
    sys.exit(1)
code = bytes.fromhex("c4e2784907 c4e27b49c0 c4e27b49c8 c4e27b49d0 c4e26a5cc1 c4e27849c0 c3")
memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(code)
tiles = bytearray(64)
tiles[0] = 1  # palette
for tile in range(3):
    tiles[16 + 2 * tile] = 4  # bytes per row
    tiles[48 + tile] = 1  # rows
run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
run(ctypes.addressof((ctypes.c_char * 64).from_buffer(tiles)))
"""

# The two operations that were seen to crash.
_TRY_BFLOAT16 = """
import torch
torch.set_num_threads(1)
with torch.inference_mode():
    torch.nn.Linear(64, 64).bfloat16()(torch.ones(64, 64, dtype=torch.bfloat16))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.nn.GRU(64, 64, batch_first=True, bidirectional=True)(torch.ones(2, 8, 64))
        torch.nn.Conv2d(1, 16, 3)(torch.ones(2, 1, 16, 16))
"""


def cap_instruction_set() -> bool:
    """Limit oneDNN to below AMX if AMX is advertised but does not work; return whether it is.

    >>> cap_instruction_set() in (True, False)
    True
    """
    if ANSWER in os.environ:  # this process, or the one that started it, has tried
        return os.environ[ANSWER] == "refused"
    if VARIABLE in os.environ or not advertises_amx():  # what the user has set is kept
        return False
    works = amx_works()
    os.environ[ANSWER] = "works" if works else "refused"
    if not works:
        os.environ[VARIABLE] = BELOW_AMX
    return not works


@lru_cache
def log_instruction_set() -> None:
    """Log once per process whether oneDNN is limited; called before a network runs.

    >>> log_instruction_set()
    """
    if cap_instruction_set():
        logger.info(
            "This CPU advertises AMX but the system does not grant it; oneDNN is limited to %s "
            "(environment variable %s).",
            BELOW_AMX,
            VARIABLE,
        )


def advertises_amx(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether the CPU flags list AMX tiles; False without /proc.

    >>> advertises_amx(Path("nowhere"))
    False
    """
    return "amx_tile" in _read_cpuinfo(cpuinfo, "flags")


def bfloat16_is_fast(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether networks train faster in bfloat16 than in single precision on this CPU.

    They do where AMX works, and on AMD's CPUs with AVX512-BF16 (measured: 1.6 times the speed).
    Intel's AVX512-BF16 without AMX had 0.65 times the speed, and a CPU that has neither half.

    >>> bfloat16_is_fast(Path("nowhere"))
    False
    """
    if advertises_amx(cpuinfo):
        return not cap_instruction_set()
    is_amd = "AuthenticAMD" in _read_cpuinfo(cpuinfo, "vendor_id")
    return is_amd and "avx512_bf16" in _read_cpuinfo(cpuinfo, "flags")


def _read_cpuinfo(cpuinfo: Path, name: str) -> list[str]:
    """Return the words of the first line of a name; none without /proc or on other machines."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return []
    try:
        with cpuinfo.open(encoding="utf-8", errors="replace") as lines:
            line = next((line for line in lines if line.startswith(name)), "")
    except OSError:
        return []
    return line.partition(":")[2].split()


def amx_works() -> bool:
    """Try AMX in a child process; return whether it worked.

    >>> amx_works() in (True, False)
    True
    """
    return _survives(_TRY_AMX, timeout=10)


def bfloat16_works() -> bool:
    """Return whether torch computes in bfloat16 on this CPU; tried once in a child process.

    >>> bfloat16_works() in (True, False)
    True
    """
    return _bfloat16_works(os.environ.get(VARIABLE, ""))


def check_bfloat16() -> None:
    """Raise `SettingError` unless torch computes in bfloat16 on this CPU."""
    if not bfloat16_works():
        raise SettingError(
            "This CPU cannot compute in bfloat16 (a trial in a child process failed); use "
            "training.precision=32-true."
        )


@lru_cache
def _bfloat16_works(cap: str) -> bool:
    """Try bfloat16 in a child process under the given cap, which it inherits; once per cap."""
    return _survives(_TRY_BFLOAT16, timeout=120)  # it imports torch


def _survives(code: str, timeout: float) -> bool:
    """Return whether Python code ends without an error or a signal in a child process."""
    import subprocess  # takes 10 ms, and most machines never need it

    if not sys.executable or getattr(sys, "frozen", False):  # no Python to run the code with
        return False
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", code],
            capture_output=True,
            timeout=timeout,
            check=False,
            env=os.environ | {ANSWER: os.environ.get(ANSWER, "being tried")},  # it must not try too
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0
