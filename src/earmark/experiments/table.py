"""Summarise the results of a comparison: means, confidence intervals and paired differences.

Conventions: the scores of a configuration are taken over its seeds. The confidence interval of
their mean is Student's over the runs; for ER and F1 it also covers the choice of test clips, by a
bootstrap: the squared margins of both add up. It is clipped to the range of the score.

Differences are paired by seed (`compare_runs`): Student's interval and the p-value of a sign-flip
test, which is also corrected (Holm) for the number of pairs with the same change, or without one.
Pairs with the same change are also tested jointly, in two ways: over all their runs, which takes
runs with the same seed and different poolings for independent; and over the means per seed, which
does not. What a pair's difference in F1 says is a sentence (`earmark.metrics.verdict`), from seeds
and clips. There is no verdict where both sides have an error rate above 1, so that no output at all
would be better, or, if a least AUC of the tags is given, where neither reaches it: recognition
decides there, and not what differs. Such pairs are left out of the joint verdict.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf, nan
from typing import Any, NamedTuple

import numpy as np

from earmark.errors import choose
from earmark.experiments.configurations import Pair
from earmark.experiments.effects import FROM_COUNTS, ClipBootstrap
from earmark.experiments.plan import TUNINGS
from earmark.experiments.run import RunResult
from earmark.metrics.report import TextTable, p_text
from earmark.metrics.run_comparison import (
    RunDifference,
    compare_runs,
    correct_p_values,
    student_quantile,
)
from earmark.metrics.verdict import Verdict, judge

N_SAMPLES = 1000
LEVEL = 0.95
MANY = 1000  # degrees of freedom; more make no difference
MOST_ER = 1.0  # of no output at all


class Metric(NamedTuple):
    """Where a score is in a result, and its maximum; the minimum is 0.

    >>> METRICS["f1"].name
    'f_measure'
    """

    title: str
    group: str  # in `RunResult.scores`; "tuned" stands for the tuning of the table
    name: str
    maximum: float = 1.0
    optional: bool = False  # results of earlier versions lack it

    def group_in(self, tuning: str) -> str:
        """Return the group in the table of a tuning.

        >>> METRICS["f1"].group_in("clip"), METRICS["map"].group_in("clip")
        ('clip', 'threshold_free')
        """
        return tuning if self.group == "tuned" else self.group


METRICS = {
    "er": Metric("ER", "tuned", "error_rate", inf),
    "s": Metric("S", "tuned", "substitution_rate"),
    "d": Metric("D", "tuned", "deletion_rate"),
    "i": Metric("I", "tuned", "insertion_rate", inf),
    "f1": Metric("F1", "tuned", "f_measure"),
    "p": Metric("P", "tuned", "precision"),
    "r": Metric("R", "tuned", "recall"),
    "event_f1": Metric("event F1", "tuned", "event_f_measure"),
    "wide_event_f1": Metric("event F1, 0.5 s", "tuned", "wide_event_f_measure", optional=True),
    "intersection_f1": Metric("intersection F1", "tuned", "intersection_f_measure", optional=True),
    "length_ratio": Metric("length ratio", "tuned", "length_ratio", inf, optional=True),
    "psds1": Metric("PSDS1", "threshold_free", "psds1"),
    "psds2": Metric("PSDS2", "threshold_free", "psds2", optional=True),
    "map": Metric("mAP", "threshold_free", "mean_average_precision"),
    "auc": Metric("AUC", "threshold_free", "mean_roc_auc", optional=True),
    "valid_map": Metric("mAP, valid", "valid", "mean_average_precision"),
}
HEADLINES = ("er", "f1", "event_f1", "psds1", "map")


@dataclass(frozen=True)
class Summary:
    """One score over the runs of a configuration.

    >>> Summary(0.5, 0.1, 0.4, 0.6, (0.4, 0.6)).mean
    0.5
    """

    mean: float
    deviation: float  # nan if there is one run, and so are `low` and `high`
    low: float
    high: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Comparison:
    """The statistics of all configurations and pairs, by metric.

    Args:
        tuning: how the thresholds were tuned, a name in `TUNINGS`.
        seeds: configuration -> the seeds of its runs, in the order of `Summary.values`.
        summaries: configuration -> metric -> its scores.
        pairs: pair -> metric -> the difference.
        corrected: pair -> metric -> p-value corrected for the pairs with the same change.
        by_change: change -> metric -> the difference over all runs of its pairs.
        by_seed: change -> metric -> the difference over the means per seed.
        verdicts: name of a pair, or of a joint test over the means per seed -> what its difference
            in F1 says.

    >>> summaries = {"single": {"f1": Summary(0.5, 0.1, 0.4, 0.6, (0.4, 0.6))}}
    >>> comparison = Comparison("clip", {"single": [0, 1]}, summaries, {}, {}, {}, {})
    >>> comparison.summaries["single"]["f1"].mean
    0.5
    """

    tuning: str
    seeds: dict[str, list[int]]
    summaries: dict[str, dict[str, Summary]]
    pairs: dict[Pair, dict[str, RunDifference]]
    corrected: dict[Pair, dict[str, float]]
    by_change: dict[str, dict[str, RunDifference]]
    by_seed: dict[str, dict[str, RunDifference]]
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON.

        >>> compare_results([], [], "clip").to_dict()["tuning"]
        'clip'
        """
        return {
            "tuning": self.tuning,
            "seeds": self.seeds,
            "summaries": {
                configuration: {name: asdict(summary) for name, summary in metrics.items()}
                for configuration, metrics in self.summaries.items()
            },
            "pairs": [
                pair._asdict()
                | {
                    name: difference.to_dict() | {"corrected_p": self.corrected[pair][name]}
                    for name, difference in metrics.items()
                }
                for pair, metrics in self.pairs.items()
            ],
            **{
                title: {
                    change: {name: difference.to_dict() for name, difference in metrics.items()}
                    for change, metrics in joint.items()
                }
                for title, joint in (("by_change", self.by_change), ("by_seed", self.by_seed))
            },
            "verdicts": {name: verdict.to_dict() for name, verdict in self.verdicts.items()},
        }

    def sentences(self) -> list[str]:
        """Return the verdicts in words.

        >>> compare_results([], [], "clip").sentences()
        []
        """
        return [f"{name}: {verdict.sentence()}." for name, verdict in self.verdicts.items()]


