"""A live recording, in chunks as they come -> events as soon as they are final.

`EventStream` finds the events that `Detector.detect` finds in a file of the same samples. The
network takes the same windows; scores are equal to rounding (1e-5), since fewer frames are computed
at a time, and so are the scores of events. The sizes of the chunks change nothing.

Conventions: a chunk is (samples,) or (samples, channels), floating-point numbers with full scale
-1 to 1. Times are seconds from the first sample. Events come in the order in which they become
final, those of one call sorted by time. A stream is used by one thread at a time.
"""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.audio.waveform import (
    MOST_CHANNELS,
    Waveform,
    check_sample_rate,
    mix_channels,
    resample,
    resampling_delay,
)
from earmark.data.encoded import feature_delay
from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.inference.ensemble import Ensemble
from earmark.inference.online import EventDecoder
from earmark.inference.pieces import ScorePieces
from earmark.runtime.push import Pushed
from earmark.runtime.threads import share_items

STEP = 1.0  # seconds of audio that are processed at a time


class EventStream:
    """The events of a live recording; made by `Detector.stream`.

    Args:
        ensemble: the networks.
        sample_rate: of the chunks, in Hz.
        decoder: of their scores, for this recording alone.
        min_score: events with a lower score are left out.
        step: seconds of audio to process at a time; less makes the latency shorter and the work
            more.

    >>> from earmark.inference.detector import Detector
    >>> with Detector.load().stream(16000) as stream:
    ...     events = stream.push(np.zeros(8000)) + stream.push(np.zeros(123)) + stream.finish()
    >>> events, 10 < stream.latency < 15
    ([], True)
    """

    def __init__(
        self,
        ensemble: Ensemble,
        sample_rate: int,
        decoder: EventDecoder,
        min_score: float = 0.0,
        step: float = STEP,
    ) -> None:
        check_sample_rate(sample_rate)
        if not (isinstance(step, int | float) and 0 < step < np.inf):
            raise SettingError(f"step must be a number of seconds above 0. Got {step!r}.")
        self.sample_rate, self.min_score, self.step = int(sample_rate), min_score, float(step)
        self._ensemble, self._decoder = ensemble, decoder
        self._n_channels: int | None = None
        self._n_samples = 0
        self._is_finished = False
        self._pushed: Pushed[Waveform, Event] | None = None

    def __repr__(self) -> str:
        state = "finished" if self._is_finished else "open"
        return f"EventStream({self.sample_rate} Hz, latency {self.latency:.1f} s, {state})"

    @property
    def latency(self) -> float:
        """Seconds of audio that must follow an event before `push` returns it, at most.

        It is the sum of what each part waits for: the resampler, the features, `step`, the
        network's receptive field, its window (the end of the recording could still move the last
        window), and the median and the gap of the decoding. It holds once the scores of the class
        are low again; the time that it takes to compute is not in it.
        """
        delays = []
        members, predictors = self._ensemble.members, self._ensemble.predictors
        for member, predictor in zip(members, predictors, strict=True):
            config = member.feature_config
            frames = predictor.delay(config.grid.index(self.step))
            delays.append(
                resampling_delay(self.sample_rate, config.sample_rate)
                + feature_delay(config)
                + config.grid.onset(frames)
                + member.grid.hop  # of frames on another grid
            )
        return max(delays) + self._decoder.delay

    @property
    def duration(self) -> float:
        """Seconds of audio that were pushed so far."""
        return self._n_samples / self.sample_rate

    def push(self, chunk: ArrayLike) -> list[Event]:
        """Return the events that are final after this chunk, sorted by time.

        Args:
            chunk: of any length, also 0: (samples,) or (samples, channels).
        """
        if self._is_finished:
            raise SettingError("This stream is finished; make another with Detector.stream.")
        samples = self._to_mono(np.asarray(chunk))
        if not len(samples):
            return []
        self._n_samples += len(samples)
        if self._pushed is None:
            # The function does not hold this object, which may be deleted.
            own = (self._ensemble, self.sample_rate, self._decoder, self.min_score, self.step)
            self._pushed = Pushed(partial(_events, *own))
        return sorted(self._pushed.push(samples))

    def finish(self) -> list[Event]:
        """Return the remaining events; the recording ends here."""
        if self._is_finished:
            return []
        events = [] if self._pushed is None else self._pushed.finish()
        self.close()
        return sorted(events)

    def run(self, chunks: Iterable[ArrayLike]) -> Iterator[Event]:
        """Yield the events of all chunks, each as soon as it is final, and finish.

        >>> from earmark.inference.detector import Detector
        >>> list(Detector.load().stream(16000).run(np.zeros((5, 1600))))
        []
        """
        with self:
            for chunk in chunks:
                yield from self.push(chunk)
            yield from self.finish()

    def close(self) -> None:
        """End the stream without its remaining events; `finish` does it too."""
        self._is_finished = True
        if self._pushed is not None:
            self._pushed.close()

    def __enter__(self) -> "EventStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _to_mono(self, chunk: NDArray[Any]) -> Waveform:
        if chunk.ndim not in (1, 2) or (
            chunk.ndim == 2 and not 0 < chunk.shape[1] <= MOST_CHANNELS
        ):
            raise SettingError(
                f"A chunk is (samples,) or (samples, channels), with {MOST_CHANNELS} channels at "
                f"most. Got the shape {chunk.shape}."
            )
        n_channels = 1 if chunk.ndim == 1 else chunk.shape[1]
        if self._n_channels not in (None, n_channels):
            raise SettingError(
                f"All chunks of a stream need the same number of channels, {self._n_channels} so "
                f"far. Got the shape {chunk.shape}."
            )
        if chunk.dtype.kind != "f" or not np.isfinite(chunk).all():
            raise SettingError(
                "A chunk holds finite floating-point numbers between -1 and 1; divide 16-bit "
                f"integers by 32768. Got {chunk.dtype}"
                f"{' with NaN or infinity' if chunk.dtype.kind == 'f' else ''}."
            )
        self._n_channels = n_channels
        block = chunk.astype(np.float32)  # a copy: the caller may reuse the array
        return block if chunk.ndim == 1 else mix_channels(block)


def _events(
    ensemble: Ensemble,
    sample_rate: int,
    decoder: EventDecoder,
    min_score: float,
    step: float,
    chunks: Iterator[Waveform],
) -> Iterator[Event]:
    """Yield the events of chunks of a waveform; it does not hold the stream that calls it."""
    rates = ensemble.sample_rates
    blocks = {
        rate: resample(own, sample_rate, rate, "The stream")
        for rate, own in zip(rates, share_items(chunks, len(rates)), strict=True)
    }
    pieces = ScorePieces(ensemble, blocks, step)
    yield from pieces.events(decoder, min_score, n_frames=1)
