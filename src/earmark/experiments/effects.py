"""How the scores of runs vary with the choice of test clips, and the effect of a change on them.

Conventions: clips are resampled with replacement (`earmark.metrics.bootstrap`). All runs on the
same clips get the same samples, so that differences are paired by clip; runs on other folds get
others.
"""

from collections.abc import Callable, Mapping, Sequence
from math import nan

import numpy as np

from earmark.experiments.run import RunResult
from earmark.metrics.bootstrap import bootstrap_weights
from earmark.metrics.verdict import Effect
from earmark.metrics.weighted_scores import Reals


def _error_rates(counts: Mapping[str, Sequence[int]], weights: Reals) -> Reals:
    errors, tp, fn = (weights @ np.array(counts[name]) for name in ("errors", "tp", "fn"))
    undefined = np.full(len(weights), nan)  # in a sample without any reference
    return np.asarray(np.divide(errors, tp + fn, out=undefined, where=tp + fn > 0))


def _f_measures(counts: Mapping[str, Sequence[int]], weights: Reals) -> Reals:
    tp, fp, fn = (weights @ np.array(counts[name]) for name in ("tp", "fp", "fn"))
    return np.asarray(2 * tp / np.maximum(1, 2 * tp + fp + fn))


# Scores that follow from the counts of a result.
FROM_COUNTS: Mapping[str, Callable[[Mapping[str, Sequence[int]], Reals], Reals]] = {
    "error_rate": _error_rates,
    "f_measure": _f_measures,
}


class ClipBootstrap:
    """The scores of runs on resampled clips.

    Args:
        results: of all runs, with the tuning.
        tuning: a name in `earmark.experiments.table.TUNINGS`.
        n_samples: bootstrap samples of the clips.
        seed: of the bootstrap.

    >>> counts = {"clip": {"tp": [1, 0], "fp": [0, 0], "fn": [0, 1], "errors": [0, 1]}}
    >>> scores = {"clip": {"f_measure": 2 / 3}}
    >>> result = RunResult("single", 0, "", scores, counts, {}, {})
    >>> samples = ClipBootstrap([result], "clip", 4).means([result], "f_measure")
    >>> sorted(set(samples.round(2).tolist()))
    [0.0, 0.67, 1.0]
    """

    def __init__(
        self, results: Sequence[RunResult], tuning: str, n_samples: int = 1000, seed: int = 0
    ) -> None:
        self.tuning = tuning
        groups: dict[tuple[int, int], list[RunResult]] = {}
        for result in results:
            n_clips = len(result.counts[tuning]["tp"])
            groups.setdefault((result.fold, n_clips), []).append(result)
        self._samples: dict[tuple[str, int, str], Reals] = {}
        for (fold, n_clips), own in groups.items():
            parts: dict[tuple[str, int, str], list[Reals]] = {}
            for weights in bootstrap_weights(n_clips, n_samples, seed + fold):
                for result in own:
                    for name, score in FROM_COUNTS.items():
                        samples = score(result.counts[tuning], weights)
                        parts.setdefault(_key(result, name), []).append(samples)
            self._samples |= {key: np.concatenate(own) for key, own in parts.items()}

    def means(self, results: Sequence[RunResult], name: str) -> Reals:
        """Return the mean score of some of the runs in each sample of clips."""
        return np.asarray(np.mean([self._samples[_key(x, name)] for x in results], axis=0))

    def effect(
        self, a: Sequence[RunResult], b: Sequence[RunResult], name: str = "f_measure"
    ) -> Effect:
        """Return the difference b - a of runs that are paired one by one, over the means per seed.

        >>> counts = {"clip": {"tp": [1, 0], "fp": [0, 0], "fn": [0, 1], "errors": [0, 1]}}
        >>> runs = [RunResult("x", i, "", {"clip": {"f_measure": 0.5}}, counts, {}, {})
        ...         for i in (0, 1)]
        >>> ClipBootstrap(runs, "clip").effect(runs, runs)
        Effect(difference=0.0, run_variance=0.0, clip_variance=0.0, n_runs=2, n_folds=1)
        """
        by_seed: dict[int, list[float]] = {}
        for one, other in zip(a, b, strict=True):
            before, after = (x.scores[self.tuning][name] for x in (one, other))
            by_seed.setdefault(one.seed, []).append(after - before)
        differences = np.array([np.mean(own) for own in by_seed.values()])
        samples = self.means(b, name) - self.means(a, name)
        return Effect(
            float(differences.mean()),
            float(differences.var(ddof=1)) if len(by_seed) > 1 else nan,
            float(samples.var(ddof=1)),
            len(by_seed),
            len({result.fold for result in a}),
        )


def _key(result: RunResult, name: str) -> tuple[str, int, str]:
    return result.configuration, result.seed, name