def list_tunings(results: Iterable[RunResult]) -> list[str]:
    """Return the tunings that any of the results has, in the order of `TUNINGS`.

    >>> list_tunings([RunResult("single", 0, "", {}, {"strong": {}, "clip": {}}, {}, {})])
    ['clip', 'strong']
    """
    known = {name for result in results for name in result.counts}
    return [name for name in TUNINGS if name in known]


def compare_results(
    results: Sequence[RunResult],
    pairs: Sequence[Pair],
    tuning: str = "clip_and_frame",
    *,
    least_auc: float = 0.0,
    n_samples: int = N_SAMPLES,
    seed: int = 0,
) -> Comparison:
    """Return the statistics of all configurations that have results with a tuning.

    Args:
        results: of any number of configurations; those without the tuning are left out.
        pairs: configurations to compare; a pair needs two seeds that both of them have.
        tuning: a name in `TUNINGS`.
        least_auc: of the tags, for a verdict; results of earlier versions have no AUC.
        n_samples: bootstrap samples of the test clips.
        seed: of the bootstrap.

    >>> compare_results([], []).summaries
    {}
    """
    runs: dict[str, dict[int, RunResult]] = {}
    if results:
        choose("tuning", tuning, list_tunings(results))
    for result in results:
        if tuning not in result.counts:
            continue
        runs.setdefault(result.configuration, {})[result.seed] = result
    seeds = {configuration: sorted(by_seed) for configuration, by_seed in runs.items()}
    scored = [result for by_seed in runs.values() for result in by_seed.values()]
    bootstrap = ClipBootstrap(scored, tuning, n_samples, seed)
    metrics = {
        name: x
        for name, x in METRICS.items()
        if not x.optional or all(x.name in run.scores[x.group_in(tuning)] for run in scored)
    }
    summaries = {
        configuration: {
            name: _summarise([by_seed[s] for s in seeds[configuration]], metric, tuning, bootstrap)
            for name, metric in metrics.items()
        }
        for configuration, by_seed in runs.items()
    }
    paired: dict[Pair, tuple[list[RunResult], list[RunResult]]] = {}
    for pair in pairs:
        a, b = (runs.get(name, {}) for name in (pair.baseline, pair.configuration))
        shared = sorted(a.keys() & b.keys())
        if len(shared) > 1:
            paired[pair] = [a[s] for s in shared], [b[s] for s in shared]
    differences = {pair: _compare(*sides, metrics, tuning) for pair, sides in paired.items()}
    corrected: dict[Pair, dict[str, float]] = {pair: {} for pair in differences}
    by_change: dict[str, dict[str, RunDifference]] = {}
    by_seed_: dict[str, dict[str, RunDifference]] = {}
    verdicts: dict[str, Verdict] = {}
    for change in dict.fromkeys(pair.change for pair in differences):
        family = [pair for pair in differences if pair.change == change]
        for name in metrics:
            p_values = correct_p_values([differences[pair][name].p_value for pair in family])
            for pair, p_value in zip(family, p_values, strict=True):
                corrected[pair][name] = p_value
        judged = dict(
            zip(family, judge([bootstrap.effect(*paired[p]) for p in family]), strict=True)
        )
        for pair in family:
            if reason := _refusal(pair, summaries, least_auc):
                judged[pair] = judged[pair].refuse(reason)
        verdicts |= {pair.title: verdict for pair, verdict in judged.items()}
        if change and len(family) > 1:
            all_a, all_b = ([run for p in family for run in paired[p][side]] for side in (0, 1))
            by_change[change] = _compare(all_a, all_b, metrics, tuning)
            if len({run.seed for run in all_a}) > 1:
                by_seed_[change] = _compare(all_a, all_b, metrics, tuning, by_seed=True)
            verdicts |= _judge_jointly(change, judged, paired, bootstrap)
    return Comparison(
        tuning, seeds, summaries, differences, corrected, by_change, by_seed_, verdicts
    )


