"""Features of recordings of any length -> frame-level and clip-level scores: the inference path.

Detection, tuning, validation and comparison all go through `Predictor`, on any device.

Conventions: a recording longer than the network's window is cut into overlapping windows, in
constant memory; where windows overlap their frame-level scores are averaged, those near the middle
of a window counting most. The clip-level score of a frame is the highest of the windows over it. A
recording that fits into one window is processed once, as in training. Of a network that scores
segments, such as seconds (`NetworkConfig.segment`), windows begin where a segment does, counted
from the begin of the recording; so segments are the same in all windows.

What a network encodes, mostly convolutions, runs over strips of several windows, one strip per
thread while the next is read; what it classifies, such as by a recurrent layer, takes each window
for itself, many at a time. The number of threads changes no result. A predictor may be used from
several threads at once.

A live recording is processed in shorter strips, and window by window: a frame is final as soon as
no later window can contain it, also if the recording ended now. Windows are the same as those of
the whole recording; scores are equal to rounding, since strips and batches have other lengths.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import lcm
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from earmark.data.features import FeatureConfig, Normalise
from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.frames import FrameScores, pooled_length
from earmark.nn.fused import FusedModel
from earmark.nn.network import Network
from earmark.runtime.device import resolve_device
from earmark.runtime.isa import log_instruction_set
from earmark.runtime.memory import keep_memory
from earmark.runtime.threads import check_threads, map_in_threads

Floats32 = NDArray[np.float32]
Scores = tuple[Floats32, Floats32]  # frame-level and clip-level, (frames, classes) both

# Input frames of a strip: with more, the margins that are computed twice weigh less; with fewer,
# memory is less and a short recording has strips for every core.
STRIP = 1000
N_WINDOWS = 16  # that are classified at a time: with fewer a GRU is slower


class _Strip(NamedTuple):
    """A part of a recording with its margins, in which neighbouring strips overlap.

    Shape: `log_mel` (frames, mels), of which `length` frames from `before` on are its own.
    """

    recording: int
    log_mel: Tensor
    before: int
    length: int


class _Windows(NamedTuple):
    """Windows of one length: where each begins in its recording, and their features.

    Shape: `features` (windows, frames, features); `starts` holds (recording, first output frame).
    """

    starts: list[tuple[int, int]]
    features: Tensor


class _Scored(NamedTuple):
    """A window with its scores; shape: (frames, classes) and (classes,)."""

    recording: int
    start: int
    frame_scores: Floats32
    clip_scores: Floats32


class Predictor:
    """A network that is ready to predict.

    Args:
        model: the trained network; it is not changed.
        window: input frames of a window.
        device: where the network runs, such as "cpu" or "cuda:1".
        threads: how many strips to process at a time; 0 is one per core.

    >>> from earmark.nn.model import Model, ModelConfig
    >>> model = Model(ModelConfig.preset("fast", n_classes=2)).eval()
    >>> frame_scores, clip_scores = next(Predictor(model, 500).predict([[torch.zeros(1200, 80)]]))
    >>> frame_scores.shape, clip_scores.shape
    ((300, 2), (300, 2))
    """

    def __init__(
        self, model: Network, window: int, device: str | torch.device = "cpu", threads: int = 0
    ) -> None:
        self.config = model.config
        self.device = resolve_device(device)
        log_instruction_set()
        self.threads = check_threads(threads)
        self._fused = FusedModel(model).to(self.device)
        self._takes_masks = model.takes_masks
        self._dtype = next(model.parameters()).dtype
        pool = model.config.time_pool
        self._step = pool // model.encoder_pool  # encoded frames per output frame
        n_frames = max(1, pooled_length(window, pool))  # all that a clip of this length has
        self._window = n_frames * self._step  # in encoded frames
        half = max(1, n_frames // 2)
        unit = lcm(model.config.segment, pool) // pool  # output frames, and whole segments
        unit = unit if unit <= n_frames else 1
        self._unit = unit * self._step
        self._hop = max(unit, half // unit * unit) * self._step
        self._strip = max(1, STRIP // pool) * pool

    def predict(self, recordings: Iterable[Iterable[Tensor]]) -> Iterator[Scores]:
        """Yield frame-level and clip-level scores of each recording, (frames, classes) both.

        Args:
            recordings: of each, the pieces of its normalised features, in order.
        """
        for _, windows in groupby(self._score(recordings), key=itemgetter(0)):
            pieces, clip_pieces = zip(*self._merge(windows), strict=True)
            yield np.concatenate(pieces), np.concatenate(clip_pieces)

    def predict_short(self, clips: Sequence[Tensor]) -> list[Scores]:
        """Return both scores of clips that fit into one window, those of similar length together.

        A clip that is padded to the length of another has the scores that it has alone, to
        rounding.

        Args:
            clips: (frames, features) each, normalised.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> model = Model(ModelConfig.preset("fast", n_classes=2)).eval()
        >>> clips = [torch.zeros(60, 80), torch.zeros(41, 80)]
        >>> [scores.shape for scores, _ in Predictor(model, 500).predict_short(clips)]
        [(15, 2), (11, 2)]
        """
        order = sorted(range(len(clips)), key=lambda at: len(clips[at]))
        groups = [order]
        if not self._takes_masks:  # nothing can be padded
            alike = groupby(order, key=lambda at: len(clips[at]))
            groups = [list(own) for _, own in alike]
        batches = [own[first : first + N_WINDOWS] for own in groups
                   for first in range(0, len(own), N_WINDOWS)]  # fmt: skip
        found: dict[int, Scores] = {}
        with keep_memory():
            inputs = ([clips[at] for at in batch] for batch in batches)
            results = map_in_threads(self._predict_padded, inputs, self.threads)
            for batch, scores in zip(batches, results, strict=True):
                found |= zip(batch, scores, strict=True)
        return [found[at] for at in range(len(clips))]

    def _predict_padded(self, clips: Sequence[Tensor]) -> list[Scores]:
        lengths = torch.tensor([len(clip) for clip in clips])
        longest = int(lengths.max())
        mask = None  # without padding none is needed
        if int(lengths.min()) < longest:
            mask = torch.arange(longest) < lengths[:, None]
            mask = mask.to(self.device)
        with torch.inference_mode():
            batch = pad_sequence(list(clips), batch_first=True)
            prediction = self._fused(batch.to(self.device, self._dtype), mask)
            frame_scores = prediction.frame_probs.float().cpu().numpy()
            clip_scores = prediction.clip_probs.float().cpu().numpy()
        found = []
        for clip, frames, of_clip in zip(clips, frame_scores, clip_scores, strict=True):
            own = frames[: self.config.n_frames(len(clip))].copy()
            found.append((own, np.broadcast_to(of_clip, own.shape).copy()))
        return found

    def stream(self, log_mels: Iterable[Tensor], step: int | None = None) -> Iterator[Scores]:
        """Yield pieces of both scores of one recording, as soon as they are final.

        Args:
            log_mels: pieces (frames, mels) of any length, normalised, in order.
            step: of a live recording, how many input frames to process at a time: nothing is read
                ahead, and scores come `delay(step)` input frames behind the audio at most. By
                default the pieces are read ahead and processed as fast as possible.
        """
        scored = self._score([log_mels]) if step is None else self._score_live(log_mels, step)
        yield from self._merge(scored)

    def delay(self, step: int) -> int:
        """Return how many input frames must follow a frame of a live recording, at most.

        >>> from earmark.nn.model import Model, ModelConfig
        >>> Predictor(Model(ModelConfig.preset("fast", n_classes=2)).eval(), 500).delay(50)
        580
        """
        window = self._window * self._fused.pool
        return window + self._live_strip(step) + self._fused.margin

    def _live_strip(self, step: int) -> int:
        pool = self.config.time_pool
        return max(1, step // pool) * pool

    def _score_live(self, log_mels: Iterable[Tensor], step: int) -> Iterator[_Scored]:
        strips = self._strips([log_mels], self._live_strip(step))
        parts = map_in_threads(self._encode, strips, self.threads, ahead=False)
        windows = self._windows(parts, 1, is_live=True)
        for some in map_in_threads(self._classify, windows, self.threads, ahead=False):
            yield from some

    def _score(self, recordings: Iterable[Iterable[Tensor]]) -> Iterator[_Scored]:
        with keep_memory():
            parts = map_in_threads(
                self._encode, self._strips(recordings, self._strip), self.threads
            )
            batches = _batched(self._windows(parts, N_WINDOWS))
            scored = map_in_threads(self._classify, batches, self.threads, iterate_here=True)
            yield from (window for some in scored for window in some)

    def _strips(self, recordings: Iterable[Iterable[Tensor]], own: int) -> Iterator[_Strip]:
        """Yield each recording in strips of `own` frames that lie side by side, with margins."""
        margin = self._fused.margin
        for number, log_mels in enumerate(recordings):
            kept, before = torch.zeros(0, self.config.n_features), 0
            for piece in log_mels:
                kept = torch.cat([kept, piece])
                while len(kept) > before + own + margin:  # the rest is never empty
                    yield _Strip(number, kept[: before + own + margin], before, own)
                    kept, before = kept[max(0, before + own - margin) :], min(margin, before + own)
            yield _Strip(number, kept, before, len(kept) - before)

    def _encode(self, strip: _Strip) -> tuple[int, Tensor]:
        """Return the features of a strip, (frames, features), and the number of its recording."""
        number, log_mel, before, length = strip
        with torch.inference_mode():
            return number, self._fused.encode(log_mel.to(self.device, self._dtype), before, length)

    def _windows(
        self, parts: Iterable[tuple[int, Tensor]], n_windows: int, is_live: bool = False
    ) -> Iterator[_Windows]:
        """Yield windows of each recording, a hop apart; the last is flush with its end.

        Args:
            parts: encoded frames, and the number of their recording.
            n_windows: that are yielded together.
            is_live: also yield an empty window behind the frames that no later one can contain.
        """
        window, hop = self._window, self._hop
        length, step = window + (n_windows - 1) * hop, n_windows * hop
        for number, own in groupby(parts, key=itemgetter(0)):
            # Frames from `start` on are kept. The next window begins at `first`; the frames before
            # it, of the last window, are for one that is flush with the end.
            kept, start, first = torch.zeros(0), 0, 0
            for _, part in own:
                kept = torch.cat([kept, part]) if len(kept) else part
                while start + len(kept) >= first + length:
                    yield self._cut(kept[first - start :][:length], number, first)
                    first += step
                    kept, start = kept[first - hop - start :], first - hop
                if is_live and start + len(kept) >= window:
                    yield self._one(kept[:0], number, start + len(kept) - window)
            n_frames = start + len(kept)
            if n_frames <= window:
                if not first:
                    yield self._one(kept, number, 0)
                continue
            last = n_frames - window
            if last >= first:
                whole = window + (last - first) // hop * hop
                yield self._cut(kept[first - start :][:whole], number, first)
            if last % hop:
                last += -last % self._unit  # where an output frame or a segment begins
                yield self._one(kept[last - start :], number, last)

    def _cut(self, frames: Tensor, number: int, start: int) -> _Windows:
        """(frames, features) -> windows (windows, frames, features), a hop apart."""
        windows = frames.unfold(0, self._window, self._hop).transpose(1, 2)
        starts = range(start, start + len(windows) * self._hop, self._hop)
        return _Windows([(number, first // self._step) for first in starts], windows)

    def _one(self, frames: Tensor, number: int, start: int) -> _Windows:
        return _Windows([(number, start // self._step)], frames.unsqueeze(0))

    def _classify(self, windows: _Windows) -> list[_Scored]:
        if not windows.features.shape[1]:
            none = np.zeros((0, self.config.n_classes), np.float32)
            return [_Scored(*start, none, none) for start in windows.starts]
        with torch.inference_mode():
            prediction = self._fused.classify(windows.features)
            frame_scores = prediction.frame_probs.float().cpu().numpy()
            clip_scores = prediction.clip_probs.float().cpu().numpy()
        rows = zip(windows.starts, frame_scores, clip_scores, strict=True)
        return [_Scored(*start, frames, clip) for start, frames, clip in rows]

    def _merge(self, windows: Iterable[_Scored]) -> Iterator[Scores]:
        """Yield pieces of the frame-level and clip-level scores of one recording."""
        n_classes = self.config.n_classes
        total, weight = np.zeros((0, n_classes)), np.zeros((0, 1))
        clip = np.zeros((0, n_classes))
        base = 0
        for _, start, frame_scores, clip_scores in windows:
            done = start - base  # no later window reaches back beyond this one's begin
            if done:
                yield _ratio(total[:done], weight[:done]), clip[:done].astype(np.float32)
                total, weight, clip, base = total[done:], weight[done:], clip[done:], start
            if not len(frame_scores):
                continue
            more = ((0, len(frame_scores) - len(total)), (0, 0))
            total, weight, clip = (np.pad(each, more) for each in (total, weight, clip))
            index = np.arange(len(frame_scores))
            triangle = np.minimum(index + 1, len(index) - index)[:, None]
            total += triangle * frame_scores.astype(np.float64)
            weight += triangle
            clip = np.maximum(clip, clip_scores)
        yield _ratio(total, weight), clip.astype(np.float32)


def _batched(windows: Iterable[_Windows]) -> Iterator[_Windows]:
    """Put single windows of several recordings together, up to `N_WINDOWS` of one length."""
    held: list[_Windows] = []
    for each in windows:
        number = each.starts[0][0]
        fits = len(each.starts) == 1 and len(held) < N_WINDOWS
        fits = fits and all(
            other.features.shape == each.features.shape and other.starts[0][0] != number
            for other in held
        )
        if held and not fits:
            yield _joined(held)
            held = []
        if len(each.starts) == 1:
            held.append(each)
        else:
            yield each
    if held:
        yield _joined(held)


def _joined(windows: Sequence[_Windows]) -> _Windows:
    starts = [start for each in windows for start in each.starts]
    return _Windows(starts, torch.cat([each.features for each in windows]))


def _ratio(total: NDArray[np.float64], weight: NDArray[np.float64]) -> Floats32:
    # In double precision a frame that one window covers comes back to the last bit.
    return (total / weight).astype(np.float32)


def read_log_mels(
    store: FeatureStore, files: Iterable[str], feature_config: FeatureConfig
) -> Iterator[list[Tensor]]:
    """Yield the normalised log-mel of each clip in a store, as `Predictor.predict` takes it.

    Args:
        store: of the raw log-mels.
        files: names of the clips.
        feature_config: with the normalisation.
    """
    normalise = Normalise(feature_config.mean, feature_config.std)
    for file in files:
        yield [normalise(torch.from_numpy(store[file].astype(np.float32)))]


def predict_clips(
    predictor: Predictor, store: FeatureStore, clips: Manifest, feature_config: FeatureConfig
) -> list[FrameScores]:
    """Return the scores of clips whose raw log-mels are in a feature store.

    Args:
        predictor: of the network.
        store: of the features.
        clips: which clips; their labels are those of the network.
        feature_config: of the network, with its normalisation.
    """
    recordings = read_log_mels(store, clips.files, feature_config)
    grid = predictor.config.output_grid(feature_config.grid)
    return [
        FrameScores(frame_scores, clips.labels, grid, clip_scores=clip_scores)
        for frame_scores, clip_scores in predictor.predict(recordings)
    ]
