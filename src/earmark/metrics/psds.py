"""PSDS, the polyphonic sound detection score, computed exactly over all thresholds.

The task: score a system by its frame-level scores, independently of any single threshold. For each
class, the fraction of reference events that are detected (true positive rate) is plotted over false
positives per hour, to which cross triggers add `alpha_ct` times their mean rate over the other
classes: the effective false positive rate, eFPR. `IntersectionCriterion` defines which detections
are correct. The ROCs of the classes are combined into one by their mean minus `alpha_st` times
their standard deviation; its area up to `max_efpr`, normalised to 0..1, is PSDS (Bilen et al.,
ICASSP 2020).

Conventions: every score that occurs is a threshold, as in sed_scores_eval 0.0.4 (Ebbers et al.,
ICASSP 2022), with which all values agree to 1e-9. A ROC is a step function: between two points the
lower of them holds. Where sed_scores_eval raises:

- Events of one class that overlap or touch are merged, and counted in `n_merged`.
- The score of a class without reference events is nan; it is left out of the mean, the standard
  deviation and the mean over cross triggers.
- Scores of files that are not in the reference are ignored and listed in `unknown_files`.
- A single class has no cross triggers, and a class in which no count ever changes has the score 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np

from earmark.errors import DataError, SettingError, choose
from earmark.formats.events import Event
from earmark.formats.names import stem_of
from earmark.formats.scores import ScoreTable
from earmark.metrics.count_deltas import CountDeltas, CumulativeCounts
from earmark.metrics.event_arrays import Ints
from earmark.metrics.event_criteria import IntersectionCriterion
from earmark.metrics.rates import class_averages
from earmark.metrics.stacked_scores import stack_scores
from earmark.metrics.weighted_scores import Reals, WeightedScores

UNITS_OF_TIME = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_EFPR_DECIMALS = 12  # makes sums of cross-trigger rates equal that differ by floating-point error


class Scenario(TypedDict):
    """Settings of `psds_scores` that belong together; pass one with `**`.

    >>> SCENARIO_2["cttc"]
    0.3
    """

    dtc: float
    gtc: float
    cttc: float | None
    alpha_ct: float
    alpha_st: float
    max_efpr: float


# PSDS1 of DCASE task 4 since 2021: rewards exact times.
SCENARIO_1 = Scenario(dtc=0.7, gtc=0.7, cttc=None, alpha_ct=0.0, alpha_st=1.0, max_efpr=100.0)
# PSDS2 of DCASE task 4 since 2021: rewards the right class.
SCENARIO_2 = Scenario(dtc=0.1, gtc=0.1, cttc=0.3, alpha_ct=0.5, alpha_st=1.0, max_efpr=100.0)
# Name in results -> scenario.
SCENARIOS = {"psds1": SCENARIO_1, "psds2": SCENARIO_2}


@dataclass(frozen=True, eq=False)
class Roc:
    """A step function: the highest true positive rate at each effective false positive rate.

    Shape: `efpr`, ascending from 0, and `tpr`, both (points,).

    >>> Roc(np.array([0.0, 50.0]), np.array([0.2, 0.6])).area(100.0)
    0.4
    """

    efpr: Reals
    tpr: Reals

    def area(self, max_efpr: float) -> float:
        """Return the area up to `max_efpr`, normalised to 0..1.

        >>> Roc(np.array([0.0]), np.array([1.0])).area(100.0)
        1.0
        """
        inside = self.efpr <= max_efpr
        widths = np.diff(np.append(self.efpr[inside], max_efpr))
        return float(np.sum(self.tpr[inside] * widths) / max_efpr)


@dataclass(frozen=True, eq=False)
class PsdsScores:
    """PSDS, and the ROCs whose area it is.

    Args:
        value: PSDS over all classes.
        class_wise: label -> PSDS of the class alone.
        roc: over all classes (PSD-ROC).
        class_rocs: label -> that of the class alone; classes without reference events have none.
        n_files: number of files evaluated.
        n_merged: number of events that were merged into another of their class.
        unknown_files: files that only the scores contain, ignored.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> psds = psds_scores({"a": [Event(0, 1, "dog")]}, scores)
    >>> psds.value, psds.class_wise
    (1.0, {'dog': 1.0})
    """

    value: float
    class_wise: dict[str, float]
    roc: Roc
    class_rocs: dict[str, Roc]
    n_files: int
    n_merged: int
    unknown_files: tuple[str, ...]

    @property
    def class_mean(self) -> float:
        """The mean over classes with reference events; PSDS itself is the area of one ROC."""
        known = [value for value in self.class_wise.values() if not np.isnan(value)]
        return float(np.mean(known)) if known else np.nan

    def to_dict(self) -> dict[str, Any]:
        """Return the scores as plain dicts, lists and floats, without the ROCs.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> psds_scores({"a": [Event(0, 1, "dog")]}, scores).to_dict()["overall"]
        {'psds': {'psds': 1.0}}
        """
        return {
            "overall": {"psds": {"psds": self.value}},
            "class_wise": {label: {"psds": {"psds": v}} for label, v in self.class_wise.items()},
            "class_wise_average": {"psds": {"psds": self.class_mean}},
            "n_files": self.n_files,
            "n_merged": self.n_merged,
            "unknown_files": list(self.unknown_files),
        }


@dataclass(frozen=True, eq=False)
class PsdsCounts:
    """The changes of counts per file as the threshold falls.

    Shape: `deltas.values` (3, deltas): true positives, false positives, cross triggers; `n_ref` and
    `seconds_ref` (files, classes), number and total length of the reference events; `durations`
    (files,).

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> counts = count_psds({"a": [Event(0, 1, "dog")]}, scores)
    >>> counts.n_ref.tolist(), counts.durations.tolist()
    ([[1]], [2.0])
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    deltas: CountDeltas
    n_ref: Ints
    seconds_ref: Reals
    durations: Reals
    alpha_ct: float
    alpha_st: float
    max_efpr: float
    unit_of_time: str
    n_merged: int = 0
    unknown_files: tuple[str, ...] = ()

    def weighted_scores(self, weights: Reals | None = None) -> WeightedScores:
        """Return the scores of every row of weights; see `earmark.metrics.weighted_scores`.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_psds({"a": [Event(0, 1, "dog")]}, scores)
        >>> counts.weighted_scores(np.array([[1.0], [3.0]])).overall["psds"]["psds"]
        array([1., 1.])
        """
        points = self._points_by_class()
        rows = [None] if weights is None else list(weights)
        values = np.empty(len(rows))
        by_class = np.full((len(rows), len(self.labels)), np.nan)
        for index, row in enumerate(rows):
            rocs = self._rocs(points, row)
            values[index] = self._combine(rocs).area(self.max_efpr) if rocs else np.nan
            for c, roc in rocs.items():
                by_class[index, c] = roc.area(self.max_efpr)
        class_wise = {"psds": {"psds": by_class}}
        return WeightedScores({"psds": {"psds": values}}, class_wise, class_averages(class_wise))

    def scores(self) -> PsdsScores:
        """Return the scores of all files, with their ROCs.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> count_psds({"a": [Event(0, 1, "dog")]}, scores).scores().value
        1.0
        """
        rocs = self._rocs(self._points_by_class(), None)
        roc = self._combine(rocs) if rocs else Roc(np.zeros(1), np.full(1, np.nan))
        areas = {c: own.area(self.max_efpr) for c, own in rocs.items()}
        return PsdsScores(
            value=roc.area(self.max_efpr),
            class_wise={label: areas.get(c, np.nan) for c, label in enumerate(self.labels)},
            roc=roc,
            class_rocs={self.labels[c]: own for c, own in rocs.items()},
            n_files=len(self.files),
            n_merged=self.n_merged,
            unknown_files=self.unknown_files,
        )

    def concatenate(self, other: "PsdsCounts") -> "PsdsCounts":
        """Return the counts of both, the files of `other` last.

        >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_psds({"a": [Event(0, 1, "dog")]}, scores)
        >>> counts.concatenate(counts).files
        ('a', 'a')
        """
        same = ("labels", "alpha_ct", "alpha_st", "max_efpr", "unit_of_time")
        if any(getattr(self, name) != getattr(other, name) for name in same):
            raise SettingError("Only counts with the same labels and settings can be concatenated.")
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("n_ref", "seconds_ref", "durations")
        }
        deltas = self.deltas.concatenate(other.deltas, len(self.files))
        return replace(self, files=self.files + other.files, deltas=deltas, **both)

    def _points_by_class(self) -> list["_ClassPoints"]:
        return [_ClassPoints(own) for own in self.deltas.split_by_class(len(self.labels))]

    def _rocs(self, points: list["_ClassPoints"], weights: Reals | None) -> dict[int, Roc]:
        """Return class index -> its ROC for one row of weights; classes in the reference only."""
        row = np.ones(len(self.files)) if weights is None else weights
        n_ref, seconds_ref, seconds = (
            row @ self.n_ref,
            row @ self.seconds_ref,
            row @ self.durations,
        )
        unit = UNITS_OF_TIME[self.unit_of_time]
        in_reference = n_ref > 0
        n_others = max(1, int(in_reference.sum()) - 1)
        costs = np.where(in_reference, self.alpha_ct / np.maximum(seconds_ref, 1e-12) / n_others, 0)
        rocs = {}
        for c in np.flatnonzero(in_reference).tolist():
            own = points[c]
            efpr = own.fp.at_points(weights) / seconds
            if self.alpha_ct:
                cross_triggers = own.cross_triggers.at_points(weights, costs[own.other_class])
                efpr = np.round((efpr + cross_triggers) * unit, _EFPR_DECIMALS)
            else:
                efpr = efpr * unit
            rocs[c] = _best_roc(efpr, own.tp.at_points(weights), n_ref[c], self.max_efpr)
        return rocs

    def _combine(self, rocs: dict[int, Roc]) -> Roc:
        """Return the ROC over all classes: mean minus `alpha_st` times standard deviation."""
        efpr = np.unique(np.concatenate([roc.efpr for roc in rocs.values()]))
        tpr = np.stack(
            [roc.tpr[np.searchsorted(roc.efpr, efpr, side="right") - 1] for roc in rocs.values()]
        )
        combined = np.maximum(tpr.mean(axis=0) - self.alpha_st * tpr.std(axis=0), 0)
        return Roc(np.append(efpr, self.max_efpr), np.append(combined, combined[-1]))


