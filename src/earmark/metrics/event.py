"""Event-based error rate and F-measure, counted as sed_eval 0.2.1 counts them.

The task: given the reference events of each recording (label, onset, offset) and the events that a
system estimated, decide which estimates are correct. An estimate is correct if it can be matched to
a reference event of its class and file whose onset is at most `onset_collar` seconds away, and
whose offset is at most `offset_collar` seconds or `percentage_of_length` of the reference event's
length away, whichever is more. No event is matched twice (`earmark.metrics.matching`).

Conventions: times are compared in floating point without rounding, as in sed_eval: 1.1 is not
within 0.1 of 1.0. Counts are summed over files before division. The default collars are those of
sed_eval (Mesaros et al. 2016); DESED uses a smaller `percentage_of_length`:

    here                    sed_eval                 default        DESED (DCASE 2019 to 2022)
    onset_collar            t_collar                 0.2            0.2
    offset_collar           t_collar, too            0.2            0.2
    percentage_of_length    percentage_of_length     0.5            0.2
    evaluate_onset          evaluate_onset           True           True
    evaluate_offset         evaluate_offset          True           True
    matching                event_matching_type      "optimal"      "optimal"

Metrics: precision, recall and F-measure of matched events; the error rate is the sum of
substitutions, deletions and insertions over the number of reference events. An unmatched reference
event and an unmatched estimate that would match but for their class are a substitution: reference
events in their order take the first free estimate of their file. The remaining reference events
are deletions, the remaining estimates insertions. A single class has no substitutions: its misses
are deletions, its false alarms insertions.

Undefined scores:

- If the reference is empty (of a class, or overall), recall, F-measure and all error rates are nan.
  `as_sed_eval` divides the errors by 2e-16 as sed_eval does: the error rate is 0, or 4.5e15 per
  error, and is included in the mean over classes.
- If the estimate is empty, precision and F-measure are nan, as in sed_eval, so that the mean over
  classes leaves out a class that was never detected. `empty_as_zero` makes them 0.
- Events of length 0, past the end of the clip, or duplicated are counted like any other. So are
  events before 0 s, but only when passed as objects: `read_events` rejects tables with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.metrics.event_arrays import AlignedEvents, Ints, align_events
from earmark.metrics.matching import EventRule, candidate_pairs, match_pairs
from earmark.metrics.rates import class_averages, error_rates, f_measures, sed_eval_denominator
from earmark.metrics.weighted_scores import GroupedScores, Reals, WeightedScores, weighted_sum


@dataclass(frozen=True, repr=False)
class EventScores(GroupedScores):
    """The scores, and the collars and matching they were computed with.

    DESED reports the mean over classes: `class_wise_average["f_measure"]["f_measure"]`.

    >>> event_scores({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": [Event(0, 1, "dog")]}).f_measure
    1.0
    """

    rule: EventRule


@dataclass(frozen=True, eq=False)
class EventCounts:
    """The counts per file.

    Shape: `tp`, `fp`, `fn` (files, classes); `substitutions` (files,). Overall, a substitution is
    one of the `fp` and one of the `fn`; the rest of them are insertions and deletions.

    >>> count_events({"a.wav": [Event(0, 1, "dog")]}, {"a.wav": [Event(0, 1, "cat")]}).substitutions
    array([1])
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

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the scores of every row of weights; see `earmark.metrics.weighted_scores`.

        >>> counts = count_events({"a.wav": [Event(0, 1, "dog")], "b.wav": []}, {})
        >>> scores = counts.weighted_scores(np.array([[1.0, 1.0], [2.0, 0.0]]))
        >>> scores.overall["error_rate"]["error_rate"]
        array([1., 1.])
        """
        tp, fp, fn = (weighted_sum(weights, table) for table in (self.tp, self.fp, self.fn))
        s = weighted_sum(weights, self.substitutions)
        all_tp, all_fp, all_fn = (each.sum(axis=-1) for each in (tp, fp, fn))
        n_ref, all_ref = tp + fn, all_tp + all_fn
        if self.as_sed_eval:
            n_ref, all_ref = sed_eval_denominator(n_ref), sed_eval_denominator(all_ref)
        zero = self.empty_as_zero
        class_wise = {
            "f_measure": f_measures(tp, fp, fn, empty_as_zero=zero),
            "error_rate": error_rates(n_ref, fn, fp),
        }
        return WeightedScores(
            overall={
                "f_measure": f_measures(all_tp, all_fp, all_fn, empty_as_zero=zero),
                "error_rate": error_rates(all_ref, all_fn - s, all_fp - s, s),
            },
            class_wise=class_wise | {"count": {"Nref": tp + fn, "Nsys": tp + fp}},
            class_wise_average=class_averages(class_wise),
        )

    def scores(self) -> EventScores:
        """Return the scores of all files.

        >>> count_events({"a.wav": [Event(0, 1, "dog")]}, {}).scores().error_rate
        1.0
        """
        return EventScores(
            **self.weighted_scores().sample(self.labels),
            rule=self.rule,
            n_files=len(self.files),
            missing_files=self.missing_files,
            unknown_files=self.unknown_files,
        )

    def concatenate(self, other: "EventCounts") -> "EventCounts":
        """Return the counts of both, the files of `other` last.

        >>> counts = count_events({"a.wav": [Event(0, 1, "dog")]}, {})
        >>> counts.concatenate(counts).files
        ('a.wav', 'a.wav')
        """
        if (self.labels, self.rule) != (other.labels, other.rule):
            raise SettingError(
                "Only counts with the same labels, collars and matching can be concatenated."
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
    onset_collar: float = 0.2,
    offset_collar: float = 0.2,
    percentage_of_length: float = 0.5,
    evaluate_onset: bool = True,
    evaluate_offset: bool = True,
    matching: str = "optimal",
    empty_as_zero: bool = False,
    as_sed_eval: bool = False,
) -> EventScores:
    """Return the event-based scores of `estimate` against `reference`.

    Args:
        reference: file name -> reference events; these files are evaluated.
        estimate: file name -> estimated events.
        labels: the classes, in the order of the result; by default every label that occurs. A label
            that only the estimate has counts as insertions.
        onset_collar: tolerance of the onset in seconds; the default is sed_eval's.
        offset_collar: tolerance of the offset in seconds; the default is sed_eval's.
        percentage_of_length: tolerance of the offset as a fraction of the reference event's length;
            the larger of both applies. The default is sed_eval's; DESED uses 0.2.
        evaluate_onset: False to accept any onset.
        evaluate_offset: False to accept any offset.
        matching: "optimal" for a maximum matching, "greedy" for the first free estimate.
        empty_as_zero: precision and F-measure of a class that was never detected are 0, not nan.
        as_sed_eval: error rates of an empty reference are 0 or 4.5e15 as in sed_eval, not nan.

    >>> reference = {"a.wav": [Event(0, 2, "dog"), Event(1, 3, "cat")]}
    >>> estimate = {"a.wav": [Event(0.1, 2.5, "dog"), Event(1, 3, "owl")]}
    >>> scores = event_scores(reference, estimate)
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
    onset_collar: float = 0.2,
    offset_collar: float = 0.2,
    percentage_of_length: float = 0.5,
    evaluate_onset: bool = True,
    evaluate_offset: bool = True,
    matching: str = "optimal",
    empty_as_zero: bool = False,
    as_sed_eval: bool = False,
) -> EventCounts:
    """Count the events of each file; arguments as in `event_scores`.

    >>> reference = {"a.wav": [Event(0, 2, "dog"), Event(5, 6, "dog")]}
    >>> counts = count_events(reference, {"a.wav": [Event(0, 2.5, "dog")]})
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
    events = align_events(reference, estimate, labels)
    counts = [_count_block(block, rule) for block in events.blocks()]
    tp, fp, fn, substitutions = map(np.concatenate, zip(*counts, strict=True))
    return EventCounts(
        files=events.files,
        labels=events.labels,
        rule=rule,
        tp=tp,
        fp=fp,
        fn=fn,
        substitutions=substitutions,
        missing_files=events.missing_files,
        unknown_files=events.unknown_files,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
    )


def _count_block(events: AlignedEvents, rule: EventRule) -> tuple[Ints, Ints, Ints, Ints]:
    """Return tp, fp and fn (files, classes) and substitutions (files,) of one block."""
    reference, estimate = events.reference, events.estimate
    shape = len(events.files), len(events.labels)
    # One class of one file is a group, and an entry of the tables.
    ref_group, est_group = (
        each.file_index * shape[1] + each.class_index for each in (reference, estimate)
    )
    ref, est = candidate_pairs(reference, estimate, (ref_group, est_group), rule)
    matched = match_pairs(ref, est, ref_group[ref], rule.matching)
    n_ref, n_est, tp = (
        np.bincount(group, minlength=shape[0] * shape[1]).reshape(shape)
        for group in (ref_group, est_group, ref_group[ref[matched]])
    )
    ref_free, est_free = np.ones(len(reference), np.bool_), np.ones(len(estimate), np.bool_)
    ref_free[ref[matched]] = False
    est_free[est[matched]] = False
    missed, false = reference.select(ref_free), estimate.select(est_free)
    ref, est = candidate_pairs(missed, false, (missed.file_index, false.file_index), rule)
    # sed_eval assigns substitutions greedily, whatever the matching.
    swapped = match_pairs(ref, est, missed.file_index[ref], "greedy")
    substitutions = np.bincount(missed.file_index[ref[swapped]], minlength=shape[0])
    return tp, n_est - tp, n_ref - tp, substitutions
