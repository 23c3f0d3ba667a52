"""The scores of a run on some clips: of their events per tuning, and those without thresholds.

Conventions: the names of scores are those in result files; a result of an earlier version may lack
some. Where clips have tags only, what needs their events is left out.
"""

from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import median

from earmark.formats.events import Event
from earmark.formats.scores import ScoreTable
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.metrics.clip import clip_scores, tags_of
from earmark.metrics.evaluation import Scoring
from earmark.metrics.event import event_scores
from earmark.metrics.intersection import intersection_f_measures
from earmark.metrics.psds import SCENARIO_1, SCENARIO_2, psds_scores
from earmark.metrics.segment import count_segments

Scores = dict[str, dict[str, float]]  # tuning -> name -> value
Counts = dict[str, dict[str, list[int]]]  # tuning -> name -> one value per clip
WIDE = Scoring(onset_collar=0.5, offset_collar=0.5)  # for edges that nobody can place to 0.2 s


def score_clips(
    reference: Mapping[str, Sequence[Event]],
    output: Mapping[str, FrameScores],
    decodings: Mapping[str, Decoding],
    tags: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Scores, Counts]:
    """Return all scores of some clips, per tuning and "threshold_free", and counts of segments.

    Args:
        reference: file -> its events; empty if only tags are known.
        output: file -> frame-level scores.
        decodings: tuning -> how events are decoded.
        tags: file -> its tags; by default those of the events.

    >>> from earmark.frames import FrameGrid
    >>> scores = FrameScores([[0.9]], ["dog"], FrameGrid(1), clip_scores=[0.9])
    >>> score_clips({}, {"a.wav": scores}, {}, {"a.wav": ["dog"]})
    ({'threshold_free': {'mean_average_precision': 1.0}}, {})
    """
    labels = next(iter(output.values())).labels
    probs = {file: own.clip_level() for file, own in output.items()}
    known = tags_of(reference) if tags is None else tags
    ranking = clip_scores(known, probs=probs, labels=labels)
    free = {"mean_average_precision": ranking.mean_average_precision}
    auc = ranking.class_wise_average["ranking"]["roc_auc"]
    if isfinite(auc):  # undefined for a class that all clips have, or none
        free["mean_roc_auc"] = auc
    scores: Scores = {"threshold_free": free}
    counts: Counts = {}
    if reference:
        table = ScoreTable(labels, output)
        for name, scenario in (("psds1", SCENARIO_1), ("psds2", SCENARIO_2)):
            free[name] = psds_scores(reference, table, **scenario).value
        for name, decoding in decodings.items():
            estimate = {file: decode_events(own, decoding) for file, own in output.items()}
            scores[name], counts[name] = score_estimate(reference, estimate, labels)
    return scores, counts


def score_estimate(
    reference: Mapping[str, Sequence[Event]],
    estimate: Mapping[str, Sequence[Event]],
    labels: Sequence[str],
) -> tuple[dict[str, float], dict[str, list[int]]]:
    """Return the scores of events that a result has, and the counts of segments per clip.

    >>> events = {"a.wav": [Event(0.0, 1.0, "dog")]}
    >>> scores, counts = score_estimate(events, events, ["dog"])
    >>> scores["event_f_measure"], counts["tp"]
    (1.0, [1])
    """
    segments = count_segments(reference, estimate, labels, empty_as_zero=True)
    overall = segments.scores().overall
    names = {
        "error_rate": ("error_rate", "deletion_rate", "insertion_rate", "substitution_rate"),
        "f_measure": ("f_measure", "precision", "recall"),
    }
    scores = {name: overall[group][name] for group, wanted in names.items() for name in wanted}
    for name, scoring in (("event_f_measure", Scoring()), ("wide_event_f_measure", WIDE)):
        scores[name] = event_scores(
            reference, estimate, labels, **scoring.collars, empty_as_zero=True
        ).f_measure
    scores["intersection_f_measure"] = intersection_f_measures(
        reference, estimate, labels, empty_as_zero=True
    )["f_measure"]
    scores["length_ratio"] = length_ratio(reference, estimate)
    errors = segments.substitutions + segments.deletions + segments.insertions
    tables = {"tp": segments.tp, "fp": segments.fp, "fn": segments.fn}
    counts = {name: table.sum(axis=1).tolist() for name, table in tables.items()}
    return scores, counts | {"errors": errors.tolist()}


def length_ratio(
    reference: Mapping[str, Sequence[Event]], estimate: Mapping[str, Sequence[Event]]
) -> float:
    """Return how long detected events are: the median length of what is detected of an event.

    Per reference event that is detected, the length of all estimates of its class that overlap it
    is divided by its own length: 1 is right, above is too long, below too short; 0 if no event is
    detected. Estimates that overlap several events count for each.

    >>> reference = {"a.wav": [Event(1.0, 2.0, "dog"), Event(5.0, 6.0, "dog")]}
    >>> length_ratio(reference, {"a.wav": [Event(0.5, 2.0, "dog"), Event(8.0, 9.0, "dog")]})
    1.5
    """
    ratios = []
    for file, events in reference.items():
        found = estimate.get(file, ())
        for event in events:
            own = [x for x in found if x.label == event.label
                   and x.onset < event.offset and x.offset > event.onset]  # fmt: skip
            if own and event.offset > event.onset:
                length = sum(x.offset - x.onset for x in own)
                ratios.append(length / (event.offset - event.onset))
    return median(ratios) if ratios else 0.0
