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
from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from earmark.audio.decode import Source, audio_duration, audio_format, find_audio, read_blocks
from earmark.audio.waveform import Waveform, resample, to_mono
from earmark.data.encoded import open_encoder, shared_feature_blocks
from earmark.data.features import FeatureConfig
from earmark.errors import AudioError, DataError, EarmarkError, SettingError, choose
from earmark.formats.events import Event
from earmark.formats.names import stems_of
from earmark.formats.scores import ScoreTable, write_scores
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.ensemble import Ensemble
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle, save_bundle
from earmark.inference.predictor import Scores
from earmark.runtime.threads import share_items

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

BLOCK = 1 << 18  # samples of a waveform to resample at a time

# Name -> how far thresholds are lowered, in log-odds; see `Decoding.shifted`. With the bundled
# model "low" makes half as many false events, and "high" half as many more (docs/events.md).
SENSITIVITIES = {"low": -1.0, "normal": 0.0, "high": 1.0}


class FileResult(NamedTuple):
    """What was found in one recording, or why it could not be read.

    >>> FileResult("a.wav", [Event(0, 1, "dog")], duration=2.0).error is None
    True
    """

    name: str
    events: list[Event]
    duration: float = 0.0  # seconds
    scores: FrameScores | None = None  # if they are wanted
    error: EarmarkError | None = None


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
    >>> events = Detector.load().detect(scene.waveform, scene.sample_rate)
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

    @classmethod
    def load(
        cls,
        path: PathLike = BUNDLED,
        device: str = "cpu",
        threads: int = 0,
        encoder: PathLike | None = None,
    ) -> "Detector":
        """Return the detector in a model file, or the bundled pretrained one.

        Args:
            path: of the model file; the bundled model without it.
            device: where the network runs: "auto", "cpu", "cuda" or "cuda:1".
            threads: how many to use; 0 is one per core.
            encoder: where the encoder of the model is now, if it is not where it was in training.

        >>> Detector.load().labels[:2]
        ('car_horn', 'cat')
        """
        bundle = load_bundle(path)
        return cls(bundle if encoder is None else bundle.with_encoder(encoder), device, threads)

    def save(self, path: PathLike) -> Path:
        """Write the detector to one file; return its path.

        >>> import tempfile
        >>> path = Detector.load().save(Path(tempfile.mkdtemp()) / "detector.earmark")
        >>> Detector.load(path).labels[:2]
        ('car_horn', 'cat')
        """
        return save_bundle(self.bundle, path)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes it detects."""
        return self.bundle.labels

    @property
    def sample_rate(self) -> int:
        """That of the network, in Hz; other sample rates are resampled to it.

        Of an ensemble, the first with the finest frame grid has it.
        """
        finest = next(x for x in self.bundle.members if x.grid == self.grid)
        return finest.feature_config.sample_rate

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
        scores = self.frame_scores(source, sample_rate)
        return self.decode(scores, decoding, sensitivity=sensitivity, min_score=min_score)

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
        results = self.detect_each(
            files, sensitivity=sensitivity, min_score=min_score, keep_scores=scores is not None
        )
        return collect_results(results, scores)

    def detect_each(
        self,
        recordings: Mapping[str, Path],
        *,
        sensitivity: str | float = "normal",
        min_score: float = 0.0,
        keep_scores: bool = False,
    ) -> Iterator[FileResult]:
        """Yield what is found in each recording, in order, as soon as it is known.

        Args:
            recordings: name -> path, as `name_recordings` returns.
            sensitivity: as in `detect`.
            min_score: as in `detect`.
            keep_scores: whether results have the frame-level scores.

        >>> [result.error for result in Detector.load().detect_each({"a": Path("nowhere.wav")})]
        [AudioError('nowhere.wav does not exist; check the path.')]
        """
        decoding = self._decoding(None, sensitivity, min_score)
        for name, path in recordings.items():
            try:
                scores = self.frame_scores(path)
            except (AudioError, DataError) as error:
                yield FileResult(name, [], error=error)
                continue
            events = self.decode(scores, decoding, min_score=min_score)
            yield FileResult(name, events, scores.duration, scores if keep_scores else None)

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
        configs = self.bundle.feature_configs
        counters = {
            rate: _Counter(blocks)
            for rate, blocks in self._blocks(source, sample_rate, configs).items()
        }
        features: dict[FeatureConfig, Iterator[Tensor]] = {}
        for rate, counter in counters.items():
            own = [config for config in configs if config.sample_rate == rate]
            features |= zip(own, shared_feature_blocks(counter, own), strict=True)
        pieces, clip_pieces = [], []
        for piece, clip_piece in self.stream(*(features[config] for config in configs)):
            pieces.append(piece)
            clip_pieces.append(clip_piece)
        scores = np.concatenate(pieces)
        pieces.clear()  # those of a day are as large as all the rest
        clip_scores = np.concatenate(clip_pieces)
        duration = counters[self.sample_rate].n_samples / self.sample_rate
        return FrameScores(
            scores, self.labels, self.grid, duration=duration, clip_scores=clip_scores
        )

    def stream(self, *features: Iterable[Tensor]) -> Iterator[Scores]:
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
        >>> sum(len(frame_scores) for frame_scores, clip_scores in detector.stream(features))
        13
        """
        configs = self.bundle.feature_configs
        if len(features) != len(configs):
            raise SettingError(
                f"The model needs {len(configs)} streams of features, one for each of "
                f"bundle.feature_configs. Got {len(features)}."
            )
        members = self.bundle.members
        wanted = [configs.index(member.feature_config) for member in members]
        if len(members) == 1:
            return self.ensemble.stream(features)
        shared = [iter(share_items(own, wanted.count(at))) for at, own in enumerate(features)]
        return self.ensemble.stream([next(shared[at]) for at in wanted])

    def tags(
        self, source: Source | Waveform | Tensor, sample_rate: int | None = None
    ) -> dict[str, float]:
        """Return the probability that each class is anywhere in the recording.

        >>> tags = Detector.load().tags(np.zeros(16000), 16000)
        >>> tags["siren"] < 0.5
        True
        """
        best = self.frame_scores(source, sample_rate).clip_level()
        return {label: float(p) for label, p in zip(self.labels, best, strict=True)}

    def _decoding(
        self, decoding: Decoding | None, sensitivity: str | float, min_score: float
    ) -> Decoding:
        if not (isinstance(min_score, Real) and 0 <= min_score <= 1):
            raise SettingError(f"min_score must be a number from 0 to 1. Got {min_score!r}.")
        return (decoding or self.bundle.decoding).shifted(parse_sensitivity(sensitivity))

    def _blocks(
        self,
        source: Source | Waveform | Tensor,
        sample_rate: int | None,
        configs: Iterable[FeatureConfig],
    ) -> dict[int, Iterable[Waveform]]:
        """Return each sample rate of the features -> blocks of the waveform at that rate."""
        rates = list(dict.fromkeys(config.sample_rate for config in configs))
        if not isinstance(source, np.ndarray | Tensor):
            if not (isinstance(source, str | os.PathLike) or hasattr(source, "read")):
                raise SettingError(
                    "A source is a path, an open binary file, or a waveform as a NumPy array or "
                    f"torch tensor. Got a {type(source).__name__}."
                )
            if sample_rate is not None:
                raise SettingError("sample_rate is for waveforms; a file knows its own.")
            if len(rates) == 1:
                return {rates[0]: read_blocks(source, rates[0])}
            own_rate, _ = audio_format(source)  # decoded once, resampled for each network
            shared = share_items(read_blocks(source), len(rates))
            return {
                rate: resample(blocks, own_rate, rate, f"{source}")
                for rate, blocks in zip(rates, shared, strict=True)
            }
        if sample_rate is None:
            raise SettingError("A waveform needs its sample_rate, as in detect(waveform, 16000).")
        if isinstance(source, Tensor):
            own = source.detach().cpu()  # NumPy has no bfloat16
            source = (own.float() if own.is_floating_point() else own).numpy()
        waveform = to_mono(source)
        return {
            rate: [waveform]
            if sample_rate == rate
            else resample(_in_blocks(waveform), sample_rate, rate)
            for rate in rates
        }


