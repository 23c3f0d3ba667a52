"""Counts -> an interval around every score: how far it may lie from that of other clips.

Conventions: files are drawn with replacement, as many as there are, and everything is scored anew;
clips are the unit, as what happens within one hangs together. The interval tells how the score
would vary with the choice of clips, not with the seed of training.

A draw in which a score is undefined, such as one without any clip of a rare class, is left out and
counted. Where more than half of the draws are, the interval is nan. The same seed gives the same
draws of files, for every scorer.

The ends are quantiles of the drawn scores, moved for their bias (BC, Efron 1981): a draw, with its
doubled clips, may score higher or lower than the clips it is made of, and in a mean over classes
that bias stays while the spread shrinks. How often intervals of 95 % held the true score, in sets
of simulated clips (400 of 3 classes, 200 of 17; `coverage` in `tests/test_metrics_bootstrap.py`):

                            quantiles / BC
    clips, classes      F1            ER            macro F1      mAP           lwlrap
    30, 3               0.95 / 0.95   0.96 / 0.95   0.94 / 0.92   0.80 / 0.86   0.90 / 0.91
    100, 3              0.93 / 0.93   0.94 / 0.94   0.94 / 0.93   0.87 / 0.92   0.95 / 0.95
    300, 3              0.94 / 0.95   0.94 / 0.94   0.94 / 0.94   0.92 / 0.95   0.96 / 0.96
    200, 17             0.97 / 0.96   0.95 / 0.95   0.92 / 0.95   0.72 / 0.86   0.96 / 0.96
    1000, 17            0.95 / 0.95   0.96 / 0.94   0.97 / 0.97   0.86 / 0.90   0.95 / 0.94

So trust an interval of the mAP least. The basic bootstrap holds it more often with 17 classes (0.89
of 200 clips), but the AP of one class with ten clips far less (0.82 where BC has 0.95); BCa, tried
beside, was no better than BC and needs every file left out once. With three clips of a class none
of them holds (0.84 at best): the class's own interval is too narrow then.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from earmark.errors import DataError, SettingError
from earmark.metrics.rates import Counts, Measured, Reals

Ints = NDArray[np.int64]
Path = tuple[str, ...]

_NORMAL = NormalDist()

_CHUNK_VALUES = 2**23  # weights in memory at a time: 64 MB


@dataclass(frozen=True)
class Interval:
    """A score and where it may lie; `n_undefined` draws had no score and were left out."""

    value: float
    low: float
    high: float
    n_undefined: int = 0


@dataclass(frozen=True)
class Intervals:
    """Every score with its interval, nested as the scores are.

    Args:
        overall: group -> name -> interval.
        class_wise: label -> group -> name -> interval.
        class_wise_average: group -> name -> interval.
        level: how often such an interval should hold the true score.
        n_draws: how often the files were drawn.
        n_files: how many files there are.
    """

    overall: dict[str, dict[str, Interval]]
    class_wise: dict[str, dict[str, dict[str, Interval]]]
    class_wise_average: dict[str, dict[str, Interval]]
    level: float
    n_draws: int
    n_files: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain dicts and numbers; nan stays nan.

        >>> one = {"f_measure": {"recall": Interval(0.5, 0.25, 0.75)}}
        >>> Intervals(one, {}, {}, 0.95, 1000, 20).to_dict()["overall"]["f_measure"]["recall"]
        {'value': 0.5, 'low': 0.25, 'high': 0.75, 'n_undefined': 0}
        """
        return asdict(self)


def bootstrap_scores(
    counts: Counts, *, n_draws: int = 1000, level: float = 0.95, seed: int = 0
) -> Intervals:
    """Return the interval of every score of `counts.measure`.

    Args:
        counts: of any scorer.
        n_draws: how often the files are drawn.
        level: how often the interval should hold the true score.
        seed: the same seed gives the same intervals.

    >>> from earmark.metrics.clip import count_clips
    >>> reference = {name: ["dog"] for name in "abcdefgh"}
    >>> counts = count_clips(reference, {name: ["dog"] for name in "abcdef"})
    >>> recall = bootstrap_scores(counts).overall["f_measure"]["recall"]
    >>> recall.low, recall.value, recall.high
    (0.375, 0.75, 1.0)
    """
    check_draws(counts, n_draws, level)
    measured = counts.measure()
    value = score_table(measured)[0]
    drawn = np.concatenate(
        [score_table(counts.measure(weights)) for weights in draw_files(counts, n_draws, seed)]
    )
    low, high, n_undefined = bound_scores(value, drawn, level)
    found = [
        Interval(*four)
        for four in zip(
            value.tolist(), low.tolist(), high.tolist(), n_undefined.tolist(), strict=True
        )
    ]
    return Intervals(
        **nest_scores(score_paths(measured, counts.labels), found),
        level=level,
        n_draws=n_draws,
        n_files=len(counts.files),
    )


def check_draws(counts: Counts, n_draws: int, level: float) -> None:
    """Raise if files cannot be drawn so that an interval means something.

    >>> from earmark.metrics.clip import count_clips
    >>> check_draws(count_clips({"a.wav": ["dog"]}, {}), 1000, 0.95)
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: An interval needs at least two files to draw from. Got 1: a.wav.
    """
    if not 0 < level < 1:
        raise SettingError(f"level must lie between 0 and 1, such as 0.95. Got {level!r}.")
    fewest = round(2 / (1 - level))
    if n_draws < fewest:
        raise SettingError(
            f"n_draws must be at least {fewest}, so that a draw lies beyond each end of an "
            f"interval of level {level:g}. Got {n_draws!r}."
        )
    if len(counts.files) < 2:
        names = ", ".join(counts.files) or "none"
        raise DataError(
            f"An interval needs at least two files to draw from. Got {len(counts.files)}: {names}."
        )


