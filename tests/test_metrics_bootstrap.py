"""Confidence intervals: known results, a brute-force twin, and their coverage."""

import json
import math

import numpy as np
import pytest

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.metrics import count_segments
from earmark.metrics.bootstrap import (
    bootstrap_scores,
    bootstrap_weights,
    confidence_bounds,
)
from earmark.metrics.clip import ClipCounts, count_clips

LABELS = ("cat", "dog", "owl")


def simulate_clips(rng, n_clips, rates, gains):
    """Simulated clips: class k occurs in `rates[k]` of them and raises its score by `gains[k]`."""
    hard = rng.normal(size=(n_clips, 1))
    ref = rng.random((n_clips, len(rates))) < rates
    probs = rng.normal(size=ref.shape) + ref * gains + 0.5 * hard * (2 * ref - 1)
    files = tuple(map(str, range(n_clips)))
    labels = tuple(f"class {at}" for at in range(len(rates)))
    return ClipCounts(files, labels, ref, probs > 0.8, probs)


def some_segments(seed=0, n_files=12):
    rng = np.random.default_rng(seed)

    def draw():
        return [
            Event(onset, onset + rng.uniform(0.1, 4), str(rng.choice(LABELS)))
            for onset in rng.uniform(0, 6, rng.integers(1, 5))
        ]

    names = [f"{at}.wav" for at in range(n_files)]
    return count_segments({n: draw() for n in names}, {n: draw() for n in names}, LABELS)


def leaves(nested, path=()):
    if not isinstance(nested, dict):
        return {path: nested}
    return {k: v for name, inner in nested.items() for k, v in leaves(inner, (*path, name)).items()}


def leaves_of(intervals):
    kinds = ("overall", "class_wise", "class_wise_average")
    return {k: v for kind in kinds for k, v in leaves(getattr(intervals, kind), (kind,)).items()}


def test_samples_are_those_of_seed_0_unless_another_is_given():
    counts = simulate_clips(np.random.default_rng(0), 30, [0.4], 1.0)
    intervals = [bootstrap_scores(counts, n_bootstrap=40, **own) for own in ({}, {"seed": 0})]
    assert repr(intervals[0].to_dict()) == repr(intervals[1].to_dict())
    other = bootstrap_scores(counts, n_bootstrap=40, seed=1)
    assert repr(other.to_dict()) != repr(intervals[0].to_dict())


@pytest.mark.parametrize(
    "counts",
    [some_segments(), simulate_clips(np.random.default_rng(0), 40, [0.4, 0.2], 1.0)],
    ids=["segments", "clips"],
)
class TestEveryScorer:
    def test_every_score_has_an_interval_around_it(self, counts):
        found = leaves_of(bootstrap_scores(counts, n_bootstrap=200))
        scores = counts.scores()
        kinds = ("overall", "class_wise", "class_wise_average")
        plain = {k: v for kind in kinds for k, v in leaves(getattr(scores, kind), (kind,)).items()}
        assert found.keys() == plain.keys()
        for path, interval in found.items():
            assert interval.value == plain[path]
            assert interval.low <= interval.high
            assert interval.low <= interval.value + 1e-12
            assert interval.value <= interval.high + 1e-12

    def test_the_same_seed_gives_the_same_intervals_and_another_others(self, counts):
        same, again, other = (
            bootstrap_scores(counts, n_bootstrap=100, seed=seed).to_dict() for seed in (1, 1, 2)
        )
        assert same == again
        assert same != other

    def test_a_higher_level_is_never_narrower(self, counts):
        half, most = (leaves_of(bootstrap_scores(counts, level=level)) for level in (0.5, 0.99))
        for path, interval in half.items():
            assert most[path].low <= interval.low <= interval.high <= most[path].high

    def test_the_chunks_make_no_difference(self, counts, monkeypatch):
        whole = bootstrap_scores(counts, n_bootstrap=50).to_dict()
        monkeypatch.setattr("earmark.metrics.bootstrap._CHUNK_VALUES", 7 * len(counts.files))
        parts = bootstrap_scores(counts, n_bootstrap=50).to_dict()
        assert leaves(parts) == pytest.approx(leaves(whole), abs=1e-12)

    def test_machines_can_read_it(self, counts):
        as_dict = bootstrap_scores(counts, n_bootstrap=50).to_dict()
        assert json.loads(json.dumps(as_dict)) == as_dict
        assert (as_dict["level"], as_dict["n_bootstrap"]) == (0.95, 50)
        assert as_dict["n_files"] == len(counts.files)


