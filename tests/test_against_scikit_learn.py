"""Clip-based scores are those of scikit-learn, with ties, with weights, and class by class."""

import math

import numpy as np
import pytest

from earmark.formats.events import read_events
from earmark.metrics.clip import ClipCounts, count_clips, tags_of

LABELS = ("cat", "dog", "owl", "cow")


def draw_clips(rng, n_clips=40, n_classes=4):
    """Reference, tied scores, tags; every class has a clip with it and one without."""
    reference = rng.random((n_clips, n_classes)) < rng.uniform(0.1, 0.6, n_classes)
    reference[:2] = [[True] * n_classes, [False] * n_classes]
    steps = rng.choice([3, 10, 10**9])  # from many ties to none
    probs = np.round((rng.random(reference.shape) + reference * rng.random()) * steps) / steps
    return reference, probs, rng.random(reference.shape) < 0.4


def counts_of(reference, probs=None, estimate=None):
    files = tuple(map(str, range(len(reference))))
    return ClipCounts(
        files, LABELS[: reference.shape[1]], reference, estimate, probs, empty_as_zero=True
    )


def assert_same_ranking(weighted, answer):
    for kind in ("average_precision", "roc_auc"):
        overall, each = weighted.overall["ranking"][kind], weighted.class_wise["ranking"][kind]
        assert overall[0] == pytest.approx(answer[f"micro_{kind}"], abs=1e-12)
        assert each[0].tolist() == pytest.approx(answer[kind], abs=1e-12)
        average = weighted.class_wise_average["ranking"][kind][0]
        assert average == pytest.approx(np.mean(answer[kind]), abs=1e-12)
    assert weighted.overall["ranking"]["lwlrap"][0] == pytest.approx(answer["lwlrap"], abs=1e-12)


def test_rankings_are_those_of_scikit_learn(oracles):
    rng = np.random.default_rng(0)
    for _ in range(60):
        reference, probs, _ = draw_clips(rng)
        answer = oracles.ask("ranking", reference=reference.tolist(), scores=probs.tolist())
        assert_same_ranking(counts_of(reference, probs).weighted_scores(), answer)


def test_weights_of_clips_are_sample_weights(oracles):
    rng = np.random.default_rng(1)
    for _ in range(60):
        reference, probs, _ = draw_clips(rng)
        weights = np.concatenate([[1, 1], rng.integers(0, 4, len(reference) - 2)])
        given = {
            "reference": reference.tolist(),
            "scores": probs.tolist(),
            "weights": weights.tolist(),
        }
        ours = counts_of(reference, probs).weighted_scores(weights[None].astype(float))
        assert_same_ranking(ours, oracles.ask("ranking", **given))
        repeated = counts_of(
            np.repeat(reference, weights, axis=0), np.repeat(probs, weights, axis=0)
        )
        assert_same_ranking(repeated.weighted_scores(), oracles.ask("ranking", **given))


def test_the_lwlrap_of_a_class_is_that_of_its_clips_with_the_others_left_in(oracles):
    """The overall lwlrap is the mean over classes, weighted by their number of clips."""
    rng = np.random.default_rng(2)
    reference, probs, _ = draw_clips(rng)
    weighted = counts_of(reference, probs).weighted_scores()
    each = weighted.class_wise["ranking"]["lwlrap"][0]
    answer = oracles.ask("ranking", reference=reference.tolist(), scores=probs.tolist())["lwlrap"]
    assert np.average(each, weights=reference.sum(axis=0)) == pytest.approx(answer, abs=1e-12)


def test_without_positives_the_score_is_nan_here_and_zero_in_scikit_learn(oracles):
    reference = np.array([[True, False], [False, False], [True, False]])
    probs = np.array([[0.5, 0.1], [0.2, 0.3], [0.4, 0.2]])
    answer = oracles.ask("ranking", reference=reference.tolist(), scores=probs.tolist())
    ours = counts_of(reference, probs).weighted_scores()
    assert answer["average_precision"] == [1.0, 0.0]
    assert ours.class_wise["ranking"]["average_precision"][0, 0] == 1.0
    assert math.isnan(ours.class_wise["ranking"]["average_precision"][0, 1])
    assert ours.class_wise_average["ranking"]["average_precision"][0] == 1.0
    assert math.isnan(answer["roc_auc"][1])


@pytest.mark.parametrize("average", ["micro", "macro", None])
def test_the_rates_of_tags_are_those_of_scikit_learn(oracles, average):
    rng = np.random.default_rng(3)
    kinds = {"micro": "overall", "macro": "class_wise_average", None: "class_wise"}
    for _ in range(40):
        reference, _, estimate = draw_clips(rng)
        answer = oracles.ask(
            "tags", reference=reference.tolist(), estimate=estimate.tolist(), average=average
        )
        rates = getattr(counts_of(reference, estimate=estimate).weighted_scores(), kinds[average])[
            "f_measure"
        ]
        ours = [rates[name][0] for name in ("precision", "recall", "f_measure")]
        np.testing.assert_allclose(ours, answer, atol=1e-12)


def test_the_dcase_clips_with_disturbed_scores_have_equal_ranking_scores(oracles, dcase2017):
    rng = np.random.default_rng(4)
    events = read_events(dcase2017 / "groundtruth_strong_label_evaluation_set.csv")
    reference = tags_of(events)
    labels = sorted({tag for found in reference.values() for tag in found})
    for digits in (1, 2, 9):
        probs = {
            name: np.round(rng.random(17) + 0.5 * np.isin(labels, found), digits)
            for name, found in reference.items()
        }
        counts = count_clips(reference, probs=probs, labels=labels)
        given = {"reference": counts.reference.tolist(), "scores": counts.probs.tolist()}
        assert_same_ranking(counts.weighted_scores(), oracles.ask("ranking", **given))
