"""Confidence intervals of scores, by the bootstrap over files.

Files are drawn with replacement, as many as there are, and everything is scored again; clips are
the unit, since events within a clip are dependent. The interval describes how the score would vary
with the choice of clips, not with the seed of training.

Conventions: samples in which a score is undefined, such as those without any clip of a rare class,
are left out and counted. If more than half of the samples are undefined, the interval is nan. The
same seed gives the same samples of files, for every scorer.

The ends are bias-corrected quantiles of the samples (BC, Efron 1981): a bootstrap sample, with its
repeated clips, may score systematically higher or lower than the original clips, and in a mean over
classes that bias remains while the spread shrinks. Coverage of 95 % intervals in simulations (400
sets of 3 classes, 200 of 17; `coverage` in `tests/test_metrics_bootstrap.py`):

                            quantiles / BC
    clips, classes      F1            ER            macro F1      mAP           lwlrap
    30, 3               0.95 / 0.95   0.96 / 0.95   0.94 / 0.92   0.80 / 0.86   0.90 / 0.91
    100, 3              0.93 / 0.93   0.94 / 0.94   0.94 / 0.93   0.87 / 0.92   0.95 / 0.95
    300, 3              0.94 / 0.95   0.94 / 0.94   0.94 / 0.94   0.92 / 0.95   0.96 / 0.96
    200, 17             0.97 / 0.96   0.95 / 0.95   0.92 / 0.95   0.72 / 0.86   0.96 / 0.96
    1000, 17            0.95 / 0.95   0.96 / 0.94   0.97 / 0.97   0.86 / 0.90   0.95 / 0.94

So the interval of the mAP is the least reliable. The basic bootstrap covers it more often with 17
classes (0.89 with 200 clips), but the AP of one class with ten clips far less (0.82 where BC has
0.95); BCa was no better than BC and has to leave out every file once. With three clips of a class
no method reaches its level (0.84 at best): the interval of that class is too narrow.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from earmark.errors import DataError, SettingError
from earmark.metrics.event_arrays import Ints
from earmark.metrics.weighted_scores import Counts, Reals, nest_scores

_NORMAL = NormalDist()
_CHUNK_VALUES = 2**23  # weights in memory at a time: 64 MB


@dataclass(frozen=True)
class Interval:
    """A score and its confidence interval.

    Args:
        value: the score.
        low: lower end of the interval.
        high: upper end.
        n_undefined: bootstrap samples in which the score was undefined, left out.

    >>> Interval(0.5, 0.4, 0.6).high
    0.6
    """

    value: float
    low: float
    high: float
    n_undefined: int = 0


@dataclass(frozen=True)
class Intervals:
    """Every score with its confidence interval, nested as the scores are.

    Args:
        overall: group -> name -> interval.
        class_wise: label -> group -> name -> interval.
        class_wise_average: group -> name -> interval.
        level: confidence level.
        n_bootstrap: number of bootstrap samples.
        n_files: number of files.

    >>> one = {"f_measure": {"recall": Interval(0.5, 0.25, 0.75)}}
    >>> Intervals(one, {}, {}, 0.95, 1000, 20).overall["f_measure"]["recall"].low
    0.25
    """

    overall: dict[str, dict[str, Interval]]
    class_wise: dict[str, dict[str, dict[str, Interval]]]
    class_wise_average: dict[str, dict[str, Interval]]
    level: float
    n_bootstrap: int
    n_files: int

    def __repr__(self) -> str:
        return f"Intervals({self.n_files} files, {self.level:.0%}, {self.n_bootstrap} samples)"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts and numbers; nan stays nan.

        >>> one = {"f_measure": {"recall": Interval(0.5, 0.25, 0.75)}}
        >>> Intervals(one, {}, {}, 0.95, 1000, 20).to_dict()["overall"]["f_measure"]["recall"]
        {'value': 0.5, 'low': 0.25, 'high': 0.75, 'n_undefined': 0}
        """
        return asdict(self)


