"""Events -> event-based error rate and F-measure, as sed_eval 0.2.1 counts them.

Conventions: an estimated event is correct if it can be paired with a reference event of its class
and file whose onset is at most `onset_collar` seconds away and whose offset is at most
`offset_collar` seconds, or `percentage_of_length` of the reference event's length, away, whichever is
more, in floating point and without snapping, as in sed_eval: 1.1 is not within 0.1 of 1.0.
No event is in two pairs; how pairs are chosen is told in `earmark.metrics.matching`. There are no
defaults for the collars: they are the measure, so the caller names them.

    here                    sed_eval                 its default    DESED (DCASE 2019 to 2022)
    onset_collar            t_collar                 0.2            0.2
    offset_collar           t_collar, too            0.2            0.2
    percentage_of_length      percentage_of_length     0.5            0.2
    evaluate_onset          evaluate_onset           True           True
    evaluate_offset         evaluate_offset          True           True
    matching                event_matching_type      "optimal"      "optimal"

A reference event and an estimated one that are both left over, and near enough but for their class,
are a substitution: reference events in their order take the first estimate of their file that is
free. What then is left of the reference are deletions, of the estimate insertions. A single class
has no substitutions: its misses are deletions, its false alarms insertions. Counts are summed over
files before anything is divided.

Where something is undefined:

- Without reference (of a class, or at all) recall, F-measure and every error rate are nan.
  `as_sed_eval` divides the errors by 2e-16 as sed_eval does: 0, or 4.5e15 an error, and the mean
  over classes has them in it.
- Without estimate precision and F-measure are nan, as in sed_eval, so that the mean over classes
  leaves out a class that was never found. `empty_as_zero` makes them 0.
- Events without length, past the end of the clip, or alike are events as any other. So are those
  before 0 s, but only here: tables that hold them are refused by `read_events`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.metrics.matching import EventRule, choose_pairs, find_pairs
from earmark.metrics.rates import (
    FileScores,
    Measured,
    Reals,
    class_averages,
    error_rates,
    f_measures,
    sed_eval_whole,
    weighed,
)
from earmark.metrics.sides import Ints, Sides, lay_out


@dataclass(frozen=True)
class EventScores(FileScores):
    """The scores, and the collars and matching they are for.

    The `f_measure` of DESED is the mean over classes, `class_wise_average`.
    """

    rule: EventRule


@dataclass(frozen=True, eq=False)
class EventCounts:
    """What was counted in each file, before any division.

    Shape: `tp`, `fp`, `fn` (files, classes); `substitutions` (files,). Overall, a substitution is
    one of the `fp` and one of the `fn`; what is left of them are insertions and deletions.
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    rule: EventRule
    tp: Ints
    fp: Ints
    fn: Ints
    substitutions: Ints
    missing_files: tuple[str, ...] = ()
    unknown_files: tuple[str, ...] = ()
    empty_as_zero: bool = False
    as_sed_eval: bool = False

    def measure(self, weights: Reals | None = None) -> Measured:
        """Return the scores of every draw of files; see `earmark.metrics.rates`.

        >>> collars = {"onset_collar": 0.2, "offset_collar": 0.2, "percentage_of_length": 0.5}
        >>> counts = count_events({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {}, **collars)
        >>> counts.measure(np.array([[1.0, 1.0], [2.0, 0.0]])).overall["error_rate"]["error_rate"]
        array([1., 1.])
        """
        tp, fp, fn = (weighed(weights, table) for table in (self.tp, self.fp, self.fn))
        s = weighed(weights, self.substitutions)
        all_tp, all_fp, all_fn = (each.sum(axis=-1) for each in (tp, fp, fn))
        n_ref, all_ref = tp + fn, all_tp + all_fn
        if self.as_sed_eval:
            n_ref, all_ref = sed_eval_whole(n_ref), sed_eval_whole(all_ref)
        zero = self.empty_as_zero
        class_wise = {
            "f_measure": f_measures(tp, fp, fn, empty_as_zero=zero),
            "error_rate": error_rates(n_ref, fn, fp),
        }
        return Measured(
            overall={
                "f_measure": f_measures(all_tp, all_fp, all_fn, empty_as_zero=zero),
                "error_rate": error_rates(all_ref, all_fn - s, all_fp - s, s),
            },
            class_wise=class_wise | {"count": {"Nref": tp + fn, "Nsys": tp + fp}},
            class_wise_average=class_averages(class_wise),
        )

    def scores(self) -> EventScores:
        """Return the scores of all files.

        >>> collars = {"onset_collar": 0.2, "offset_collar": 0.2, "percentage_of_length": 0.5}
        >>> count_events({"a.wav": [Event(0, 1, "dog")]}, {}, **collars).scores().error_rate
        1.0
        """
        return EventScores(
            **self.measure().draw(self.labels),
            rule=self.rule,
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=self.unknown_files,
        )

    def beside(self, other: "EventCounts") -> "EventCounts":
        """Return the counts of both, the files of `other` after the own.

        >>> collars = {"onset_collar": 0.2, "offset_collar": 0.2, "percentage_of_length": 0.5}
        >>> counts = count_events({"a.wav": [Event(0, 1, "dog")]}, {}, **collars)
        >>> counts.beside(counts).files
        ('a.wav', 'a.wav')
        """
        if (self.labels, self.rule) != (other.labels, other.rule):
            raise SettingError(
                "Counts go beside each other with the same labels, collars and matching."
            )
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("tp", "fp", "fn", "substitutions")
        }
        return replace(self, files=self.files + other.files, **both)


