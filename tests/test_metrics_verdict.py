"""Verdicts: textbook p-values, brute-force simulations of errors, coverage and needed runs."""

import numpy as np
import pytest

from earmark.errors import DataError, SettingError
from earmark.metrics.run_comparison import student_quantile
from earmark.metrics.verdict import EQUIVALENCE, MOST_RUNS, Effect, judge


def effect_of(differences, clip_variance=0.0, n_folds=1):
    differences = np.asarray(differences)
    return Effect(
        float(differences.mean()),
        float(differences.var(ddof=1)),
        clip_variance,
        len(differences),
        n_folds,
    )


def outcome(*effects):
    return [verdict.outcome for verdict in judge(effects)]


def test_without_clips_the_p_value_is_that_of_students_own_example():
    """Hours of sleep of ten patients with two drugs (Student 1908), p from R's t.test."""
    gains = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]
    effect = effect_of(gains)
    assert effect.p_value == pytest.approx(0.002832890, abs=1e-8)
    assert effect.interval(0.95) == pytest.approx((0.7001142, 2.4598858), abs=1e-7)


def test_the_interval_at_the_level_of_the_p_value_ends_at_zero():
    effect = Effect(0.03, run_variance=0.0009, clip_variance=0.00005, n_runs=6)
    low, high = effect.interval(1 - effect.p_value)
    assert low == pytest.approx(0, abs=1e-9)
    assert high == pytest.approx(0.06)


def test_equal_runs_are_no_evidence_and_runs_that_never_vary_are_all_of_it():
    assert Effect(0.0, 0.0, 0.0, n_runs=5).p_value == 1
    assert Effect(-1.0, 0.0, 0.0, n_runs=5).p_value == 0


def test_the_plain_values_have_both_intervals():
    effect = Effect(0.001, 0.0001, 0.0, n_runs=8)
    values = judge([effect])[0].to_dict()
    assert (values["low"], values["high"]) == effect.interval(0.95)
    assert (values["narrow_low"], values["narrow_high"]) == effect.interval(0.90)


def test_seeds_and_clips_add_up_as_squares():
    seeds, clips = Effect(0.0, 0.0004, 0.0, 5), Effect(0.0, 0.0, 0.0001, 5)
    both = Effect(0.0, 0.0004, 0.0001, 5)
    squares = [effect.half_width(0.9) ** 2 for effect in (seeds, clips, both)]
    assert squares[2] == pytest.approx(squares[0] + squares[1])
    assert seeds.half_width(0.9) == pytest.approx(student_quantile(0.9, 4) * 0.02 / 5**0.5)
    assert clips.half_width(0.9) == pytest.approx(1.6448536 * 0.01)


@pytest.mark.parametrize(
    ("difference", "run_variance", "said"),
    [
        (0.0, 0.0, "equivalent"),
        (0.0199, 0.0, "equivalent"),
        (-0.02, 0.0, "equivalent"),
        (0.0201, 0.0, "ahead"),
        (-0.1, 0.0001, "behind"),
        (0.01, 0.00001, "equivalent"),  # different from 0, but by less than the limit
        (0.01, 0.001, "undecided"),
        (0.1, 0.1, "undecided"),
    ],
)
def test_the_outcome_follows_from_the_narrow_interval_and_then_from_the_p_value(
    difference, run_variance, said
):
    assert outcome(Effect(difference, run_variance, 0.0, 5)) == [said]


def test_a_large_family_needs_a_clearer_difference():
    clear = Effect(0.04, 0.0006, 0.0, 5)
    assert outcome(clear) == ["ahead"]
    assert outcome(clear, *[Effect(0.0, 0.01, 0.0, 5)] * 4) == ["undecided"] * 5
    assert clear.n_needed() == 6 < clear.n_needed(n_tests=5)


def simulate(rng, n_runs, mean, run_deviation, clip_deviation, n_folds=1):
    """Return an effect as measured: seeds and the clips of each fold move its difference."""
    folds = np.arange(n_runs) % n_folds
    of_clips = rng.normal(0, clip_deviation * n_folds**0.5, n_folds)
    differences = mean + of_clips[folds] + rng.normal(0, run_deviation, n_runs)
    return effect_of(differences, clip_deviation**2, n_folds)


@pytest.mark.parametrize(("n_runs", "n_folds"), [(5, 1), (5, 5), (10, 5), (12, 3)])
def test_the_interval_covers_other_seeds_and_other_clips(n_runs, n_folds):
    rng, n_within = np.random.default_rng(0), 0
    for _ in range(2000):
        effect = simulate(rng, n_runs, 0.01, 0.02, 0.01, n_folds)
        low, high = effect.interval(0.95)
        n_within += low <= 0.01 <= high
    assert 0.935 < n_within / 2000 < 0.985


