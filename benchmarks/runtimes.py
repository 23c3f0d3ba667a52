"""Windows through the network by other runtimes and precisions, beside the way that is used.

Every measurement is a process of its own with one thread; the ways take turns, in `ROUNDS` rounds,
and the best of each counts. All get the same windows of noise, `BATCH` at once, and share nothing
between them. A preset has a folder: model.earmark, network.onnx,
int8.onnx, windows.npy, and frame probabilities of the way that is used (used.npy) and of the one
that was measured last (probs.npy).
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.detection import WINDOWS, made_bundle
from benchmarks.process import answer, cpu_seconds, measure
from earmark.inference.detector import Detector
from earmark.inference.model_file import save_bundle
from earmark.nn.fused import FusedModel
from earmark.runtime.memory import keep_memory

MODULE, OPENVINO = "benchmarks.runtimes", "benchmarks.peers.openvino"
ROUNDS = 3
ROUNDING = 1e-4  # of a probability: beyond it a way computes something else
BATCH, N_FRAMES = 8, 500
COMPILER = os.environ.get("CXX", "g++")  # as torch.compile looks for it
USED, COMPILED = "folded, channels last", "torch.compile of it"
WAYS = {  # module, worker and its words
    USED: (MODULE, "folded"),
    COMPILED: (MODULE, "compile"),
    "onnxruntime": (MODULE, "onnxruntime", "network.onnx"),
    "OpenVINO": (OPENVINO, "openvino", "f32"),
    "OpenVINO, bfloat16": (OPENVINO, "openvino", "bf16"),
    "bfloat16 by autocast": (MODULE, "autocast"),
    "bfloat16 in the convolutions alone": (MODULE, "half convolutions"),
    "onnxruntime, int8 convolutions, calibrated on noise": (MODULE, "onnxruntime", "int8.onnx"),
}

Figures = dict[str, float]


def run(shared: Path) -> str:
    """Measure, and return the figures in Markdown."""
    best: dict[tuple[str, str], Figures] = {}
    with tempfile.TemporaryDirectory() as root:
        for preset in WINDOWS:
            model = save_bundle(made_bundle(preset), Path(root, preset, "model.earmark"))
            measure(MODULE, "prepare", str(model.parent))
        for _, (way, (module, worker, *words)) in product(range(ROUNDS), WAYS.items()):
            if way != COMPILED or shutil.which(COMPILER):
                for preset in WINDOWS:
                    folder = Path(root, preset)
                    found = measure(module, worker, str(folder), *words)
                    probs, used = (np.load(folder / f"{name}.npy") for name in ("probs", "used"))
                    found["difference"] = float(np.abs(probs - used).max())
                    # What torch compiled is kept, so that its first call counts in the first round.
                    kept = best.setdefault((way, preset), found)
                    kept["seconds"] = min(kept["seconds"], found["seconds"])
    return report(best)


def report(best: dict[tuple[str, str], Figures]) -> str:
    rows = [
        "| one thread, CPU ms a window | `paper` | ratio | `fast` | ratio | difference |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    ratios = {key: best[USED, key[1]]["seconds"] / best[key]["seconds"] for key in best}
    rounded = []
    for way in WAYS:
        if (way, "paper") not in best:
            rows.append(f"| {way}: no C++ compiler `{COMPILER}` here | | | | | |")
            continue
        cells = [
            f"{best[way, preset]['seconds'] / BATCH * 1e3:.3g} | {ratios[way, preset]:.2f} x"
            for preset in WINDOWS
        ]
        difference = max(best[way, preset]["difference"] for preset in WINDOWS)
        rows.append(f"| {way} | {' | '.join(cells)} | {difference:.1g} |")
        if difference < ROUNDING:
            rounded.append(way)
    first = {p: max(rounded, key=lambda way, p=p: ratios[way, p]) for p in WINDOWS}
    fastest = "; ".join(f"in `{preset}`, {way}" for preset, way in first.items())
    compiling = [found["first"] for (way, _), found in best.items() if way == COMPILED]
    return (
        f"The network by other runtimes and precisions, on {BATCH} windows of 10 s at once, without"
        f" sharing between them and with memory that is kept; the best of {ROUNDS} rounds."
        " The difference is the largest of any frame probability to the first row, in an untrained"
        " network whose batch norms have seen noise. (With fresh ones all maps die out behind a few"
        " gates, and any precision looks exact.)\n\n" + "\n".join(rows) + "\n\n"
        f"Of the ways that differ by less than {ROUNDING:.0e} the fastest is, {fastest}."
        + (
            f" torch.compile takes {max(compiling):.0f} s at first and wants a C++ compiler, hours"
            " of audio before it pays: it is not used."
            if compiling
            else ""
        )
    )


class FrameProbs(nn.Module):
    """The folded network with one tensor for its answer, as exporters want it."""

    def __init__(self, folded: FusedModel) -> None:
        super().__init__()
        self.folded = folded

    def forward(self, log_mel: Tensor) -> Tensor:
        """(batch, frames, mels) -> (batch, frames, classes)."""
        return self.folded(log_mel).frame_probs


def prepare(folder: str) -> dict[str, Any]:
    """Write what the ways share; see the module."""
    from onnxruntime import quantization

    detector = Detector.load(Path(folder, "model.earmark"), threads=1)
    torch.manual_seed(1)
    windows = torch.randn(BATCH, N_FRAMES, detector.bundle.model.n_mels)
    network = FrameProbs(FusedModel(detector.model))
    np.save(Path(folder, "windows.npy"), windows.numpy())
    with torch.inference_mode():
        np.save(Path(folder, "used.npy"), network(windows).numpy())
    onnx, int8 = Path(folder, "network.onnx"), Path(folder, "int8.onnx")
    torch.onnx.export(network, (windows,), onnx, dynamo=True, input_names=["log_mel"])
    noise = iter([{"log_mel": torch.randn_like(windows).numpy()} for _ in range(3)])
    reader = SimpleNamespace(get_next=lambda: next(noise, None))
    kinds = {"activation_type": quantization.QuantType.QUInt8, "per_channel": True}
    quantization.quantize_static(onnx, int8, reader, op_types_to_quantize=["Conv"], **kinds)
    return {}


def read(folder: str) -> tuple[FusedModel, Tensor]:
    folded = Detector.load(Path(folder, "model.earmark"), threads=1)._fused
    return folded, torch.from_numpy(np.load(Path(folder, "windows.npy")))


def time_of(call: Callable[[], Any], folder: str) -> Figures:
    """CPU seconds of a call, and seconds of the first, whose answer goes into its file."""
    torch.set_num_threads(1)
    with torch.inference_mode(), keep_memory():
        before = time.perf_counter()
        probs = torch.as_tensor(call()).float().numpy()
        first = time.perf_counter() - before
        np.save(Path(folder, "probs.npy"), probs)
        return {"seconds": cpu_seconds(call), "first": first}


def measure_folded(folder: str) -> Figures:
    folded, windows = read(folder)
    return time_of(lambda: folded(windows).frame_probs, folder)


def measure_compile(folder: str) -> Figures:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder, "compiled"))
    folded, windows = read(folder)
    compiled = torch.compile(FrameProbs(folded))
    return time_of(lambda: compiled(windows), folder)


def measure_onnxruntime(folder: str, network: str) -> Figures:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(Path(folder, network), options)
    inputs = {"log_mel": np.load(Path(folder, "windows.npy"))}
    return time_of(lambda: session.run(None, inputs)[0], folder)


def measure_autocast(folder: str) -> Figures:
    with torch.autocast("cpu", torch.bfloat16):
        return measure_folded(folder)


def measure_half_convolutions(folder: str) -> Figures:
    folded, windows = read(folder)
    folded.blocks.bfloat16()
    folded.last.bfloat16()
    half = windows.bfloat16()
    return time_of(lambda: folded.classify(folded._convolve(half).float()).frame_probs, folder)


WORKERS: dict[str, Callable[..., dict[str, Any]]] = {
    "prepare": prepare,
    "folded": measure_folded,
    "compile": measure_compile,
    "onnxruntime": measure_onnxruntime,
    "autocast": measure_autocast,
    "half convolutions": measure_half_convolutions,
}

if __name__ == "__main__":
    answer(WORKERS)
