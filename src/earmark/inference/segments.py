"""Frame-level scores -> scores of equal segments, for systems that decide a second at a time.

Conventions: segments lie end to end from 0 on, the last one may be shorter. A frame belongs to the
segment that contains its centre, so at 12.5 frames per second a segment of 1 s has 12 or 13. The
score of a segment is the linear softmax of its frames, sum(x^2) / sum(x): what linear pooling makes
of a clip, here of a part of it (`earmark.pooling.linear_pool`). Its clip-level score is the highest
of its frames.
"""

import numpy as np

from earmark.errors import SettingError
from earmark.frames import SNAP, Floats, FrameGrid, FrameScores, Indices, Reals


def pool_segments(scores: FrameScores, segment: float) -> FrameScores:
    """Return the scores of segments, on a frame grid of one frame per segment.

    Args:
        scores: on a frame grid.
        segment: seconds per segment, at least those of a frame; 0 returns the scores as they are.

    >>> scores = FrameScores([[0.5], [0.25], [0.0], [0.0]], ["dog"], FrameGrid(2))
    >>> pooled = pool_segments(scores, 1.0)
    >>> pooled.grid, pooled.scores.round(4).tolist()
    (FrameGrid(frame_rate=Fraction(1, 1)), [[0.4167], [0.0]])
    """
    if segment == 0:
        return scores
    if scores.grid is None:
        raise SettingError("Scores to pool in segments must be on a frame grid.")
    if segment < scores.grid.hop:
        raise SettingError(
            f"A segment must last at least as long as a frame, {scores.grid.hop:g} s. Got "
            f"{segment!r}."
        )
    grid = FrameGrid(1 / segment)
    if not len(scores):
        return FrameScores(scores.scores, scores.labels, grid, clip_scores=scores.clip_scores)
    # A frame that is cut by the end of the recording belongs to the last segment.
    last = grid.count(scores.duration) - 1
    index = np.minimum(segments_at(scores.grid, grid, 0, len(scores)), last)
    pooled, clip_scores = pool_frames(scores.scores, scores.clip_scores, index)
    # The last segment may contain no centre; the recording then ends with the one before.
    duration = min(scores.duration, grid.onset(len(pooled)))
    return FrameScores(pooled, scores.labels, grid, duration=duration, clip_scores=clip_scores)


def segments_at(grid: FrameGrid, segments: FrameGrid, first: int, stop: int) -> Indices:
    """Return the segment of each of the frames from `first` to `stop`, by their centres.

    Args:
        grid: of the frames.
        segments: the frame grid of the segments.
        first: frame.
        stop: the frame behind the last one.

    >>> segments_at(FrameGrid(2), FrameGrid(1), 1, 5)
    array([0, 1, 1, 2])
    """
    times = grid.centres(stop - first, first)
    return np.floor(times * float(segments.frame_rate) + SNAP).astype(np.intp)


def pool_frames(
    scores: Floats, clip_scores: Floats | None, index: Indices
) -> tuple[Reals, Floats | None]:
    """Return the frame-level and clip-level scores of whole segments.

    Shape: (frames, classes) -> (segments, classes), both.

    Args:
        scores: of all frames of the segments.
        clip_scores: of the same frames, if there are any.
        index: (frames,), the segment of each frame, in order, without a segment left out.

    >>> pool_frames(np.array([[0.5], [0.25], [0.0]]), None, np.array([3, 3, 4]))[0].round(4)
    array([[0.4167],
           [0.    ]])
    """
    first = np.flatnonzero(np.diff(index, prepend=-1))
    frames = scores.astype(np.float64)
    total, weight = (np.add.reduceat(values, first) for values in (frames**2, frames))
    pooled = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
    clips = None if clip_scores is None else np.maximum.reduceat(clip_scores, first)
    return pooled, clips