class _ClassPoints:
    """The cumulative counts of one class at the thresholds where its ROC may have a step."""

    def __init__(self, deltas: CountDeltas) -> None:
        tp, fp, cross = deltas.values
        points = deltas.candidate_points(
            (tp > 0) | (fp < 0) | (cross < 0), (tp < 0) | (fp > 0) | (cross > 0)
        )
        self.tp, self.fp, self.cross_triggers = (
            CumulativeCounts(deltas, values, points) for values in (tp, fp, cross)
        )
        self.other_class = deltas.other_class[np.flatnonzero(cross)]


def _best_roc(efpr: Reals, tp: Reals, n_ref: float, max_efpr: float) -> Roc:
    """Return the ROC of all thresholds whose rate is at most `max_efpr`."""
    inside = np.flatnonzero(efpr <= max_efpr)
    inside = inside[np.argsort(efpr[inside])]
    efpr, best = efpr[inside], np.maximum.accumulate(tp[inside])
    # Of equal rates keep the last, of equal heights the first.
    last = np.flatnonzero(np.append(efpr[1:] != efpr[:-1], True))
    efpr, best = efpr[last], best[last]
    higher = np.flatnonzero(np.append(True, best[1:] > best[:-1]))
    return Roc(efpr[higher], best[higher] / n_ref)


