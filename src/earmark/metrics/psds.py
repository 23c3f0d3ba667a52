"""Score curves -> PSDS, the polyphonic sound detection score, exact at every threshold.

PSDS (Bilen et al., ICASSP 2020) is the area under a curve of what is found against what is wrong,
over all thresholds; `earmark.metrics.criteria` says when a detection is right. For each class the
part of its events that is found (true positive rate) is set against false positives an hour, to
which cross triggers add `alpha_ct` times their mean rate over the other classes: the effective
false positive rate, eFPR. The classes become one curve by their mean less `alpha_st` times their
standard deviation, and its area up to `max_efpr` is the score, from 0 to 1.

Conventions: thresholds are not sampled; every score in the curves is one, as in sed_scores_eval
0.0.4 (Ebbers et al., ICASSP 2022), with which all figures agree to 1e-9. Where it raises, we do
this:

- Events of one class that overlap or touch are made one, and counted in `n_merged`.
- A class without events in the reference has the score nan, and takes no part in the mean, the
  standard deviation and the mean of cross triggers.
- Curves of files that the reference does not name are left out and told in `unknown_files`.
- Of one class alone there are no cross triggers, and a class in which no count ever changes has
  the score 0.

A curve is a staircase: between two points the lower of them holds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import numpy as np

from earmark.errors import DataError, SettingError, choose
from earmark.formats.events import Event
from earmark.formats.names import stem_of
from earmark.formats.scores import ScoreCurves
from earmark.metrics.changes import Changes, Tally
from earmark.metrics.criteria import Intersections
from earmark.metrics.rates import Measured, class_averages
from earmark.metrics.runs import Ints, Reals, stack_curves

UNITS_OF_TIME = {"second": 1.0, "minute": 60.0, "hour": 3600.0}
_EFPR_DECIMALS = 12  # sums of cross-trigger rates that are equal in numbers are so here too


class Scenario(TypedDict):
    """Settings of `psds_scores` that go together; pass one with `**`."""

    dtc: float
    gtc: float
    cttc: float | None
    alpha_ct: float
    alpha_st: float
    max_efpr: float


@dataclass(frozen=True, eq=False)
class Roc:
    """A staircase: the highest true positive rate at each effective false positive rate.

    Shape: `efpr`, rising from 0, and `tpr`, both (points,).
    """

    efpr: Reals
    tpr: Reals

    def area(self, max_efpr: float) -> float:
        """Return the area below it up to `max_efpr`, as a part of all there is.

        >>> Roc(np.array([0.0, 50.0]), np.array([0.2, 0.6])).area(100.0)
        0.4
        """
        inside = self.efpr <= max_efpr
        widths = np.diff(np.append(self.efpr[inside], max_efpr))
        return float(np.sum(self.tpr[inside] * widths) / max_efpr)


@dataclass(frozen=True, eq=False)
class PsdsScores:
    """The score, and the curves it is the area of.

    Args:
        value: PSDS of all classes together.
        class_wise: label -> PSDS of the class alone.
        roc: of all classes together (PSD-ROC).
        class_rocs: label -> that of the class alone; none without events in the reference.
        n_files: files evaluated.
        n_merged: events that were made one with another of their class.
        unknown_files: files that only the curves name, left out.
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
        """The mean over classes with events; PSDS itself is the area of one common curve."""
        known = [value for value in self.class_wise.values() if not np.isnan(value)]
        return float(np.mean(known)) if known else np.nan

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain dicts, lists and floats; the curves are left out.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> psds_scores({"a": [Event(0, 1, "dog")]}, curves, **SCENARIO_1).to_dict()["overall"]
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
    """What changes in each file as the threshold falls, before any division.

    Shape: `changes.amounts` (3, changes): true positives, false positives, cross triggers; `n_ref`
    and `seconds_ref` (files, classes), number and length of the true events; `durations` (files,).
    """

    files: tuple[str, ...]
    labels: tuple[str, ...]
    changes: Changes
    n_ref: Ints
    seconds_ref: Reals
    durations: Reals
    alpha_ct: float
    alpha_st: float
    max_efpr: float
    unit_of_time: str
    n_merged: int = 0
    unknown_files: tuple[str, ...] = ()

    def measure(self, weights: Reals | None = None) -> Measured:
        """Return the scores of every draw of files; see `earmark.metrics.rates`.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_psds({"a": [Event(0, 1, "dog")]}, curves, dtc=0.7, gtc=0.7)
        >>> counts.measure(np.array([[1.0], [3.0]])).overall["psds"]["psds"]
        array([1., 1.])
        """
        tallies = self._tallies()
        draws = [None] if weights is None else list(weights)
        values = np.empty(len(draws))
        by_class = np.full((len(draws), len(self.labels)), np.nan)
        for at, draw in enumerate(draws):
            rocs = self._rocs(tallies, draw)
            values[at] = self._join(rocs).area(self.max_efpr) if rocs else np.nan
            for number, roc in rocs.items():
                by_class[at, number] = roc.area(self.max_efpr)
        class_wise = {"psds": {"psds": by_class}}
        return Measured({"psds": {"psds": values}}, class_wise, class_averages(class_wise))

    def scores(self) -> PsdsScores:
        """Return the scores of all files, with their curves.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> count_psds({"a": [Event(0, 1, "dog")]}, curves, dtc=0.7, gtc=0.7).scores().value
        1.0
        """
        rocs = self._rocs(self._tallies(), None)
        roc = self._join(rocs) if rocs else Roc(np.zeros(1), np.full(1, np.nan))
        own = {number: roc.area(self.max_efpr) for number, roc in rocs.items()}
        return PsdsScores(
            value=roc.area(self.max_efpr),
            class_wise={label: own.get(at, np.nan) for at, label in enumerate(self.labels)},
            roc=roc,
            class_rocs={self.labels[number]: roc for number, roc in rocs.items()},
            n_files=len(self.files),
            n_merged=self.n_merged,
            unknown_files=self.unknown_files,
        )

    def beside(self, other: "PsdsCounts") -> "PsdsCounts":
        """Return the counts of both, the files of `other` after the own.

        >>> from earmark.formats.scores import ScoreCurve
        >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
        >>> counts = count_psds({"a": [Event(0, 1, "dog")]}, curves, dtc=0.7, gtc=0.7)
        >>> counts.beside(counts).files
        ('a', 'a')
        """
        same = ("labels", "alpha_ct", "alpha_st", "max_efpr", "unit_of_time")
        if any(getattr(self, name) != getattr(other, name) for name in same):
            raise SettingError("Counts go beside each other with the same labels and settings.")
        both: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(other, name)])
            for name in ("n_ref", "seconds_ref", "durations")
        }
        changes = self.changes.beside(other.changes, len(self.files))
        return replace(self, files=self.files + other.files, changes=changes, **both)

    def _tallies(self) -> list["_ClassTally"]:
        return [_ClassTally(changes) for changes in self.changes.by_class(len(self.labels))]

    def _rocs(self, tallies: list["_ClassTally"], weights: Reals | None) -> dict[int, Roc]:
        """Return class number -> its curve in one draw, of classes with events only."""
        draw = np.ones(len(self.files)) if weights is None else weights
        n_ref, seconds_ref, seconds = (
            draw @ self.n_ref,
            draw @ self.seconds_ref,
            draw @ self.durations,
        )
        unit = UNITS_OF_TIME[self.unit_of_time]
        there = n_ref > 0
        n_others = max(1, int(there.sum()) - 1)
        rates = np.where(there, self.alpha_ct / np.maximum(seconds_ref, 1e-12) / n_others, 0)
        rocs = {}
        for number in np.flatnonzero(there).tolist():
            tally = tallies[number]
            efpr = tally.false.sums(weights) / seconds
            if self.alpha_ct:
                efpr = np.round((efpr + tally.crossed(rates, weights)) * unit, _EFPR_DECIMALS)
            else:
                efpr = efpr * unit
            rocs[number] = _front(efpr, tally.true, n_ref[number], weights, self.max_efpr)
        return rocs

    def _join(self, rocs: dict[int, Roc]) -> Roc:
        efpr = np.unique(np.concatenate([roc.efpr for roc in rocs.values()]))
        tpr = np.stack(
            [roc.tpr[np.searchsorted(roc.efpr, efpr, side="right") - 1] for roc in rocs.values()]
        )
        joined = np.maximum(tpr.mean(axis=0) - self.alpha_st * tpr.std(axis=0), 0)
        return Roc(np.append(efpr, self.max_efpr), np.append(joined, joined[-1]))


