"""Two systems over runs: textbook tables, brute-force twins, and coverage."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.metrics.run_comparison import compare_runs, correct_p_values, student_quantile

scores = st.floats(-1, 1).map(lambda score: round(score, 3))
pairs = st.lists(st.tuples(scores, scores), min_size=2, max_size=8)


class TestStudent:
    @pytest.mark.parametrize(
        ("level", "n_free", "printed"),
        [
            (0.95, 1, 12.706),
            (0.95, 2, 4.303),
            (0.95, 3, 3.182),
            (0.95, 4, 2.776),
            (0.99, 4, 4.604),
            (0.90, 9, 1.833),
            (0.95, 30, 2.042),
            (0.95, 120, 1.980),
        ],
    )
    def test_the_quantiles_are_those_of_the_printed_tables(self, level, n_free, printed):
        assert student_quantile(level, n_free) == pytest.approx(printed, abs=5e-4)

    @pytest.mark.parametrize("n_free", [1, 2, 3, 4, 5, 8, 29, 100])
    def test_the_area_within_is_the_level(self, n_free):
        end = student_quantile(0.9, n_free)
        edges = np.linspace(-end, end, 200_001)
        middle = (edges[1:] + edges[:-1]) / 2
        log_factor = math.lgamma((n_free + 1) / 2) - math.lgamma(n_free / 2)
        density = (1 + middle**2 / n_free) ** (-(n_free + 1) / 2)
        area = density.sum() * (edges[1] - edges[0]) * math.exp(log_factor)
        assert area / math.sqrt(n_free * math.pi) == pytest.approx(0.9, abs=1e-8)


@given(pairs)
def test_all_sign_flips_are_tried(runs):
    a, b = zip(*runs, strict=True)
    differences = [y - x for x, y in runs]
    sums = [
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in itertools.product([1, -1], repeat=len(runs))
    ]
    expected = np.mean(np.array(sums) >= sums[0] - 1e-10)
    assert compare_runs(a, b).p_value == expected


@given(pairs)
def test_the_other_way_round_only_the_signs_differ(runs):
    a, b = zip(*runs, strict=True)
    there, back = compare_runs(a, b), compare_runs(b, a)
    assert back.p_value == there.p_value
    assert back.difference == pytest.approx(-there.difference)
    assert (back.low, back.high) == pytest.approx((-there.high, -there.low))


def test_five_seeds_cannot_reach_five_percent_and_six_can():
    found = {n: compare_runs(np.zeros(n), np.linspace(1, 1.1, n)) for n in (5, 6)}
    assert found[5].p_value == found[5].smallest_p == 0.0625
    assert found[6].p_value == found[6].smallest_p == 0.03125


def test_equal_runs_do_not_differ():
    found = compare_runs([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_random_sign_flips_of_many_runs_approximate_all_flips():
    rng = np.random.default_rng(0)
    a = rng.normal(size=18)
    b = a + rng.normal(0.3, 1, 18)
    found = compare_runs(a, b)
    signs = 1 - 2 * (np.arange(2**18)[:, None] >> np.arange(18) & 1)
    expected = np.mean(np.abs(signs @ (b - a)) >= abs((b - a).sum()) - 1e-9)
    assert found.p_value == pytest.approx(expected, abs=0.02)
    assert found.smallest_p == 1 / 10_001
    assert compare_runs(a, b) == found
    assert compare_runs(a, b, seed=1) != found


def test_the_interval_of_students_own_example_is_that_of_the_books():
    """Hours of sleep of ten patients with two drugs (Student 1908), results from R's t.test."""
    first = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    second = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    found = compare_runs(first, second)
    assert found.difference == pytest.approx(1.58)
    assert (found.low, found.high) == pytest.approx((0.7001142, 2.4598858), abs=1e-7)