def psds_scores(
    reference: Mapping[str, Sequence[Event]],
    scores: ScoreTable,
    *,
    dtc: float = 0.7,
    gtc: float = 0.7,
    cttc: float | None = None,
    alpha_ct: float = 0.0,
    alpha_st: float = 1.0,
    max_efpr: float = 100.0,
    unit_of_time: str = "hour",
    durations: Mapping[str, float] | None = None,
    labels: Sequence[str] | None = None,
) -> PsdsScores:
    """Return PSDS of frame-level scores against `reference`.

    The defaults are `SCENARIO_1` of DCASE task 4 since 2021; for the second scenario pass
    `**SCENARIO_2`.

    Args:
        reference: file name -> reference events; these files are evaluated.
        scores: frame-level scores of each of these files.
        dtc: fraction of a detection that events of its class must cover for it to be relevant.
        gtc: fraction of an event that relevant detections must cover for it to be detected.
        cttc: fraction of a detection that events of another class must cover to make it a cross
            trigger; required with `alpha_ct`.
        alpha_ct: weight of cross triggers.
        alpha_st: weight of the standard deviation over classes.
        max_efpr: false positives per `unit_of_time` up to which the area is computed.
        unit_of_time: "second", "minute" or "hour".
        durations: file name -> its length in seconds; by default the end of its scores.
        labels: the classes, in the order of the result; by default those of the scores.

    >>> reference = {"a.wav": [Event(0, 1, "dog"), Event(2, 3, "dog")]}
    >>> frames = ([0, 1, 2, 3, 3600], [[0.9], [0.5], [0.3], [0.6]])
    >>> psds_scores(reference, ScoreTable(["dog"], {"a": frames})).value
    0.5
    """
    return count_psds(
        reference,
        scores,
        dtc=dtc,
        gtc=gtc,
        cttc=cttc,
        alpha_ct=alpha_ct,
        alpha_st=alpha_st,
        max_efpr=max_efpr,
        unit_of_time=unit_of_time,
        durations=durations,
        labels=labels,
    ).scores()