def _refusal(pair: Pair, summaries: Mapping[str, Mapping[str, Summary]], least_auc: float) -> str:
    """Return why the difference of a pair in F1 says nothing; empty if it does."""
    sides = [summaries[name] for name in (pair.baseline, pair.configuration)]
    aucs = [own["auc"].mean for own in sides if "auc" in own]
    if aucs and max(aucs) < least_auc:
        return f"tags are learned too badly (AUC {max(aucs):.3f})"
    if (rate := min(own["er"].mean for own in sides)) > MOST_ER:
        return f"no output would be better (ER {rate:.2f})"
    return ""


def _judge_jointly(
    change: str,
    judged: Mapping[Pair, Verdict],
    paired: Mapping[Pair, tuple[Sequence[RunResult], Sequence[RunResult]]],
    bootstrap: ClipBootstrap,
) -> dict[str, Verdict]:
    """Return the verdict on the means per seed of the pairs that have one, if they are several."""
    pairs = [pair for pair, verdict in judged.items() if not verdict.refusal]
    a, b = ([run for pair in pairs for run in paired[pair][side]] for side in (0, 1))
    if len(pairs) < 2 or len({run.seed for run in a}) < 2:
        return {}
    of = "" if len(pairs) == len(judged) else f" ({len(pairs)} of {len(judged)} pairs)"
    [verdict] = judge([bootstrap.effect(a, b)])
    return {f"means per seed: {change}{of}": verdict}


def _compare(
    a: Sequence[RunResult],
    b: Sequence[RunResult],
    metrics: Mapping[str, Metric],
    tuning: str,
    by_seed: bool = False,
) -> dict[str, RunDifference]:
    differences = {}
    for name, metric in metrics.items():
        scores = np.array([_values(side, metric, tuning) for side in (a, b)])  # (2, runs)
        if by_seed:
            seeds = np.array([run.seed for run in a])
            means = [scores[:, seeds == seed].mean(axis=1) for seed in np.unique(seeds)]
            scores = np.array(means).T  # (2, seeds)
        differences[name] = compare_runs(*scores.tolist())
    return differences


def _values(results: Sequence[RunResult], metric: Metric, tuning: str) -> list[float]:
    return [result.scores[metric.group_in(tuning)][metric.name] for result in results]


def _summarise(
    results: Sequence[RunResult], metric: Metric, tuning: str, bootstrap: ClipBootstrap
) -> Summary:
    values = np.array(_values(results, metric, tuning))
    mean, n_runs = float(values.mean()), len(values)
    if n_runs < 2:
        return Summary(mean, nan, nan, nan, tuple(values.tolist()))
    deviation = float(values.std(ddof=1))
    run_variance, clip_variance = deviation**2 / n_runs, 0.0
    if metric.name in FROM_COUNTS:
        # The spread of runs on different folds has part of it already; see `Effect.half_width`.
        missing = (n_runs - len({result.fold for result in results})) / (n_runs - 1)
        samples = bootstrap.means(results, metric.name)
        clip_variance = missing * float(np.nanvar(samples, ddof=1))
    # Few runs give an uncertain variance, hence their own quantile; there are many clips.
    few, many = student_quantile(LEVEL, n_runs - 1), student_quantile(LEVEL, MANY)
    margin = (few**2 * run_variance + many**2 * clip_variance) ** 0.5
    low, high = max(0.0, mean - margin), min(metric.maximum, mean + margin)
    return Summary(mean, deviation, low, high, tuple(values.tolist()))


