"""What each CPU optimisation of `earmark.runtime` saves, against torch's own operations.

Each measurement runs in its own process. CPU time is that of one thread, the best of several calls.
Training steps run on noise, with the micro-batches of `benchmarks.profile`.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from benchmarks.process import answer, cpu_seconds, measure
from benchmarks.profile import BATCH
from benchmarks.textbook import take_step
from benchmarks.training import N_CLASSES, noise
from earmark.experiments.table3 import CLIP
from earmark.nn.layers import MaskedBatchNorm
from earmark.nn.model import Model, ModelConfig
from earmark.nn.recurrent import BiGRU
from earmark.runtime import kernels
from earmark.runtime.cores import n_cores
from earmark.runtime.memory import keep_memory
from earmark.runtime.switch import KERNELS, VARIABLE
from earmark.training.settings import PRESETS

MODULE = "benchmarks.kernels"
SHAPES = {"paper": (8, 64, 500, 80), "paper-fast": (32, 16, 250, 40)}  # maps of the first block
RECURRENT = {"paper": (256, 128), "paper-fast": (96, 64)}  # features and width of the Bi-GRU
N_FRAMES = 125
SYSTEMS = ("wang-fast", "surrey-fast", "gccaps-fast", "mlms8-fast", "emsi-like-fast")
CLIPS = 8  # in a step of a system
ROUNDS = 2
SECONDS = 6.0  # of training, to measure spinning
# What is switched off, one at a time, and what replaces it in `earmark.runtime.kernels`.
REPLACED: dict[str, dict[str, Callable[..., object]]] = {
    "all on": {},
    "torch's batch norm": {"torch_batch_norm_suffices": lambda maps, mask: mask is None},
    "torch's dropout": {"dropout": F.dropout},
    "torch's max pooling": {"max_pool": F.max_pool2d},
    "the system's allocator": {},
    f"all off ({VARIABLE}=torch)": {"ours": lambda maps: False},
}


def run(shared: Path) -> str:
    """Measure, and return the figures in Markdown."""
    return "\n\n".join([operations(), steps(), systems(), spinning()])


def operations() -> str:
    rows = [
        "| forward and backward pass, CPU ms | `paper`, torch | ours | `paper-fast`, torch | ours"
        " |",
        "|---|---:|---:|---:|---:|",
    ]
    found = {
        (preset, name): measure(MODULE, "operations", preset, name)
        for preset in SHAPES
        for name in KERNELS
    }
    for operation in found["paper", "torch"]:
        figures = [
            f"{found[preset, name][operation] * 1e3:.3g}"
            for preset in SHAPES
            for name in ("torch", "earmark")
        ]
        rows.append(f"| {operation} | {' | '.join(figures)} |")
    text = "Operations on the maps of the first block, on one thread, with memory that is kept:"
    return text + "\n\n" + "\n".join(rows)


def steps() -> str:
    best: dict[tuple[str, str], float] = {}
    for _ in range(ROUNDS):
        for name in REPLACED:
            for preset in SHAPES:
                seconds = measure(MODULE, "step", preset, name)["seconds"]
                best[name, preset] = min(best.get((name, preset), seconds), seconds)
    rows = [
        "| one training step, CPU ms per clip | `paper` | ratio | `paper-fast` | ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    for name in REPLACED:
        figures = [
            f"{best[name, preset] / BATCH[preset] * 1e3:.3g} |"
            f" {best[name, preset] / best['all on', preset]:.2f} x"
            for preset in SHAPES
        ]
        rows.append(f"| {name} | {' | '.join(figures)} |")
    text = (
        f"A training step with {BATCH['paper']} and {BATCH['paper-fast']} clips on one thread; each"
        f" row switches off one optimisation, the last one all. The best of {ROUNDS} rounds."
    )
    return text + "\n\n" + "\n".join(rows)


def systems() -> str:
    """What the other layout of convolutions saves, where maps are no multiple of a block."""
    best: dict[tuple[str, str], float] = {}
    for _ in range(ROUNDS):
        for preset in SYSTEMS:
            for name in KERNELS:
                seconds = measure(MODULE, "system", preset, name)["seconds"]
                best[preset, name] = min(best.get((preset, name), seconds), seconds)
    rows = ["| one training step, CPU ms per clip | torch's layout | ours | ratio |",
            "|---|---:|---:|---:|"]  # fmt: skip
    for preset in SYSTEMS:
        own, other = best[preset, "earmark"], best[preset, "torch"]
        figures = f"{other / CLIPS * 1e3:.3g} | {own / CLIPS * 1e3:.3g} | {other / own:.2f} x"
        rows.append(f"| `{preset}` | {figures} |")
    text = (
        f"A training step with {CLIPS} clips on one thread, in `bf16-mixed`, of networks whose maps"
        f" are no multiple of {kernels.BLOCK}; only the layout of convolutions differs."
    )
    return text + "\n\n" + "\n".join(rows)


def spinning() -> str:
    load = os.getloadavg()[0]
    rows = [
        "| preset `paper-fast`, clips per second | alone | next to busy processes |",
        "|---|---:|---:|",
    ]
    for name, count in (
        ("threads spin for long, the default", None),
        ("they spin briefly", "1000"),
    ):
        figures = []
        for n_busy in (0, n_cores()):
            with busy_processes(n_busy), spin_count(count):
                figures.append(f"{measure(MODULE, 'rate')['clips_per_second']:.3g}")
        rows.append(f"| {name} | {' | '.join(figures)} |")
    text = (
        f"Training on {n_cores()} threads by the clock, alone and next to {n_cores()} busy"
        " processes (`GOMP_SPINCOUNT`, which the command line sets). The load average of the"
        f' machine was {load:.1f} before; "alone" holds only if that is near 0.'
    )
    return text + "\n\n" + "\n".join(rows)


@contextmanager
def spin_count(count: str | None):
    """Set GOMP_SPINCOUNT for processes that start within, or unset it."""
    with patch.dict(os.environ):
        os.environ.pop("GOMP_SPINCOUNT", None)
        if count is not None:
            os.environ["GOMP_SPINCOUNT"] = count
        yield


@contextmanager
def busy_processes(count: int):
    """Keep as many cores busy."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def measure_operations(preset: str, name: str) -> dict[str, float]:
    """Return the CPU seconds of each operation, by our kernels or by torch's."""
    torch.set_num_threads(1)
    batch, channels, n_frames, n_mels = SHAPES[preset]
    maps = torch.randn(batch, channels, n_frames, n_mels)
    filters = torch.randn(batch, 2 * channels, n_frames, n_mels)
    norm = MaskedBatchNorm(2 * channels)
    mask = torch.arange(n_frames) < torch.linspace(n_frames // 2, n_frames, batch)[:, None]
    calls: dict[str, tuple[Tensor, Callable[[Tensor], Tensor]]] = {
        "batch norm": (filters, norm),
        "batch norm with a mask": (filters, lambda x: norm(x, mask)),
        "dropout": (maps, lambda x: kernels.dropout(x, 0.2)),
        "Bi-GRU": (torch.randn(batch, N_FRAMES, RECURRENT[preset][0]), BiGRU(*RECURRENT[preset])),
        "max pooling by 2 x 2": (maps, lambda x: kernels.max_pool(x, (2, 2))),
    }
    with keep_memory():
        os.environ[VARIABLE] = name
        found = {key: cpu_seconds(_both_passes(*call)) for key, call in calls.items()}
        with torch.no_grad():
            found["max pooling by 2 x 2, forward only"] = cpu_seconds(
                lambda: kernels.max_pool(maps, (2, 2))
            )
    return found


def _both_passes(maps: Tensor, call: Callable[[Tensor], Tensor]) -> Callable[[], None]:
    maps.requires_grad_()
    gradient = torch.ones_like(call(maps))

    def both() -> None:
        maps.grad = None
        call(maps).backward(gradient)

    return both


def trainer(preset: str) -> Callable[[], float]:
    class ClipProbs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model(ModelConfig.preset(preset, N_CLASSES))

        def forward(self, log_mel: Tensor) -> Tensor:
            return self.model(log_mel).clip_probs

    network = ClipProbs().train()
    adam = torch.optim.AdamW(network.parameters(), 1e-3)
    batch, targets = noise(BATCH[preset])
    return lambda: take_step(network, adam, batch, targets)


def measure_step(preset: str, name: str) -> dict[str, float]:
    """Return the CPU seconds of a training step with one optimisation switched off."""
    torch.set_num_threads(1)
    off = name.startswith(("the system's", "all off"))
    with ExitStack() as stack:
        for target, replacement in REPLACED[name].items():
            stack.enter_context(patch.object(kernels, target, replacement))
        stack.enter_context(nullcontext() if off else keep_memory())
        return {"seconds": cpu_seconds(trainer(preset))}


def measure_system(preset: str, name: str) -> dict[str, float]:
    """Return the CPU seconds of a training step of a system with one layout of convolutions."""
    torch.set_num_threads(1)
    settings = PRESETS[preset].for_classes(N_CLASSES)
    network = settings.model.build().train()
    adam = torch.optim.AdamW(network.parameters(), 1e-3)
    features = torch.randn(CLIPS, settings.features.grid.count(CLIP), settings.features.n_features)
    targets = (torch.rand(CLIPS, N_CLASSES) < 0.2).float()

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            prediction = network(features)
        adam.zero_grad()
        network.loss(prediction, targets).backward()
        adam.step()

    with keep_memory(), patch.object(kernels, "BLOCK", kernels.BLOCK if name == "earmark" else 1):
        return {"seconds": cpu_seconds(step)}


def measure_rate() -> dict[str, float]:
    """Return clips per second of training, by the clock."""
    torch.set_num_threads(n_cores())
    step, n_steps = trainer("paper-fast"), 0
    with keep_memory():
        step()
        before = time.perf_counter()
        while time.perf_counter() - before < SECONDS:
            step()
            n_steps += 1
        seconds = time.perf_counter() - before
    return {"clips_per_second": n_steps * BATCH["paper-fast"] / seconds}


WORKERS = {
    "operations": measure_operations,
    "step": measure_step,
    "system": measure_system,
    "rate": measure_rate,
}

if __name__ == "__main__":
    answer(WORKERS)