def count_psds(
    reference: Mapping[str, Sequence[Event]],
    scores: ScoreTable,
    *,
    dtc: float = 0.7,
    gtc: float = 0.7,
    cttc: float | None = None,
    alpha_ct: float = 0.0,
    alpha_st: float = 1.0,
    max_efpr: float = 100.0,
    unit_of_time: str = "hour",
    durations: Mapping[str, float] | None = None,
    labels: Sequence[str] | None = None,
) -> PsdsCounts:
    """Return the changes of counts as the threshold falls; arguments as in `psds_scores`.

    Time and memory grow with the number of frames.

    >>> scores = ScoreTable(["dog"], {"a": ([0, 1, 2], [[0.9], [0.2]])})
    >>> count_psds({"a": [Event(0, 1, "dog")]}, scores).n_ref.tolist()
    [[1]]
    """
    if (cttc is None) != (alpha_ct == 0):
        raise SettingError(
            f"cttc and alpha_ct must be given together. Got cttc={cttc!r} and "
            f"alpha_ct={alpha_ct!r}."
        )
    for name, value in (("alpha_ct", alpha_ct), ("alpha_st", alpha_st)):
        if not (np.isfinite(value) and value >= 0):
            raise SettingError(f"{name} must be a number, 0 or more. Got {value!r}.")
    if not (np.isfinite(max_efpr) and max_efpr > 0):
        raise SettingError(f"max_efpr must be a number above 0. Got {max_efpr!r}.")
    criterion = IntersectionCriterion(dtc, gtc, cttc)
    given = stack_scores(reference, scores, labels)
    stacked = criterion.prepare(given)
    events = stacked.reference
    seconds_ref = np.zeros((len(stacked.files), len(stacked.labels)))
    np.add.at(seconds_ref, (events.file_index, events.class_index), events.offsets - events.onsets)
    return PsdsCounts(
        files=stacked.files,
        labels=stacked.labels,
        deltas=criterion.count_deltas(stacked),
        n_ref=stacked.n_events(),
        seconds_ref=seconds_ref,
        durations=_file_durations(stacked.files, stacked.edges[stacked.last], durations),
        alpha_ct=alpha_ct,
        alpha_st=alpha_st,
        max_efpr=max_efpr,
        unit_of_time=choose("unit of time", unit_of_time, UNITS_OF_TIME),
        n_merged=len(given.reference) - len(events),
        unknown_files=stacked.unknown_files,
    )


def _file_durations(
    files: tuple[str, ...], ends: Reals, durations: Mapping[str, float] | None
) -> Reals:
    if durations is None:
        return ends
    by_stem = {stem_of(name): seconds for name, seconds in durations.items()}
    missing = [name for name in files if stem_of(name) not in by_stem]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(files)} files have no entry in durations, the first is "
            f"{missing[0]!r}. Add their seconds."
        )
    seconds = np.array([by_stem[stem_of(name)] for name in files], np.float64)
    wrong = np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0)))
    if len(wrong):
        raise DataError(
            f"The duration of {files[wrong[0]]!r} is {seconds[wrong[0]]} s. It must be above 0."
        )
    return seconds