class _ClassTally:
    """The sums of one class, up to each change at which its curve may turn."""

    def __init__(self, changes: Changes) -> None:
        true, false, cross = changes.amounts
        points = changes.turns(
            (true > 0) | (false < 0) | (cross < 0), (true < 0) | (false > 0) | (cross > 0)
        )
        self.true = Tally(changes, true, points)
        self.false = Tally(changes, false, points)
        self.cross = Tally(changes, cross, points)
        self.other = changes.other[np.flatnonzero(cross)]

    def crossed(self, rates: Reals, weights: Reals | None) -> Reals:
        return self.cross.sums(weights, rates[self.other])


def _front(efpr: Reals, true: Tally, n_ref: float, weights: Reals | None, max_efpr: float) -> Roc:
    """Return the staircase over all thresholds, those with a rate above `max_efpr` left out."""
    inside = np.flatnonzero(efpr <= max_efpr)
    inside = inside[np.argsort(efpr[inside])]
    best = np.maximum.accumulate(true.sums(weights)[inside])
    efpr = efpr[inside]
    # of equal rates the last, and of equal heights the first
    last = np.flatnonzero(np.append(efpr[1:] != efpr[:-1], True))
    efpr, best = efpr[last], best[last]
    higher = np.flatnonzero(np.append(True, best[1:] > best[:-1]))
    return Roc(efpr[higher], best[higher] / n_ref)


