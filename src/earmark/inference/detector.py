"""Audio of any length -> events.

Conventions: a source is a path, an open binary file, or a waveform (NumPy array or torch tensor)
with its sample rate. Waveforms are (samples,), or 2-dimensional with the shorter axis as channels,
which are averaged; full scale is -1 to 1. Any sample rate is resampled to that of the network. How
recordings longer than the network's window are processed is described in
`earmark.inference.predictor`, and how several networks detect as one in
`earmark.inference.ensemble`. A detector may be used from several threads at once.
"""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from earmark.audio.decode import Source, audio_duration, find_audio
from earmark.audio.waveform import Waveform
from earmark.data.encoded import open_encoder
from earmark.data.spectrogram import drawn_features, spectrogram
from earmark.errors import AudioError, DataError, EarmarkError, SettingError, choose, listed
from earmark.formats.events import Event
from earmark.formats.names import stems_of
from earmark.formats.scores import ScoreTable, write_scores
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.ensemble import Ensemble
from earmark.inference.folder import is_large, score_short
from earmark.inference.live import STEP, EventStream
from earmark.inference.model_file import BUNDLED, Bundle, save_bundle
from earmark.inference.online import EventDecoder
from earmark.inference.onnx_export import export_onnx
from earmark.inference.onnx_file import open_bundle
from earmark.inference.pieces import ScorePieces
from earmark.inference.predictor import Scores
from earmark.inference.sources import open_blocks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

# Name -> how far thresholds are lowered, in log-odds; see `Decoding.shifted`. With the bundled
# model "low" makes half as many false events, and "high" half as many more (docs/events.md).
SENSITIVITIES = {"low": -1.0, "normal": 0.0, "high": 1.0}


class FileEvents(dict[str, list[Event]]):
    """Name of a recording -> its events; `failed` has the error of each that could not be read.

    >>> failed = {"b.wav": AudioError("b.wav has no samples.")}
    >>> events = FileEvents({"a.wav": [Event(0, 1, "dog")]}, failed)
    >>> list(events), list(events.failed)
    (['a.wav'], ['b.wav'])
    """

    failed: Mapping[str, EarmarkError]

    def __init__(
        self, events: Mapping[str, list[Event]], failed: Mapping[str, EarmarkError]
    ) -> None:
        super().__init__(events)
        self.failed = dict(failed)


class FileResult(NamedTuple):
    """What was found in one of many recordings, or the error why it cannot be used.

    Args:
        name: of the recording.
        events: in order of time; none if there is an error.
        duration: of the recording in seconds; 0 if there is an error.
        scores: frame-level scores, if they were asked for.
        error: why the recording cannot be used.

    >>> FileResult("a.wav", [Event(0, 1, "dog")], 10.0).error is None
    True
    """

    name: str
    events: list[Event]
    duration: float = 0.0
    scores: FrameScores | None = None
    error: EarmarkError | None = None


