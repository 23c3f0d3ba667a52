"""Results of units -> a table: mean, spread, interval, and is the difference chance?

Conventions: scores of a cell are over its seeds. Its interval tells where the mean of other runs on
other clips would lie: Student's over the runs, and for ER and F1 wider by what draws of the test
clips (a bootstrap) make of the mean; the squares of both margins add up. It ends where the score
does: at 0, and at 1 or never. Differences are paired by seed and come from `compare_runs`:
Student's interval, a p-value of sign flips, and the same corrected (Holm) for the pairs of one
change, or for those without one. Where several pairs share a change, all their runs are tested
together, too, each pair of runs flipped by itself, as if runs of one seed with different poolings
were independent; and, without that, the means over the pairs of each seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np

from earmark.errors import choose
from earmark.experiments.plan import Pair
from earmark.experiments.run import Result
from earmark.metrics.bootstrap import bootstrap_weights
from earmark.metrics.report import TextTable, p_text
from earmark.metrics.run_comparison import (
    RunDifference,
    compare_runs,
    correct_p_values,
    student_quantile,
)
from earmark.metrics.weighted_scores import Reals

WAYS = {  # of tuning, as `compare.unit` names them
    "weak": "thresholds of clips and frames from tags alone",
    "gates": "thresholds of clips from tags, of frames as `earmark train` leaves them",
    "shared": "one threshold of clips for all classes from tags, of frames as trained",
    "strong": "thresholds from onsets and offsets of the validation clips",
}
N_DRAWS = 1000
LEVEL = 0.95
MANY = 1000  # degrees of freedom, as good as any more


class Metric(NamedTuple):
    """Where a score stands in a result, and the most that it can be; the least is 0."""

    title: str
    group: str  # "tuned" stands for a way of tuning, whichever the table is of
    name: str
    most: float = 1.0


METRICS = {
    "er": Metric("ER", "tuned", "error_rate", inf),
    "s": Metric("S", "tuned", "substitution_rate"),
    "d": Metric("D", "tuned", "deletion_rate"),
    "i": Metric("I", "tuned", "insertion_rate", inf),
    "f1": Metric("F1", "tuned", "f_measure"),
    "p": Metric("P", "tuned", "precision"),
    "r": Metric("R", "tuned", "recall"),
    "event": Metric("event F1", "tuned", "event_f_measure"),
    "psds1": Metric("PSDS1", "curves", "psds1"),
    "map": Metric("mAP", "curves", "mean_average_precision"),
    "valid": Metric("mAP, valid", "valid", "mean_average_precision"),
}
HEADLINES = ("er", "f1", "event", "psds1", "map")


@dataclass(frozen=True)
class Cell:
    """A score over the runs of a cell."""

    mean: float
    deviation: float  # nan of one run, and so are both ends of the interval
    low: float
    high: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """All cells and pairs, by metric.

    Args:
        tuning: "weak", "gates", "shared" or "strong": whence thresholds come; see `compare.unit`.
        seeds: cell -> the seeds of its runs, in the order of `values`.
        cells: cell -> metric -> its scores.
        pairs: pair of cells -> metric -> their difference.
        corrected: pair of cells -> metric -> p-value corrected for the pairs of the same change.
        together: change -> metric -> the difference over all pairs that share it.
        by_seed: the same of the means of each seed.
    """

    tuning: str
    seeds: dict[str, list[int]]
    cells: dict[str, dict[str, Cell]]
    pairs: dict[Pair, dict[str, RunDifference]]
    corrected: dict[Pair, dict[str, float]]
    together: dict[str, dict[str, RunDifference]]
    by_seed: dict[str, dict[str, RunDifference]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "tuning": self.tuning,
            "seeds": self.seeds,
            "cells": {
                cell: {name: asdict(scores) for name, scores in metrics.items()}
                for cell, metrics in self.cells.items()
            },
            "pairs": [
                pair._asdict()
                | {
                    name: found.to_dict() | {"corrected_p": self.corrected[pair][name]}
                    for name, found in metrics.items()
                }
                for pair, metrics in self.pairs.items()
            ],
            **{
                title: {
                    change: {name: found.to_dict() for name, found in metrics.items()}
                    for change, metrics in of.items()
                }
                for title, of in (("together", self.together), ("by_seed", self.by_seed))
            },
        }


def compare_results(
    results: Sequence[Result],
    pairs: Sequence[Pair],
    tuning: str = "weak",
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Comparison:
    """Return the statistics of all cells that have results; pairs need two shared seeds."""
    runs: dict[str, dict[int, Result]] = {}
    for result in results:
        choose("tuning", tuning, list(result.counts))
        runs.setdefault(result.cell, {})[result.seed] = result
    seeds = {cell: sorted(of_cell) for cell, of_cell in runs.items()}
    cells = {
        cell: {
            name: _summarise([of_cell[s] for s in seeds[cell]], metric, tuning, n_draws, seed)
            for name, metric in METRICS.items()
        }
        for cell, of_cell in runs.items()
    }
    shared: dict[Pair, tuple[list[Result], list[Result]]] = {}
    for pair in pairs:
        a, b = (runs.get(cell, {}) for cell in (pair.against, pair.cell))
        both = sorted(a.keys() & b.keys())
        if len(both) > 1:
            shared[pair] = [a[s] for s in both], [b[s] for s in both]
    found = {pair: _compare(*of_pair, tuning) for pair, of_pair in shared.items()}
    corrected: dict[Pair, dict[str, float]] = {pair: {} for pair in found}
    together: dict[str, dict[str, RunDifference]] = {}
    by_seed: dict[str, dict[str, RunDifference]] = {}
    for change in dict.fromkeys(pair.change for pair in found):
        family = [pair for pair in found if pair.change == change]
        for name in METRICS:
            p_values = correct_p_values([found[pair][name].p_value for pair in family])
            for pair, p_value in zip(family, p_values, strict=True):
                corrected[pair][name] = p_value
        if change and len(family) > 1:
            all_a, all_b = ([run for p in family for run in shared[p][side]] for side in (0, 1))
            together[change] = _compare(all_a, all_b, tuning)
            if len({run.seed for run in all_a}) > 1:
                by_seed[change] = _compare(all_a, all_b, tuning, by_seed=True)
    return Comparison(tuning, seeds, cells, found, corrected, together, by_seed)


def _compare(
    a: Sequence[Result], b: Sequence[Result], tuning: str, by_seed: bool = False
) -> dict[str, RunDifference]:
    found = {}
    for name, metric in METRICS.items():
        pairs = np.array([_values(side, metric, tuning) for side in (a, b)])
        if by_seed:
            seeds = np.array([run.seed for run in a])
            pairs = np.array([pairs[:, seeds == seed].mean(axis=1) for seed in np.unique(seeds)]).T
        found[name] = compare_runs(*pairs.tolist())
    return found


def _values(results: Sequence[Result], metric: Metric, tuning: str) -> list[float]:
    group = tuning if metric.group == "tuned" else metric.group
    return [result.scores[group][metric.name] for result in results]


def _summarise(
    results: Sequence[Result], metric: Metric, tuning: str, n_draws: int, seed: int
) -> Cell:
    values = np.array(_values(results, metric, tuning))
    mean, n_runs = float(values.mean()), len(values)
    if n_runs < 2:
        nan = float("nan")
        return Cell(mean, nan, nan, nan, tuple(values.tolist()))
    deviation = float(values.std(ddof=1))
    of_runs, of_clips = deviation**2 / n_runs, 0.0
    if metric.name in _FROM_COUNTS:
        tables = [result.counts[tuning] for result in results]
        drawn = [
            np.mean([_FROM_COUNTS[metric.name](table, weights) for table in tables], axis=0)
            for weights in bootstrap_weights(len(tables[0]["tp"]), n_draws, seed)
        ]
        of_clips = float(np.concatenate(drawn).var(ddof=1))
    # Runs are few, and their variance is uncertain; clips are many.
    few, many = student_quantile(LEVEL, n_runs - 1), student_quantile(LEVEL, MANY)
    margin = (few**2 * of_runs + many**2 * of_clips) ** 0.5
    low, high = max(0.0, mean - margin), min(metric.most, mean + margin)
    return Cell(mean, deviation, low, high, tuple(values.tolist()))


def _error_rates(counts: Mapping[str, Sequence[int]], weights: Reals) -> Reals:
    errors, tp, fn = (weights @ np.array(counts[name]) for name in ("errors", "tp", "fn"))
    return np.asarray(errors / (tp + fn))


def _f_measures(counts: Mapping[str, Sequence[int]], weights: Reals) -> Reals:
    tp, fp, fn = (weights @ np.array(counts[name]) for name in ("tp", "fp", "fn"))
    return np.asarray(2 * tp / np.maximum(1, 2 * tp + fp + fn))


_FROM_COUNTS = {"error_rate": _error_rates, "f_measure": _f_measures}


def comparison_tables(comparison: Comparison) -> list[TextTable]:
    """Return a table of the cells and one of the pairs."""
    rows, spread = [], (*HEADLINES, "valid")
    for cell, metrics in comparison.cells.items():
        texts = [_spread(metrics[name]) if name in spread else f"{metrics[name].mean:.3f}"
                 for name in METRICS]  # fmt: skip
        rows.append((cell, str(len(comparison.seeds[cell])), *texts))
    columns = ("cell", "runs", *(metric.title for metric in METRICS.values()))
    title = f"Mean ± standard deviation over runs, {WAYS[comparison.tuning]}"
    tables = [TextTable(title, columns, tuple(rows))]
    lines = tuple(
        (cell, *(_interval(metrics[name]) for name in HEADLINES))
        for cell, metrics in comparison.cells.items()
    )
    titles = tuple(METRICS[name].title for name in HEADLINES)
    title = (
        "95 % intervals of the mean: other runs on other clips for ER and F1, other runs on these"
        " clips for the rest"
    )
    tables.append(TextTable(title, ("cell", *titles), lines))
    if comparison.pairs:
        pairs = [
            (
                f"{pair.cell} less {pair.against}",
                str(metrics["er"].n_runs),
                *(_difference(metrics[x], comparison.corrected[pair][x]) for x in HEADLINES),
                f"{metrics['er'].smallest_p:.3f}",
            )
            for pair, metrics in comparison.pairs.items()
        ]
        pairs += [
            (
                f"{told}: {change}",
                str(metrics["er"].n_runs),
                *(_difference(metrics[name]) for name in HEADLINES),
                p_text(metrics["er"].smallest_p),
            )
            for told, of in (("all", comparison.together), ("mean of a seed", comparison.by_seed))
            for change, metrics in of.items()
        ]
        title = (
            "Differences, paired by seed: mean [95 % interval], p (p corrected for the pairs of the"
            " same change); last, the smallest p that so many runs can give"
        )
        tables.append(TextTable(title, ("pair", "runs", *titles, "least p"), tuple(pairs)))
    return tables


def _spread(cell: Cell) -> str:
    spread = "" if np.isnan(cell.deviation) else f" ± {cell.deviation:.3f}"
    return f"{cell.mean:.3f}{spread}"


def _interval(cell: Cell) -> str:
    return "-" if np.isnan(cell.low) else f"{cell.low:.3f} to {cell.high:.3f}"


def _difference(found: RunDifference, corrected: float | None = None) -> str:
    also = "" if corrected is None else f" ({p_text(corrected)})"
    return (
        f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}], "
        f"p {p_text(found.p_value)}{also}"
    )
