"""Truth and scores -> average precision, ROC AUC and lwlrap: how well clips are ranked.

Conventions: no threshold is chosen; only the order of the scores matters. Scores that are equal are
one threshold, as in scikit-learn: what is tied comes together, and in ROC AUC a tie is half right.

- average precision: precision at each true item's threshold, averaged over the true items; the
  area under the precision-recall curve by steps, without interpolation.
- ROC AUC: how often a true item is above a false one.
- lwlrap: within one clip, for each of its true classes, the part of true ones among the classes
  that score as high or higher; averaged over all true classes of all clips (DCASE 2019, task 2).

Where nothing is true average precision and lwlrap are nan, and ROC AUC also where nothing is false;
scikit-learn calls the first 0, or 1 for a clip's lwlrap.

Each item is weighed as `earmark.metrics.rates` says: a weight of 3 is the clip three times over.
Memory beside the weights stays at a few times 16 MB, however many draws there are.
"""

import numpy as np
from numpy.typing import NDArray

from earmark.metrics.rates import Reals, ratio

_CHUNK_VALUES = 2**21  # weights looked at in one go: 16 MB


def rank_items(
    truth: NDArray[np.bool_],
    scores: Reals,
    weights: Reals,
    of_file: NDArray[np.int64] | None = None,
) -> tuple[Reals, Reals]:
    """Return average precision and ROC AUC (draws,) of the ranked items.

    Args:
        truth: (items,), what is true.
        scores: (items,), no nan.
        weights: (draws, files).
        of_file: (items,), the file of each item; without it, items are files.

    >>> truth, scores = np.array([True, False, True]), np.array([0.9, 0.5, 0.5])
    >>> rank_items(truth, scores, np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]]))
    (array([0.83333333, 1.        ]), array([0.75, 1.  ]))
    """
    n_draws = len(weights)
    precision, auc = np.full(n_draws, np.nan), np.full(n_draws, np.nan)
    if not truth.any():
        return precision, auc
    order = np.argsort(-scores, kind="stable")
    truth, scores = truth[order], scores[order]
    files = order if of_file is None else of_file[order]
    # Items fall into bins: each threshold that holds something true is one, all between two of
    # them is another. So only the true items, which are few, are added up one by one.
    begins = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    hit = np.add.reduceat(truth.astype(np.int64), begins) > 0
    opens = hit | np.concatenate([[True], hit[:-1]])
    begins, hit = begins[opens], hit[opens]
    true_files = files[truth]
    n_before: NDArray[np.int64] = np.cumsum(truth) - truth
    true_begins = n_before[begins[hit]]  # where the true items of each bin begin among them
    step = max(1, _CHUNK_VALUES // len(files))
    for at in range(0, n_draws, step):
        chunk = slice(at, at + step)
        by_file = np.ascontiguousarray(weights[chunk].T)
        n_bin = np.add.reduceat(by_file[files], begins)  # (bins, draws)
        n_true = np.add.reduceat(by_file[true_files], true_begins)  # (bins that have one, draws)
        above = np.cumsum(n_bin, axis=0)
        true_above = np.cumsum(n_true, axis=0)
        positives = true_above[-1]
        negatives = above[-1] - positives
        above, n_bin = above[hit], n_bin[hit]
        parts = n_true * ratio(true_above, above, 0.0)
        precision[chunk] = ratio(parts.sum(axis=0), positives)
        false_above = above - true_above - (n_bin - n_true) / 2  # those tied count half
        wins = (n_true * (negatives - false_above)).sum(axis=0)
        auc[chunk] = ratio(wins, positives * negatives)
    return precision, auc


def rank_classes(truth: NDArray[np.bool_], scores: Reals) -> Reals:
    """Return (clips, classes): the precision at each true class of a clip, 0 where it is not true.

    Args:
        truth: (clips, classes), what is true.
        scores: (clips, classes), no nan.

    >>> rank_classes(np.array([[True, False, True]]), np.array([[0.9, 0.5, 0.2]]))
    array([[1.        , 0.        , 0.66666667]])
    """
    n_clips, n_classes = truth.shape
    if n_classes == 0:
        return np.zeros(truth.shape)
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    true_above = np.cumsum(np.take_along_axis(truth, order, axis=1), axis=1)
    # A tie reaches down to its last class: the next place, from here on, where the score falls.
    falls = np.concatenate([ranked[:, 1:] != ranked[:, :-1], np.ones((n_clips, 1), bool)], axis=1)
    place = np.where(falls, np.arange(n_classes), n_classes)
    last = np.minimum.accumulate(place[:, ::-1], axis=1)[:, ::-1]
    precision = np.take_along_axis(true_above, last, axis=1) / (last + 1)
    by_class = np.empty(truth.shape)
    np.put_along_axis(by_class, order, precision, axis=1)
    return np.where(truth, by_class, 0.0)