class Detector:
    """A trained network, or an ensemble of them, that finds which sound starts and ends when.

    Made by `earmark.load(path)` or `earmark.train(...)`.

    Args:
        bundle: the trained networks with their features and the decoding.
        device: where the network runs: "auto", "cpu", "cuda" or "cuda:1".
        threads: how many parts of a recording to process at a time; 0 is one per core.

    >>> from earmark.synth.scenes import SceneConfig, make_scene
    >>> config = SceneConfig(classes=("siren",), snr_db=(20, 20), n_events=(1, 1))
    >>> scene = make_scene(config, seed=1)
    >>> detector = Detector.load()
    >>> detector
    Detector(17 classes: car_horn, cat, chainsaw and 14 more; 32000 Hz, 12.5 frames per second, ...)
    >>> events = detector.detect(scene.waveform, scene.sample_rate)
    >>> "siren" in {event.label for event in events}
    True
    """

    def __init__(
        self, bundle: Bundle, device: str | torch.device = "cpu", threads: int = 0
    ) -> None:
        self.bundle = bundle
        for config in bundle.feature_configs:
            if config.encoder is not None:
                open_encoder(config)  # raises now, not at the first recording
        self.ensemble = Ensemble(bundle.members, device, threads)
        self.grid = self.ensemble.grid
        logger.debug("%d networks on %s", len(bundle.members), self.ensemble.device)

    def __repr__(self) -> str:
        labels, n_members = self.labels, len(self.bundle.members)
        networks = f", {n_members} networks" if n_members > 1 else ""
        return (
            f"Detector({len(labels)} classes: {listed(labels)}; {self.sample_rate} Hz, "
            f"{float(self.grid.frame_rate):g} frames per second{networks}, on "
            f"{self.ensemble.device})"
        )

    @classmethod
    def load(
        cls,
        path: PathLike = BUNDLED,
        device: str = "cpu",
        threads: int = 0,
        encoder: PathLike | None = None,
    ) -> "Detector":
        """Return the detector in a model file or an exported ONNX file, or the bundled one.

        Args:
            path: of the file; without it the bundled pretrained model, "everyday".
            device: where the network runs: "auto", "cpu", "cuda" or "cuda:1".
            threads: how many to use; 0 is one per core.
            encoder: where the encoder of the model is now, if it is not where it was in training.

        >>> Detector.load().labels[:2]
        ('car_horn', 'cat')
        """
        bundle = open_bundle(path)
        return cls(bundle if encoder is None else bundle.with_encoder(encoder), device, threads)

    def save(self, path: PathLike) -> Path:
        """Write the detector to one file; return its path.

        >>> import tempfile
        >>> path = Detector.load().save(Path(tempfile.mkdtemp()) / "detector.earmark")
        >>> Detector.load(path).labels[:2]
        ('car_horn', 'cat')
        """
        return save_bundle(self.bundle, path)

    def export(self, path: PathLike) -> Path:
        """Write the detector as an ONNX file, with its features and decoding; return its path.

        `earmark.inference.onnx_export` describes the file. It needs the extra `earmark[onnx]`.

        >>> Detector.load().export("model.earmark")
        Traceback (most recent call last):
            ...
        earmark.errors.SettingError: An ONNX file ends in .onnx. Got 'model.earmark'.
        """
        return export_onnx(self.bundle, path)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes it detects."""
        return self.bundle.labels

    @property
    def sample_rate(self) -> int:
        """That of the network, in Hz; other sample rates are resampled to it.

        Of an ensemble, the first with the finest frame grid has it.
        """
        return self.ensemble.sample_rate

    def detect(
        self,
        source: Source | Waveform | Tensor,
        sample_rate: int | None = None,
        decoding: Decoding | None = None,
        *,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
    ) -> list[Event]:
        """Return the events in a recording, in order of time.

        Args:
            source: a path, an open binary file, or a waveform; see the module.
            sample_rate: of a waveform, in Hz; a file knows its own.
            decoding: other thresholds and post-processing than the detector's own.
            sensitivity: a key of `SENSITIVITIES`, or how far to lower all thresholds in log-odds;
                a higher one misses fewer events and makes more false ones.
            min_score: events with a lower score are left out.

        >>> Detector.load().detect(np.zeros(16000), sample_rate=16000, sensitivity="high")
        []
        """
        settings: dict[str, Any] = {"sensitivity": sensitivity, "min_score": min_score}
        return sorted(self.events(source, sample_rate, decoding, **settings))

    def events(
        self,
        source: Source | Waveform | Tensor,
        sample_rate: int | None = None,
        decoding: Decoding | None = None,
        *,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
    ) -> Iterator[Event]:
        """Yield the events in a recording as soon as they are final; arguments as in `detect`.

        Memory does not grow with the length of the recording. A short event may come before a long
        one that starts earlier.

        >>> list(Detector.load().events(np.zeros(16000), sample_rate=16000))
        []
        """
        decoder = self._decoder(decoding, sensitivity, min_score)
        pieces = ScorePieces(self.ensemble, self._blocks(source, sample_rate))
        return pieces.events(decoder, min_score)

    def stream(
        self,
        sample_rate: int,
        decoding: Decoding | None = None,
        *,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
        step: float = STEP,
    ) -> EventStream:
        """Return a stream, to which a live recording is pushed in chunks, and which returns events.

        They are those that `detect` finds in a file of the same samples, `EventStream.latency`
        seconds behind the sound at most.

        Args:
            sample_rate: of the chunks, in Hz.
            decoding: as in `detect`.
            sensitivity: as in `detect`.
            min_score: as in `detect`.
            step: seconds of audio to process at a time; less makes the latency shorter and the work
                more.

        >>> with Detector.load().stream(sample_rate=16000) as stream:
        ...     events = stream.push(np.zeros(1600)) + stream.finish()
        >>> events
        []
        """
        decoder = self._decoder(decoding, sensitivity, min_score)
        return EventStream(self.ensemble, sample_rate, decoder, min_score, step)

    def detect_files(
        self,
        recordings: PathLike | Iterable[PathLike],
        scores: PathLike | None = None,
        *,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
    ) -> FileEvents:
        """Return the events in each of many recordings.

        A recording that cannot be read is logged and left out; see `FileEvents.failed`.

        Args:
            recordings: files, or folders, whose recordings have names relative to them.
            scores: folder to write the frame-level scores to, one table per recording.
            sensitivity: as in `detect`.
            min_score: as in `detect`.

        >>> import tempfile
        >>> from earmark.audio.encode import write_audio
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = write_audio(folder / "silence.wav", np.zeros(16000), 16000)
        >>> Detector.load().detect_files(folder)
        {'silence.wav': []}
        """
        files = name_recordings(recordings)
        if scores is not None:
            stems_of(files)  # two that would write one table are refused before any work
        settings: dict[str, Any] = {"sensitivity": sensitivity, "min_score": min_score}
        results = self.detect_each(files, keep_scores=scores is not None, **settings)
        return collect_results(results, scores)

    def detect_each(
        self,
        recordings: Mapping[str, Path],
        *,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
        keep_scores: bool = False,
        done: Collection[str] = (),
    ) -> Iterator[FileResult]:
        """Yield the result of each of many recordings, in order, as it becomes known.

        Recordings that fit into the network's window are processed together, which takes less time;
        their scores are those of each alone, to rounding (1e-6).

        Args:
            recordings: name -> path.
            sensitivity: as in `detect`.
            min_score: as in `detect`.
            keep_scores: whether results have the frame-level scores.
            done: names of recordings to leave out; the results of the others are, to the bit, those
                that they have without it.

        >>> (result,) = Detector.load().detect_each({"none.wav": Path("none.wav")})
        >>> result.error
        AudioError('none.wav does not exist; check the path.')
        """
        decoding = self._decoding(None, sensitivity, min_score)
        return self._each(recordings, decoding, min_score, keep_scores, done)

    def _each(
        self,
        recordings: Mapping[str, Path],
        decoding: Decoding,
        min_score: float,
        keep_scores: bool,
        done: Collection[str],
    ) -> Iterator[FileResult]:
        def read(name: str) -> Mapping[int, Iterable[Waveform]]:
            return self._blocks(recordings[name], None)

        def is_alone(name: str) -> bool:
            return is_large(Path(recordings[name]))

        for name, outcome in score_short(self.ensemble, list(recordings), read, done, is_alone):
            if isinstance(outcome, EarmarkError):
                yield FileResult(name, [], 0.0, None, outcome)
                continue
            try:
                if outcome is not None:
                    duration = outcome.duration
                    frames, clips = outcome.scores
                    scores = FrameScores(
                        frames, self.labels, self.grid, duration=duration, clip_scores=clips
                    )
                    events = self.decode(scores, decoding, min_score=min_score)
                elif keep_scores:
                    scores = self.frame_scores(recordings[name])
                    duration = scores.duration
                    events = self.decode(scores, decoding, min_score=min_score)
                else:
                    pieces = ScorePieces(self.ensemble, read(name))
                    decoder = self._decoder(decoding, 0.0, min_score)
                    events = sorted(pieces.events(decoder, min_score))
                    duration = pieces.duration
            except (AudioError, DataError) as error:
                yield FileResult(name, [], 0.0, None, error)
                continue
            yield FileResult(name, events, duration, scores if keep_scores else None)

    def decode(
        self,
        scores: FrameScores,
        decoding: Decoding | None = None,
        *,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
    ) -> list[Event]:
        """Return the events in scores that `frame_scores` gave; arguments as in `detect`.

        Their scores are calibrated if the model file has a calibration.

        >>> detector = Detector.load()
        >>> detector.decode(detector.frame_scores(np.zeros(16000), 16000))
        []
        """
        events = decode_events(scores, self._decoding(decoding, sensitivity, min_score))
        if self.bundle.calibration is not None:
            events = self.bundle.calibration.apply(events, scores)
        return [event for event in events if event.score is None or event.score >= min_score]

    def frame_scores(
        self, source: Source | Waveform | Tensor, sample_rate: int | None = None
    ) -> FrameScores:
        """Return the scores of every class in every frame, with the time axis.

        >>> scores = Detector.load().frame_scores(np.zeros(16000), 16000)
        >>> scores.scores.shape, scores.duration
        ((13, 17), 1.0)
        """
        found = ScorePieces(self.ensemble, self._blocks(source, sample_rate))
        pieces, clip_pieces = [], []
        for piece, clip_piece in found:
            pieces.append(piece)
            clip_pieces.append(clip_piece)
        scores = np.concatenate(pieces)
        pieces.clear()  # those of a day are as large as all the rest
        clip_scores = np.concatenate(clip_pieces)
        return FrameScores(
            scores, self.labels, self.grid, duration=found.duration, clip_scores=clip_scores
        )

    def plot(
        self,
        source: Source | Waveform | Tensor,
        sample_rate: int | None = None,
        *,
        reference: Sequence[Event] = (),
        classes: Sequence[str] | None = None,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
        span: tuple[float, float] | None = None,
        title: str | None = None,
    ) -> "Figure":
        """Return a figure of a recording: spectrogram in Hz, frame-level scores and events.

        `earmark.plots.save` writes it. It needs the extra `earmark[plot]`.

        Args:
            source: as in `detect`.
            sample_rate: as in `detect`.
            reference: the events that are there, if they are known.
            classes: to draw; by default those with events, or the three with the highest scores.
            sensitivity: as in `detect`.
            min_score: as in `detect`.
            span: the part to draw, in seconds; detection takes the whole recording.
            title: of the figure; by default the name of the file.

        >>> figure = Detector.load().plot(np.zeros(16000), 16000, classes=["dog", "siren"])
        >>> [axes.get_ylabel() for axes in figure.axes]
        ['Hz', 'dog', 'siren']
        """
        from earmark.plots.recording import drawn_classes, plot_detection

        if classes is not None and not classes:
            raise SettingError("classes must name one class or more. Got none.")
        shown = [choose("class", label, self.labels) for label in classes or ()]
        scores = self.frame_scores(source, sample_rate)
        decoding = self._decoding(None, sensitivity, min_score)
        events = self.decode(scores, decoding, min_score=min_score)
        if span is not None:
            span = (max(0.0, span[0]), min(scores.duration, span[1]))
            if not span[0] < span[1]:
                raise SettingError(
                    f"span must be a part of the recording, from 0 to {scores.duration:g} s. "
                    f"Got {span[0]:g} to {span[1]:g}."
                )
        shown = shown or drawn_classes(scores, [*events, *reference], span=span)
        features = drawn_features(self.bundle.feature_configs[0])
        blocks = open_blocks(source, sample_rate, [features.sample_rate])[features.sample_rate]
        if title is None:
            title = Path(source).name if isinstance(source, str | os.PathLike) else ""
        return plot_detection(
            scores.select(shown),
            reference,
            events,
            spectrogram=spectrogram(blocks, features, *(span or ())),
            thresholds=decoding.select(shown).thresholds(),
            title=title,
            span=span,
        )

    def stream_scores(self, *features: Iterable[Tensor]) -> Iterator[Scores]:
        """Yield pieces of frame-level and clip-level scores, as soon as they are final.

        Shape: pieces (frames, features) of any length, normalised, in order -> (frames, classes)
        both.

        Args:
            features: one iterable of pieces for each of `bundle.feature_configs`, of which most
                models have one.

        >>> from earmark.data.encoded import feature_blocks
        >>> detector = Detector.load()
        >>> blocks = [np.zeros(16000, np.float32), np.zeros(16000, np.float32)]  # 1 s at 32 kHz
        >>> features = feature_blocks(blocks, detector.bundle.feature_config)
        >>> sum(len(frame_scores) for frame_scores, clip_scores in detector.stream_scores(features))
        13
        """
        configs = self.bundle.feature_configs
        if len(features) != len(configs):
            raise SettingError(
                f"The model needs {len(configs)} streams of features, one for each of "
                f"bundle.feature_configs. Got {len(features)}."
            )
        return self.ensemble.stream_shared(features)

    def tags(
        self, source: Source | Waveform | Tensor, sample_rate: int | None = None
    ) -> dict[str, float]:
        """Return the probability that each class is anywhere in the recording.

        >>> tags = Detector.load().tags(np.zeros(16000), 16000)
        >>> tags["siren"] < 0.5
        True
        """
        pieces = ScorePieces(self.ensemble, self._blocks(source, sample_rate))
        best = reduce(np.maximum, (clip_scores.max(axis=0) for _, clip_scores in pieces))
        return {label: float(p) for label, p in zip(self.labels, best, strict=True)}

    def _decoding(
        self, decoding: Decoding | None, sensitivity: str | float, min_score: float
    ) -> Decoding:
        if not (isinstance(min_score, Real) and 0 <= min_score <= 1):
            raise SettingError(f"min_score must be a number from 0 to 1. Got {min_score!r}.")
        if not isinstance(decoding, Decoding | None):
            raise SettingError(
                "decoding must be a Decoding, such as Decoding.uniform(detector.labels, 0.3). "
                f"Got {decoding!r}."
            )
        return (decoding or self.bundle.decoding).shifted(parse_sensitivity(sensitivity))

    def _decoder(
        self, decoding: Decoding | None, sensitivity: str | float, min_score: float
    ) -> EventDecoder:
        decoding = self._decoding(decoding, sensitivity, min_score)
        if decoding.labels != self.labels:
            raise SettingError(
                f"The decoding is of {', '.join(decoding.labels)}, the detector's classes are "
                f"{', '.join(self.labels)}."
            )
        return EventDecoder(decoding, self.grid, self.bundle.calibration)

    def _blocks(
        self, source: Source | Waveform | Tensor, sample_rate: int | None
    ) -> dict[int, Iterable[Waveform]]:
        """Return each sample rate of the features -> blocks of the waveform at that rate."""
        return open_blocks(source, sample_rate, self.ensemble.sample_rates)


def load(
    path: PathLike = BUNDLED,
    device: str = "cpu",
    threads: int = 0,
    encoder: PathLike | None = None,
) -> Detector:
    """Return the detector in a model file, or the bundled pretrained one.

    Args:
        path: of the model file; without it the bundled model, whose name is "everyday".
        device: where the network runs: "auto", "cpu", "cuda" or "cuda:1".
        threads: how many to use; 0 is one per core.
        encoder: where the encoder of the model is now, if it is not where it was in training.

    >>> load().labels[:2]
    ('car_horn', 'cat')
    """
    return Detector.load(path, device, threads, encoder)


def collect_results(results: Iterable[FileResult], scores: PathLike | None = None) -> FileEvents:
    """Return all results as one; log errors, and write frame-level scores to the folder `scores`.

    >>> collect_results([FileResult("a.wav", [Event(0, 1, "dog")])])
    {'a.wav': [Event(onset=0.0, offset=1.0, label='dog', score=None)]}
    """
    events: dict[str, list[Event]] = {}
    failed: dict[str, EarmarkError] = {}
    for result in results:
        if result.error is not None:
            logger.warning("%s", result.error)
            failed[result.name] = result.error
            continue
        events[result.name] = result.events
        logger.debug("%s: %d events in %.1f s", result.name, len(result.events), result.duration)
        if scores is not None and result.scores is not None:
            write_scores(scores, ScoreTable(result.scores.labels, {result.name: result.scores}))
    return FileEvents(events, failed)


def parse_sensitivity(sensitivity: str | float) -> float:
    """Return a sensitivity as a number, from its name or from a number as text.

    >>> parse_sensitivity("low"), parse_sensitivity("0.5"), parse_sensitivity(2.0)
    (-1.0, 0.5, 2.0)
    """
    if isinstance(sensitivity, str):
        try:
            return float(sensitivity)
        except ValueError:
            pass
        return SENSITIVITIES[choose("sensitivity", sensitivity, SENSITIVITIES)]
    return sensitivity


def recording_durations(recordings: PathLike | Iterable[PathLike]) -> dict[str, float]:
    """Return the name of each recording -> its seconds; names as in `name_recordings`.

    >>> import tempfile
    >>> from earmark.audio.encode import write_audio
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = write_audio(folder / "silence.wav", np.zeros(16000), 16000)
    >>> recording_durations(folder)
    {'silence.wav': 1.0}
    """
    return {name: audio_duration(path) for name, path in name_recordings(recordings).items()}


def name_recordings(recordings: PathLike | Iterable[PathLike]) -> dict[str, Path]:
    """Return the name of each recording -> its path, as a table of events would name it.

    Recordings of a folder have names relative to it; a file has its own name. If two recordings
    would have the same name, all are named by their path as given.

    >>> name_recordings("street/a.wav")
    {'a.wav': PosixPath('street/a.wav')}
    >>> list(name_recordings(["street/a.wav", "home/a.wav"]))
    ['street/a.wav', 'home/a.wav']
    """
    if isinstance(recordings, str | os.PathLike):
        recordings = [recordings]
    short: dict[Path, str] = {}
    for path in map(Path, recordings):
        for file in find_audio(path) if path.is_dir() else [path]:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            short.setdefault(file, name)
    if not short:
        raise DataError("There is no recording to detect in.")
    if len(set(short.values())) < len(short):
        return {file.as_posix(): file for file in short}
    return {name: file for file, name in short.items()}
