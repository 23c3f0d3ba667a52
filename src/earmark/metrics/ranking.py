"""Ranking metrics of clip scores: average precision, ROC AUC and lwlrap.

Conventions: no threshold is chosen; only the order of the scores matters. Equal scores are one
threshold, as in scikit-learn: tied items are ranked together, and a tie counts half in ROC AUC.

Metrics:

- average precision: the precision at the threshold of each positive, averaged over the positives;
  the area under the precision-recall curve by steps, without interpolation.
- ROC AUC: the probability that a positive scores higher than a negative.
- lwlrap: within one clip, for each of its reference tags, the fraction of reference tags among the
  classes that score as high or higher; averaged over all tags of all clips (DCASE 2019, task 2).

Average precision and lwlrap are nan without positives, and ROC AUC also without negatives;
scikit-learn returns 0 for the first, or 1 for the lwlrap of a clip.

Items are weighted as in `earmark.metrics.weighted_scores`: a weight of 3 counts the clip three
times. Memory besides the weights stays at a few times 16 MB, however many samples there are.
"""

import numpy as np

from earmark.metrics.event_arrays import Bools, Ints
from earmark.metrics.rates import divide
from earmark.metrics.weighted_scores import Reals

_CHUNK_VALUES = 2**21  # weights processed at a time: 16 MB


def rank_items(
    relevant: Bools,
    scores: Reals,
    weights: Reals,
    file_index: Ints | None = None,
) -> tuple[Reals, Reals]:
    """Return average precision and ROC AUC, both (samples,), of the ranked items.

    Args:
        relevant: (items,), True for positives.
        scores: (items,), no nan.
        weights: (samples, files).
        file_index: (items,), the file of each item; by default each item is one file.

    >>> relevant, scores = np.array([True, False, True]), np.array([0.9, 0.5, 0.5])
    >>> rank_items(relevant, scores, np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))
    (array([0.83333333, 1.        ]), array([0.75, 1.  ]))
    """
    n_samples = len(weights)
    precision, auc = np.full(n_samples, np.nan), np.full(n_samples, np.nan)
    if not relevant.any():
        return precision, auc
    order = np.argsort(-scores, kind="stable")
    relevant, scores = relevant[order], scores[order]
    files = order if file_index is None else file_index[order]
    # Items are binned: each threshold with a positive is one bin, everything between two of them is
    # another. So only the positives, which are few, are summed one by one.
    begins = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    hit = np.add.reduceat(relevant.astype(np.int64), begins) > 0
    opens = hit | np.concatenate([[True], hit[:-1]])
    begins, hit = begins[opens], hit[opens]
    positive_files = files[relevant]
    n_before: Ints = np.cumsum(relevant) - relevant
    positive_begins = n_before[begins[hit]]  # where the positives of each bin begin
    step = max(1, _CHUNK_VALUES // len(files))
    for start in range(0, n_samples, step):
        chunk = slice(start, start + step)
        by_file = np.ascontiguousarray(weights[chunk].T)
        n_bin = np.add.reduceat(by_file[files], begins)  # (bins, samples)
        n_positive = np.add.reduceat(
            by_file[positive_files], positive_begins
        )  # (hit bins, samples)
        above = np.cumsum(n_bin, axis=0)
        tp = np.cumsum(n_positive, axis=0)
        positives = tp[-1]
        negatives = above[-1] - positives
        above, n_bin = above[hit], n_bin[hit]
        parts = n_positive * divide(tp, above, 0.0)
        precision[chunk] = divide(parts.sum(axis=0), positives)
        fp = above - tp - (n_bin - n_positive) / 2  # a tie counts half
        wins = (n_positive * (negatives - fp)).sum(axis=0)
        auc[chunk] = divide(wins, positives * negatives)
    return precision, auc


def rank_classes(relevant: Bools, scores: Reals) -> Reals:
    """Return (clips, classes): the precision at each class that is tagged in a clip, 0 elsewhere.

    Args:
        relevant: (clips, classes), True where the reference has the tag.
        scores: (clips, classes), no nan.

    >>> rank_classes(np.array([[True, False, True]]), np.array([[0.9, 0.5, 0.2]]))
    array([[1.        , 0.        , 0.66666667]])
    """
    n_clips, n_classes = relevant.shape
    if n_classes == 0:
        return np.zeros(relevant.shape)
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    tp = np.cumsum(np.take_along_axis(relevant, order, axis=1), axis=1)
    # Tied classes share one threshold: the last rank, from each class on, before the score falls.
    falls = np.concatenate([ranked[:, 1:] != ranked[:, :-1], np.ones((n_clips, 1), bool)], axis=1)
    rank = np.where(falls, np.arange(n_classes), n_classes)
    last = np.minimum.accumulate(rank[:, ::-1], axis=1)[:, ::-1]
    precision = np.take_along_axis(tp, last, axis=1) / (last + 1)
    by_class = np.empty(relevant.shape)
    np.put_along_axis(by_class, order, precision, axis=1)
    return np.where(relevant, by_class, 0.0)
