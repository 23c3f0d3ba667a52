"""Tags and clip probabilities -> clip-based scores: F-measure, mAP, ROC AUC, lwlrap.

Conventions: `reference` and `estimate` map a file to its tags, `probs` to a score for every class,
in the order of `labels`. Tags give the groups `f_measure`, `error_rate` and `accuracy`: a clip is
counted as one segment is in `earmark.metrics.segment`. Scores give the group `ranking`, without any
threshold, as `earmark.metrics.ranking` defines it. Either may be left out.

    overall             all pairs of clip and class in one list (micro); lwlrap as published
    class_wise          each class alone, over all clips
    class_wise_average  the mean over classes (macro): `average_precision` here is the mAP

Where something is undefined:

- Without estimate of a class precision and F-measure are nan, or 0 with `empty_as_zero`; without
  reference recall, F-measure, error rates and ranking are nan. The mean over classes leaves nan
  out. scikit-learn puts 0 there and keeps it in the mean.
- A file that the estimate lacks has no tags, and is told; one that `probs` lacks is an error, as no
  score can be guessed. Files that only the estimate or `probs` name are told and left out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.metrics.ranking import rank_classes, rank_items
from earmark.metrics.rates import (
    FileScores,
    Group,
    Measured,
    Reals,
    accuracies,
    class_averages,
    error_rates,
    f_measures,
    ratio,
    weighed,
)

Bools = NDArray[np.bool_]
Tags = Mapping[str, Collection[str]]


@dataclass(frozen=True)
class ClipScores(FileScores):
    """The scores; those of tags or of probabilities may be absent."""

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
    """What is true, found and scored in each clip.

    Shape: `truth`, `found` and `probs` (files, classes); `found` or `probs` may be None.
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    truth: Bools
    found: Bools | None = None
    probs: Reals | None = None
    missing_files: tuple[str, ...] = ()
    unknown_files: tuple[str, ...] = ()
    empty_as_zero: bool = False

    def measure(self, weights: Reals | None = None) -> Measured:
        """Return the scores of every draw of files; see `earmark.metrics.rates`.

        >>> counts = count_clips({"a.wav": ["dog"], "b.wav": ["dog"]}, {"a.wav": ["dog"]})
        >>> draws = np.array([[1.0, 1.0], [3.0, 1.0]])
        >>> counts.measure(draws).overall["f_measure"]["recall"]
        array([0.5 , 0.75])
        """
        overall: dict[str, Group] = {}
        class_wise: dict[str, Group] = {}
        count = {"Nref": weighed(weights, self.truth)}
        if self.found is not None:
            more, *groups = self._measure_tags(self.found, weights)
            count |= more
            overall |= groups[0]
            class_wise |= groups[1]
        if self.probs is not None:
            overall["ranking"], class_wise["ranking"] = self._measure_ranking(self.probs, weights)
        return Measured(overall, class_wise | {"count": count}, class_averages(class_wise))

    def scores(self) -> ClipScores:
        """Return the scores of all clips.

        >>> count_clips({"a.wav": ["dog"], "b.wav": ["dog"]}, {"a.wav": ["dog"]}).scores().f_measure
        0.6666666666666666
        """
        return ClipScores(
            **self.measure().draw(self.labels),
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=self.unknown_files,
        )

    def beside(self, other: "ClipCounts") -> "ClipCounts":
        """Return the counts of both, the files of `other` after the own.

        >>> counts = count_clips({"a.wav": ["dog"]}, {})
        >>> counts.beside(counts).truth.tolist()
        [[True], [True]]
        """
        if self.labels != other.labels:
            raise SettingError("Counts go beside each other with the same labels.")
        both: dict[str, Any] = {}
        for name, what in (("truth", "a reference"), ("found", "tags"), ("probs", "probabilities")):
            tables = [getattr(self, name), getattr(other, name)]
            if (tables[0] is None) != (tables[1] is None):
                raise SettingError(f"Counts go beside each other if both have {what}, or neither.")
            both[name] = None if tables[0] is None else np.concatenate(tables)
        return replace(self, files=self.files + other.files, **both)

    def _measure_tags(
        self, found: Bools, weights: Reals | None
    ) -> tuple[Group, dict[str, Group], dict[str, Group]]:
        right = self.truth & found
        tp, fp, fn = (
            weighed(weights, table) for table in (right, found & ~right, self.truth & ~right)
        )
        n_ref, n_est, n_both = (table.sum(axis=1) for table in (self.truth, found, right))
        s, d, i, n_clips = (
            weighed(weights, each)
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
        return {"Nsys": tp + fp}, overall, class_wise

    def _measure_ranking(self, probs: Reals, weights: Reals | None) -> tuple[Group, Group]:
        n_files, n_classes = self.truth.shape
        right = weighed(weights, rank_classes(self.truth, probs))
        n_true = weighed(weights, self.truth)
        if weights is None:
            weights = np.ones((1, n_files))
        of_file = np.repeat(np.arange(n_files), n_classes)
        precision, auc = rank_items(self.truth.ravel(), probs.ravel(), weights, of_file)
        each = np.empty((2, len(weights), n_classes))
        for at in range(n_classes):
            each[:, :, at] = rank_items(self.truth[:, at], probs[:, at], weights)
        overall = {
            "average_precision": precision,
            "roc_auc": auc,
            "lwlrap": ratio(right.sum(axis=-1), n_true.sum(axis=-1)),
        }
        class_wise = {
            "average_precision": each[0],
            "roc_auc": each[1],
            "lwlrap": ratio(right, n_true),
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
        reference: file name -> its true tags; these files are evaluated.
        estimate: file name -> the tags found.
        probs: file name -> (classes,), a score for each of `labels`.
        labels: the classes, in the order wanted; without them, every label of either side. They
            are needed with `probs`.
        empty_as_zero: precision and F-measure of a class that was never found are 0, not nan.

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
    """Lay tags and probabilities of each clip side by side; the arguments of `clip_scores`.

    >>> counts = count_clips({"a.wav": ["dog"], "b.wav": []}, {"b.wav": ["cat"]})
    >>> counts.labels, counts.truth.tolist(), counts.missing_files
    (('cat', 'dog'), [[False, True], [False, False]], ('a.wav',))
    """
    if estimate is None and probs is None:
        raise SettingError("There is nothing to score. Pass estimate=, probs= or both.")
    if probs is not None and labels is None:
        raise SettingError("probs have no names of classes. Pass labels=[...] in their order.")
    evaluated = None if estimate is None else {name: estimate.get(name, ()) for name in reference}
    names = _labels_of({"reference": reference, "estimate": evaluated or {}}, labels)
    known = [*(estimate or ()), *(probs or ())]
    return ClipCounts(
        files=tuple(reference),
        labels=names,
        truth=_tag_table(reference, names),
        found=None if evaluated is None else _tag_table(evaluated, names),
        probs=None if probs is None else _prob_table(reference, probs, names),
        missing_files=tuple(x for x in reference if estimate is not None and x not in estimate),
        unknown_files=tuple(x for x in dict.fromkeys(known) if x not in reference),
        empty_as_zero=empty_as_zero,
    )


def tags_of(events_by_file: Mapping[str, Sequence[Event]]) -> dict[str, tuple[str, ...]]:
    """Return the tags of each file: the labels of its events that have a length.

    >>> tags_of({"a.wav": [Event(0, 1, "dog"), Event(2, 3, "dog"), Event(0, 0, "cat")]})
    {'a.wav': ('dog',)}
    """
    return {
        name: tuple(sorted({event.label for event in events if event.offset > event.onset}))
        for name, events in events_by_file.items()
    }


def _labels_of(sides: Mapping[str, Tags], labels: Sequence[str] | None) -> tuple[str, ...]:
    if labels is not None and len(set(labels)) < len(labels):
        raise SettingError(f"labels must name each class once. Got {list(labels)}.")
    known = None if labels is None else set(labels)
    used: set[str] = set()
    for side, by_file in sides.items():
        for name, tags in by_file.items():
            if isinstance(tags, str):
                raise DataError(
                    f"The {side} gives {name} the text {tags!r}. Pass a list of tags: [{tags!r}]."
                )
            if known is not None and not known.issuperset(tags):
                unknown = min(set(tags) - known)
                raise DataError(
                    f"The {side} gives {name} the tag {unknown!r}, which is not among the labels "
                    f"{', '.join(labels or ())}. Add it to them, or leave the tag out."
                )
            used.update(tags)
    return tuple(sorted(used)) if labels is None else tuple(labels)


def _tag_table(tags: Tags, labels: Sequence[str]) -> Bools:
    classes = {label: index for index, label in enumerate(labels)}
    pairs = [(at, classes[tag]) for at, of_file in enumerate(tags.values()) for tag in of_file]
    table = np.zeros((len(tags), len(labels)), np.bool_)
    if pairs:
        table[tuple(np.array(pairs).T)] = True
    return table


def _prob_table(files: Tags, probs: Mapping[str, ArrayLike], labels: Sequence[str]) -> Reals:
    missing = [name for name in files if name not in probs]
    if missing:
        raise DataError(
            f"probs lack {len(missing)} of {len(files)} files of the reference, the first is "
            f"{missing[0]}. Give every file its scores."
        )
    table = np.empty((len(files), len(labels)))
    for at, name in enumerate(files):
        row = np.asarray(probs[name], dtype=np.float64)
        if row.shape != (len(labels),):
            raise DataError(
                f"probs of {name} have the shape {row.shape}. Give one score for each of the "
                f"{len(labels)} labels."
            )
        table[at] = row
    undefined = np.isnan(table).any(axis=1)
    if undefined.any():
        name = list(files)[int(np.argmax(undefined))]
        raise DataError(
            f"probs of {int(undefined.sum())} files hold nan, the first is {name}. A score must be "
            "a number."
        )
    return table