def load(
    path: PathLike = BUNDLED,
    device: str = "cpu",
    threads: int = 0,
    encoder: PathLike | None = None,
) -> Detector:
    """Return the detector in a model file, or the bundled pretrained one.

    Args:
        path: of the model file; the bundled model without it.
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

    Recordings of a folder have names relative to it; a file has its own name.

    >>> name_recordings("street/a.wav")
    {'a.wav': PosixPath('street/a.wav')}
    """
    if isinstance(recordings, str | os.PathLike):
        recordings = [recordings]
    files: dict[str, Path] = {}
    for path in map(Path, recordings):
        for file in find_audio(path) if path.is_dir() else [path]:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            if files.setdefault(name, file) != file:
                raise DataError(
                    f"{files[name]} and {file} have the same name; detect them separately."
                )
    if not files:
        raise DataError("There is no recording to detect in.")
    return files


def _in_blocks(waveform: Waveform) -> Iterator[Waveform]:
    for first in range(0, len(waveform), BLOCK):
        yield waveform[first : first + BLOCK]


class _Counter:
    """Blocks of samples, and how many samples they had in all."""

    def __init__(self, blocks: Iterable[Waveform]) -> None:
        self._blocks = blocks
        self.n_samples = 0

    def __iter__(self) -> Iterator[Waveform]:
        for block in self._blocks:
            self.n_samples += len(block)
            yield block