def comparison_tables(comparison: Comparison) -> list[TextTable]:
    """Return tables of the configurations, their confidence intervals, and the pairs, if any.

    >>> [table.columns[0] for table in comparison_tables(compare_results([], []))]
    ['configuration', 'configuration']
    """
    rows, with_deviation = [], (*HEADLINES, "valid_map")
    for configuration, metrics in comparison.summaries.items():
        texts = [summary_text(own) if name in with_deviation else f"{own.mean:.3f}"
                 for name, own in metrics.items()]  # fmt: skip
        rows.append((configuration, str(len(comparison.seeds[configuration])), *texts))
    shown = list_metrics([comparison])
    columns = ("configuration", "runs", *(METRICS[name].title for name in shown))
    title = f"Mean ± standard deviation over runs; {TUNINGS[comparison.tuning]}"
    tables = [TextTable(title, columns, tuple(rows))]
    intervals = tuple(
        (configuration, *(interval_text(metrics[name]) for name in HEADLINES))
        for configuration, metrics in comparison.summaries.items()
    )
    titles = tuple(METRICS[name].title for name in HEADLINES)
    title = (
        "95 % confidence intervals of the mean: over runs and test clips for ER and F1, over runs"
        " for the others"
    )
    tables.append(TextTable(title, ("configuration", *titles), intervals))
    if comparison.pairs:
        pairs = [
            (
                name,
                str(metrics["er"].n_runs),
                *(difference_text(metrics[x], corrected.get(x)) for x in HEADLINES),
                p_text(metrics["er"].smallest_p),
            )
            for name, metrics, corrected in list_differences(comparison)
        ]
        title = (
            "Differences, paired by seed: mean [95 % confidence interval], p (p corrected for the"
            " pairs with the same change); last, the smallest p possible with this number of runs"
        )
        tables.append(TextTable(title, ("pair", "runs", *titles, "smallest p"), tuple(pairs)))
    return tables


def verdicts_text(comparisons: Iterable[Comparison]) -> str:
    """Return the verdicts of each tuning as Markdown, after a heading; empty without any.

    >>> verdicts_text([compare_results([], [])])
    ''
    """
    parts = [
        "\n".join([f"**Verdicts; {TUNINGS[x.tuning]}**", "", *(f"- {y}" for y in x.sentences())])
        for x in comparisons
        if x.verdicts
    ]
    return "\n\n".join(parts)


def list_differences(
    comparison: Comparison,
) -> list[tuple[str, Mapping[str, RunDifference], Mapping[str, float]]]:
    """Return name, differences and corrected p-values of the pairs, then of the joint tests.

    >>> list_differences(compare_results([], []))
    []
    """
    joint = (("all pairs", comparison.by_change), ("means per seed", comparison.by_seed))
    return [
        *(
            (pair.title, metrics, comparison.corrected[pair])
            for pair, metrics in comparison.pairs.items()
        ),
        *(
            (f"{title}: {change}", metrics, {})
            for title, by_change in joint
            for change, metrics in by_change.items()
        ),
    ]


def list_metrics(comparisons: Sequence[Comparison]) -> list[str]:
    """Return the names of the metrics that any of the comparisons has; the usual ones always.

    >>> list_metrics([])[:3]
    ['er', 's', 'd']
    """
    known = {name for x in comparisons for own in x.summaries.values() for name in own}
    return [name for name, metric in METRICS.items() if name in known or not metric.optional]


def summary_text(summary: Summary) -> str:
    """Return mean and standard deviation as text.

    >>> summary_text(Summary(0.5, 0.1, 0.4, 0.6, (0.4, 0.6)))
    '0.500 ± 0.100'
    """
    deviation = "" if np.isnan(summary.deviation) else f" ± {summary.deviation:.3f}"
    return f"{summary.mean:.3f}{deviation}"


def interval_text(summary: Summary) -> str:
    """Return the confidence interval as text; '-' if there is one run.

    >>> interval_text(Summary(0.5, 0.1, 0.4, 0.6, (0.4, 0.6)))
    '0.400 to 0.600'
    """
    return "-" if np.isnan(summary.low) else f"{summary.low:.3f} to {summary.high:.3f}"


def difference_text(difference: RunDifference, corrected: float | None = None) -> str:
    """Return a difference, its interval and p-values as text.

    >>> difference_text(compare_runs([0.5, 0.5], [0.6, 0.7]))
    '+0.150 [-0.485, +0.785], p 0.500'
    """
    also = "" if corrected is None else f" ({p_text(corrected)})"
    return (
        f"{difference.difference:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}], "
        f"p {p_text(difference.p_value)}{also}"
    )
