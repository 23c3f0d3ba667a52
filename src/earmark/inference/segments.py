"""Frame-level scores -> scores of equal segments, for systems that decide a second at a time.

Conventions: segments lie end to end from 0 on, the last one may be shorter. A frame belongs to the
segment that contains its centre, so at 12.5 frames per second a segment of 1 s has 12 or 13. The
score of a segment is the linear softmax of its frames, sum(x^2) / sum(x): what linear pooling makes
of a clip, here of a part of it (`earmark.pooling.linear_pool`). Its clip-level score is the highest
of its frames.
"""

import numpy as np

from earmark.errors import SettingError
from earmark.frames import SNAP, FrameGrid, FrameScores


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
    index = np.minimum(np.floor(scores.times * float(grid.frame_rate) + SNAP), last)
    first = np.flatnonzero(np.diff(index, prepend=-1))  # no segment before the last is empty
    frames = scores.scores.astype(np.float64)
    total, weight = (np.add.reduceat(values, first) for values in (frames**2, frames))
    pooled = np.divide(total, weight, out=np.zeros_like(total), where=weight > 0)
    clip_scores = scores.clip_scores
    if clip_scores is not None:
        clip_scores = np.maximum.reduceat(clip_scores, first)
    # The last segment may contain no centre; the recording then ends with the one before.
    duration = min(scores.duration, grid.onset(len(pooled)))
    return FrameScores(pooled, scores.labels, grid, duration=duration, clip_scores=clip_scores)
