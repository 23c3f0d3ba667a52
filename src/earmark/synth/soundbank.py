"""A category -> a sound of that category, procedural or from the active parts of recordings.

Conventions: a bank has `categories` of sounds and `backgrounds`, and samples a waveform, float32,
(samples,), of either; all randomness comes from the generator passed in.

A soundbank contains recordings of one sound each. A recording is divided into windows of 20 ms. A
window is silent if its peak is more than `floor_db` below the peak of the recording, so that zeros
count as silence after lossy coding, and so that a tail which is inaudible in any scene is not part
of the sound. Silence of 0.5 s or more separates active segments; those with a peak within 10 dB of
the loudest are sampled. From a longer segment a random part is taken, which begins and ends with an
active window; a shorter segment is used as it is, and is then shorter than requested.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import find_audio, read_audio
from earmark.audio.waveform import Waveform
from earmark.errors import DataError, SettingError, choose, listed
from earmark.formats.tables import read_table
from earmark.synth.sounds import NOISES, SOUNDS, Rng

FLOOR_DB = -30.0  # at the default SNR of up to 20 dB, anything below is inaudible
_WINDOW = 0.02  # seconds
_CROSS_FADE = 0.1  # seconds
_GAP = 0.5  # seconds of silence that separate two segments
_NEAR_DB = 10.0  # a segment softer than this below the loudest may be another sound


class Bank(Protocol):
    """Where scenes get their sounds from.

    >>> bank: Bank = ProceduralBank()
    >>> bank.backgrounds[:2]
    ('brown', 'coloured')
    """

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of `sample`, sorted."""

    @property
    def backgrounds(self) -> tuple[str, ...]:
        """The names of `sample_background`, sorted."""

    def sample(self, category: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a sound of at most `duration` seconds."""

    def sample_background(self, name: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a background of `duration` seconds."""


@dataclass(frozen=True)
class ProceduralBank:
    """The bank of `earmark.synth.sounds`, without recordings.

    >>> ProceduralBank().sample("bell", np.random.default_rng(0), 0.5, 16000).shape
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

    def sample(self, category: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a new sound, exactly `duration` seconds long."""
        return SOUNDS[choose("sound", category, SOUNDS)](rng, duration, sample_rate)

    def sample_background(self, name: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a new noise, exactly `duration` seconds long."""
        return NOISES[choose("noise", name, NOISES)](rng, duration, sample_rate)


@dataclass(frozen=True)
class Soundbank:
    """Category -> its recordings.

    Args:
        files: category -> paths of its recordings.
        floor_db: level below which a window is silent, relative to the peak of the recording.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     (Path(folder) / "dog").mkdir()
    ...     (Path(folder) / "dog" / "1.wav").touch()
    ...     Soundbank.from_folder(folder).categories
    ('dog',)
    """

    files: Mapping[str, tuple[Path, ...]]
    floor_db: float = FLOOR_DB

    def __repr__(self) -> str:
        n_files = sum(map(len, self.files.values()))
        categories = f"{len(self.files)} categories: {listed(list(self.files))}"
        return f"Soundbank({n_files} recordings, {categories})"

    def __post_init__(self) -> None:
        empty = [category for category, files in self.files.items() if not files]
        if empty or not self.files:
            raise SettingError(
                f"A soundbank needs a recording in each category. Got none for {empty}."
            )
        if not self.floor_db < 0:
            raise SettingError(f"floor_db must be below 0, the peak. Got {self.floor_db!r}.")

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str], floor_db: float = FLOOR_DB) -> "Soundbank":
        """Return the bank of a folder that contains one folder of recordings per category."""
        root = Path(folder)
        found: dict[str, list[Path]] = {}
        for file in find_audio(root):
            category, *rest = file.relative_to(root).parts
            if rest:
                found.setdefault(category, []).append(file)
        if not found:
            raise DataError(
                f"{root} contains no recordings in category folders. Arrange them as "
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
        """Return the bank of a table with the columns filename, category and optionally fold.

        Args:
            path: the table, with a header.
            audio: the folder of the recordings.
            folds: use only these; recordings of one source share a fold, so split sets by fold.
            categories: use only these.
            floor_db: level below which a window is silent, relative to the peak of a recording.
        """
        table = read_table(path)
        if table.columns is None:
            raise DataError(f"{table.name} has no header. Add one: filename, category, fold.")
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
            if not os.path.isfile(file):  # noqa: PTH113 - a name that no file can have is none
                raise DataError(f"{where}: there is no recording {file}. Check the folder audio.")
            files.setdefault(values["event_label"], []).append(file)
        return cls({name: tuple(sorted(files[name])) for name in sorted(files)}, floor_db)

    def with_backgrounds(self, other: "Soundbank", names: Iterable[str]) -> "Soundbank":
        """Return this bank with those categories of another that are among some backgrounds.

        Args:
            other: the bank of the backgrounds.
            names: of backgrounds; those that `other` does not have are left as they are.
        """
        added = {name: other.files[name] for name in names if name in other.files}
        if both := sorted(added.keys() & self.files.keys()):
            raise SettingError(
                f"The background {both[0]!r} is a category of the soundbank and of the bank of "
                "backgrounds; rename it in one of them."
            )
        return Soundbank({**self.files, **added}, self.floor_db)

    @property
    def categories(self) -> tuple[str, ...]:
        """The names of the categories, sorted."""
        return tuple(sorted(self.files))

    @property
    def backgrounds(self) -> tuple[str, ...]:
        """The categories and the names of `NOISES`; a category overrides a noise of its name."""
        return tuple(sorted({*self.files, *NOISES}))

    def sample(self, category: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a part of a random recording, at most `duration` seconds long."""
        segment = self._segment(category, rng, sample_rate)
        n_samples = max(1, round(duration * sample_rate))
        if len(segment) <= n_samples:
            return segment
        active, width = _active_windows(segment, sample_rate, self.floor_db)
        starts = active * width
        start = rng.choice(starts[starts <= len(segment) - n_samples])  # 0 is always there
        stop = start + n_samples
        return segment[start : min(stop, starts[starts < stop][-1] + width)]

    def sample_background(self, name: str, rng: Rng, duration: float, sample_rate: int) -> Waveform:
        """Return a random recording, loop with cross-fades to fill `duration`, or a noise."""
        if name not in self.files:
            return ProceduralBank().sample_background(name, rng, duration, sample_rate)
        segment = self._segment(name, rng, sample_rate)
        return loop(
            segment, round(duration * sample_rate), int(rng.integers(len(segment))), sample_rate
        )

    def _segment(self, category: str, rng: Rng, sample_rate: int) -> Waveform:
        files = self.files[choose("category", category, self.files)]
        file = files[rng.integers(len(files))]
        waveform, _ = read_audio(file, sample_rate=sample_rate)
        segments = active_segments(waveform, sample_rate, self.floor_db)
        if not segments:
            raise DataError(f"{file} contains only silence. Remove it from the soundbank.")
        peaks = np.array([np.abs(waveform[first:last]).max() for first, last in segments])
        loud = np.flatnonzero(peaks >= peaks.max() * 10 ** (-_NEAR_DB / 20))
        first, last = segments[rng.choice(loud)]
        return waveform[first:last]


def open_bank(
    folder: str | os.PathLike[str] | None = None,
    table: str | os.PathLike[str] | None = None,
    audio: str | os.PathLike[str] | None = None,
    folds: Iterable[int | str] | None = None,
) -> Bank:
    """Return the soundbank of a folder or of a table, or the procedural bank without either.

    Args:
        folder: one folder of recordings per category.
        table: filename, category and optionally fold, instead of a folder.
        audio: the folder of the table's recordings; by default that of the table.
        folds: use only these folds of the table.

    >>> open_bank()
    ProceduralBank()
    """
    if folder is not None and table is not None:
        raise SettingError(
            f"A soundbank is a folder or a table, not both. Got {folder} and {table}."
        )
    if table is None and (audio is not None or folds is not None):
        raise SettingError("audio and folds belong to the table of a soundbank; pass a table.")
    if table is not None:
        return Soundbank.from_table(table, audio or Path(table).parent, folds)
    return ProceduralBank() if folder is None else Soundbank.from_folder(folder)


def active_segments(
    waveform: Waveform, sample_rate: int, floor_db: float = FLOOR_DB, gap: float = _GAP
) -> list[tuple[int, int]]:
    """Return [first, last) in samples of each active segment between silences of `gap` seconds.

    >>> sound = np.zeros(1000, np.float32)
    >>> sound[200:300] = sound[900:940] = 0.5
    >>> active_segments(sound, 1000), active_segments(sound, 1000, gap=1.0)
    ([(200, 300), (900, 940)], [(200, 940)])
    """
    active, width = _active_windows(waveform, sample_rate, floor_db)
    if not len(active):
        return []
    # Windows that are n apart have n - 1 silent windows between them.
    ends = np.flatnonzero((np.diff(active) - 1) * width >= gap * sample_rate) + 1
    return [
        (int(part[0]) * width, min((int(part[-1]) + 1) * width, len(waveform)))
        for part in np.split(active, ends)
    ]


def _active_windows(
    waveform: Waveform, sample_rate: int, floor_db: float
) -> tuple[NDArray[np.intp], int]:
    """Return the index of each active window, and the number of samples per window."""
    level = np.abs(waveform)
    width = max(1, round(_WINDOW * sample_rate))
    n_windows = -(-len(level) // width)
    windows = np.pad(level, (0, n_windows * width - len(level))).reshape(n_windows, width)
    return np.flatnonzero(windows.max(axis=1) > level.max(initial=0) * 10 ** (floor_db / 20)), width


def loop(waveform: Waveform, n_samples: int, start: int, sample_rate: int) -> Waveform:
    """Return `n_samples` of the repeated waveform from `start`, with cross-fades between repeats.

    >>> loop(np.ones(50, np.float32), 120, start=10, sample_rate=1000).shape
    (120,)
    """
    if start + n_samples <= len(waveform):
        return waveform[start : start + n_samples]
    n_fade = min(len(waveform) // 4, round(_CROSS_FADE * sample_rate))
    turn = waveform[: len(waveform) - n_fade].copy()
    # The tail is mixed with the head; sine and cosine keep the power of uncorrelated sounds.
    angle = np.linspace(0, np.pi / 2, n_fade, dtype=np.float32)
    turn[:n_fade] = turn[:n_fade] * np.sin(angle) + waveform[len(turn) :] * np.cos(angle)
    return np.resize(np.roll(turn, -start), n_samples)
