"""Frame-level scores -> so many points to draw: the lowest and the highest score of each."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import choose
from earmark.frames import FrameScores

DECIMALS = 4


def score_points(
    scores: FrameScores,
    start: float,
    end: float,
    points: int,
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Return the scores of a part of a recording, reduced to `points` or fewer.

    Each point stands for the same number of whole frames, so that scores never move against the
    time axis.

    Args:
        scores: of the recording, on a grid.
        start: of the part, in seconds.
        end: of the part; what is beyond the recording is left out.
        points: how many at most.
        labels: only these classes; all without it.

    >>> from earmark.frames import FrameGrid
    >>> own = FrameScores([[0.1], [0.9], [0.3]], ["dog"], FrameGrid(2), clip_scores=[0.7])
    >>> found = score_points(own, 0.0, 9.0, 2)
    >>> found["low"], found["high"], found["step"], found["clip_probs"]
    ([[0.1, 0.3]], [[0.9, 0.3]], 1.0, [[0.7, 0.7]])
    """
    assert scores.grid is not None
    grid, n_frames = scores.grid, len(scores)
    first = min(grid.index(min(start, scores.duration)), n_frames)
    stop = max(first, min(grid.count(min(end, scores.duration)), n_frames))
    per_point = max(1, -(-(stop - first) // points))
    first -= first % per_point  # so that points stay where they are when the part is moved
    starts = np.arange(first, stop, per_point) - first
    chosen = scores.labels if labels is None else list(dict.fromkeys(labels))
    columns = [scores.labels.index(choose("class", label, scores.labels)) for label in chosen]
    part = scores.scores[first:stop, columns]
    clips = part if scores.clip_scores is None else scores.clip_scores[first:stop, columns]
    return {
        "start": grid.onset(first),
        "step": grid.onset(per_point),
        "labels": list(chosen),
        "low": _rows(np.minimum, part, starts),
        "high": _rows(np.maximum, part, starts),
        "clip_probs": _rows(np.maximum, clips, starts),
    }


def _rows(reduce: np.ufunc, values: NDArray[Any], starts: NDArray[np.intp]) -> list[list[float]]:
    """(frames, classes) -> one list per class, reduced from each start to the next."""
    if not len(starts):
        return [[] for _ in range(values.shape[1])]
    reduced = reduce.reduceat(values, starts, axis=0).astype(np.float64)
    rows: list[list[float]] = np.round(reduced, DECIMALS).T.tolist()
    return rows
