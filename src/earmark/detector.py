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

from earmark.audio import Source, Waveform, read_blocks
from earmark.bundle import Bundle, load_bundle, save_bundle
from earmark.decoding import Decoding, decode_events
from earmark.errors import SettingError
from earmark.events import Event
from earmark.features import log_mel_blocks
from earmark.folding import FoldedModel
from earmark.frames import Frames, pooled_length
from earmark.machine import keep_memory
from earmark.threads import check_threads, map_in_threads

Floats = NDArray[np.float32]

# A strip has so many windows as make about so many multiply-adds: a GRU wants 16 at a time, and a
# core is not to be busy for much longer than a second while another has nothing left to do.
STRIP_OPERATIONS = 4e10
FEWEST_WINDOWS, MOST_WINDOWS = 4, 16


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


class _Strip(NamedTuple):
    """A part of a recording: where its windows begin, its log-mel, and which of it they hold.

    Shape: `log_mel` (frames, mels), of which windows hold `length` frames from `before` on; the
    others are what convolutions see beyond the edges.
    """

    start: int
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
        self._folded = FoldedModel(self.model).to(self.device)
        self.ruler = bundle.model.frames(bundle.features.frames)
        pool = bundle.model.time_pool
        self._window = max(1, bundle.features.frames.count(bundle.window) // pool) * pool
        self._hop = max(1, self._window // pool // 2) * pool
        wanted = round(STRIP_OPERATIONS / bundle.model.operations(self._window))
        self._n_windows = min(max(FEWEST_WINDOWS, wanted), MOST_WINDOWS)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], device: str = "cpu", threads: int = 0
    ) -> "Detector":
        """Return the detector in a model file."""
        return cls(load_bundle(path), device, threads)

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
        with keep_memory():
            strips = map_in_threads(self._predict, self._strips(counter), self.threads)
            for piece, gate in self._merge(window for strip in strips for window in strip):
                pieces.append(piece)
                gates.append(gate)
        probs = np.concatenate(pieces)
        pieces.clear()  # of a day's recording they are as large as all the rest
        clip_probs = np.concatenate(gates)
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

    def _strips(self, blocks: Iterable[Waveform]) -> Iterator[_Strip]:
        """Yield strips of whole hops.

        The windows of a strip are a hop apart, and its last is the one before the next strip's
        first; the last of all is flush with the end.
        """
        window, hop, pool = self._window, self._hop, self.bundle.model.time_pool
        margin, step = self._folded.margin, self._n_windows * hop
        length = window + step - hop
        wanted = length + max(hop, margin)  # so that a whole window is left for the end
        held, n_held = [torch.zeros(0, self.bundle.features.n_mels)], 0
        start = before = 0  # what is held begins `before` frames earlier
        for piece in log_mel_blocks(blocks, self.bundle.features):
            held.append(piece)
            n_held += len(piece)
            if n_held >= before + wanted:
                kept = torch.cat(held)
                while len(kept) >= before + wanted:
                    yield _Strip(start, kept[: before + length + margin], before, length)
                    moved, before = before + step, min(margin, before + step)
                    kept, start = kept[moved - before :], start + step
                held, n_held = [kept], len(kept)
        kept = torch.cat(held)
        rest = len(kept) - before
        whole = window + (rest - window) // hop * hop
        if rest <= window or whole == rest:
            yield _Strip(start, kept, before, rest)
            return
        yield _Strip(start, kept[: before + whole + margin], before, whole)
        moved = pooled_length(rest - window, pool) * pool
        context = min(margin, before + moved)
        yield _Strip(start + moved, kept[before + moved - context :], context, rest - moved)

    def _predict(self, strip: _Strip) -> list[tuple[int, Floats, Floats]]:
        """Return where each window begins in frames of the output, its frame and clip probs."""
        start, log_mel, before, length = strip
        with torch.inference_mode():
            prediction = self._folded.listen(
                log_mel.to(self.device), self._window, self._hop, before, length
            )
            frame_probs = prediction.frame_probs.cpu().numpy()
            clip_probs = prediction.clip_probs.cpu().numpy()
        pool = self.bundle.model.time_pool
        starts = range(
            start // pool, start // pool + len(frame_probs) * self._hop // pool, self._hop // pool
        )
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
