"""Clip-based scores of tags and clip probabilities: F-measure, mAP, ROC AUC, lwlrap.

The task (audio tagging): given the reference tags of each clip, score the tags that a system
estimated, its probability per class, or both.

Conventions: `reference` and `estimate` map a file name to its tags, `probs` to one score per class,
in the order of `labels`. The scores have three levels:

    overall             all pairs of clip and class as one list (micro average)
    class_wise          each class alone, over all clips
    class_wise_average  the mean over classes (macro average): `average_precision` here is the mAP

Metrics: tags give the groups `f_measure`, `error_rate` and `accuracy`; a clip counts as one segment
does in `earmark.metrics.segment`. Probabilities give the group `ranking`, which needs no threshold
(`earmark.metrics.ranking`).

Undefined scores:

- If a class is never estimated, its precision and F-measure are nan, or 0 with `empty_as_zero`; if
  it is not in the reference, recall, F-measure, error rates and ranking are nan. The mean over
  classes leaves nan out; scikit-learn uses 0 and includes it in the mean.
- A file that is missing from the estimate has no tags, and is listed in `missing_files`; a file
  that is missing from `probs` is an error. Files that only the estimate or `probs` contain are
  ignored and listed in `unknown_files`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.metrics.event_arrays import Bools
from earmark.metrics.ranking import rank_classes, rank_items
from earmark.metrics.rates import accuracies, class_averages, divide, error_rates, f_measures
from earmark.metrics.weighted_scores import (
    Group,
    GroupedScores,
    Reals,
    WeightedScores,
    weighted_sum,
)

Tags = Mapping[str, Collection[str]]


@dataclass(frozen=True, repr=False)
class ClipScores(GroupedScores):
    """The scores; those of tags or of probabilities may be absent.

    >>> clip_scores({"a.wav": ["dog"]}, {"a.wav": ["dog"]}).lwlrap
    nan
    """

    @property
    def mean_average_precision(self) -> float:
        """The mean over classes of the average precision; nan without probabilities."""
        return self.class_wise_average.get("ranking", {}).get("average_precision", np.nan)

    @property
    def lwlrap(self) -> float:
        """The label-weighted label-ranking average precision; nan without probabilities."""
        return self.overall.get("ranking", {}).get("lwlrap", np.nan)


@dataclass(frozen=True, eq=False)
class ClipCounts:
    """Reference tags, estimated tags and probabilities of each clip.

    Shape: `reference`, `estimate` and `probs` (files, classes); `estimate` or `probs` may be None.

    >>> count_clips({"a.wav": ["dog"]}, {"a.wav": ["cat"]}).estimate
    array([[ True, False]])
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    reference: Bools
    estimate: Bools | None = None
    probs: Reals | None = None
    missing_files: tuple[str, ...] = ()
    unknown_files: tuple[str, ...] = ()
    empty_as_zero: bool = False

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the scores of every row of weights; see `earmark.metrics.weighted_scores`.

        >>> counts = count_clips({"a.wav": ["dog"], "b.wav": ["dog"]}, {"a.wav": ["dog"]})
        >>> weights = np.array([[1.0, 1.0], [3.0, 1.0]])
        >>> counts.weighted_scores(weights).overall["f_measure"]["recall"]
        array([0.5 , 0.75])
        """
        overall: dict[str, Group] = {}
        class_wise: dict[str, Group] = {}
        count = {"Nref": weighted_sum(weights, self.reference)}
        if self.estimate is not None:
            n_sys, tag_overall, tag_class_wise = self._score_tags(self.estimate, weights)
            count["Nsys"] = n_sys
            overall |= tag_overall
            class_wise |= tag_class_wise
        if self.probs is not None:
            overall["ranking"], class_wise["ranking"] = self._score_ranking(self.probs, weights)
        return WeightedScores(overall, class_wise | {"count": count}, class_averages(class_wise))

    def scores(self) -> ClipScores:
        """Return the scores of all clips.

        >>> count_clips({"a.wav": ["dog"], "b.wav": ["dog"]}, {"a.wav": ["dog"]}).scores().f_measure
        0.6666666666666666
        """
        return ClipScores(
            **self.weighted_scores().sample(self.labels),
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=self.unknown_files,
        )

    def concatenate(self, other: "ClipCounts") -> "ClipCounts":
        """Return the counts of both, the files of `other` last.

        >>> counts = count_clips({"a.wav": ["dog"]}, {})
        >>> counts.concatenate(counts).reference.tolist()
        [[True], [True]]
        """
        if self.labels != other.labels:
            raise SettingError("Only counts with the same labels can be concatenated.")
        both: dict[str, Any] = {}
        for name in ("reference", "estimate", "probs"):
            tables = [getattr(self, name), getattr(other, name)]
            if (tables[0] is None) != (tables[1] is None):
                raise SettingError(
                    f"Counts can be concatenated only if both have {name}, or neither."
                )
            both[name] = None if tables[0] is None else np.concatenate(tables)
        return replace(self, files=self.files + other.files, **both)

    def _score_tags(
        self, estimate: Bools, weights: Reals | None
    ) -> tuple[Reals, dict[str, Group], dict[str, Group]]:
        correct = self.reference & estimate
        tp, fp, fn = (
            weighted_sum(weights, table)
            for table in (correct, estimate & ~correct, self.reference & ~correct)
        )
        n_ref, n_est, n_both = (table.sum(axis=1) for table in (self.reference, estimate, correct))
        s, d, i, n_clips = (
            weighted_sum(weights, each)
            for each in (
                np.minimum(n_ref, n_est) - n_both,
                np.maximum(0, n_ref - n_est),
                np.maximum(0, n_est - n_ref),
                np.ones(len(self.files)),
            )
        )
        all_tp, all_fp, all_fn = (each.sum(axis=-1) for each in (tp, fp, fn))
        zero = self.empty_as_zero
        overall = {
            "f_measure": f_measures(all_tp, all_fp, all_fn, empty_as_zero=zero),
            "error_rate": error_rates(all_tp + all_fn, d, i, s),
            "accuracy": accuracies(all_tp, all_fp, all_fn, n_clips * len(self.labels)),
        }
        class_wise = {
            "f_measure": f_measures(tp, fp, fn, empty_as_zero=zero),
            "error_rate": error_rates(tp + fn, fn, fp),
            "accuracy": accuracies(tp, fp, fn, n_clips[:, None]),
        }
        return tp + fp, overall, class_wise

    def _score_ranking(self, probs: Reals, weights: Reals | None) -> tuple[Group, Group]:
        n_files, n_classes = self.reference.shape
        tag_precision = weighted_sum(weights, rank_classes(self.reference, probs))
        n_tags = weighted_sum(weights, self.reference)
        if weights is None:
            weights = np.ones((1, n_files))
        file_index = np.repeat(np.arange(n_files), n_classes)
        precision, auc = rank_items(self.reference.ravel(), probs.ravel(), weights, file_index)
        by_class = np.empty((2, len(weights), n_classes))
        for index in range(n_classes):
            by_class[:, :, index] = rank_items(self.reference[:, index], probs[:, index], weights)
        overall = {
            "average_precision": precision,
            "roc_auc": auc,
            "lwlrap": divide(tag_precision.sum(axis=-1), n_tags.sum(axis=-1)),
        }
        class_wise = {
            "average_precision": by_class[0],
            "roc_auc": by_class[1],
            "lwlrap": divide(tag_precision, n_tags),
        }
        return overall, class_wise


def clip_scores(
    reference: Tags,
    estimate: Tags | None = None,
    probs: Mapping[str, ArrayLike] | None = None,
    labels: Sequence[str] | None = None,
    *,
    empty_as_zero: bool = False,
) -> ClipScores:
    """Return the clip-based scores of tags, of clip probabilities, or of both.

    Args:
        reference: file name -> reference tags; these files are evaluated.
        estimate: file name -> estimated tags.
        probs: file name -> (classes,), one score per label.
        labels: the classes, in the order of the result; by default every label that occurs.
            Required with `probs`.
        empty_as_zero: precision and F-measure of a class that was never detected are 0, not nan.

    >>> reference = {"a.wav": ["dog"], "b.wav": ["cat", "dog"]}
    >>> clip_scores(reference, {"a.wav": ["dog"], "b.wav": ["dog"]}).f_measure
    0.8
    >>> probs = {"a.wav": [0.8, 0.3], "b.wav": [0.6, 0.4]}
    >>> scores = clip_scores(reference, probs=probs, labels=["cat", "dog"])
    >>> scores.mean_average_precision, round(scores.lwlrap, 3)
    (0.75, 0.833)
    """
    return count_clips(reference, estimate, probs, labels, empty_as_zero=empty_as_zero).scores()


def count_clips(
    reference: Tags,
    estimate: Tags | None = None,
    probs: Mapping[str, ArrayLike] | None = None,
    labels: Sequence[str] | None = None,
    *,
    empty_as_zero: bool = False,
) -> ClipCounts:
    """Return tags and probabilities of each clip as tables; arguments as in `clip_scores`.

    >>> counts = count_clips({"a.wav": ["dog"], "b.wav": []}, {"b.wav": ["cat"]})
    >>> counts.labels, counts.reference.tolist(), counts.missing_files
    (('cat', 'dog'), [[False, True], [False, False]], ('a.wav',))
    """
    if estimate is None and probs is None:
        raise SettingError("clip_scores has nothing to score. Pass estimate=, probs= or both.")
    if probs is not None and labels is None:
        raise SettingError(
            "probs do not name their classes. Pass labels=[...] in the order of their columns."
        )
    evaluated = None if estimate is None else {name: estimate.get(name, ()) for name in reference}
    names = _labels_of({"reference": reference, "estimate": evaluated or {}}, labels)
    known = [*(estimate or ()), *(probs or ())]
    return ClipCounts(
        files=tuple(reference),
        labels=names,
        reference=_tag_table(reference, names),
        estimate=None if evaluated is None else _tag_table(evaluated, names),
        probs=None if probs is None else _prob_table(reference, probs, names),
        missing_files=tuple(x for x in reference if estimate is not None and x not in estimate),
        unknown_files=tuple(x for x in dict.fromkeys(known) if x not in reference),
        empty_as_zero=empty_as_zero,
    )


def tags_of(events_by_file: Mapping[str, Sequence[Event]]) -> dict[str, tuple[str, ...]]:
    """Return the tags of each file: the labels of its events, those of length 0 left out.

    >>> tags_of({"a.wav": [Event(0, 1, "dog"), Event(2, 3, "dog"), Event(0, 0, "cat")]})
    {'a.wav': ('dog',)}
    """
    return {
        name: tuple(sorted({event.label for event in events if event.offset > event.onset}))
        for name, events in events_by_file.items()
    }


def _labels_of(tables: Mapping[str, Tags], labels: Sequence[str] | None) -> tuple[str, ...]:
    if labels is not None and len(set(labels)) < len(labels):
        raise SettingError(f"labels must name each class once. Got {list(labels)}.")
    known = None if labels is None else set(labels)
    used: set[str] = set()
    for table, by_file in tables.items():
        for name, tags in by_file.items():
            if isinstance(tags, str):
                raise DataError(
                    f"The tags of {name} in the {table} are the string {tags!r}. Pass a list of "
                    f"tags: [{tags!r}]."
                )
            if known is not None and not known.issuperset(tags):
                unknown = min(set(tags) - known)
                raise DataError(
                    f"The {table} of {name} has the tag {unknown!r}, which is not among the labels "
                    f"{', '.join(labels or ())}. Add it to labels, or remove the tag."
                )
            used.update(tags)
    return tuple(sorted(used)) if labels is None else tuple(labels)


def _tag_table(tags: Tags, labels: Sequence[str]) -> Bools:
    index_of = {label: index for index, label in enumerate(labels)}
    pairs = [(row, index_of[tag]) for row, own in enumerate(tags.values()) for tag in own]
    table = np.zeros((len(tags), len(labels)), np.bool_)
    if pairs:
        table[tuple(np.array(pairs).T)] = True
    return table


def _prob_table(files: Tags, probs: Mapping[str, ArrayLike], labels: Sequence[str]) -> Reals:
    missing = [name for name in files if name not in probs]
    if missing:
        raise DataError(
            f"probs lack {len(missing)} of {len(files)} files of the reference, the first is "
            f"{missing[0]}. Pass scores for every file."
        )
    table = np.empty((len(files), len(labels)))
    for index, name in enumerate(files):
        row = np.asarray(probs[name], dtype=np.float64)
        if row.shape != (len(labels),):
            raise DataError(
                f"probs of {name} have the shape {row.shape}. Pass one score for each of the "
                f"{len(labels)} labels."
            )
        table[index] = row
    undefined = np.isnan(table).any(axis=1)
    if undefined.any():
        name = list(files)[int(np.argmax(undefined))]
        raise DataError(
            f"probs of {int(undefined.sum())} files contain nan, the first is {name}. Every score "
            "must be a number."
        )
    return table
