"""Log-mels of ten-second clips by Earmark and by librosa, in one run on one thread."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import librosa
import numpy as np
import soundfile

from earmark.audio.decode import read_audio
from earmark.data.batches import read_batch, split_rows
from earmark.data.features import FeatureConfig, log_mel
from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore, build_store

CONFIG = FeatureConfig()
SECONDS = 10
N_CLIPS = 40
REPEATS = 5


def run(shared: Path) -> str:
    """Measure, and return the figures in Markdown; without ESC-50, on noise."""
    esc50 = shared / "esc50"
    clips = real_clips(esc50) if esc50.is_dir() else made_clips()
    kind = "real recordings (ESC-50)" if esc50.is_dir() else "noise"
    tools = {"earmark": earmark_log_mel, "librosa": librosa_log_mel}
    in_a_row = medians(tools, clips, turns=N_CLIPS)
    in_turns = medians(tools, clips, turns=1)
    difference = max(np.abs(earmark_log_mel(x) - librosa_log_mel(x)).max() for x in clips)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.wav") for number in range(len(clips))]
        for path, clip in zip(paths, clips, strict=True):
            soundfile.write(
                path, librosa.resample(clip, orig_sr=CONFIG.sample_rate, target_sr=44100), 44100
            )
        readers = {"earmark": earmark_from_file, "librosa": librosa_from_file}
        with_reading = medians(readers, paths, turns=N_CLIPS)
        reading = from_store(paths, Path(folder, "store"))
    rows = [
        ("waveform at 32 kHz -> log-mel", in_a_row),
        ("the same, the tools alternating after every clip", in_turns),
        ("wav file at 44.1 kHz -> waveform at 32 kHz -> log-mel", with_reading),
    ]
    table = ["| from -> to | earmark | librosa | ratio |", "|---|---:|---:|---:|"]
    for name, figures in rows:
        ours, theirs = figures["earmark"], figures["librosa"]
        table.append(
            f"| {name} | {ours * 1e3:.2f} ms | {theirs * 1e3:.2f} ms | {theirs / ours:.1f} x |"
        )
    text = (
        f"{len(clips)} clips of {SECONDS} s, {kind}, default settings; the median CPU time per clip"
        f" over {REPEATS} rounds. In a round each tool processes all clips in a row. Where they"
        " alternate, each finds the caches as the other left them, which slows the faster one"
        " more. The largest difference between the two log-mels is"
        f" {difference:.1e} in units of the natural logarithm."
    )
    cold, warm = (f"{seconds * 1e3:.2f} ms" for seconds in reading)
    store_text = (
        "Training reads a clip from a store, in random order and into a batch, in"
        f" {warm} (wall-clock time) from the page cache, and in {cold} from this machine's disk."
    )
    return "\n\n".join([text, "\n".join(table), store_text])


def from_store(paths: Sequence[Path], folder: Path) -> tuple[float, float]:
    """Return the seconds per clip that training needs to read from disk, and from the cache."""
    files = {f"{number} {path.name}": path for number, path in enumerate([*paths] * 5)}
    build_store(folder, files, CONFIG, processes=1)
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    store = FeatureStore.open(folder, CONFIG)
    clips = Manifest(tuple(files), tuple(files.values()), ((),) * len(files), ())
    order = np.random.default_rng(0).permutation(len(clips)).tolist()
    times = []
    for _ in range(2):
        before = time.perf_counter()
        for rows in split_rows(order, 32):
            read_batch(store, clips, rows)
        times.append((time.perf_counter() - before) / len(clips))
    return times[0], times[1]


def medians(
    tools: dict[str, Callable[[Any], object]], inputs: Sequence[Any], turns: int
) -> dict[str, float]:
    """Return each tool's median CPU seconds per input; tools alternate after `turns` inputs.

    CPU time, since wall-clock time would include other processes.
    """
    times: dict[str, list[float]] = {name: [] for name in tools}
    for tool in tools.values():
        tool(inputs[0])  # tables and caches
    for _ in range(REPEATS):
        for first in range(0, len(inputs), turns):
            for name, tool in tools.items():
                for one in inputs[first : first + turns]:
                    before = time.thread_time()
                    tool(one)
                    times[name].append(time.thread_time() - before)
    return {name: float(np.median(values)) for name, values in times.items()}


def real_clips(esc50: Path) -> list[np.ndarray]:
    files = sorted((esc50 / "audio").glob("*.ogg"))
    step = len(files) // N_CLIPS
    pairs = [files[first : first + 2] for first in range(0, N_CLIPS * step, step)]
    return [np.concatenate([read_audio(path)[0] for path in pair]) for pair in pairs]


def made_clips() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    shape = (N_CLIPS, SECONDS * CONFIG.sample_rate)
    return list(0.1 * generator.standard_normal(shape, dtype=np.float32))


def earmark_log_mel(waveform: np.ndarray) -> np.ndarray:
    return log_mel(waveform, CONFIG).numpy()


def librosa_log_mel(waveform: np.ndarray) -> np.ndarray:
    window, hop = CONFIG.window_samples, CONFIG.hop_samples
    front = (window - hop) // 2
    behind = window - hop - front + -len(waveform) % hop
    mel = librosa.feature.melspectrogram(
        y=np.pad(waveform, (front, behind)),
        sr=CONFIG.sample_rate,
        n_fft=window,
        hop_length=hop,
        center=False,
        n_mels=CONFIG.n_mels,
        fmin=CONFIG.f_min,
        fmax=CONFIG.f_max,
    )
    return np.log(mel + CONFIG.log_offset).T


def earmark_from_file(path: Path) -> np.ndarray:
    return earmark_log_mel(read_audio(path, CONFIG.sample_rate)[0])


def librosa_from_file(path: Path) -> np.ndarray:
    return librosa_log_mel(librosa.load(path, sr=CONFIG.sample_rate)[0])
