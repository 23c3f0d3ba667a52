"""Intersection-based precision, recall and F-measure of events, by the criterion of PSDS.

The task: an estimate is relevant if reference events of its class cover at least the fraction `dtc`
of it, and a false positive otherwise; a reference event is a true positive if relevant estimates
cover at least the fraction `gtc` of it (Bilen et al. 2020). Edges need not be within a collar, and
an event that was detected in two pieces is found, so the score suits long events.

Conventions: as `IntersectionCriterion`, which counts: events of one class that overlap or touch are
merged first, in the reference as in the estimate. Counts are summed over files before division.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from earmark.formats.events import Event
from earmark.formats.scores import ScoreTable
from earmark.metrics.event_arrays import Reals
from earmark.metrics.event_criteria import IntersectionCriterion
from earmark.metrics.rates import f_measures
from earmark.metrics.stacked_scores import stack_scores


def intersection_f_measures(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str],
    *,
    dtc: float = 0.5,
    gtc: float = 0.5,
    empty_as_zero: bool = False,
) -> dict[str, float]:
    """Return "f_measure", "precision" and "recall" over all classes (micro average).

    Args:
        reference: file name -> reference events; these files are evaluated.
        estimate: file name -> estimated events.
        labels: the classes.
        dtc: fraction of an estimate that reference events must cover.
        gtc: fraction of a reference event that estimates must cover.
        empty_as_zero: precision and F-measure are 0, not nan, if the estimate is empty.

    >>> reference = {"a.wav": [Event(0.0, 4.0, "dog")]}
    >>> pieces = {"a.wav": [Event(0.0, 1.5, "dog"), Event(2.0, 4.0, "dog"), Event(6, 9, "dog")]}
    >>> intersection_f_measures(reference, pieces, ["dog"])["precision"]
    0.5
    """
    criterion = IntersectionCriterion(dtc, gtc)
    scores = ScoreTable(labels, {file: _as_scores(estimate.get(file, ()), labels)
                                 for file in reference})  # fmt: skip
    stacked = criterion.prepare(stack_scores(reference, scores))
    deltas = criterion.count_deltas(stacked)
    tp, fp, _ = deltas.values[:, deltas.score > 0].sum(axis=1)
    counts = np.array([[tp], [fp], [stacked.n_events().sum() - tp]], np.float64)
    rates = f_measures(*counts, empty_as_zero=empty_as_zero)
    return {name: float(values[0]) for name, values in rates.items()}


def _as_scores(events: Sequence[Event], labels: Sequence[str]) -> tuple[Reals, Reals]:
    """Return edges, and scores that are 1 within events of a class and 0 elsewhere."""
    times = {0.0, *(x for event in events for x in (event.onset, event.offset))}
    edges = np.array(sorted(times) if len(times) > 1 else [0.0, 1.0])
    scores = np.zeros((len(edges) - 1, len(labels)))
    for event in events:
        inside = (edges[:-1] >= event.onset) & (edges[1:] <= event.offset)
        scores[inside, labels.index(event.label)] = 1.0
    return edges, scores
