"""Recording -> files of its frame-level scores and of its spectrogram, in one pass.

Conventions: the files of a recording are `STEM.scores` (float32, frames x 2 x classes: frame-level
and clip-level scores), `STEM.grey` (uint8, log-mel frames x mels) and `STEM.overview` (the same,
the highest of every `OVERVIEW` frames). They grow while the recording is read, so memory does not
depend on its length. `STEM.json` is written last: without it, the files are not complete.
`STEM.play` is the recording as wav, if browsers need that (`earmark.web.playable`).

The spectrogram is the log-mel of the model's first features, which the network needs anyway, or a
plain one where the features of the model are none. A grey value of 0 is the offset of the logarithm
(silence), and 255 is `RANGE` above it.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from earmark.audio.waveform import Waveform
from earmark.data.encoded import shared_feature_blocks
from earmark.data.features import FeatureConfig
from earmark.errors import DataError
from earmark.files import atomic_write
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.detector import Detector
from earmark.inference.sources import open_blocks
from earmark.web.limits import Watch

OVERVIEW = 32  # frames of the spectrogram per column of its overview
RANGE = 17.0  # in natural logarithms of power: 74 dB

Grey = NDArray[np.uint8]


def spectrogram_config(configs: Sequence[FeatureConfig]) -> FeatureConfig:
    """Return the log-mel to show: that of the first features that have one, or a plain one.

    >>> spectrogram_config([FeatureConfig(mean=(-8.0,))]) == FeatureConfig()
    True
    >>> spectrogram_config([FeatureConfig(sample_rate=22050, kind="waveform")]).f_max
    11025.0
    """
    for config in configs:
        takes_samples = config.encoder is not None and config.encoder.input == "waveform"
        if config.kind == "log-mel" and not takes_samples:
            return config.log_mel.raw
    rate = configs[0].sample_rate
    hop = max(1, round(0.02 * rate)) / rate
    n_mels = 80 if rate >= 16000 else 40
    return FeatureConfig(rate, 2 * hop, hop, n_mels, f_min=rate / 320, f_max=min(14000.0, rate / 2))


@dataclass(frozen=True)
class Analysis:
    """The files of one recording, complete or growing.

    Args:
        stem: their path without suffix.
        labels: the classes of the scores.
        grid: the frame grid of the scores.
        n_mels: of the spectrogram.
    """

    stem: Path
    labels: tuple[str, ...]
    grid: FrameGrid
    n_mels: int

    def file(self, kind: str) -> Path:
        """Return the path of the file with this suffix."""
        return self.stem.with_name(f"{self.stem.name}.{kind}")

    def exists(self) -> bool:
        """Return whether the files are there, complete and of these classes."""
        try:
            about = json.loads(self.file("json").read_bytes())
            return bool(
                about["labels"] == list(self.labels)
                and about["n_frames"] * 2 * len(self.labels) * 4 == about["sizes"]["scores"]
                and about["sizes"] == self.sizes(about["sizes"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def sizes(self, kinds: Iterable[str]) -> dict[str, int]:
        """Return the suffix of each file -> its bytes."""
        return {kind: self.file(kind).stat().st_size for kind in kinds}

    def remove(self) -> None:
        """Delete the files."""
        for kind in ("json", "scores", "grey", "overview", "play"):
            self.file(kind).unlink(missing_ok=True)

    @cached_property
    def duration(self) -> float:
        """Seconds of the recording."""
        return float(json.loads(self.file("json").read_bytes())["duration"])

    def scores(self) -> FrameScores:
        """Return the scores of all frames, which stay in the file until they are used."""
        values = np.memmap(self.file("scores"), np.float32, "r").reshape(-1, 2, len(self.labels))
        frames, clips = np.asarray(values[:, 0]), np.asarray(values[:, 1])
        return FrameScores(
            frames, self.labels, self.grid, duration=self.duration, clip_scores=clips
        )

    def spectrogram(self, overview: bool = False) -> Grey:
        """Return the grey values of all columns so far, (columns, mels)."""
        path = self.file("overview" if overview else "grey")
        if not path.exists() or not path.stat().st_size:
            return np.zeros((0, self.n_mels), np.uint8)
        values = np.memmap(path, np.uint8, "r")
        whole = len(values) // self.n_mels
        return np.asarray(values[: whole * self.n_mels]).reshape(whole, self.n_mels)


def analyse(
    detector: Detector,
    source: Path,
    stem: Path,
    watch: Watch,
    spectrogram: bool = True,
) -> Analysis:
    """Write the files of a recording and return them; nothing stays of what fails or is stopped.

    Args:
        detector: what scores the frames.
        source: the recording.
        stem: of the files.
        watch: asked at every block.
        spectrogram: whether to write one.

    >>> import tempfile
    >>> from earmark.audio.encode import write_audio
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_audio(folder / "a.wav", np.zeros(16000), 16000)
    >>> found = analyse(Detector.load(), folder / "a.wav", folder / "a", Watch(60.0))
    >>> found.duration, found.scores().scores.shape, found.spectrogram().shape
    (1.0, (13, 17), (50, 80))
    """
    config = spectrogram_config(detector.bundle.feature_configs)
    analysis = Analysis(stem, detector.labels, detector.grid, config.n_mels)
    try:
        with ExitStack() as stack:
            duration, n_frames = _write(
                detector, source, watch, analysis, config if spectrogram else None, stack
            )
    except BaseException:
        analysis.remove()
        raise
    kinds = ("scores", "grey", "overview") if spectrogram else ("scores",)
    about = {
        "duration": duration,
        "n_frames": n_frames,
        "labels": list(detector.labels),
        "sizes": analysis.sizes(kinds),
    }
    atomic_write(analysis.file("json"), json.dumps(about).encode())
    return analysis


def _write(
    detector: Detector,
    source: Path,
    watch: Watch,
    analysis: Analysis,
    shown: FeatureConfig | None,
    stack: ExitStack,
) -> tuple[float, int]:
    """Write scores and spectrogram; return the duration and the number of frames."""
    configs = detector.bundle.feature_configs
    streams: dict[FeatureConfig, Iterator[Tensor]] = {}
    columns: Iterator[Tensor] = iter(())
    counters: dict[int, _Watched] = {}
    for rate, blocks in open_blocks(source, None, detector.ensemble.sample_rates).items():
        counters[rate] = counter = _Watched(blocks, rate, watch)
        own = [config for config in configs if config.sample_rate == rate]
        more = [shown] if shown is not None and shown.sample_rate == rate else []
        features = shared_feature_blocks(counter, [*own, *more])
        streams |= zip(own, features, strict=False)
        if more:
            columns = features[-1]
    file = stack.enter_context(analysis.file("scores").open("wb"))
    drawn = None
    if shown is not None:
        pair = [
            stack.enter_context(analysis.file(kind).open("wb")) for kind in ("grey", "overview")
        ]
        drawn = _Columns(columns, shown, *pair)
    n_frames = 0
    for frames, clips in detector.stream_scores(*(streams[config] for config in configs)):
        file.write(np.stack([frames, clips], axis=1).astype("<f4").tobytes())
        n_frames += len(frames)
        if drawn is not None:
            drawn.draw(until=detector.grid.onset(n_frames))
    if drawn is not None:
        drawn.draw(until=math.inf)
        drawn.finish()
    counter = counters[detector.sample_rate]
    duration = counter.n_samples / detector.sample_rate
    if detector.grid.count(duration) > n_frames:
        raise DataError("The recording has fewer scores than frames; it may be damaged.")
    # As in `FrameScores`, a frame that begins at the end of the recording is none.
    return duration, n_frames


class _Watched:
    """Blocks of samples that are counted, and a watch that is asked at each."""

    def __init__(self, blocks: Iterable[Waveform], rate: int, watch: Watch) -> None:
        self._blocks, self._rate, self._watch = blocks, rate, watch
        self.n_samples = 0

    def __iter__(self) -> Iterator[Waveform]:
        for block in self._blocks:
            self.n_samples += len(block)
            self._watch.check(self.n_samples / self._rate)
            yield block


class _Columns:
    """The spectrogram as it is written: all columns, and the highest of every few."""

    def __init__(
        self, log_mels: Iterator[Tensor], config: FeatureConfig, grey: IO[bytes], high: IO[bytes]
    ) -> None:
        self._log_mels, self._hop, self._n = log_mels, config.hop, 0
        self._floor = math.log(config.log_offset)
        self._grey, self._high = grey, high
        self._rest: Grey = np.zeros((0, config.n_mels), np.uint8)

    def draw(self, until: float) -> None:
        """Write columns up to a time, in whole pieces; what is written can be read."""
        while self._n * self._hop < until:
            piece = next(self._log_mels, None)
            if piece is None:
                break
            level = (piece.numpy() - self._floor) * (255 / RANGE)
            columns = np.clip(np.rint(level), 0, 255).astype(np.uint8)
            self._grey.write(columns.tobytes())
            self._n += len(columns)
            held = np.concatenate([self._rest, columns])
            whole = len(held) // OVERVIEW
            parts = held[: whole * OVERVIEW].reshape(whole, OVERVIEW, held.shape[1])
            self._high.write(parts.max(axis=1).tobytes())
            self._rest = held[whole * OVERVIEW :]
        self._grey.flush()
        self._high.flush()

    def finish(self) -> None:
        """Write the last column of the overview, of fewer frames."""
        if len(self._rest):
            self._high.write(self._rest.max(axis=0).tobytes())
