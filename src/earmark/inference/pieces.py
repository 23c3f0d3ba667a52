"""Blocks of a waveform -> pieces of frame-level and clip-level scores, in constant memory.

The one way from samples to the scores of an ensemble, for whole recordings, for events as they
become final, and for live recordings.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from torch import Tensor

from earmark.audio.waveform import Waveform
from earmark.data.encoded import shared_feature_blocks
from earmark.data.features import FeatureConfig
from earmark.formats.events import Event
from earmark.inference.ensemble import Ensemble
from earmark.inference.online import EventDecoder
from earmark.inference.predictor import Scores

GATHERED = 1000  # frames that are decoded at a time: fewer take more time per frame


class ScorePieces:
    """Pieces of both scores of one recording, (frames, classes) each, as soon as they are final.

    Iterated over once; `duration` is known afterwards.

    Args:
        ensemble: the networks.
        blocks: sample rate -> blocks of the waveform at that rate; one for each of
            `ensemble.sample_rates`.
        step: of a live recording, how many seconds to process at a time; else None.

    >>> import numpy as np
    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> ensemble = Ensemble(load_bundle(BUNDLED).members)
    >>> pieces = ScorePieces(ensemble, {32000: [np.zeros(16000, np.float32)]})
    >>> [frame_scores.shape for frame_scores, clip_scores in pieces], pieces.duration
    ([(7, 17)], 0.5)
    """

    def __init__(
        self,
        ensemble: Ensemble,
        blocks: Mapping[int, Iterable[Waveform]],
        step: float | None = None,
    ) -> None:
        self._ensemble, self._step = ensemble, step
        self._counters = {rate: _Counter(own) for rate, own in blocks.items()}

    def __iter__(self) -> Iterator[Scores]:
        configs, is_live = self._ensemble.feature_configs, self._step is not None
        features: dict[FeatureConfig, Iterator[Tensor]] = {}
        for rate, counter in self._counters.items():
            own = [config for config in configs if config.sample_rate == rate]
            features |= zip(own, shared_feature_blocks(counter, own, is_live), strict=True)
        return self._ensemble.stream_shared([features[config] for config in configs], self._step)

    def events(
        self, decoder: EventDecoder, min_score: float = 0.0, n_frames: int = GATHERED
    ) -> Iterator[Event]:
        """Yield the events of the recording as soon as they are final; see `EventDecoder`.

        Args:
            decoder: for this recording alone.
            min_score: events with a lower score are left out.
            n_frames: to decode at a time, at least; more take less time.

        >>> import numpy as np
        >>> from earmark.inference.model_file import BUNDLED, load_bundle
        >>> bundle = load_bundle(BUNDLED)
        >>> ensemble = Ensemble(bundle.members)
        >>> pieces = ScorePieces(ensemble, {32000: [np.zeros(16000, np.float32)]})
        >>> list(pieces.events(EventDecoder(bundle.decoding, ensemble.grid)))
        []
        """
        for frame_scores, clip_scores in _gathered(self, n_frames):
            yield from _scored(decoder.push(frame_scores, clip_scores), min_score)
        yield from _scored(decoder.finish(self.duration), min_score)

    @property
    def duration(self) -> float:
        """Seconds of the recording, up to what was read so far."""
        rate = self._ensemble.sample_rate
        return self._counters[rate].n_samples / rate


def _gathered(pieces: Iterable[Scores], n_frames: int) -> Iterator[Scores]:
    """Yield pieces of `n_frames` or more, except for the last."""
    held: list[Scores] = []
    n_held = 0
    for piece in pieces:
        held.append(piece)
        n_held += len(piece[0])
        if n_held >= n_frames:
            yield _joined(held)
            held, n_held = [], 0
    if held:
        yield _joined(held)


def _joined(pieces: Sequence[Scores]) -> Scores:
    frame_scores, clip_scores = zip(*pieces, strict=True)
    return np.concatenate(frame_scores), np.concatenate(clip_scores)


def _scored(events: Iterable[Event], min_score: float) -> list[Event]:
    return [event for event in events if event.score is None or event.score >= min_score]


class _Counter:
    """Blocks of samples, and how many samples they had in all."""

    def __init__(self, blocks: Iterable[Waveform]) -> None:
        self._blocks = blocks
        self.n_samples = 0

    def __iter__(self) -> Iterator[Waveform]:
        for block in self._blocks:
            self.n_samples += len(block)
            yield block