def test_students_interval_covers_with_five_seeds_and_a_bootstrap_does_not():
    rng = np.random.default_rng(0)
    student = boot = 0
    for _ in range(2000):
        differences = rng.normal(0.3, 1, 5)
        found = compare_runs(np.zeros(5), differences)
        student += found.low <= 0.3 <= found.high
        means = differences[rng.integers(0, 5, (500, 5))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        boot += low <= 0.3 <= high
    assert student / 2000 == pytest.approx(0.95, abs=0.015)
    assert boot / 2000 == pytest.approx(0.84, abs=0.03)


@pytest.mark.parametrize("n_runs", [6, 8, 20])
def test_under_the_null_hypothesis_a_small_p_value_is_as_rare_as_its_value(n_runs):
    rng = np.random.default_rng(1)
    p_values = [
        compare_runs(*rng.normal(size=(2, n_runs)), n_permutations=400).p_value for _ in range(600)
    ]
    for q in (0.05, 0.25, 0.5):
        # Few runs have few possible p-values: none is more frequent than its value.
        assert np.mean(np.array(p_values) <= q) < q + 3 * (q * (1 - q) / 600) ** 0.5
    assert np.mean(np.array(p_values) <= 0.5) > 0.4


class TestHolm:
    def test_the_example_of_the_books(self):
        assert correct_p_values([0.01, 0.04, 0.03, 0.005]) == [0.03, 0.06, 0.06, 0.02]

    @given(st.lists(st.floats(0, 1), max_size=8))
    def test_it_refuses_as_the_steps_by_hand_do(self, p_values):
        corrected = correct_p_values(p_values)
        for alpha in (0.01, 0.05, 0.3):
            refused = set()
            order = sorted(range(len(p_values)), key=lambda at: p_values[at])
            for step, at in enumerate(order):
                if p_values[at] * (len(p_values) - step) > alpha:
                    break
                refused.add(at)
            assert refused == {at for at, p in enumerate(corrected) if p <= alpha}

    def test_nan_stays_and_does_not_count(self):
        first, second, third = correct_p_values([0.02, math.nan, 0.5])
        assert (first, third) == (0.04, 0.5)
        assert math.isnan(second)

    def test_nothing_stays_nothing_and_one_stays_itself(self):
        assert correct_p_values([]) == []
        assert correct_p_values([0.2]) == [0.2]

    def test_an_invalid_p_value_raises(self):
        with pytest.raises(SettingError, match=r"between 0 and 1\. Got 1\.5"):
            correct_p_values([0.1, 1.5])


class TestErrors:
    def test_runs_come_in_pairs(self):
        with pytest.raises(DataError, match="Got 2 of the first system and 3"):
            compare_runs([1, 2], [1, 2, 3])

    def test_one_run_is_too_few(self):
        with pytest.raises(DataError, match=r"at least two runs of each system\. Got 1"):
            compare_runs([1.0], [2.0])

    def test_of_several_undefined_scores_the_first_is_named(self):
        with pytest.raises(DataError, match="Run 2 of the first system has the score nan"):
            compare_runs([0.5, math.nan, 0.4, math.nan], [0.5, 0.4, 0.3, 0.2])

    def test_an_undefined_score_raises_with_its_run(self):
        with pytest.raises(DataError, match="Run 2 of the second system has the score nan"):
            compare_runs([0.1, 0.2], [0.1, math.nan])

    def test_scores_must_be_one_per_run(self):
        with pytest.raises(SettingError, match=r"The first system has the shape \(2, 2\)"):
            compare_runs(np.zeros((2, 2)), [1, 2])

    @pytest.mark.parametrize("level", [0, 1, 95, math.nan])
    def test_a_level_lies_between_0_and_1(self, level):
        with pytest.raises(SettingError, match="level must lie between 0 and 1"):
            compare_runs([1, 2], [1, 2], level=level)

    def test_no_permutations_are_too_few(self):
        with pytest.raises(SettingError, match="n_permutations must be at least 1"):
            compare_runs([1, 2], [1, 2], n_permutations=0)
