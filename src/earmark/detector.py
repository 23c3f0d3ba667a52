"""Audio of any length -> events.

Conventions: a recording longer than the network's window is read in overlapping windows, in flat
memory; where windows overlap their frame probabilities are averaged, those near the middle of a
window counting most. The clip probability that gates events is, at each frame, the largest of the
windows over it. A recording that fits into one window is looked at once, just as in training.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio import Source, Waveform, read_blocks
from earmark.bundle import Bundle, load_bundle, save_bundle
from earmark.decoding import Decoding, decode_events
from earmark.errors import SettingError
from earmark.events import Event
from earmark.features import log_mel_blocks
from earmark.frames import Frames, pooled_length

Floats = NDArray[np.float32]
BATCH = 8  # windows at a time: more do not run faster on a CPU


class Curve(NamedTuple):
    """Frame probabilities of a recording, and their time axis.

    Shape: `probs` and `clip_probs` (frames, classes), `times` (frames,), the middle of each frame
    in seconds; `duration` is that of the recording.
    """

    probs: Floats
    clip_probs: Floats
    times: NDArray[np.float64]
    ruler: Frames
    labels: tuple[str, ...]
    duration: float


class Detector:
    """A trained network that says which sound starts and ends when.

    Made by `earmark.load(path)` or `earmark.train(...)`.
    """

    def __init__(self, bundle: Bundle, device: str = "cpu") -> None:
        self.bundle = bundle
        self.device = torch.device(device)
        self.model = bundle.build_model().to(self.device)
        self.ruler = bundle.model.frames(bundle.features.frames)
        pool = bundle.model.time_pool
        self._window = max(1, bundle.features.frames.count(bundle.window) // pool) * pool
        self._hop = max(1, self._window // pool // 2) * pool

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str = "cpu") -> "Detector":
        """Return the detector in a model file."""
        return cls(load_bundle(path), device)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the detector into one file."""
        return save_bundle(self.bundle, path)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes it knows."""
        return self.bundle.labels

    def detect(
        self, source: Source | Waveform, rate: int | None = None, decoding: Decoding | None = None
    ) -> list[Event]:
        """Return the events in a recording, in order of time.

        Args:
            source: a path, an open binary file, or a mono waveform with its `rate`.
            rate: of the waveform, which must be that of the network.
            decoding: other thresholds and post-processing than the detector's own.
        """
        return self.decode(self.frame_probs(source, rate), decoding)

    def decode(self, curve: Curve, decoding: Decoding | None = None) -> list[Event]:
        """Return the events in a curve that `frame_probs` gave."""
        own = decoding or self.bundle.decoding
        return decode_events(curve.probs, curve.ruler, own, curve.clip_probs, curve.duration)

    def frame_probs(self, source: Source | Waveform, rate: int | None = None) -> Curve:
        """Return the probability of every class at every frame, with the time axis."""
        counter = _Counter(self._blocks(source, rate))
        pieces, gates = [], []
        for piece, gate in self._merge(self._predict(self._windows(counter))):
            pieces.append(piece)
            gates.append(gate)
        probs, clip_probs = np.concatenate(pieces), np.concatenate(gates)
        times = self.ruler.centres(len(probs))
        duration = counter.n_samples / self.bundle.features.rate
        return Curve(probs, clip_probs, times, self.ruler, self.labels, duration)

    def tags(self, source: Source | Waveform, rate: int | None = None) -> dict[str, float]:
        """Return the probability that each class is anywhere in the recording."""
        curve = self.frame_probs(source, rate)
        best = curve.clip_probs.max(0)
        return {label: float(p) for label, p in zip(self.labels, best, strict=True)}

    def _blocks(self, source: Source | Waveform, rate: int | None) -> Iterable[Waveform]:
        wanted = self.bundle.features.rate
        if not isinstance(source, np.ndarray):
            return read_blocks(source, wanted)
        if rate != wanted or source.ndim != 1 or not len(source):
            raise SettingError(
                f"A waveform must be mono (samples,), not empty, with its rate of {wanted} Hz. Got "
                f"the shape {source.shape} and rate={rate!r}; a file is resampled by itself."
            )
        if source.dtype.kind != "f" or not np.isfinite(source).all():
            raise SettingError(
                "A waveform holds finite floating-point numbers between -1 and 1; divide 16-bit "
                f"numbers by 32768. Got {source.dtype}."
            )
        return [source.astype(np.float32, copy=False)]

    def _windows(self, blocks: Iterable[Waveform]) -> Iterator[tuple[int, Tensor]]:
        """Yield windows (frames, mels) and where they begin, the last one flush with the end."""
        window, hop, pool = self._window, self._hop, self.bundle.model.time_pool
        kept, start = torch.zeros(0, self.bundle.features.n_mels), 0
        for piece in log_mel_blocks(blocks, self.bundle.features):
            kept = torch.cat([kept, piece])
            while len(kept) >= window + hop:  # so that a whole window is left for the end
                yield start, kept[:window]
                kept, start = kept[hop:], start + hop
        if len(kept) > window:
            yield start, kept[:window]
            moved = pooled_length(len(kept) - window, pool) * pool
            kept, start = kept[moved:], start + moved
        yield start, kept

    @torch.no_grad()
    def _predict(
        self, windows: Iterator[tuple[int, Tensor]]
    ) -> Iterator[tuple[int, Floats, Floats]]:
        """Yield where a window begins in frames of the output, its frame and its clip probs."""
        for _, same in groupby(windows, key=lambda pair: len(pair[1])):
            while batch := list(islice(same, BATCH)):
                log_mel = torch.stack([frames for _, frames in batch]).to(self.device)
                prediction = self.model(log_mel)
                frame_probs = prediction.frame_probs.cpu().numpy()
                clip_probs = prediction.clip_probs.cpu().numpy()
                for (start, _), probs, clip in zip(batch, frame_probs, clip_probs, strict=True):
                    yield start // self.bundle.model.time_pool, probs, clip

    def _merge(
        self, predictions: Iterator[tuple[int, Floats, Floats]]
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


def _ratio(total: NDArray[np.float64], share: NDArray[np.float64]) -> Floats:
    # In double precision a frame seen once comes back to the last bit.
    return (total / share).astype(np.float32)


class _Counter:
    """Blocks, and how many samples they had in all."""

    def __init__(self, blocks: Iterable[Waveform]) -> None:
        self._blocks = blocks
        self.n_samples = 0

    def __iter__(self) -> Iterator[Waveform]:
        for block in self._blocks:
            self.n_samples += len(block)
            yield block
