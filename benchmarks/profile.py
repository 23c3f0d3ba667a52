"""Where the time of detection goes, by operation: torch's own profiler, on one thread."""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.detection import HOP, WINDOW, WINDOWS, made_bundle, share
from benchmarks.process import answer, measure
from earmark.detector import N_WINDOWS
from earmark.folding import FoldedModel
from earmark.machine import keep_memory

MODULE = "benchmarks.profile"
# What torch calls them, all that they call included, and what they are.
KINDS = {
    "aten::conv2d": "convolutions",
    "aten::glu": "gates",
    "aten::maximum": "maxima",
    "aten::gru": "GRU",
    "aten::avg_pool2d": "averaging of the input",
}


def run(shared: Path) -> str:
    """Measure, and return the shares in Markdown."""
    found = {preset: measure(MODULE, "shares", preset) for preset in WINDOWS}
    rows = ["| share of the time | `paper` | `fast` |", "|---|---:|---:|"]
    for kind in (*KINDS.values(), "all else"):
        shares = " | ".join(f"{found[preset].get(kind, 0.0):.1%}" for preset in WINDOWS)
        rows.append(f"| {kind} | {shares} |")
    return (
        f"From log-mel to probabilities, {N_WINDOWS} windows on one thread, by torch's profiler:"
        "\n\n" + "\n".join(rows)
    )


def measure_shares(preset: str) -> dict[str, float]:
    """Return the share of each kind of operation in the CPU time."""
    torch.set_num_threads(1)
    folded = FoldedModel(made_bundle(preset).build_model())
    features = torch.randn(WINDOW + (N_WINDOWS - 1) * HOP, folded.config.n_mels)
    with torch.inference_mode(), keep_memory():
        for _ in range(3):  # memory, and what the profiler itself has to start
            with profile(activities=[ProfilerActivity.CPU]):
                share(folded, features)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            share(folded, features)
    averages = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in averages)
    shares = {
        KINDS[event.key]: event.cpu_time_total / total for event in averages if event.key in KINDS
    }
    return shares | {"all else": 1 - sum(shares.values())}


WORKERS = {"shares": measure_shares}

if __name__ == "__main__":
    answer(WORKERS)
