"""Detection in a long recording: Earmark, a textbook PyTorch implementation and panns_inference.

Every measurement is a separate process with its own peak memory. The entries take turns in `ROUNDS`
rounds, and the best of each counts, since other work on the machine can only make it slower.
"""

import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import training
from benchmarks.process import answer, measure, peak_memory
from benchmarks.textbook import Textbook
from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.data.features import FeatureConfig, log_mel
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle, load_bundle, save_bundle
from earmark.inference.predictor import STRIP
from earmark.nn.fused import FusedModel
from earmark.nn.model import Model, ModelConfig
from earmark.runtime.cores import n_cores
from earmark.runtime.memory import keep_memory

MODULE = "benchmarks.detection"
ROUNDS = 3
RATE, MINUTES, N_CLASSES, BATCH = 44100, 10, 17, 8
WINDOW, HOP = 500, 248  # frames of the detector's windows of 10 s, and from one to the next
N_CLASSES_PANNS = 527
WINDOWS = {"paper": 24, "paper-fast": 112}  # of the textbook, and of what was tried
PANNS = "benchmarks.peers.panns"

Figures = dict[str, Any]


def run(shared: Path) -> str:
    """Measure; return the results in Markdown. Noise is used where ESC-50 is not available."""
    best: dict[tuple[str, ...], Figures] = {}
    peak = 0.0
    with tempfile.TemporaryDirectory() as folder:
        recording, minute = make_recordings(shared / "esc50", Path(folder))
        entries: list[tuple[str, ...]] = []
        for preset in WINDOWS:
            model = save_bundle(made_bundle(preset), Path(folder, f"{preset}.earmark"))
            entries += [
                ("textbook", str(model), str(recording)),
                ("network", str(model), str(recording), str(n_cores())),
                ("network", str(model), str(recording), "1"),
                ("all in", str(model), str(recording)),
                ("tried", str(model), str(recording)),
            ]
        entries.append(("panns", str(minute), str(n_cores())))
        for _ in range(ROUNDS):
            peak = max(peak, measure(training.MODULE, "peak")["rate"])
            for entry in entries:
                found = measure(PANNS if entry[0] == "panns" else MODULE, *entry)
                best[entry] = better(best.get(entry, {}), found)
    kind = "real sound (ESC-50)" if (shared / "esc50").is_dir() else "noise"
    by_name = {(words[0], *(Path(word).stem for word in words[1:])): v for words, v in best.items()}
    return "\n\n".join(
        [report_networks(peak, by_name, kind), report_all_in(by_name), tried(by_name)]
    )


def better(one: Figures, other: Figures) -> Figures:
    """Return the smaller of each time; of memory and of differences, the larger."""
    return {
        name: (max if name.startswith(("memory", "difference")) else min)(
            one.get(name, value), value
        )
        for name, value in other.items()
    }