def test_a_bootstrap_sample_scores_each_file_as_often_as_it_occurs():
    rng = np.random.default_rng(3)
    pair = [
        {f"{at}": [Event(0, rng.uniform(1, 5), str(rng.choice(LABELS)))] for at in range(6)}
        for _ in range(2)
    ]
    counts = count_segments(*pair, LABELS)
    for weights in bootstrap_weights(len(counts.files), 20, seed=0):
        samples = counts.weighted_scores(weights)
        for row, times in enumerate(weights.astype(int)):
            repeated = [
                {f"{n} {k}": each[n] for n, m in zip(each, times, strict=True) for k in range(m)}
                for each in pair
            ]
            brute = count_segments(*repeated, LABELS).weighted_scores()
            np.testing.assert_allclose(brute.table()[0], samples.table()[row], atol=1e-12)


def test_every_file_is_sampled_equally_often_and_samples_have_the_original_size():
    counts = count_clips({f"{at}": ["dog"] for at in range(50)}, {})
    weights = np.concatenate(list(bootstrap_weights(len(counts.files), 4000, seed=0)))
    assert (weights.sum(axis=1) == 50).all()
    assert abs(weights.mean(axis=0) - 1).max() < 0.07  # four standard errors
    assert weights.var() == pytest.approx(1 - 1 / 50, rel=0.02)


def test_without_bias_the_ends_are_the_quantiles():
    samples = np.random.default_rng(0).normal(size=(501, 3))
    low, high, _ = confidence_bounds(np.median(samples, axis=0), samples, 0.9)
    np.testing.assert_allclose(low, np.quantile(samples, 0.05, axis=0))
    np.testing.assert_allclose(high, np.quantile(samples, 0.95, axis=0))


def test_samples_above_the_score_move_the_interval_down():
    samples = np.random.default_rng(0).normal(size=(501, 1))
    low, high, _ = confidence_bounds(np.array([-0.5]), samples, 0.9)
    assert low < np.quantile(samples, 0.05)
    assert high < np.quantile(samples, 0.95)


def test_the_interval_of_a_negated_score_is_negated():
    samples = np.random.default_rng(0).exponential(size=(300, 4))
    value = np.array([0.1, 0.5, 1.0, 3.0])
    low, high, _ = confidence_bounds(value, samples, 0.95)
    np.testing.assert_allclose(
        confidence_bounds(-value, -samples, 0.95)[:2], [-high, -low], atol=1e-12
    )


class TestUndefined:
    def test_samples_without_a_score_are_left_out_and_counted(self):
        samples = np.array([[0.0], [np.nan], [1.0], [np.nan], [0.5], [0.5]])
        low, high, n_undefined = confidence_bounds(np.array([0.5]), samples, 0.5)
        assert n_undefined == [2]
        assert (low, high) == confidence_bounds(np.array([0.5]), samples[[0, 2, 4, 5]], 0.5)[:2]

    def test_more_than_half_of_them_and_there_is_no_interval(self):
        samples = np.array([[0.5], [np.nan], [1.0], [np.nan], [np.nan]])
        assert np.isnan(confidence_bounds(np.array([0.5]), samples, 0.5)[:2]).all()

    def test_a_class_of_one_clip_is_missing_from_a_third_of_the_samples(self):
        reference = {f"{at}": ["dog"] for at in range(60)} | {"0": ["dog", "cat"]}
        recall = bootstrap_scores(count_clips(reference, reference)).class_wise["cat"]["f_measure"][
            "recall"
        ]
        assert recall.n_undefined / 1000 == pytest.approx(1 / math.e, abs=0.06)
        assert (recall.low, recall.value, recall.high) == (1, 1, 1)

    def test_a_class_without_reference_has_no_interval_and_no_warning(self):
        counts = count_clips({"a": ["dog"], "b": ["dog"]}, {}, labels=["cat", "dog"])
        recall = bootstrap_scores(counts, n_bootstrap=50).class_wise["cat"]["f_measure"]["recall"]
        assert all(map(math.isnan, (recall.value, recall.low, recall.high)))
        assert recall.n_undefined == 50