def bootstrap_scores(
    counts: Counts, *, n_bootstrap: int = 1000, level: float = 0.95, seed: int = 0
) -> Intervals:
    """Return the confidence interval of every score of `counts.weighted_scores`.

    Args:
        counts: of any scorer.
        n_bootstrap: number of bootstrap samples.
        level: confidence level.
        seed: of the bootstrap samples.

    >>> from earmark.metrics.clip import count_clips
    >>> reference = {name: ["dog"] for name in "abcdefgh"}
    >>> counts = count_clips(reference, {name: ["dog"] for name in "abcdef"})
    >>> recall = bootstrap_scores(counts).overall["f_measure"]["recall"]
    >>> recall.low, recall.value, recall.high
    (0.375, 0.75, 1.0)
    """
    check_bootstrap(counts, n_bootstrap, level)
    scores = counts.weighted_scores()
    value = scores.table()[0]
    samples = np.concatenate(
        [
            counts.weighted_scores(weights).table()
            for weights in bootstrap_weights(len(counts.files), n_bootstrap, seed)
        ]
    )
    columns = (value, *confidence_bounds(value, samples, level))
    intervals = [Interval(*row) for row in zip(*(each.tolist() for each in columns), strict=True)]
    return Intervals(
        **nest_scores(scores.paths(counts.labels), intervals),
        level=level,
        n_bootstrap=n_bootstrap,
        n_files=len(counts.files),
    )


def check_bootstrap(counts: Counts, n_bootstrap: int, level: float) -> None:
    """Raise if the files or the settings do not allow for confidence intervals.

    >>> from earmark.metrics.clip import count_clips
    >>> check_bootstrap(count_clips({"a.wav": ["dog"]}, {}), 1000, 0.95)
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: A confidence interval needs at least two files. Got 1: a.wav.
    """
    if not 0 < level < 1:
        raise SettingError(f"level must lie between 0 and 1, such as 0.95. Got {level!r}.")
    fewest = round(2 / (1 - level))
    if n_bootstrap < fewest:
        raise SettingError(
            f"n_bootstrap must be at least {fewest}, so that a sample lies beyond each end of an "
            f"interval of level {level:g}. Got {n_bootstrap!r}."
        )
    if len(counts.files) < 2:
        names = ", ".join(counts.files) or "none"
        raise DataError(
            f"A confidence interval needs at least two files. Got {len(counts.files)}: {names}."
        )


def bootstrap_weights(n_files: int, n_bootstrap: int, seed: int) -> Iterator[Reals]:
    """Yield how often each file occurs in each sample, (samples, files) of at most 64 MB.

    >>> [weights.sum(axis=1).tolist() for weights in bootstrap_weights(4, 3, seed=0)]
    [[4.0, 4.0, 4.0]]
    """
    rng = np.random.default_rng(seed)
    for n_rows in chunk_sizes(n_bootstrap, n_files):
        weights = np.empty((n_rows, n_files))
        for row in weights:  # one sample at a time: 20 times as fast as rng.multinomial
            row[:] = np.bincount(rng.integers(0, n_files, n_files), minlength=n_files)
        yield weights


def chunk_sizes(n_rows: int, n_columns: int) -> Iterator[int]:
    """Yield numbers of rows whose (rows, columns) fit in 64 MB and which sum to `n_rows`.

    >>> list(chunk_sizes(1000, 20_000))
    [419, 419, 162]
    """
    most = max(1, _CHUNK_VALUES // max(1, n_columns))
    for done in range(0, n_rows, most):
        yield min(most, n_rows - done)


def confidence_bounds(value: Reals, samples: Reals, level: float) -> tuple[Reals, Reals, Ints]:
    """Return the lower and upper end of each score, and in how many samples it was undefined.

    Args:
        value: (scores,), of the files themselves.
        samples: (samples, scores).
        level: confidence level.

    >>> confidence_bounds(np.array([2.0]), np.array([[1.0], [2.0], [3.0], [np.nan]]), 0.5)
    (array([1.5]), array([2.5]), array([1]))
    """
    n_undefined = np.isnan(samples).sum(axis=0)
    n_defined = len(samples) - n_undefined
    close = np.abs(samples - value) <= 1e-12  # sums of floats may differ in their last digit
    n_below = (samples < value).sum(axis=0, where=~close) + close.sum(axis=0) / 2
    # The fraction of samples below the score itself: one half if there is no bias.
    bias = [_NORMAL.inv_cdf(part) for part in (n_below + 0.5) / (n_defined + 1)]
    tail = _NORMAL.inv_cdf((1 + level) / 2)
    ordered = np.sort(samples, axis=0)  # nan comes last
    column = np.arange(samples.shape[1])
    ends = []
    for sign in (-1, 1):
        quantile = np.array([_NORMAL.cdf(2 * b + sign * tail) for b in bias])
        position = quantile * np.maximum(n_defined - 1, 0)
        below = np.floor(position).astype(np.int64)
        under, over = ordered[below, column], ordered[np.ceil(position).astype(np.int64), column]
        end = under + (position - below) * (over - under)
        ends.append(np.where((n_undefined * 2 > len(samples)) | np.isnan(value), np.nan, end))
    return ends[0], ends[1], n_undefined
