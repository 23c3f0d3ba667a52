"""The time of training and of detection by operation, from torch's profiler on one thread."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.detection import HOP, WINDOW, WINDOWS, made_bundle, share
from benchmarks.process import answer, measure
from benchmarks.training import N_CLASSES, noise
from earmark.inference.predictor import N_WINDOWS
from earmark.nn.fused import FusedModel
from earmark.nn.loss import clip_loss
from earmark.nn.model import Model, ModelConfig
from earmark.runtime.memory import keep_memory

MODULE = "benchmarks.profile"
BATCH = {"paper": 8, "paper-fast": 32}  # clips per training step
# Torch's name of an operation, including all that it calls -> what it is.
DETECTION = {
    "aten::conv2d": "convolutions",
    "aten::glu": "gates",
    "aten::maximum": "maxima",
    "aten::gru": "GRU",
    "aten::avg_pool2d": "averaging of the input",
}
TRAINING = {
    "aten::conv2d": "convolutions",
    "ConvolutionBackward0": "convolutions, backward",
    "aten::gru": "GRU, forward",
    "aten::glu": "gates",
    "GluBackward0": "gates, backward",
    "MaskedBatchNorm": "batch norm",
    "_NormaliseBackward": "batch norm, backward",
    "Dropout": "dropout",
    "MulBackward0": "dropout, backward",
    "_Max": "maxima",
    "_MaxBackward": "maxima, backward",
    "Optimizer.step#AdamW.step": "Adam",
}


def run(shared: Path) -> str:
    """Measure, and return the shares in Markdown."""
    parts = []
    for name, kinds, title in (
        (
            "training",
            TRAINING,
            f"A training step, {BATCH['paper']} and {BATCH['paper-fast']} clips",
        ),
        ("detection", DETECTION, f"Detection, from log-mel to probabilities, {N_WINDOWS} windows"),
    ):
        found = {preset: measure(MODULE, name, preset) for preset in WINDOWS}
        rows = ["| share of the time | `paper` | `paper-fast` |", "|---|---:|---:|"]
        for kind in (*kinds.values(), "all else"):
            shares = " | ".join(f"{found[preset].get(kind, 0.0):.1%}" for preset in WINDOWS)
            rows.append(f"| {kind} | {shares} |")
        parts.append(f"{title}, on one thread, by torch's profiler:\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def measure_detection(preset: str) -> dict[str, float]:
    """Return the share of each kind of operation in the CPU time of detection."""
    fused = FusedModel(made_bundle(preset).build_model())
    features = torch.randn(WINDOW + (N_WINDOWS - 1) * HOP, fused.config.n_mels)
    with torch.inference_mode():
        return shares_of(lambda: share(fused, features), DETECTION)


def measure_training(preset: str) -> dict[str, float]:
    """Return the share of each kind of operation in the CPU time of a training step."""
    model = Model(ModelConfig.preset(preset, N_CLASSES)).train()
    for module in model.modules():  # so that the profiler names them
        if type(module).__name__ in TRAINING:
            module.forward = _recorded(type(module).__name__, module.forward)
    adam = torch.optim.AdamW(model.parameters(), 1e-3)
    batch, targets = noise(BATCH[preset])

    def step() -> None:
        adam.zero_grad()
        clip_loss(model(batch).clip_probs, targets).backward()
        adam.step()

    return shares_of(step, TRAINING)


def _recorded(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
    def recorded(*arguments: Any) -> Any:
        with torch.profiler.record_function(name):
            return forward(*arguments)

    return recorded


def shares_of(work: Callable[[], object], kinds: Mapping[str, str]) -> dict[str, float]:
    torch.set_num_threads(1)
    with keep_memory():
        for _ in range(2):  # memory, and the profiler's own start
            with profile(activities=[ProfilerActivity.CPU]):
                work()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            work()
    averages = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in averages)
    shares = {
        kinds[event.key]: event.cpu_time_total / total for event in averages if event.key in kinds
    }
    return shares | {"all else": 1 - sum(shares.values())}


WORKERS = {"detection": measure_detection, "training": measure_training}

if __name__ == "__main__":
    answer(WORKERS)