def test_neither_test_is_wrong_more_often_than_five_percent():
    rng = np.random.default_rng(1)
    equal = [outcome(simulate(rng, 5, 0.0, 0.01, 0.005))[0] for _ in range(500)]
    assert np.mean([x in ("ahead", "behind") for x in equal]) < 0.07
    assert np.mean([x == "equivalent" for x in equal]) > 0.3
    apart = [outcome(simulate(rng, 5, EQUIVALENCE, 0.01, 0.005))[0] for _ in range(500)]
    assert np.mean([x == "equivalent" for x in apart]) < 0.07
    assert np.mean([x == "behind" for x in apart]) == 0


def needed_by_simulation(rng, effect, n_tests):
    """Repeat whole experiments with more and more runs, until their intervals are narrow enough.

    The width of an interval varies with the measured spread; the mean square of many counts.
    """
    size = abs(effect.difference)
    for n_runs in range(effect.n_runs + 1, MOST_RUNS):
        deviations = rng.normal(0, effect.run_variance**0.5, (40_000, n_runs)).std(axis=1, ddof=1)
        widths = {}
        for level in (0.9, 1 - 0.05 / n_tests):
            normal = student_quantile(level, 2000) * effect.clip_variance**0.5
            of_runs = student_quantile(level, n_runs - 1) * deviations / n_runs**0.5
            widths[level] = np.mean(of_runs**2 + normal**2) ** 0.5
        if widths[0.9] <= EQUIVALENCE - size or widths[1 - 0.05 / n_tests] < size:
            return n_runs
    return None


@pytest.mark.parametrize(
    ("difference", "deviation", "clip_deviation", "n_tests"),
    [
        (0.0, 0.03, 0.0, 1),
        (0.005, 0.02, 0.004, 1),
        (-0.01, 0.02, 0.002, 1),
        (0.03, 0.04, 0.008, 1),
        (0.03, 0.04, 0.008, 3),
        (-0.05, 0.06, 0.01, 10),
    ],
)
def test_the_needed_runs_are_those_of_a_brute_force_simulation(
    difference, deviation, clip_deviation, n_tests
):
    effect = Effect(difference, deviation**2, clip_deviation**2, 3)
    rng = np.random.default_rng(2)
    simulated = needed_by_simulation(rng, effect, n_tests)
    assert abs(effect.n_needed(n_tests=n_tests) - simulated) <= 1
    assert simulated > 4


def test_with_the_needed_runs_and_the_measured_spread_the_verdict_is_decided():
    before = Effect(0.004, 0.0009, 0.00001, 5)
    assert outcome(before) == ["undecided"]
    after = Effect(0.004, 0.0009, 0.00001, before.n_needed())
    assert outcome(after) == ["equivalent"]
    one_less = Effect(0.004, 0.0009, 0.00001, before.n_needed() - 1)
    assert outcome(one_less) == ["undecided"]


def test_clips_that_leave_too_much_are_named_since_more_runs_do_not_help():
    effect = Effect(0.01, 0.0001, 0.0004, 5)
    (verdict,) = judge([effect])
    assert verdict.n_needed is None
    assert verdict.sentence().startswith(f"too few clips to tell: not even {MOST_RUNS} runs would")


@pytest.mark.parametrize(
    ("effect", "sentence"),
    [
        (Effect(-0.049, 0.0004, 0.0, 5), "behind by 0.049 F1 [0.024, 0.074], p = 0.005"),
        (Effect(0.2, 0.0001, 0.0, 5), "ahead by 0.200 F1 [0.188, 0.212], p < 0.001"),
    ],
)
def test_a_sentence_has_amount_interval_and_p(effect, sentence):
    assert judge([effect])[0].sentence() == sentence


def test_one_run_and_an_absurd_limit_are_refused():
    with pytest.raises(DataError, match=r"at least two pairs of runs\. Got 1"):
        Effect(0.0, 0.0, 0.0, 1)
    with pytest.raises(SettingError, match=r"limit must lie between 0 and 1.*Got 0"):
        judge([Effect(0.0, 0.0, 0.0, 2)], limit=0)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.03), (0.03, 0.04)])
def test_some_comparisons_are_decided_with_the_needed_runs_and_most_with_twice_as_many(
    mean, deviation
):
    rng = np.random.default_rng(3)

    def share_decided(n_runs):
        drawn = [simulate(rng, n_runs, mean, deviation, 0.002) for _ in range(100)]
        return np.mean([outcome(effect) != ["undecided"] for effect in drawn])

    needed = Effect(mean, deviation**2, 0.002**2, 4).n_needed()
    assert share_decided(needed // 2) < 0.35
    assert 0.2 < share_decided(needed) < 0.7
    assert share_decided(2 * needed) > 0.6
