"""Results of units -> a table: mean, spread, interval, and is the difference chance?

Conventions: scores of a cell are over its seeds. Its interval is a bootstrap of both seeds and test
clips: a draw takes n - 1 of the n runs and as many clips as there are, both with replacement (n - 1
since n of n would make the spread too small by that share), so it tells where the mean of other
runs on other clips would lie. Scores without counts by clip are drawn over runs alone. Differences
are paired by seed and come from `compare_runs`: Student's interval, a p-value of sign flips, and
the same corrected for all pairs of the table (Holm).
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from earmark.compare.unit import Result
from earmark.errors import choose
from earmark.metrics.rates import Reals
from earmark.metrics.seeds import RunDifference, compare_runs, correct_p_values
from earmark.report import Grid

N_DRAWS = 1000
_MOST_DRAWN = 2**23  # numbers of weights at a time


class Metric(NamedTuple):
    """Where a score stands in a result, and whether less is better."""

    title: str
    group: str  # "tuned" stands for "weak" or "strong", whichever the table is of
    name: str
    less_is_better: bool = False


METRICS = {
    "er": Metric("ER", "tuned", "error_rate", True),
    "s": Metric("S", "tuned", "substitution_rate", True),
    "d": Metric("D", "tuned", "deletion_rate", True),
    "i": Metric("I", "tuned", "insertion_rate", True),
    "f1": Metric("F1", "tuned", "f_measure"),
    "p": Metric("P", "tuned", "precision"),
    "r": Metric("R", "tuned", "recall"),
    "event": Metric("event F1", "tuned", "event_f_measure"),
    "psds1": Metric("PSDS1", "curves", "psds1"),
    "map": Metric("mAP", "curves", "mean_average_precision"),
}
HEADLINES = ("er", "f1", "event", "psds1", "map")


@dataclass(frozen=True)
class Cell:
    """A score over the runs of a cell."""

    mean: float
    deviation: float  # nan of one run
    low: float
    high: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """All cells and pairs, by metric.

    Args:
        tuning: "weak" or "strong": which labels of the validation clips the thresholds come from.
        seeds: cell -> the seeds of its runs, in the order of `values`.
        cells: cell -> metric -> its scores.
        pairs: (cell compared with, cell) -> metric -> their difference.
        corrected: (cell compared with, cell) -> metric -> p-value corrected for the pairs.
    """

    tuning: str
    seeds: dict[str, list[int]]
    cells: dict[str, dict[str, Cell]]
    pairs: dict[tuple[str, str], dict[str, RunDifference]]
    corrected: dict[tuple[str, str], dict[str, float]]

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
                {"against": pair[0], "cell": pair[1]}
                | {
                    name: found.to_dict() | {"corrected_p": self.corrected[pair][name]}
                    for name, found in metrics.items()
                }
                for pair, metrics in self.pairs.items()
            ],
        }


def compare_results(
    results: Sequence[Result],
    pairs: Sequence[tuple[str, str]],
    tuning: str = "weak",
    *,
    n_draws: int = N_DRAWS,
    seed: int = 0,
) -> Comparison:
    """Return the statistics of all cells that have results; pairs need two shared seeds."""
    runs: dict[str, dict[int, Result]] = {}
    for result in results:
        choose("tuning", tuning, [name for name in result.scores if name != "curves"])
        runs.setdefault(result.cell, {})[result.seed] = result
    seeds = {cell: sorted(of_cell) for cell, of_cell in runs.items()}
    cells = {
        cell: {
            name: _summarise([of_cell[s] for s in seeds[cell]], metric, tuning, n_draws, seed)
            for name, metric in METRICS.items()
        }
        for cell, of_cell in runs.items()
    }
    found: dict[tuple[str, str], dict[str, RunDifference]] = {}
    for pair in pairs:
        if not all(cell in runs for cell in pair):
            continue
        shared = sorted(runs[pair[0]].keys() & runs[pair[1]].keys())
        if len(shared) < 2:
            continue
        a, b = ([runs[cell][s] for s in shared] for cell in pair)
        found[pair] = {
            name: compare_runs(_values(a, metric, tuning), _values(b, metric, tuning))
            for name, metric in METRICS.items()
        }
    corrected: dict[tuple[str, str], dict[str, float]] = {pair: {} for pair in found}
    for name in METRICS:
        p_values = correct_p_values([metrics[name].p_value for metrics in found.values()])
        for pair, p_value in zip(found, p_values, strict=True):
            corrected[pair][name] = p_value
    return Comparison(tuning, seeds, cells, found, corrected)


def _values(results: Sequence[Result], metric: Metric, tuning: str) -> list[float]:
    group = tuning if metric.group == "tuned" else metric.group
    return [result.scores[group][metric.name] for result in results]


def _summarise(
    results: Sequence[Result], metric: Metric, tuning: str, n_draws: int, seed: int
) -> Cell:
    values = np.array(_values(results, metric, tuning))
    deviation = float(values.std(ddof=1)) if len(values) > 1 else float("nan")
    rng = np.random.default_rng(seed)
    drawn_runs = rng.integers(len(values), size=(n_draws, max(1, len(values) - 1)))
    drawn = np.broadcast_to(values, (n_draws, len(values)))
    if metric.name in _FROM_COUNTS:
        n_files = len(results[0].counts[tuning]["tp"])
        weights = _draw_weights(n_draws, n_files, rng)
        tables = [result.counts[tuning] for result in results]
        drawn = np.stack([_FROM_COUNTS[metric.name](table, weights) for table in tables], axis=1)
    means = np.take_along_axis(drawn, drawn_runs, axis=1).mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Cell(float(values.mean()), deviation, float(low), float(high), tuple(values.tolist()))


def _draw_weights(n_draws: int, n_files: int, rng: np.random.Generator) -> Reals:
    """Return how often each clip is drawn, (draws, clips)."""
    drawn = rng.multinomial(n_files, np.full(n_files, 1 / n_files), size=n_draws)
    return drawn.astype(np.float64)


def _error_rates(counts: Mapping[str, Sequence[int]], weights: Reals) -> Reals:
    errors, tp, fn = (weights @ np.array(counts[name]) for name in ("errors", "tp", "fn"))
    return np.asarray(errors / (tp + fn))


def _f_measures(counts: Mapping[str, Sequence[int]], weights: Reals) -> Reals:
    tp, fp, fn = (weights @ np.array(counts[name]) for name in ("tp", "fp", "fn"))
    return np.asarray(2 * tp / np.maximum(1, 2 * tp + fp + fn))


_FROM_COUNTS = {"error_rate": _error_rates, "f_measure": _f_measures}


def comparison_grids(comparison: Comparison) -> list[Grid]:
    """Return a table of the cells and one of the pairs."""
    told = {
        "weak": "thresholds from tags alone",
        "strong": "thresholds from onsets and offsets of the validation clips",
    }[comparison.tuning]
    rows = []
    for cell, metrics in comparison.cells.items():
        texts = [_spread(metrics[name]) if name in HEADLINES else f"{metrics[name].mean:.3f}"
                 for name in METRICS]  # fmt: skip
        rows.append((cell, str(len(comparison.seeds[cell])), *texts))
    columns = ("cell", "runs", *(metric.title for metric in METRICS.values()))
    grids = [Grid(f"Mean ± standard deviation over runs, {told}", columns, tuple(rows))]
    lines = tuple(
        (cell, *(_interval(metrics[name]) for name in HEADLINES))
        for cell, metrics in comparison.cells.items()
    )
    titles = tuple(METRICS[name].title for name in HEADLINES)
    grids.append(
        Grid("95 % intervals of the mean, other runs and other clips", ("cell", *titles), lines)
    )
    if comparison.pairs:
        pairs = tuple(
            (
                f"{b} less {a}",
                str(metrics["er"].n_runs),
                *(_difference(metrics[x], comparison.corrected[a, b][x]) for x in HEADLINES),
            )
            for (a, b), metrics in comparison.pairs.items()
        )
        title = "Differences, paired by seed: mean [95 % interval], p (p corrected for all pairs)"
        grids.append(Grid(title, ("pair", "runs", *titles), pairs))
    return grids


def _spread(cell: Cell) -> str:
    spread = "" if np.isnan(cell.deviation) else f" ± {cell.deviation:.3f}"
    return f"{cell.mean:.3f}{spread}"


def _interval(cell: Cell) -> str:
    return f"{cell.low:.3f} to {cell.high:.3f}"


def _difference(found: RunDifference, corrected: float) -> str:
    return (
        f"{found.difference:+.3f} [{found.low:+.3f}, {found.high:+.3f}], "
        f"p {found.p_value:.3f} ({corrected:.3f})"
    )
