"""Intersection-based precision, recall and F-measure of events, by the criterion of PSDS.

The task: an estimate is relevant if reference events of its class cover at least the fraction `dtc`
of it, and a false positive otherwise; a reference event is a true positive if relevant estimates
cover at least the fraction `gtc` of it (Bilen et al. 2020). Edges need not be within a collar, and
an event that was detected in two pieces is found, so the score suits long events.

Conventions: as `IntersectionCriterion`, which does the same at every threshold of frame-level
scores: events of one class that overlap or touch are merged first, in the reference and in the
estimate; seconds are rounded to `DECIMALS` before they are compared; a reference event of length 0
is found as soon as anything of its class is detected in its file. Counts are summed over files
before division.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from earmark.formats.events import Event
from earmark.metrics.event_arrays import EventArrays, align_events
from earmark.metrics.event_criteria import IntersectionCriterion, merge_touching
from earmark.metrics.rates import f_measures

DECIMALS = IntersectionCriterion.decimals or 0


def intersection_f_measures(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str] | None = None,
    *,
    dtc: float = 0.5,
    gtc: float = 0.5,
    empty_as_zero: bool = False,
) -> dict[str, float]:
    """Return "f_measure", "precision" and "recall" over all classes (micro average).

    Args:
        reference: file name -> reference events; these files are evaluated.
        estimate: file name -> estimated events.
        labels: the classes; by default every label that occurs.
        dtc: fraction of an estimate that reference events must cover.
        gtc: fraction of a reference event that estimates must cover.
        empty_as_zero: precision and F-measure are 0, not nan, if the estimate is empty.

    >>> reference = {"a.wav": [Event(0.0, 4.0, "dog")]}
    >>> pieces = {"a.wav": [Event(0.0, 1.5, "dog"), Event(2.0, 4.0, "dog"), Event(6, 9, "dog")]}
    >>> intersection_f_measures(reference, pieces)["precision"]
    0.5
    """
    rule = IntersectionCriterion(dtc, gtc)  # checks them
    events = align_events(reference, estimate, labels)
    ref, est = _merge(events.reference), _merge(events.estimate)
    n_classes = max(1, len(events.labels))
    ref_group, est_group = (x.file_index * n_classes + x.class_index for x in (ref, est))
    # All pairs of an estimate and a reference event of its class and file: those are neighbours.
    first, stop = (np.searchsorted(ref_group, est_group, side) for side in ("left", "right"))
    n_own = stop - first
    of_est = np.repeat(np.arange(len(est)), n_own)
    of_ref = np.arange(len(of_est)) - np.repeat(np.cumsum(n_own) - n_own, n_own) + first[of_est]
    ends = np.minimum(est.offsets[of_est], ref.offsets[of_ref])
    overlap = np.maximum(ends - np.maximum(est.onsets[of_est], ref.onsets[of_ref]), 0)
    covered = np.round(np.bincount(of_est, overlap, len(est)), DECIMALS)
    relevant = (n_own > 0) & (covered >= np.round(rule.dtc * (est.offsets - est.onsets), DECIMALS))
    found = np.round(np.bincount(of_ref, overlap * relevant[of_est], len(ref)), DECIMALS)
    needed = np.round(rule.gtc * (ref.offsets - ref.onsets), DECIMALS)
    tp = int(((found >= needed) & ((needed > 0) | np.isin(ref_group, est_group))).sum())
    counts = np.array([[tp], [(~relevant).sum()], [len(ref) - tp]], np.float64)
    rates = f_measures(*counts, empty_as_zero=empty_as_zero)
    return {name: float(values[0]) for name, values in rates.items()}


def _merge(events: EventArrays) -> EventArrays:
    """Return the events in order, those of one class and file merged that overlap or touch."""
    order = np.lexsort((events.offsets, events.onsets, events.class_index, events.file_index))
    return merge_touching(events.select(order))