class TestErrors:
    @pytest.mark.parametrize("n_files", [0, 1])
    def test_one_file_gives_no_interval(self, n_files):
        counts = count_clips({"a.wav": ["dog"]} if n_files else {}, {})
        with pytest.raises(DataError, match=f"at least two files.*Got {n_files}"):
            bootstrap_scores(counts)

    @pytest.mark.parametrize("level", [0, 1, 95, -0.5, math.nan])
    def test_a_level_lies_between_0_and_1(self, level):
        with pytest.raises(SettingError, match=r"level must lie between 0 and 1, such as 0\.95"):
            bootstrap_scores(some_segments(), level=level)

    def test_too_few_samples_for_the_level_raise_with_the_number_needed(self):
        with pytest.raises(SettingError, match=r"at least 40, .* level 0\.95\. Got 39"):
            bootstrap_scores(some_segments(), n_bootstrap=39)


def coverage(n_clips, rates, gains, paths, n_sets, n_true=200_000):
    """Coverage of 95 % intervals: path -> (quantiles, ours, basic)."""
    rng = np.random.default_rng(0)
    world = simulate_clips(rng, n_true, rates, gains)
    at = [world.weighted_scores().paths(world.labels).index(path) for path in paths]
    ref = world.weighted_scores().table()[0, at]
    held = np.zeros((3, len(paths)))
    for seed in range(n_sets):
        counts = simulate_clips(rng, n_clips, rates, gains)
        value = counts.weighted_scores().table()[0, at]
        samples = np.concatenate(
            [
                counts.weighted_scores(w).table()[:, at]
                for w in bootstrap_weights(len(counts.files), 400, seed)
            ]
        )
        plain = np.nanquantile(samples, [0.025, 0.975], axis=0)
        kinds = (plain, confidence_bounds(value, samples, 0.95)[:2], 2 * value - plain[::-1])
        for row, (low, high) in enumerate(kinds):
            held[row] += (low <= ref) & (ref <= high)
    return dict(zip(paths, (held / n_sets).T.tolist(), strict=True))


F1 = ("overall", "f_measure", "f_measure")
ER = ("overall", "error_rate", "error_rate")
MACRO_F1 = ("class_wise_average", "f_measure", "f_measure")
MAP = ("class_wise_average", "ranking", "average_precision")
LWLRAP = ("overall", "ranking", "lwlrap")


def test_intervals_of_95_percent_cover_the_true_score_that_often():
    paths = [F1, ER, MACRO_F1, MAP, LWLRAP]
    found = coverage(100, [0.3, 0.15, 0.1], [1.5, 2.0, 1.0], paths, n_sets=400)
    for path, (_, ours, _) in found.items():
        assert 0.90 <= ours <= 0.98, path


def test_a_mean_over_many_classes_is_covered_more_often_than_by_plain_quantiles():
    rates = np.geomspace(0.25, 0.05, 17)
    plain, ours, _ = coverage(200, rates, np.resize([1.5, 2.0, 1.0], 17), [MAP], n_sets=100)[MAP]
    assert plain < 0.82  # 0.72 of 200 sets
    assert ours > plain + 0.05  # 0.86: still too low, see the module
