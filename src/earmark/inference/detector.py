"""Audio of any length -> events.

Conventions: a recording longer than the network's window is read in overlapping windows, in flat
memory; where windows overlap their frame probabilities are averaged, those near the middle of a
window counting most. The clip probability that gates events is, at each frame, the largest of the
windows over it. A recording that fits into one window is looked at once, just as in training.

Windows go through the network in strips of several, a strip on each core while the next is read.
How many cores there are changes no number. A detector may be used from several threads at once.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio.decode import Source, Waveform, read_blocks
from earmark.data.features import log_mel_blocks
from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle, save_bundle
from earmark.nn.fused import FusedModel
from earmark.runtime.memory import keep_memory
from earmark.runtime.threads import check_threads, map_in_threads

Floats = NDArray[np.float32]

# FrameGrid of a strip: with more, the edges that are seen twice weigh less; with fewer, memory is less
# and a short recording has strips for every core.
STRIP = 1000
N_WINDOWS = 16  # that a GRU takes at a time: with fewer it is slower


class Curve(NamedTuple):
    """Frame probabilities of a recording, and their time axis.

    Shape: `probs` and `clip_probs` (frames, classes), `times` (frames,), the middle of each frame
    in seconds; `duration` is that of the recording.
    """

    probs: Floats
    clip_probs: Floats
    times: NDArray[np.float64]
    grid: FrameGrid
    labels: tuple[str, ...]
    duration: float


class _Strip(NamedTuple):
    """A part of a recording, and how much of it is only seen from the parts beside it.

    Shape: `log_mel` (frames, mels), of which `length` frames from `before` on are its own.
    """

    log_mel: Tensor
    before: int
    length: int


class Detector:
    """A trained network that says which sound starts and ends when.

    Made by `earmark.load(path)` or `earmark.train(...)`.

    Args:
        bundle: the trained network and all that belongs to it.
        device: where the network runs.
        threads: how many strips of a recording to work on at a time; 0 is one for every core.
    """

    def __init__(self, bundle: Bundle, device: str = "cpu", threads: int = 0) -> None:
        self.bundle = bundle
        self.device = torch.device(device)
        self.threads = check_threads(threads)
        self.model = bundle.build_model().to(self.device)
        self._fused = FusedModel(self.model).to(self.device)
        self.grid = bundle.model.output_grid(bundle.features.grid)
        pool = bundle.model.time_pool
        self._window = max(1, bundle.features.grid.count(bundle.window) // pool) * pool
        self._hop = max(1, self._window // pool // 2) * pool
        self._strip = max(1, STRIP // pool) * pool

    @classmethod
    def load(
        cls, path: str | os.PathLike[str] = BUNDLED, device: str = "cpu", threads: int = 0
    ) -> "Detector":
        """Return the detector in a model file, or the one that comes with the package."""
        return cls(load_bundle(path), device, threads)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the detector into one file."""
        return save_bundle(self.bundle, path)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes it knows."""
        return self.bundle.labels

    def detect(
        self,
        source: Source | Waveform,
        sample_rate: int | None = None,
        decoding: Decoding | None = None,
    ) -> list[Event]:
        """Return the events in a recording, in order of time.

        Args:
            source: a path, an open binary file, or a mono waveform with its `sample_rate`.
            sample_rate: of the waveform, which must be that of the network.
            decoding: other thresholds and post-processing than the detector's own.
        """
        return self.decode(self.frame_probs(source, sample_rate), decoding)

    def decode(self, curve: Curve, decoding: Decoding | None = None) -> list[Event]:
        """Return the events in a curve that `frame_probs` gave."""
        own = decoding or self.bundle.decoding
        return decode_events(curve.probs, curve.grid, own, curve.clip_probs, curve.duration)

    def frame_probs(self, source: Source | Waveform, sample_rate: int | None = None) -> Curve:
        """Return the probability of every class at every frame, with the time axis."""
        counter = _Counter(self._blocks(source, sample_rate))
        pieces, gates = [], []
        for piece, gate in self.listen(log_mel_blocks(counter, self.bundle.features)):
            pieces.append(piece)
            gates.append(gate)
        probs = np.concatenate(pieces)
        pieces.clear()  # of a day's recording they are as large as all the rest
        clip_probs = np.concatenate(gates)
        times = self.grid.centres(len(probs))
        duration = counter.n_samples / self.bundle.features.sample_rate
        return Curve(probs, clip_probs, times, self.grid, self.labels, duration)

    def listen(self, log_mels: Iterable[Tensor]) -> Iterator[tuple[Floats, Floats]]:
        """Yield frame probabilities, and clip probabilities by frame, from pieces of a log-mel.

        Shape: pieces (frames, mels) of any length, normalised, one after another; what comes out
        are pieces (frames, classes) of both, as soon as they are final.
        """
        with keep_memory():
            parts = map_in_threads(self._encode, self._strips(log_mels), self.threads)
            windows = self._windows(parts)
            said = map_in_threads(self._classify, windows, self.threads, draw_here=True)
            yield from self._merge(window for some in said for window in some)

    def tags(self, source: Source | Waveform, sample_rate: int | None = None) -> dict[str, float]:
        """Return the probability that each class is anywhere in the recording."""
        curve = self.frame_probs(source, sample_rate)
        best = curve.clip_probs.max(0)
        return {label: float(p) for label, p in zip(self.labels, best, strict=True)}

    def _blocks(self, source: Source | Waveform, sample_rate: int | None) -> Iterable[Waveform]:
        wanted = self.bundle.features.sample_rate
        if not isinstance(source, np.ndarray):
            return read_blocks(source, wanted)
        if sample_rate != wanted or source.ndim != 1 or not len(source):
            raise SettingError(
                f"A waveform must be mono (samples,), not empty, with its sample rate of {wanted} Hz. Got "
                f"the shape {source.shape} and sample_rate={sample_rate!r}; a file is resampled by itself."
            )
        if source.dtype.kind != "f" or not np.isfinite(source).all():
            raise SettingError(
                "A waveform holds finite floating-point numbers between -1 and 1; divide 16-bit "
                f"numbers by 32768. Got {source.dtype}."
            )
        return [source.astype(np.float32, copy=False)]

    def _strips(self, log_mels: Iterable[Tensor]) -> Iterator[_Strip]:
        """Yield the recording in strips that lie side by side, each with what it sees of others."""
        margin, own = self._fused.margin, self._strip
        kept, before = torch.zeros(0, self.bundle.features.n_mels), 0
        for piece in log_mels:
            kept = torch.cat([kept, piece])
            while len(kept) > before + own + margin:  # the rest is never empty
                yield _Strip(kept[: before + own + margin], before, own)
                kept, before = kept[max(0, before + own - margin) :], min(margin, before + own)
        yield _Strip(kept, before, len(kept) - before)

    def _encode(self, strip: _Strip) -> Tensor:
        """Return the features of a strip, (frames, features)."""
        log_mel, before, length = strip
        with torch.inference_mode():
            return self._fused.encode(log_mel.to(self.device), before, length)

    def _windows(self, parts: Iterable[Tensor]) -> Iterator[tuple[int, Tensor]]:
        """Yield windows, some at a time, (windows, frames, features), and where the first begins.

        They are a hop apart; the last of all is flush with the end.
        """
        pool = self.bundle.model.time_pool
        window, hop = self._window // pool, self._hop // pool
        length, step = window + (N_WINDOWS - 1) * hop, N_WINDOWS * hop
        kept, start = torch.zeros(0), 0
        for part in parts:
            kept = torch.cat([kept, part]) if len(kept) else part
            while len(kept) >= length + hop:  # a whole window is left for the end
                yield start, _cut(kept[:length], window, hop)
                kept, start = kept[step:], start + step
        if len(kept) <= window:
            yield start, kept.unsqueeze(0)
            return
        whole = window + (len(kept) - window) // hop * hop
        yield start, _cut(kept[:whole], window, hop)
        if whole < len(kept):
            yield start + len(kept) - window, kept[-window:].unsqueeze(0)

    def _classify(self, windows: tuple[int, Tensor]) -> list[tuple[int, Floats, Floats]]:
        """Return where each window begins in frames of the output, its frame and clip probs."""
        start, features = windows
        with torch.inference_mode():
            prediction = self._fused.classify(features)
            frame_probs = prediction.frame_probs.cpu().numpy()
            clip_probs = prediction.clip_probs.cpu().numpy()
        hop = self._hop // self.bundle.model.time_pool
        starts = range(start, start + len(frame_probs) * hop, hop)
        return list(zip(starts, frame_probs, clip_probs, strict=True))

    def _merge(
        self, predictions: Iterable[tuple[int, Floats, Floats]]
    ) -> Iterator[tuple[Floats, Floats]]:
        """Yield frame probabilities, and clip probabilities by frame, once they are final."""
        n_classes = len(self.labels)
        total, share, gate = np.zeros((0, n_classes)), np.zeros((0, 1)), np.zeros((0, n_classes))
        base = 0
        for start, probs, clip in predictions:
            done = start - base  # no later window reaches back beyond this one's begin
            if done:
                yield _ratio(total[:done], share[:done]), gate[:done].astype(np.float32)
                total, share, gate, base = total[done:], share[done:], gate[done:], start
            more = len(probs) - len(total)
            total = np.pad(total, ((0, more), (0, 0)))
            share = np.pad(share, ((0, more), (0, 0)))
            gate = np.pad(gate, ((0, more), (0, 0)))
            index = np.arange(len(probs))
            weight = np.minimum(index + 1, len(probs) - index)[:, None]
            total += weight * probs.astype(np.float64)
            share += weight
            gate = np.maximum(gate, clip)
        yield _ratio(total, share), gate.astype(np.float32)


def _cut(frames: Tensor, window: int, hop: int) -> Tensor:
    """(frames, features) -> (windows, frames, features), a hop apart."""
    return frames.unfold(0, window, hop).transpose(1, 2)


def _ratio(total: NDArray[np.float64], share: NDArray[np.float64]) -> Floats:
    # In double precision a frame seen once comes back to the last bit.
    return (total / share).astype(np.float32)


def load(path: str | os.PathLike[str] = BUNDLED, device: str = "cpu", threads: int = 0) -> Detector:
    """Return the detector in a model file, or the bundled pretrained one.

    Args:
        path: of the model file; the bundled model without it.
        device: where the network runs, such as "cpu" or "cuda".
        threads: how many to use; 0 is one per core.

    >>> load().labels[:2]
    ('car_horn', 'cat')
    """
    return Detector.load(path, device, threads)


class _Counter:
    """Blocks, and how many samples they had in all."""

    def __init__(self, blocks: Iterable[Waveform]) -> None:
        self._blocks = blocks
        self.n_samples = 0

    def __iter__(self) -> Iterator[Waveform]:
        for block in self._blocks:
            self.n_samples += len(block)
            yield block
