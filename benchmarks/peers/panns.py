"""A recording -> seconds that panns_inference's sound event detection takes.

Weights are random, since none can be fetched; they take just as long.
"""

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.process import answer, peak_memory

N_CLASSES = 527
SECONDS = 10


def listen(path: str, n_threads: str) -> dict[str, float]:
    """Seconds and memory, of the whole recording at once and in clips of 10 s."""
    with tempfile.TemporaryDirectory() as home, contextlib.redirect_stdout(sys.stderr):
        os.environ["HOME"] = home  # where it looks for labels, and else fetches them
        table = Path(home, "panns_data", "class_labels_indices.csv")
        table.parent.mkdir()
        rows = [f"{number},/m/{number},class {number}" for number in range(N_CLASSES)]
        table.write_text("\n".join(["index,mid,display_name", *rows]), encoding="utf-8")

        import librosa
        import torch
        from panns_inference import SoundEventDetection
        from panns_inference.models import Cnn14_DecisionLevelMax

        torch.set_num_threads(int(n_threads))
        model = Cnn14_DecisionLevelMax(32000, 1024, 320, 64, 50, 14000, N_CLASSES)
        checkpoint = Path(home, "random.pth")
        torch.save({"model": model.state_dict()}, checkpoint)
        detector = SoundEventDetection(model, str(checkpoint), device="cpu")
        checkpoint.unlink()
        detector.inference(librosa.load(path, sr=32000, duration=SECONDS)[0][None])

        found = {}
        before = time.perf_counter()
        waveform, rate = librosa.load(path, sr=32000)
        reading = time.perf_counter() - before
        before = time.perf_counter()
        for first in range(0, len(waveform), SECONDS * rate):
            detector.inference(waveform[None, first : first + SECONDS * rate])
        found["in clips"] = reading + time.perf_counter() - before
        found["memory in clips"] = peak_memory()
        before = time.perf_counter()
        detector.inference(waveform[None])
        found["whole"] = reading + time.perf_counter() - before
        found["memory whole"] = peak_memory()
        found["duration"] = len(waveform) / rate
    return found


if __name__ == "__main__":
    answer({"panns": listen})
