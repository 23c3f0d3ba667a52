"""The time axis of frames: the frame grid, and frame-level scores that carry theirs.

Conventions: frame `i` of a grid with `frame_rate` frames per second is the half-open interval
[i / frame_rate, (i + 1) / frame_rate). The frame rate is kept as an exact fraction, so that 50 Hz
pooled by 4 is exactly 12.5 Hz, and index -> seconds -> index always comes back. A time within a
millionth of a frame of an edge counts as that edge: 0.58 s at 50 Hz is frame 29, although
0.58 * 50 is 28.999... in floating point. Times before 0 have negative indices; a negative duration,
and a time that is NaN or infinite, raises `SettingError`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.errors import DataError, SettingError, choose, listed

SNAP = 1e-6  # of a frame: far above float rounding for a year of audio, far below any real shift

Floats = NDArray[np.floating[Any]]
Reals = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class FrameGrid:
    """A time axis of `frame_rate` frames per second.

    >>> FrameGrid(50).pooled(4)
    FrameGrid(frame_rate=Fraction(25, 2))
    >>> FrameGrid(50).pooled(4).count(10.0)
    125
    """

    frame_rate: Fraction

    def __init__(self, frame_rate: Fraction | float) -> None:
        exact = Fraction(frame_rate) if math.isfinite(frame_rate) else Fraction(0)
        if exact <= 0:
            raise SettingError(f"frame_rate must be a positive number of Hz. Got {frame_rate!r}.")
        object.__setattr__(self, "frame_rate", exact)

    @property
    def hop(self) -> float:
        """Seconds from one frame to the next.

        >>> FrameGrid(12.5).hop
        0.08
        """
        return float(1 / self.frame_rate)

    def pooled(self, factor: int) -> "FrameGrid":
        """Return the grid after every `factor` frames became one.

        >>> FrameGrid(50).pooled(2).pooled(2).hop
        0.08
        """
        if factor < 1:
            raise SettingError(f"Frames are pooled by a factor of 1 or more. Got {factor!r}.")
        return FrameGrid(self.frame_rate / factor)

    def count(self, duration: float) -> int:
        """Return how many frames cover `duration` seconds; a partial frame counts.

        >>> FrameGrid(50).count(10.0), FrameGrid(50).count(9.99), FrameGrid(12.5).count(9.99)
        (500, 500, 125)
        """
        n_frames = math.ceil(self._position(duration))
        if n_frames < 0:
            raise SettingError(f"A duration is 0 s or more. Got {duration!r}.")
        return n_frames

    def index(self, time: float) -> int:
        """Return the frame that contains the instant `time`.

        >>> FrameGrid(50).index(0.58)
        29
        """
        return math.floor(self._position(time))

    def onset(self, index: int) -> float:
        """Return where frame `index` begins, in seconds.

        >>> FrameGrid(12.5).onset(25)
        2.0
        """
        return float(index / self.frame_rate)

    def offset(self, index: int) -> float:
        """Return where frame `index` ends, in seconds.

        >>> FrameGrid(12.5).offset(24)
        2.0
        """
        return self.onset(index + 1)

    def onsets(self, n_frames: int) -> Reals:
        """Return where each of the first `n_frames` frames begins, in seconds.

        >>> FrameGrid(12.5).onsets(3)
        array([0. , 0.08, 0.16])
        """
        return np.arange(n_frames) * self.frame_rate.denominator / self.frame_rate.numerator

    def centres(self, n_frames: int, first: int = 0) -> Reals:
        """Return the middle of each of `n_frames` frames from frame `first` on, in seconds.

        >>> FrameGrid(12.5).centres(3)
        array([0.04, 0.12, 0.2 ])
        """
        rate, frames = self.frame_rate, np.arange(first, first + n_frames)
        return (frames * 2 + 1) * rate.denominator / (2 * rate.numerator)

    def frames_at(self, other: "FrameGrid", first: int, stop: int) -> Indices:
        """Return which frame of this grid is at the centre of frames `first` to `stop` of another.

        >>> FrameGrid(12.5).frames_at(FrameGrid(25), 0, 5)
        array([0, 0, 1, 1, 2])
        >>> FrameGrid(12.5).frames_at(FrameGrid(20), 0, 5)
        array([0, 0, 1, 2, 2])
        """
        ratio = self.frame_rate / other.frame_rate
        centres = 2 * np.arange(first, stop) + 1  # in half frames: whole numbers, so exact
        return centres * ratio.numerator // (2 * ratio.denominator)

    def count_within(self, other: "FrameGrid", n_frames: int) -> int:
        """Return how many frames of this grid have their centre in `n_frames` of another.

        >>> FrameGrid(25).count_within(FrameGrid(12.5), 3), FrameGrid(20).count_within(
        ...     FrameGrid(12.5), 3)
        (6, 5)
        """
        ratio = other.frame_rate / self.frame_rate
        last = (2 * ratio.denominator * n_frames - 1) // ratio.numerator  # in half frames
        return (last + 1) // 2

    def _position(self, time: float) -> float:
        """Return `time` in frames, snapped to a whole frame where it is one but for rounding."""
        if not math.isfinite(time):
            raise SettingError(f"A time is a finite number of seconds. Got {time!r}.")
        position = time * self.frame_rate.numerator / self.frame_rate.denominator
        nearest = round(position)
        return float(nearest) if abs(position - nearest) <= SNAP else position


@dataclass(frozen=True, eq=False)
class FrameScores:
    """Frame-level scores of one recording with their time axis.

    The one type for such scores: detectors make it, and decoding, tuning, metrics, plots and files
    take it. Frames lie end to end. They are on a `grid`, as a network gives them, or have `edges`
    of any spacing, as tables of other tools may. Any finite number is a score; decoding and tuning
    want probabilities.

    Shape: `scores` (frames, classes), `edges` (frames + 1,), `clip_scores` (frames, classes).

    Args:
        scores: one column per label.
        labels: the classes.
        grid: of the frames. Frames that begin at `duration` or later are left out.
        edges: in seconds, increasing; in place of a grid.
        duration: of the recording in seconds, up to that of all frames, which is the default.
        clip_scores: clip-level scores: (classes,) for a clip, or per frame where a recording is
            longer than the clips that the network was trained on.

    >>> scores = FrameScores([[0.9], [0.2], [0.1]], ["dog"], FrameGrid(12.5), duration=0.2)
    >>> scores.edges
    array([0.  , 0.08, 0.16, 0.2 ])
    >>> FrameScores([[0.9], [0.1]], ["dog"], edges=[0, 0.5, 1.0]).duration
    1.0
    """

    scores: Floats
    labels: tuple[str, ...]
    grid: FrameGrid | None
    edges: Reals
    clip_scores: Floats | None

    def __init__(
        self,
        scores: ArrayLike,
        labels: Sequence[str],
        grid: FrameGrid | None = None,
        *,
        edges: ArrayLike | None = None,
        duration: float | None = None,
        clip_scores: ArrayLike | None = None,
    ) -> None:
        table = _as_floats(scores)
        if (grid is None) == (edges is None) or (grid is None and duration is not None):
            raise SettingError("Frame-level scores need a grid (with a duration) or edges.")
        if table.ndim != 2 or table.shape[1] != len(labels):
            raise SettingError(
                f"scores must be (frames, {len(labels)}), one column per label. "
                f"Got the shape {table.shape}."
            )
        if grid is not None:
            if duration is None:
                duration = grid.onset(len(table))
            elif grid.count(duration) > len(table):
                raise SettingError(
                    f"A duration of {duration} s needs {grid.count(duration)} frames of scores. "
                    f"Got {len(table)}."
                )
            table = table[: grid.count(duration)]
            bounds = np.append(grid.onsets(len(table)), duration)
        else:
            bounds = _check_edges(np.array(edges, np.float64), len(table))
        if not np.isfinite(table).all():
            row, column = np.argwhere(~np.isfinite(table))[0]
            raise DataError(
                f"The score of frame {row} and class {labels[column]!r} is {table[row, column]}. "
                "A score is a finite number."
            )
        object.__setattr__(self, "scores", table)
        object.__setattr__(self, "labels", tuple(labels))
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "edges", bounds)
        object.__setattr__(self, "clip_scores", _check_clip_scores(clip_scores, table))

    def __repr__(self) -> str:
        n_frames, n_classes = self.scores.shape
        return (
            f"FrameScores({n_frames} frames, {n_classes} classes: {listed(self.labels)}; "
            f"{self.duration:g} s)"
        )

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def duration(self) -> float:
        """Where the last frame ends, in seconds.

        >>> FrameScores([[0.9], [0.1]], ["dog"], FrameGrid(12.5)).duration
        0.16
        """
        return float(self.edges[-1])

    @property
    def times(self) -> Reals:
        """The middle of each frame, in seconds.

        >>> FrameScores([[0.9], [0.1]], ["dog"], FrameGrid(12.5)).times
        array([0.04, 0.12])
        """
        if self.grid is not None:
            return self.grid.centres(len(self.scores))
        return (self.edges[1:] + self.edges[:-1]) / 2

    def clip_level(self) -> Floats:
        """Return the highest clip-level score of each class, (classes,).

        >>> FrameScores([[0.9], [0.1]], ["dog"], FrameGrid(12.5), clip_scores=[0.7]).clip_level()
        array([0.7])
        """
        if self.clip_scores is None:
            raise SettingError("These frame-level scores come without clip-level scores.")
        best: Floats = self.clip_scores.max(axis=0, initial=0.0)
        return best

    def select(self, labels: Sequence[str]) -> "FrameScores":
        """Return the scores of these classes alone, in this order.

        >>> FrameScores([[0.9, 0.1]], ["dog", "cat"], FrameGrid(12.5)).select(["cat"]).scores
        array([[0.1]])
        """
        columns = [self.labels.index(choose("label", label, self.labels)) for label in labels]
        clips = None if self.clip_scores is None else self.clip_scores[:, columns]
        where: dict[str, Any] = {"edges": self.edges}
        if self.grid is not None:
            where = {"grid": self.grid, "duration": self.duration}
        return FrameScores(self.scores[:, columns], labels, clip_scores=clips, **where)

    def on_grid_of(self, other: "FrameScores") -> "FrameScores":
        """Return these scores on the grid of scores of the same recording that is as fine or finer.

        A frame there has the scores of the frame here that is at its centre.

        >>> coarse = FrameScores([[0.9], [0.2]], ["dog"], FrameGrid(12.5))
        >>> fine = FrameScores([[0.5]] * 4, ["dog"], FrameGrid(25))
        >>> coarse.on_grid_of(fine).scores[:, 0]
        array([0.9, 0.9, 0.2, 0.2])
        """
        if self.grid is None or other.grid is None:
            raise SettingError(
                "Scores are brought from one frame grid to another; these have none."
            )
        if self.grid == other.grid and len(self) == len(other):
            return self
        index = np.minimum(self.grid.frames_at(other.grid, 0, len(other)), len(self) - 1)
        return FrameScores(
            self.scores[index],
            self.labels,
            other.grid,
            duration=other.duration,
            clip_scores=None if self.clip_scores is None else self.clip_scores[index],
        )


def pooled_length(n_frames: int, factor: int) -> int:
    """Return how many frames are left when every `factor` become one; a partial group counts.

    >>> pooled_length(500, 4), pooled_length(501, 4)
    (125, 126)
    """
    return (n_frames + factor - 1) // factor  # no negative number: a traced graph truncates those


def _as_floats(values: ArrayLike) -> Floats:
    array = np.asarray(values)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _check_edges(edges: Reals, n_frames: int) -> Reals:
    if not n_frames or edges.shape != (n_frames + 1,):
        raise SettingError(
            f"{n_frames} frames need edges ({n_frames + 1},), and one frame at least. "
            f"Got edges of the shape {edges.shape}."
        )
    if not (np.isfinite(edges).all() and (np.diff(edges) > 0).all() and edges[0] >= 0):
        raise DataError(
            "The edges of frames are seconds from 0 on, each above the one before. Got "
            f"{edges[:4].tolist()} ..."
        )
    return edges


def _check_clip_scores(clip_scores: ArrayLike | None, scores: Floats) -> Floats | None:
    """Return clip-level scores per frame; those of a clip are the same in all of its frames."""
    if clip_scores is None:
        return None
    values = _as_floats(clip_scores)
    if values.ndim == 2:
        values = values[: len(scores)]
    if not np.isfinite(values).all():
        raise DataError("The clip-level scores contain NaN or infinity; they must be finite.")
    if values.shape not in (scores.shape, scores.shape[1:]):
        raise SettingError(
            f"clip_scores must be (classes,) or (frames, classes), here {scores.shape[1:]} or "
            f"{scores.shape}. Got the shape {values.shape}."
        )
    return np.broadcast_to(values, scores.shape)
