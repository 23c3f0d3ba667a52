"""A network as ONNX and its windows -> CPU time and probabilities of OpenVINO, on one thread."""

from pathlib import Path

import numpy as np
import openvino

from benchmarks.process import answer, cpu_seconds
from earmark.runtime.memory import keep_memory


def infer(folder: str, precision: str) -> dict[str, float]:
    """Seconds of all windows at once; its files are those of `benchmarks.runtimes`."""
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": precision}
    network = openvino.Core().compile_model(Path(folder, "network.onnx"), "CPU", settings)
    windows = np.load(Path(folder, "windows.npy"))
    with keep_memory():
        np.save(Path(folder, "probs.npy"), network(windows)[0])
        return {"seconds": cpu_seconds(lambda: network(windows))}


if __name__ == "__main__":
    answer({"openvino": infer})