def event_scores(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
    *,
    onset_collar: float,
    offset_collar: float,
    percentage_of_length: float,
    evaluate_onset: bool = True,
    evaluate_offset: bool = True,
    matching: str = "optimal",
    empty_as_zero: bool = False,
    as_sed_eval: bool = False,
) -> EventScores:
    """Return the event-based scores of `estimate` against `reference`.

    Args:
        reference: file name -> its true events; these files are evaluated.
        estimate: file name -> the events found.
        labels: the classes, in the order wanted; without them, every label of either side. One
            that only the estimate has counts as insertions.
        onset_collar: seconds by which the onsets of a pair may differ.
        offset_collar: seconds by which their offsets may differ at least.
        percentage_of_length: the part of the reference event's length by which their offsets may
            differ, where that is more.
        evaluate_onset: False to take any onset.
        evaluate_offset: False to take any offset.
        matching: "optimal", as many pairs as there can be, or "greedy", the first that is free.
        empty_as_zero: precision and F-measure of a class that was never found are 0, not nan.
        as_sed_eval: error rates without reference are 0 or 4.5e15 as in sed_eval, not nan.

    >>> reference = {"a.wav": [Event(0, 2, "dog"), Event(1, 3, "cat")]}
    >>> estimate = {"a.wav": [Event(0.1, 2.5, "dog"), Event(1, 3, "owl")]}
    >>> collars = {"onset_collar": 0.2, "offset_collar": 0.2, "percentage_of_length": 0.5}
    >>> scores = event_scores(reference, estimate, **collars)
    >>> scores.f_measure, scores.overall["error_rate"]["substitution_rate"]
    (0.5, 0.5)
    """
    return count_events(
        reference,
        estimate,
        labels,
        onset_collar=onset_collar,
        offset_collar=offset_collar,
        percentage_of_length=percentage_of_length,
        evaluate_onset=evaluate_onset,
        evaluate_offset=evaluate_offset,
        matching=matching,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
    ).scores()


def count_events(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
    *,
    onset_collar: float,
    offset_collar: float,
    percentage_of_length: float,
    evaluate_onset: bool = True,
    evaluate_offset: bool = True,
    matching: str = "optimal",
    empty_as_zero: bool = False,
    as_sed_eval: bool = False,
) -> EventCounts:
    """Count the events of each file; the arguments are those of `event_scores`.

    >>> reference = {"a.wav": [Event(0, 2, "dog"), Event(5, 6, "dog")]}
    >>> collars = {"onset_collar": 0.2, "offset_collar": 0.2, "percentage_of_length": 0.5}
    >>> counts = count_events(reference, {"a.wav": [Event(0, 2.5, "dog")]}, **collars)
    >>> counts.tp.tolist(), counts.fp.tolist(), counts.fn.tolist()
    ([[1]], [[0]], [[1]])
    """
    rule = EventRule(
        onset_collar=onset_collar,
        offset_collar=offset_collar,
        percentage_of_length=percentage_of_length,
        evaluate_onset=evaluate_onset,
        evaluate_offset=evaluate_offset,
        matching=matching,
    )
    sides = lay_out(reference, estimate, labels)
    counts = [_count(block, rule) for block in sides.blocks()]
    tp, fp, fn, substitutions = map(np.concatenate, zip(*counts, strict=True))
    return EventCounts(
        files=sides.files,
        labels=sides.labels,
        rule=rule,
        tp=tp,
        fp=fp,
        fn=fn,
        substitutions=substitutions,
        missing_files=sides.missing_files,
        unknown_files=sides.unknown_files,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
    )


def _count(sides: Sides, rule: EventRule) -> tuple[Ints, Ints, Ints, Ints]:
    reference, estimate = sides.reference, sides.estimate
    shape = len(sides.files), len(sides.labels)
    # A class of a file is a group, and a cell of the tables.
    cells = tuple(side.of_file * shape[1] + side.of_class for side in (reference, estimate))
    ref, est = find_pairs(reference, estimate, (cells[0], cells[1]), rule)
    chosen = choose_pairs(ref, est, cells[0][ref], rule.matching)
    n_ref, n_est, tp = (
        np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
        for cell in (*cells, cells[0][ref[chosen]])
    )
    ref_left, est_left = np.ones(len(reference), np.bool_), np.ones(len(estimate), np.bool_)
    ref_left[ref[chosen]] = False
    est_left[est[chosen]] = False
    wrong, instead = reference.among(ref_left), estimate.among(est_left)
    ref, est = find_pairs(wrong, instead, (wrong.of_file, instead.of_file), rule)
    # Substitutions are taken as they come in sed_eval, whatever the matching.
    chosen = choose_pairs(ref, est, wrong.of_file[ref], "greedy")
    substitutions = np.bincount(wrong.of_file[ref[chosen]], minlength=shape[0])
    return tp, n_est - tp, n_ref - tp, substitutions