def draw_files(counts: Counts, n_draws: int, seed: int) -> Iterator[Reals]:
    """Yield how often each file is drawn, (draws, files) of at most 64 MB at a time.

    >>> from earmark.metrics.clip import count_clips
    >>> counts = count_clips({name: ["dog"] for name in "abcd"}, {})
    >>> [weights.sum(axis=1).tolist() for weights in draw_files(counts, 3, seed=0)]
    [[4.0, 4.0, 4.0]]
    """
    yield from draw_rows(len(counts.files), n_draws, seed)


def draw_rows(n_files: int, n_draws: int, seed: int) -> Iterator[Reals]:
    """Yield how often each of so many files is drawn, as `draw_files` does.

    >>> [weights.shape for weights in draw_rows(4, 3, seed=0)]
    [(3, 4)]
    """
    rng = np.random.default_rng(seed)
    for n_rows in chunk_sizes(n_draws, n_files):
        weights = np.empty((n_rows, n_files))
        for row in weights:  # one draw after the other: 20 times as fast as rng.multinomial
            row[:] = np.bincount(rng.integers(0, n_files, n_files), minlength=n_files)
        yield weights


def chunk_sizes(n_draws: int, n_columns: int) -> Iterator[int]:
    """Yield numbers of draws whose (draws, columns) fit in 64 MB, all in all `n_draws`.

    >>> list(chunk_sizes(1000, 20_000))
    [419, 419, 162]
    """
    most = max(1, _CHUNK_VALUES // max(1, n_columns))
    for done in range(0, n_draws, most):
        yield min(most, n_draws - done)


def score_paths(measured: Measured, labels: Sequence[str]) -> list[Path]:
    """Return where each column of `score_table` belongs.

    >>> one = {"f_measure": {"recall": np.array([0.5])}}
    >>> each = {"f_measure": {"recall": np.array([[0.5, 1.0]])}}
    >>> score_paths(Measured(one, each, {}), ["cat", "dog"])[1:]
    [('class_wise', 'cat', 'f_measure', 'recall'), ('class_wise', 'dog', 'f_measure', 'recall')]
    """
    overall, average = (
        [(kind, group, name) for group, names in getattr(measured, kind).items() for name in names]
        for kind in ("overall", "class_wise_average")
    )
    each = [
        ("class_wise", label, group, name)
        for group, names in measured.class_wise.items()
        for name in names
        for label in labels
    ]
    return [*overall, *each, *average]


def score_table(measured: Measured) -> Reals:
    """Return every score of every draw side by side, (draws, scores).

    >>> one = {"f_measure": {"recall": np.array([0.5])}}
    >>> each = {"f_measure": {"recall": np.array([[0.5, 1.0]])}}
    >>> score_table(Measured(one, each, one))
    array([[0.5, 0.5, 1. , 0.5]])
    """
    kinds = (measured.overall, measured.class_wise, measured.class_wise_average)
    scores = [score for kind in kinds for group in kind.values() for score in group.values()]
    return np.concatenate([score.reshape(len(score), -1) for score in scores], axis=1)


def nest_scores(paths: Sequence[Path], values: Sequence[Any]) -> dict[str, Any]:
    """Return the values nested along their paths.

    >>> nest_scores([("overall", "f_measure", "recall")], [0.5])["overall"]
    {'f_measure': {'recall': 0.5}}
    """
    nested: dict[str, Any] = {"overall": {}, "class_wise": {}, "class_wise_average": {}}
    for path, value in zip(paths, values, strict=True):
        inner = nested
        for name in path[:-1]:
            inner = inner.setdefault(name, {})
        inner[path[-1]] = value
    return nested


def bound_scores(value: Reals, drawn: Reals, level: float) -> tuple[Reals, Reals, Ints]:
    """Return the low and high end of each score, and in how many draws it was undefined.

    Args:
        value: (scores,), of the files as they are.
        drawn: (draws, scores).
        level: how often the interval should hold the true score.

    >>> bound_scores(np.array([2.0]), np.array([[1.0], [2.0], [3.0], [np.nan]]), 0.5)
    (array([1.5]), array([2.5]), array([1]))
    """
    n_undefined = np.isnan(drawn).sum(axis=0)
    n_defined = len(drawn) - n_undefined
    close = np.abs(drawn - value) <= 1e-12  # sums of floats may differ in their last digit
    n_below = (drawn < value).sum(axis=0, where=~close) + close.sum(axis=0) / 2
    # How many draws lie below the score itself: half of them, where there is no bias.
    bias = [_NORMAL.inv_cdf(part) for part in (n_below + 0.5) / (n_defined + 1)]
    tail = _NORMAL.inv_cdf((1 + level) / 2)
    ordered = np.sort(drawn, axis=0)  # nan comes last
    column = np.arange(drawn.shape[1])
    ends = []
    for sign in (-1, 1):
        part = np.array([_NORMAL.cdf(2 * b + sign * tail) for b in bias])
        place = part * np.maximum(n_defined - 1, 0)
        below = np.floor(place).astype(np.int64)
        under, over = ordered[below, column], ordered[np.ceil(place).astype(np.int64), column]
        end = under + (place - below) * (over - under)
        ends.append(np.where((n_undefined * 2 > len(drawn)) | np.isnan(value), np.nan, end))
    return ends[0], ends[1], n_undefined