def psds_scores(
    reference: Mapping[str, Sequence[Event]],
    curves: ScoreCurves,
    *,
    dtc: float,
    gtc: float,
    cttc: float | None = None,
    alpha_ct: float = 0.0,
    alpha_st: float = 0.0,
    max_efpr: float = 100.0,
    unit_of_time: str = "hour",
    durations: Mapping[str, float] | None = None,
    labels: Sequence[str] | None = None,
) -> PsdsScores:
    """Return PSDS of the curves against `reference`.

    Args:
        reference: file name -> its true events; these files are evaluated.
        curves: of every one of these files.
        dtc: part of a detection that events of its class must cover for it to count.
        gtc: part of an event that such detections must cover for it to be found.
        cttc: part of a detection that events of another class must cover for a cross trigger;
            needed with `alpha_ct`.
        alpha_ct: what cross triggers cost.
        alpha_st: what it costs that classes differ.
        max_efpr: false positives per `unit_of_time` up to which the area goes.
        unit_of_time: "second", "minute" or "hour".
        durations: file name -> its length in seconds; without them, the last edge of its curve.
        labels: the classes, in the order wanted; without them, those of the curves.

    >>> from earmark.formats.scores import ScoreCurve
    >>> reference = {"a.wav": [Event(0, 1, "dog"), Event(2, 3, "dog")]}
    >>> curve = ScoreCurve([0, 1, 2, 3, 3600], [[0.9], [0.5], [0.3], [0.6]])
    >>> psds_scores(reference, ScoreCurves(["dog"], {"a": curve}), **SCENARIO_1).value
    0.5
    """
    return count_psds(
        reference,
        curves,
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
    curves: ScoreCurves,
    *,
    dtc: float,
    gtc: float,
    cttc: float | None = None,
    alpha_ct: float = 0.0,
    alpha_st: float = 0.0,
    max_efpr: float = 100.0,
    unit_of_time: str = "hour",
    durations: Mapping[str, float] | None = None,
    labels: Sequence[str] | None = None,
) -> PsdsCounts:
    """Find what changes in each file as the threshold falls; the arguments of `psds_scores`.

    Time and memory grow with the number of frames.

    >>> from earmark.formats.scores import ScoreCurve
    >>> curves = ScoreCurves(["dog"], {"a": ScoreCurve([0, 1, 2], [[0.9], [0.2]])})
    >>> count_psds({"a": [Event(0, 1, "dog")]}, curves, dtc=0.7, gtc=0.7).n_ref.tolist()
    [[1]]
    """
    if (cttc is None) != (alpha_ct == 0):
        raise SettingError(
            f"cttc and alpha_ct go together, both or neither. Got cttc={cttc!r} and "
            f"alpha_ct={alpha_ct!r}."
        )
    for name, value in (("alpha_ct", alpha_ct), ("alpha_st", alpha_st)):
        if not (np.isfinite(value) and value >= 0):
            raise SettingError(f"{name} must be a number of 0 or more. Got {value!r}.")
    if not (np.isfinite(max_efpr) and max_efpr > 0):
        raise SettingError(f"max_efpr must be a number above 0. Got {max_efpr!r}.")
    criterion = Intersections(dtc, gtc, cttc)
    given = stack_curves(reference, curves, labels)
    stack = criterion.prepare(given)
    side = stack.reference
    seconds_ref = np.zeros((len(stack.files), len(stack.labels)))
    np.add.at(seconds_ref, (side.of_file, side.of_class), side.offsets - side.onsets)
    return PsdsCounts(
        files=stack.files,
        labels=stack.labels,
        changes=criterion.find_changes(stack),
        n_ref=stack.n_events(),
        seconds_ref=seconds_ref,
        durations=_find_durations(stack.files, stack.edges[stack.last], durations),
        alpha_ct=alpha_ct,
        alpha_st=alpha_st,
        max_efpr=max_efpr,
        unit_of_time=choose("unit of time", unit_of_time, UNITS_OF_TIME),
        n_merged=len(given.reference) - len(side),
        unknown_files=stack.unknown_files,
    )


def _find_durations(
    files: tuple[str, ...], ends: Reals, durations: Mapping[str, float] | None
) -> Reals:
    if durations is None:
        return ends
    by_stem = {stem_of(name): seconds for name, seconds in durations.items()}
    missing = [name for name in files if stem_of(name) not in by_stem]
    if missing:
        raise DataError(
            f"{len(missing)} of {len(files)} files have no duration, the first is {missing[0]!r}."
        )
    found = np.array([by_stem[stem_of(name)] for name in files], np.float64)
    wrong = np.flatnonzero(~(np.isfinite(found) & (found > 0)))
    if len(wrong):
        raise DataError(
            f"The duration of {files[wrong[0]]!r} is {found[wrong[0]]} s. It must be above 0."
        )
    return found


# Those of DCASE task 4 since 2021: the first asks for exact times, the second for the right class.
SCENARIO_1 = Scenario(dtc=0.7, gtc=0.7, cttc=None, alpha_ct=0.0, alpha_st=1.0, max_efpr=100.0)
SCENARIO_2 = Scenario(dtc=0.1, gtc=0.1, cttc=0.3, alpha_ct=0.5, alpha_st=1.0, max_efpr=100.0)
SCENARIOS = {"scenario_1": SCENARIO_1, "scenario_2": SCENARIO_2}
