"""Frame index <-> seconds: the only grid in the house.

Conventions: frame `i` of a grid with `frame_rate` frames a second stands for the half-open interval
[i / frame_rate, (i + 1) / frame_rate). It is kept as an exact fraction, so that 50 Hz pooled by 4 is
12.5 Hz and not nearly so, and so that index -> seconds -> index always comes back. A time within a
millionth of a frame of an edge counts as that edge: 0.58 s at 50 Hz is frame 29, although
0.58 * 50 is 28.999... in floating point. Times before 0 have negative indices; a duration below 0,
and a time that is NaN or infinite, raises `SettingError`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from earmark.errors import SettingError

SNAP = 1e-6  # of a frame: far above float rounding for a year of audio, far below any real shift


@dataclass(frozen=True)
class FrameGrid:
    """A grid of `frame_rate` frames a second.

    >>> FrameGrid(50).pooled(4)
    FrameGrid(frame_rate=Fraction(25, 2))
    >>> FrameGrid(50).pooled(4).count(10.0)
    125
    """

    frame_rate: Fraction

    def __init__(self, frame_rate: Fraction | float) -> None:
        exact = Fraction(frame_rate) if math.isfinite(frame_rate) else Fraction(0)
        if exact <= 0:
            raise SettingError(
                f"The frame rate must be a positive number of Hz. Got {frame_rate!r}."
            )
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
            raise SettingError(f"FrameGrid are pooled by 1 or more. Got {factor!r}.")
        return FrameGrid(self.frame_rate / factor)

    def count(self, duration: float) -> int:
        """Return how many frames cover `duration` seconds; a begun frame counts.

        >>> FrameGrid(50).count(10.0), FrameGrid(50).count(9.99), FrameGrid(12.5).count(9.99)
        (500, 500, 125)
        """
        n_frames = math.ceil(self._position(duration))
        if n_frames < 0:
            raise SettingError(f"A duration is 0 s or more. Got {duration!r}.")
        return n_frames

    def index(self, time: float) -> int:
        """Return the frame that holds the instant `time`.

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

    def centres(self, n_frames: int) -> NDArray[np.float64]:
        """Return the middle of each of the first `n_frames` frames, in seconds.

        >>> FrameGrid(12.5).centres(3)
        array([0.04, 0.12, 0.2 ])
        """
        return (
            (np.arange(n_frames) * 2 + 1)
            * self.frame_rate.denominator
            / (2 * self.frame_rate.numerator)
        )

    def _position(self, time: float) -> float:
        """Return `time` in frames, snapped to a whole frame where it is one but for rounding."""
        if not math.isfinite(time):
            raise SettingError(f"A time is a finite number of seconds. Got {time!r}.")
        position = time * self.frame_rate.numerator / self.frame_rate.denominator
        nearest = round(position)
        return float(nearest) if abs(position - nearest) <= SNAP else position


def pooled_length(n_frames: int, factor: int) -> int:
    """Return how many frames are left when every `factor` become one; a rest counts.

    >>> pooled_length(500, 4), pooled_length(501, 4)
    (125, 126)
    """
    return -(-n_frames // factor)