def report_networks(peak: float, best: dict[tuple[str, ...], Figures], kind: str) -> str:
    rows = [
        "| preset | entry | windows/s | share of the peak | memory | ratio |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for preset in WINDOWS:
        entries = {
            f"textbook, batch {BATCH}, {n_cores()} threads": ("textbook", preset, "recording"),
            f"earmark, {n_cores()} threads": ("network", preset, "recording", str(n_cores())),
            "earmark, 1 thread": ("network", preset, "recording", "1"),
        }
        operations = ModelConfig.preset(preset, N_CLASSES).operations(500)
        first = best[entries[f"textbook, batch {BATCH}, {n_cores()} threads"]]["seconds"]
        for entry, key in entries.items():
            seconds, memory = best[key]["seconds"], best[key]["memory"]
            rows.append(
                f"| `{preset}` | {entry} | {1 / seconds:.3g} |"
                f" {operations / seconds / peak / 1e9:.0%} |"
                f" {memory / 1e6:.0f} MB | {first / seconds:.2f} x |"
            )
    ones = [best["network", preset, "recording", "1"] for preset in WINDOWS]
    to_plain = max(one["difference"] for one in ones)
    ours, plain = (max(one[f"difference of {who}"] for one in ones) for who in ("ours", "plain"))
    in_double = max(one["difference in double"] for one in ones)
    return (
        "**The network**, from log-mel to scores, on the same windows of 10 s, which overlap"
        f" by half: {MINUTES} minutes of {kind}, {N_CLASSES} classes, untrained"
        " weights. The share of the peak counts the multiply-adds of every window, including those"
        " that overlapping windows share and Earmark computes once; the peak is"
        f" {peak:.0f} G per second. Best of {ROUNDS} rounds.\n\n" + "\n".join(rows) + "\n\n"
        f"Frame-level scores differ by {to_plain:.0e} at most from those of the network as trained,"
        " with convolutions over the whole recording and the GRU per window. That is rounding:"
        f" compared with the same network in double precision, ours differ by {ours:.0e}, the plain"
        f" ones by {plain:.0e}, and ours in double precision by {in_double:.0e}. (The outputs are"
        " scaled to be as steep as those of a trained network; smoother ones round less.)"
    )


def report_all_in(best: dict[tuple[str, ...], Figures]) -> str:
    rows = [
        "| entry | times real time | seconds per minute | memory | ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    figures = {}
    found = best["panns", "minute", str(n_cores())]
    for how in ("whole", "in clips"):
        entry = f"panns_inference (Cnn14, {N_CLASSES_PANNS} classes), {how}"
        figures[entry] = found[how], found[f"memory {how}"]
    first = min(found["whole"], found["in clips"])
    for preset in WINDOWS:
        found = best["all in", preset, "recording"]
        figures[f"earmark, `{preset}`"] = found["seconds"] / MINUTES, found["memory"]
        figures[f"`{preset}`, the first recording of a process"] = (
            found["first"] / MINUTES,
            found["memory"],
        )
    for entry, (seconds, memory) in figures.items():
        rows.append(
            f"| {entry} | {60 / seconds:.0f} | {seconds:.3f} | {memory / 1e6:.0f} MB |"
            f" {first / seconds:.1f} x |"
        )
    return (
        f"**All in**, from a wav file at {RATE / 1000:g} kHz to events: read, resample, log-mel,"
        f" network, merge, decode, on {n_cores()} cores. panns_inference has random weights, reads"
        " by librosa, and processes a minute of the same recording, without overlap; ratios are to"
        " the faster of its two modes.\n\n" + "\n".join(rows)
    )


def tried(best: dict[tuple[str, ...], Figures]) -> str:
    names = list(best["tried", "paper", "recording"])
    rows = ["| one thread, CPU ms per window | `paper` | `paper-fast` |", "|---|---:|---:|"]
    for name in names:
        paper, fast = (best["tried", preset, "recording"][name] for preset in WINDOWS)
        rows.append(f"| {name} | {paper * 1e3:.1f} | {fast * 1e3:.2f} |")
    return "**Step by step**, the same windows on one thread, in turns:\n\n" + "\n".join(rows)


def make_recordings(esc50: Path, folder: Path) -> tuple[Path, Path]:
    """Write ten minutes, and the first of them."""
    files = sorted((esc50 / "audio").glob("*.ogg"))
    files = files[:: max(1, len(files) // (MINUTES * 12))]  # they have 5 s each
    n_samples = MINUTES * 60 * RATE
    if files:
        waveform = np.concatenate([read_audio(path, RATE)[0] for path in files])
        waveform = np.resize(waveform, n_samples)
    else:
        waveform = 0.1 * np.random.default_rng(0).standard_normal(n_samples, dtype=np.float32)
    write_audio(folder / "recording.wav", waveform, RATE)
    write_audio(folder / "minute.wav", waveform[: 60 * RATE], RATE)
    return folder / "recording.wav", folder / "minute.wav"


def made_bundle(preset: str, n_classes: int = N_CLASSES) -> Bundle:
    """An untrained network in a file; its batch norms have seen noise, so that sound comes through.

    Otherwise all maps are nearly 0 after a few gated layers, and any precision looks good enough.
    """
    torch.manual_seed(0)
    config = ModelConfig.preset(preset, n_classes)
    model = Model(config).train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        model(torch.randn(2, 120, config.n_mels))
        model.classifier.weight *= 20
    labels = tuple(f"class {number}" for number in range(n_classes))
    features = FeatureConfig(mean=(-8.0,), std=(3.0,))
    # About one event per second: this network's own would be twenty, more than any recording has.
    decoding = Decoding.uniform(labels, 0.99, min_duration=0.5)
    return Bundle(labels, (Member(features, config, model.state_dict()),), decoding)


def windows_of(bundle: Bundle, path: str) -> Tensor:
    """The first windows of a recording, a hop apart, as the detector has them."""
    configs = {name: ModelConfig.preset(name, N_CLASSES) for name in WINDOWS}
    preset = next(name for name, config in configs.items() if bundle.model_config == config)
    count = WINDOWS[preset]
    waveform, _ = read_audio(path, bundle.feature_config.sample_rate, duration=count * 5 + 10)
    features = log_mel(waveform, bundle.feature_config)
    return torch.stack([features[n * HOP : n * HOP + WINDOW] for n in range(count)])


def measure_textbook(model: str, path: str) -> Figures:
    """Seconds per window, in batches of 8 and with torch's default threads."""
    torch.set_num_threads(n_cores())
    bundle = load_bundle(model)
    network = Textbook(bundle.model_config).eval()
    network.copy_weights(bundle.build_model())
    windows = windows_of(bundle, path)
    with torch.no_grad():
        network(windows[:BATCH])
        before = time.perf_counter()
        for batch in windows.split(BATCH):
            network(batch)
        seconds = (time.perf_counter() - before) / len(windows)
    return {"seconds": seconds, "memory": peak_memory()}


def measure_network(model: str, path: str, threads: str) -> Figures:
    """Seconds per window of the whole recording, and the largest difference to the plain model."""
    detector = Detector.load(model, threads=int(threads))
    bundle = detector.bundle
    waveform, _ = read_audio(path, bundle.feature_config.sample_rate)
    features = log_mel(waveform, bundle.feature_config)
    deque(detector.stream_scores([features[:3000]]), maxlen=0)
    before = time.perf_counter()
    deque(detector.stream_scores([features]), maxlen=0)
    seconds = time.perf_counter() - before
    memory = peak_memory()
    n_windows = 1 + -(-(len(features) - WINDOW) // HOP)
    part = features[:2000]
    with torch.inference_mode():
        ours = predict_frames(FusedModel(detector.ensemble.models[0]), part)
        plain = predict_frames(detector.ensemble.models[0], part)
        double = detector.ensemble.models[0].double()
        exact = predict_frames(double, part.double())
        folded = predict_frames(FusedModel(double), part.double())
    return {
        "seconds": seconds / n_windows,
        "memory": memory,
        "difference": float((ours - plain).abs().max()),
        "difference of ours": float((ours - exact).abs().max()),
        "difference of plain": float((plain - exact).abs().max()),
        "difference in double": float((folded - exact).abs().max()),
    }


def predict_frames(model: Model | FusedModel, features: Tensor) -> Tensor:
    """Frame probabilities of windows: one pass of convolutions, then the GRU window by window."""
    if isinstance(model, Model):
        encoded = model.encode(features.unsqueeze(0))[0][0]
    else:
        encoded = model.encode(features)
    pool = model.config.time_pool
    windows = encoded.unfold(0, WINDOW // pool, HOP // pool).transpose(1, 2)
    return model.classify(windows).frame_probs


def measure_all_in(model: str, path: str) -> Figures:
    """Seconds from a file to events, the first time and the best of three more."""
    torch.set_num_threads(n_cores())
    detector = Detector.load(model)
    times = []
    for _ in range(4):
        before = time.perf_counter()
        detector.detect(path)
        times.append(time.perf_counter() - before)
    return {"first": times[0], "seconds": min(times[1:]), "memory": peak_memory()}


def measure_tried(model: str, path: str) -> Figures:
    """CPU seconds per window on one thread, of each step that helped, and of some more."""
    torch.set_num_threads(1)
    detector = Detector.load(model, threads=1)
    network, folded = detector.ensemble.models[0], FusedModel(detector.ensemble.models[0])
    windows = windows_of(detector.bundle, path)[:BATCH]
    features = torch.cat([*(window[:HOP] for window in windows[:-1]), windows[-1]])
    half = torch.bfloat16
    textbook = Textbook(detector.bundle.model_config).eval()
    textbook.copy_weights(network)
    planar = FusedModel(network)
    for parameter in planar.parameters():
        parameter.data = parameter.data.contiguous()
    ways: dict[str, Callable[[], Any]] = {
        "a textbook's, in batches of 8": lambda: [textbook(w) for w in windows.split(8)],
        "the network as trained, in batches of 8": lambda: [network(w) for w in windows.split(8)],
        "and memory is kept": lambda: [network(w) for w in windows.split(8)],
        "and batch norm folded": lambda: [planar(w) for w in windows.split(8)],
        "and channels last": lambda: [folded(w) for w in windows.split(8)],
        "the same, one window at a time": lambda: [folded(w) for w in windows.split(1)],
        "and windows share their convolutions (what is used)": lambda: share(folded, features),
        "and bfloat16 (not used: see below)": lambda: share(folded, features),
    }
    best: dict[str, float] = {}
    with torch.inference_mode():
        for _ in range(2):
            for number, (name, way) in enumerate(ways.items()):
                with (
                    keep_memory() if number > 1 else nullcontext(),
                    torch.autocast("cpu", half, enabled="bfloat16" in name),
                ):
                    way()  # memory that is kept is there from the second time on
                    before = time.thread_time()
                    way()
                    seconds = (time.thread_time() - before) / len(windows)
                best[name] = min(best.get(name, seconds), seconds)
    return best


def share(folded: FusedModel, features: Tensor) -> Tensor:
    """As the detector does it: strips with their margins, then all windows."""
    parts = []
    for begin in range(0, len(features), STRIP):
        before = min(begin, folded.margin)
        part = features[begin - before : begin + STRIP + folded.margin]
        parts.append(folded.encode(part, before, min(STRIP, len(features) - begin)))
    pool = folded.config.time_pool
    windows = torch.cat(parts).unfold(0, WINDOW // pool, HOP // pool).transpose(1, 2)
    return folded.classify(windows).frame_probs


WORKERS: dict[str, Callable[..., Figures]] = {
    "textbook": measure_textbook,
    "network": measure_network,
    "all in": measure_all_in,
    "tried": measure_tried,
}

if __name__ == "__main__":
    answer(WORKERS)
