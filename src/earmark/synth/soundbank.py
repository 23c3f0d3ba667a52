"""A category -> a sound of it: procedural, or cut from recordings where they are heard.

Conventions: a bank names its `categories` of sounds and its `backgrounds`, and draws a waveform,
float32, (samples,), of either; all chance comes from the generator passed in.

A soundbank holds recordings of one sound each. A recording is cut into windows of 20 ms; a window
is silent when its peak lies more than `floor_db` below the peak of the recording, so that zeros
still count as silence after lossy coding, and so that a tail which no scene would let through is
not called sound. Silence of 0.5 s or more parts stretches; those with a peak within 10 dB of the
loudest are drawn from. Of a longer stretch a random piece is cut, which begins and ends with a
window that sounds; a shorter one is taken as it is, and is shorter than was asked.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import Waveform, find_audio, read_audio
from earmark.errors import DataError, SettingError, choose
from earmark.formats.tables import read_table
from earmark.synth.sounds import NOISES, SOUNDS, Rng

FLOOR_DB = -30.0  # at the default SNR of up to 20 dB, what is below is lost in the background
_WINDOW = 0.02  # seconds
_CROSS_FADE = 0.1  # seconds
_GAP = 0.5  # seconds of silence that part two stretches
_NEAR_DB = 10.0  # a stretch this much softer than the loudest may be another sound


class Bank(Protocol):
    """What scenes draw their sounds from."""

    @property
    def categories(self) -> tuple[str, ...]:
        """The sounds that `draw` knows, sorted."""

    @property
    def backgrounds(self) -> tuple[str, ...]:
        """What `draw_background` knows, sorted."""

    def draw(self, category: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a sound of at most `duration` seconds."""

    def draw_background(self, name: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a background of `duration` seconds."""


@dataclass(frozen=True)
class ProceduralBank:
    """The bank of `earmark.synth.sounds`, which needs no recordings.

    >>> ProceduralBank().draw("bell", np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of `SOUNDS`."""
        return tuple(sorted(SOUNDS))

    @property
    def backgrounds(self) -> tuple[str, ...]:
        """The names of `NOISES`."""
        return tuple(sorted(NOISES))

    def draw(self, category: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a new sound, exactly `duration` seconds long."""
        return SOUNDS[choose("sound", category, SOUNDS)](rng, duration, sample_rate)

    def draw_background(self, name: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a new noise, exactly `duration` seconds long."""
        return NOISES[choose("noise", name, NOISES)](rng, duration, sample_rate)


@dataclass(frozen=True)
class Soundbank:
    """Category -> its recordings.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "dog").mkdir()
    ...     (Path(folder) / "dog" / "1.wav").touch()
    ...     Soundbank.from_folder(folder).categories
    ('dog',)
    """

    files: Mapping[str, tuple[Path, ...]]
    floor_db: float = FLOOR_DB

    def __post_init__(self) -> None:
        empty = [category for category, files in self.files.items() if not files]
        if empty or not self.files:
            raise SettingError(
                f"A soundbank needs a recording in each category; {empty} have none."
            )
        if not self.floor_db < 0:
            raise SettingError(f"floor_db must be below 0 dB, the peak. Got {self.floor_db!r}.")

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str], floor_db: float = FLOOR_DB) -> "Soundbank":
        """Return the bank of a folder that holds a folder of recordings for each category."""
        root = Path(folder)
        found: dict[str, list[Path]] = {}
        for file in find_audio(root):
            category, *rest = file.relative_to(root).parts
            if rest:
                found.setdefault(category, []).append(file)
        if not found:
            raise DataError(
                f"{root} holds no recordings in category folders. Lay them out as "
                f"{root / 'dog' / '1.wav'}."
            )
        return cls({category: tuple(files) for category, files in found.items()}, floor_db)

    @classmethod
    def from_table(
        cls,
        path: str | os.PathLike[str],
        audio: str | os.PathLike[str],
        folds: Iterable[int | str] | None = None,
        categories: Collection[str] | None = None,
        floor_db: float = FLOOR_DB,
    ) -> "Soundbank":
        """Return the bank of a table with the columns filename, category and perhaps fold.

        Args:
            path: the table, with a header.
            audio: the folder that its file names are in.
            folds: keep these alone; recordings of one source share a fold, so split by it.
            categories: keep these alone.
            floor_db: what counts as silence, against the peak of a recording.
        """
        table = read_table(path)
        if table.columns is None:
            raise DataError(f"{table.name} has no header. Begin it with: filename, category, fold.")
        table.require("filename", "event_label", *([] if folds is None else ["fold"]))
        rows = [(row.where, row.named(table.columns)) for row in table.rows]
        if folds is not None:
            known_folds = {values["fold"] for _, values in rows}
            wanted_folds = {choose("fold", str(fold), known_folds) for fold in folds}
            rows = [row for row in rows if row[1]["fold"] in wanted_folds]
        if categories is not None:
            known = {values["event_label"] for _, values in rows}
            wanted = {choose("category", category, known) for category in categories}
            rows = [row for row in rows if row[1]["event_label"] in wanted]
        files: dict[str, list[Path]] = {}
        for where, values in rows:
            file = Path(audio) / values["filename"]
            if not file.is_file():
                raise DataError(f"{where}: there is no recording {file}. Is the folder right?")
            files.setdefault(values["event_label"], []).append(file)
        return cls({name: tuple(sorted(files[name])) for name in sorted(files)}, floor_db)

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories, sorted."""
        return tuple(sorted(self.files))

    @property
    def backgrounds(self) -> tuple[str, ...]:
        """The categories and the names of `NOISES`; of one name, the category is meant."""
        return tuple(sorted({*self.files, *NOISES}))

    def draw(self, category: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a piece of a random recording, at most `duration` seconds of it."""
        stretch = self._stretch(category, rng, sample_rate)
        n_samples = max(1, round(duration * sample_rate))
        if len(stretch) <= n_samples:
            return stretch
        sounding, width = _sounding_windows(stretch, sample_rate, self.floor_db)
        starts = sounding * width
        start = rng.choice(starts[starts <= len(stretch) - n_samples])  # 0 is always there
        stop = start + n_samples
        return stretch[start : min(stop, starts[starts < stop][-1] + width)]

    def draw_background(self, name: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a random recording, looped with a cross-fade to fill `duration`, or a noise."""
        if name not in self.files:
            return ProceduralBank().draw_background(name, rng, duration, sample_rate)
        stretch = self._stretch(name, rng, sample_rate)
        return looped(
            stretch, round(duration * sample_rate), int(rng.integers(len(stretch))), sample_rate
        )

    def _stretch(self, category: str, rng: Rng, sample_rate: int) -> Waveform:
        files = self.files[choose("category", category, self.files)]
        file = files[rng.integers(len(files))]
        waveform, _ = read_audio(file, sample_rate=sample_rate)
        stretches = active_stretches(waveform, sample_rate, self.floor_db)
        if not stretches:
            raise DataError(f"{file} holds nothing but silence. Take it out of the soundbank.")
        peaks = np.array([np.abs(waveform[first:last]).max() for first, last in stretches])
        loud = np.flatnonzero(peaks >= peaks.max() * 10 ** (-_NEAR_DB / 20))
        first, last = stretches[rng.choice(loud)]
        return waveform[first:last]


def active_stretches(
    waveform: Waveform, sample_rate: int, floor_db: float = FLOOR_DB, gap: float = _GAP
) -> list[tuple[int, int]]:
    """Return [first, last) in samples of each stretch of sound between silences of `gap` seconds.

    >>> sound = np.zeros(1000, np.float32)
    >>> sound[200:300] = sound[900:940] = 0.5
    >>> active_stretches(sound, sample_rate=1000), active_stretches(sound, sample_rate=1000, gap=1.0)
    ([(200, 300), (900, 940)], [(200, 940)])
    """
    sounding, width = _sounding_windows(waveform, sample_rate, floor_db)
    if not len(sounding):
        return []
    # Windows that are n apart have n - 1 silent ones between them.
    ends = np.flatnonzero((np.diff(sounding) - 1) * width >= gap * sample_rate) + 1
    return [
        (int(part[0]) * width, min((int(part[-1]) + 1) * width, len(waveform)))
        for part in np.split(sounding, ends)
    ]


def _sounding_windows(
    waveform: Waveform, sample_rate: int, floor_db: float
) -> tuple[NDArray[np.intp], int]:
    """Return the index of each window that is not silent, and the samples of a window."""
    level = np.abs(waveform)
    width = max(1, round(_WINDOW * sample_rate))
    n_windows = -(-len(level) // width)
    windows = np.pad(level, (0, n_windows * width - len(level))).reshape(n_windows, width)
    return np.flatnonzero(windows.max(axis=1) > level.max(initial=0) * 10 ** (floor_db / 20)), width


def looped(waveform: Waveform, n_samples: int, start: int, sample_rate: int) -> Waveform:
    """Return `n_samples` from `start` on of the waveform repeated, its joints cross-faded.

    >>> looped(np.ones(50, np.float32), 120, start=10, sample_rate=1000).shape
    (120,)
    """
    if start + n_samples <= len(waveform):
        return waveform[start : start + n_samples]
    n_fade = min(len(waveform) // 4, round(_CROSS_FADE * sample_rate))
    turn = waveform[: len(waveform) - n_fade].copy()
    # The tail is laid over the head; sine and cosine keep the power of two unlike sounds.
    angle = np.linspace(0, np.pi / 2, n_fade, dtype=np.float32)
    turn[:n_fade] = turn[:n_fade] * np.sin(angle) + waveform[len(turn) :] * np.cos(angle)
    return np.resize(np.roll(turn, -start), n_samples)
