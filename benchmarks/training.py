"""Training speed on ten-second clips: Earmark and a textbook PyTorch implementation, side by side.

Every measurement is a separate process, which starts with fresh memory and has its own peak. The
entries take turns in `ROUNDS` rounds, and the best of each counts, since other work on the machine
can only make it slower. Earmark is `earmark.training.launch.run_job` on a feature store of noise.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.process import answer, measure, peak_memory
from benchmarks.textbook import Textbook, take_step
from earmark.audio.encode import write_audio
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import build_store
from earmark.nn.model import Model, ModelConfig
from earmark.runtime.cores import n_cores
from earmark.training.config import RunConfig
from earmark.training.launch import run_job
from earmark.training.loop import Job
from earmark.training.settings import Settings

MODULE = "benchmarks.training"
ROUNDS = 2
N_FRAMES, N_MELS, N_CLASSES = 500, 80, 17
N_CLIPS = {"paper": 32, "paper-fast": 256}  # two micro-batches; eight steps
LARGEST_BATCH = 128
MEMORY_SHARE = 0.85  # of the free memory, for the batch of the textbook


def run(shared: Path) -> str:
    """Measure; return the results in Markdown."""
    cores = n_cores()
    batch = {preset: largest_batch(preset) for preset in N_CLIPS}
    entries: dict[tuple[str, str], list[str]] = {}
    for preset in N_CLIPS:
        name = f"textbook, batch {batch[preset]}, default threads"
        entries[preset, name] = ["textbook", preset, str(batch[preset])]
        name = f"earmark, {cores} processes of 1 thread"
        entries[preset, name] = ["ours", preset, str(cores), "32-true"]
        name = f"earmark, 1 process of {cores} threads"
        entries[preset, name] = ["ours", preset, "1", "32-true"]
        name = f"earmark, {cores} processes, bf16-mixed"
        entries[preset, name] = ["ours", preset, str(cores), "bf16-mixed"]
    peak = 0.0
    best: dict[tuple[str, str], dict[str, float]] = {}
    for _ in range(ROUNDS):
        peak = max(peak, measure(MODULE, "peak")["rate"])
        for entry, arguments in entries.items():
            result = measure(MODULE, *arguments)
            if entry not in best or result["clips_per_second"] > best[entry]["clips_per_second"]:
                best[entry] = result
    equal = measure(MODULE, "losses")
    return report(peak, batch, best, equal)


def report(
    peak: float,
    batch: dict[str, int],
    best: dict[tuple[str, str], dict[str, float]],
    equal: dict[str, Any],
) -> str:
    """Return the results in Markdown."""
    parts = [
        f"Matrix multiplication on all {n_cores()} cores, one process each: {peak:.0f} G"
        " multiply-adds per second (single precision, best of several sizes). A training step is"
        " counted as three forward passes. Batch normalization, gating, dropout and pooling are not"
        f" counted. Best of {ROUNDS} rounds; memory is the sum over all processes.",
        "| preset | entry | clips/s | share of the peak | memory | ratio |",
        "|---|---|---:|---:|---:|---:|",
    ]
    table = []
    for (preset, name), figures in best.items():
        first = next(value for (other, _), value in best.items() if other == preset)
        rate = figures["clips_per_second"]
        share = 3 * operations(preset) * rate / (peak * 1e9)
        table.append(
            f"| `{preset}` | {name} | {rate:.3g} | {share:.0%} | {figures['memory'] / 1e9:.1f} GB |"
            f" {rate / first['clips_per_second']:.2f} x |"
        )
    counted = ", ".join(
        f"`{preset}` {operations(preset) / 1e9:.2f} G forward and"
        f" {3 * operations(preset) / 1e9:.2f} G with the backward pass"
        for preset in N_CLIPS
    )
    losses = ["| step | textbook | earmark |", "|---:|---:|---:|"]
    pairs = zip(equal["textbook"], equal["earmark"], strict=True)
    losses += [f"| {step} | {a:.6f} | {b:.6f} |" for step, (a, b) in enumerate(pairs, 1)]
    small = [f"`{preset}` {size}" for preset, size in batch.items() if size < LARGEST_BATCH]
    why = (
        "A batch of 128 of the textbook implementation does not fit in memory; it uses the largest"
        f" power of two that does: {', '.join(small)}."
        if small
        else ""
    )
    return "\n\n".join(
        [
            parts[0],
            f"Multiply-adds per clip: {counted}. {why}".strip(),
            "\n".join(parts[1:] + table),
            "Losses of the first steps with the same initial weights and data, without dropout:"
            " preset `paper`, four clips.",
            "\n".join(losses),
        ]
    )


def operations(preset: str) -> int:
    return ModelConfig.preset(preset, N_CLASSES).operations(N_FRAMES)


def largest_batch(preset: str) -> int:
    """Return the largest power of two, up to 128, of clips per step that fit into memory."""
    sizes = [measure(MODULE, "textbook", preset, str(size))["memory"] for size in (1, 3)]
    per_clip = (sizes[1] - sizes[0]) / 2
    # Memory that the system can free, such as the file cache, counts as free.
    memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = MEMORY_SHARE * 1024 * int(memory["MemAvailable"].split()[0])
    batch = LARGEST_BATCH
    while batch > 1 and sizes[0] + batch * per_clip > free:
        batch //= 2
    return batch


def noise(n_clips: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(n_clips, N_FRAMES, N_MELS), (torch.rand(n_clips, N_CLASSES) < 0.1).float()


def measure_peak() -> dict[str, float]:
    """Measure the multiply-adds per second of all cores in parallel, in G."""
    children = [
        subprocess.Popen(
            [sys.executable, "-m", MODULE, "one-core"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(n_cores())
    ]
    return {"rate": sum(json.loads(child.communicate()[0])["rate"] for child in children)}


def measure_core() -> dict[str, float]:
    torch.set_num_threads(1)
    best = 0.0
    for size in (512, 1024, 2048):
        a, b = torch.randn(2, size, size)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            before = time.perf_counter()
            _ = a @ b
            best = max(best, size**3 / (time.perf_counter() - before) / 1e9)
    return {"rate": best}


def measure_textbook(preset: str, n_clips: str) -> dict[str, float]:
    """Measure the clips per second of the faster of two steps, after a small one to warm up."""
    model = Textbook(ModelConfig.preset(preset, N_CLASSES)).train()
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    batch, targets = noise(int(n_clips))
    take_step(model, optimiser, batch[:4], targets[:4])
    times = []
    for _ in range(2):  # the first one allocates memory
        before = time.perf_counter()
        take_step(model, optimiser, batch, targets)
        times.append(time.perf_counter() - before)
    return {"clips_per_second": len(batch) / min(times), "memory": peak_memory()}


def measure_ours(preset: str, n_processes: str, precision: str) -> dict[str, float]:
    """Measure the clips per second of the fastest of four epochs; validation has one clip."""
    n_clips, processes = N_CLIPS[preset], int(n_processes)
    with tempfile.TemporaryDirectory() as folder:
        clips = noise_clips(Path(folder), n_clips)
        overrides = ["training.max_epochs=4", f"training.precision={precision}"]
        settings = Settings.load(preset, overrides=overrides).for_classes(N_CLASSES)
        store = build_store(f"{folder}/store", clip_paths(clips), settings.features)
        run_config = RunConfig(device="cpu", devices=processes)
        job = Job(
            Path(folder), store.folder, settings, clips, valid=clips.take([0]), run=run_config
        )
        fitted = run_job(job)
    seconds = min(epoch.seconds for epoch in fitted.history)
    own = peak_memory()
    of_child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {
        "clips_per_second": n_clips / seconds,
        "memory": processes * of_child if processes > 1 else own,
    }


def noise_clips(folder: Path, n_clips: int) -> Manifest:
    """Return a manifest with many names for one recording of noise."""
    rng = np.random.default_rng(0)
    write_audio(folder / "noise.wav", 0.1 * rng.standard_normal(320_000), 32_000)
    labels = tuple(f"class {number}" for number in range(N_CLASSES))
    names = tuple(f"clip {number}" for number in range(n_clips))
    tags = [tuple(sorted(rng.choice(labels, 2, replace=False))) for _ in names]
    return Manifest(names, (folder / "noise.wav",) * n_clips, tuple(tags), labels)


def measure_losses() -> dict[str, list[float]]:
    """Return the losses of the first steps with the same weights and clips."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = ModelConfig.preset("paper", N_CLASSES, dropout=0.0)
    ours = Model(config).train()
    textbook = Textbook(config).train()
    textbook.copy_weights(ours)
    batch, targets = noise(4)

    class ClipProbs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = ours

        def forward(self, log_mel: torch.Tensor) -> torch.Tensor:
            return ours(log_mel).clip_probs

    losses: dict[str, list[float]] = {}
    for name, model in {"textbook": textbook, "earmark": ClipProbs()}.items():
        optimiser = torch.optim.Adam(model.parameters(), 1e-3)
        losses[name] = [take_step(model, optimiser, batch, targets) for _ in range(4)]
    return losses


WORKERS: dict[str, Callable[..., dict[str, Any]]] = {
    "peak": measure_peak,
    "one-core": measure_core,
    "textbook": measure_textbook,
    "ours": measure_ours,
    "losses": measure_losses,
}

if __name__ == "__main__":
    answer(WORKERS)
