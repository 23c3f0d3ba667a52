"""Event-based scores: known results, brute-force twins; see also test_against_sed_eval."""

import json
import math
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event, read_events
from earmark.metrics.event import count_events, event_scores
from earmark.metrics.matching import (
    MATCHINGS,
    EventRule,
    greedy_matching,
    match_pairs,
    maximum_matching,
)

LABELS = ["cat", "dog", "owl"]
RULE = {"onset_collar": 0.2, "offset_collar": 0.2, "percentage_of_length": 0.5}


@st.composite
def events(draw, labels=LABELS):
    """Events on a coarse grid: many close to each other, some on a collar, some of length 0."""
    step = draw(st.sampled_from([0.1, 0.25, 0.08]))
    onset = draw(st.integers(0, 25)) * step
    return Event(onset, onset + draw(st.integers(0, 15)) * step, draw(st.sampled_from(labels)))


tables = st.dictionaries(
    st.sampled_from(["a.wav", "b.wav", "c.wav"]), st.lists(events(), max_size=7), max_size=3
)
rules = st.fixed_dictionaries(
    {
        "onset_collar": st.sampled_from([0.0, 0.1, 0.3, 1.0]),
        "offset_collar": st.sampled_from([0.0, 0.2, 0.5]),
        "percentage_of_length": st.sampled_from([0.0, 0.2, 1.0]),
    }
)
judged = st.sampled_from([(True, True), (True, False), (False, True)])
pairs_of = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=14, unique=True).map(
    sorted
)


def test_an_event_that_was_matched_substitutes_for_no_other():
    reference = {"a": [Event(0, 1, "dog"), Event(0, 1, "cat")]}
    errors = event_scores(reference, {"a": [Event(0, 1, "dog")]}).overall["error_rate"]
    assert (errors["substitution_rate"], errors["deletion_rate"]) == (0.0, 0.5)


def near(reference, estimate, rule, judged):
    """The rule, for one pair."""
    reach = max(rule["offset_collar"], rule["percentage_of_length"] * reference.duration)
    onset = abs(reference.onset - estimate.onset) <= rule["onset_collar"]
    offset = abs(reference.offset - estimate.offset) <= reach
    return (onset or not judged[0]) and (offset or not judged[1])


def first_free(reference, estimate, alike):
    """Each reference event takes the first unmatched estimate; pairs of indices."""
    taken = {}
    for r, true in enumerate(reference):
        for e, found in enumerate(estimate):
            if e not in taken.values() and alike(true, found):
                taken[r] = e
                break
    return list(taken.items())


def most(pairs):
    """The size of the largest matching, by trying every one."""
    refs, ests = sorted({r for r, _ in pairs}), sorted({e for _, e in pairs})
    if len(refs) > len(ests):
        refs, ests, pairs = ests, refs, [(e, r) for r, e in pairs]
    allowed = set(pairs)
    return max(
        sum((r, e) in allowed for r, e in zip(refs, order, strict=True))
        for order in permutations(ests, len(refs))
    )


class TestMatching:
    @given(pairs_of)
    @settings(max_examples=150, deadline=None)
    def test_the_optimal_one_is_as_large_as_the_best_of_all(self, pairs):
        chosen = maximum_matching(pairs)
        assert len(chosen) == most(pairs)
        assert set(chosen) <= set(pairs)
        assert len({r for r, _ in chosen}) == len({e for _, e in chosen}) == len(chosen)

    @given(pairs_of)
    def test_the_greedy_one_leaves_no_pair_of_two_that_are_free(self, pairs):
        chosen = greedy_matching(pairs)
        assert set(chosen) <= set(pairs)
        assert len({r for r, _ in chosen}) == len({e for _, e in chosen}) == len(chosen)
        for r, e in pairs:
            assert r in dict(chosen) or e in dict(chosen).values()

    @pytest.mark.parametrize("matching", MATCHINGS)
    @given(pairs=pairs_of)
    def test_the_easy_pairs_are_chosen_as_the_search_would(self, matching, pairs):
        table = np.array(pairs, int).reshape(-1, 2)
        chosen = match_pairs(*table.T, np.zeros(len(table), int), matching)
        assert set(map(tuple, table[chosen].tolist())) == set(MATCHINGS[matching](pairs))

    @pytest.mark.parametrize("matching", MATCHINGS)
    @given(first=pairs_of, second=pairs_of)
    def test_groups_have_no_bearing_on_each_other(self, matching, first, second):
        both = first + [(r + 6, e + 6) for r, e in second]
        alone = MATCHINGS[matching](first) + [
            (r + 6, e + 6) for r, e in MATCHINGS[matching](second)
        ]
        assert sorted(MATCHINGS[matching](both)) == sorted(alone)

    def test_a_path_as_long_as_the_file_needs_no_deep_stack(self):
        n = 20_000
        ring = [(at, at) for at in range(n)] + [(at + 1, at) for at in range(n)] + [(0, n)]
        assert len(maximum_matching(sorted(ring))) == n + 1


class TestKnownResults:
    @property
    def reference(self):
        return {"a": [Event(1, 2, "dog"), Event(3, 7, "cat")], "b": [Event(0, 1, "dog")]}

    def shifted(self, onset, offset):
        return {
            name: [Event(e.onset + onset, e.offset + offset, e.label) for e in events]
            for name, events in self.reference.items()
        }

    def test_a_perfect_estimate_has_no_errors(self):
        scores = event_scores(self.reference, self.reference, **RULE)
        assert (scores.error_rate, scores.f_measure) == (0, 1)
        assert scores.class_wise["dog"]["count"] == {"Nref": 2.0, "Nsys": 2.0}

    def test_within_the_collar_all_is_right_and_beyond_it_all_is_wrong(self):
        assert event_scores(self.reference, self.shifted(0.19, 0.19), **RULE).f_measure == 1
        beyond = event_scores(self.reference, self.shifted(0.21, 0.21), **RULE)
        assert (beyond.f_measure, beyond.error_rate) == (0, 2)
        assert beyond.overall["error_rate"]["substitution_rate"] == 0

    def test_a_long_event_may_miss_its_offset_by_a_part_of_its_length(self):
        counts = count_events(self.reference, self.shifted(0, 1.5), LABELS, **RULE)
        assert counts.tp.sum(axis=0).tolist() == [1, 0, 0]  # the cat of 4 s
        only = RULE | {"percentage_of_length": 0.0}
        assert count_events(self.reference, self.shifted(0, 1.5), **only).tp.sum() == 0

    def test_the_length_is_that_of_the_reference(self):
        long, short = {"a": [Event(0, 4, "dog")]}, {"a": [Event(0, 2, "dog")]}
        assert event_scores(long, short, **RULE).f_measure == 1
        assert event_scores(short, long, **RULE).f_measure == 0

    def test_onset_and_offset_have_a_collar_each(self):
        wide = {"onset_collar": 0.1, "offset_collar": 0.5, "percentage_of_length": 0.0}
        assert event_scores(self.reference, self.shifted(0.05, 0.45), **wide).f_measure == 1
        assert event_scores(self.reference, self.shifted(0.45, 0.05), **wide).f_measure == 0

    def test_what_is_not_evaluated_does_not_matter(self):
        late, early = self.shifted(0, 9), self.shifted(-9, 0)
        assert event_scores(self.reference, late, **RULE, evaluate_offset=False).f_measure == 1
        assert event_scores(self.reference, early, **RULE, evaluate_onset=False).f_measure == 1
        assert event_scores(self.reference, late, **RULE, evaluate_onset=False).f_measure == 0

    def test_the_right_time_with_the_wrong_class_is_a_substitution(self):
        scores = event_scores({"a": [Event(0, 2, "dog")]}, {"a": [Event(0, 2, "cat")]}, **RULE)
        assert scores.overall["error_rate"] == {
            "error_rate": 1.0,
            "substitution_rate": 1.0,
            "deletion_rate": 0.0,
            "insertion_rate": 0.0,
        }
        assert scores.class_wise["dog"]["error_rate"]["deletion_rate"] == 1
        assert scores.class_wise_average["f_measure"]["recall"] == 0

    def test_an_event_is_matched_once(self):
        counts = count_events({"a": [Event(0, 1, "dog")]}, {"a": [Event(0, 1, "dog")] * 3}, **RULE)
        assert (counts.tp.item(), counts.fp.item(), counts.fn.item()) == (1, 2, 0)

    def test_the_optimal_matching_finds_pairs_that_the_greedy_one_misses(self):
        reference = {"a": [Event(1.1, 2, "dog"), Event(0.9, 2, "dog")]}
        estimate = {"a": [Event(1.0, 2, "dog"), Event(1.2, 2, "dog")]}
        found = {
            matching: count_events(reference, estimate, **RULE, matching=matching).tp.item()
            for matching in MATCHINGS
        }
        assert found == {"optimal": 2, "greedy": 1}

    def test_events_of_no_length_and_before_the_clip_count_as_any_other(self):
        odd = {"a": [Event(0, 0, "dog"), Event(-2, -1, "cat"), Event(99, 99, "owl")]}
        assert event_scores(odd, odd, **RULE).f_measure == 1
        assert count_events(odd, {}, **RULE).fn.tolist() == [[1, 1, 1]]

    def test_times_far_from_zero_are_compared_as_they_stand(self):
        far = {"a": [Event(1e9, 1e9 + 1, "dog"), Event(1e300, 1e300, "dog")]}
        assert event_scores(far, far, **RULE | {"onset_collar": 0.0}).f_measure == 1


def test_the_evaluation_set_against_itself_is_perfect(dcase2017):
    ref = read_events(dcase2017 / "groundtruth_strong_label_evaluation_set.csv")
    exact = {"onset_collar": 0.0, "offset_collar": 0.0, "percentage_of_length": 0.0}
    scores = event_scores(ref, ref, **exact)
    assert (scores.error_rate, scores.f_measure, scores.n_files) == (0, 1, 1103)


class TestCounting:
    @given(tables, tables, rules, judged)
    @settings(max_examples=150, deadline=None)
    def test_greedy_counts_are_those_of_plain_loops(self, reference, estimate, rule, judged):
        counts = self.count(reference, estimate, rule, judged, "greedy")
        for number, (name, true) in enumerate(reference.items()):
            found = estimate.get(name, [])
            pairs = first_free(
                true, found, lambda r, e: r.label == e.label and near(r, e, rule, judged)
            )
            wrong = [r for at, r in enumerate(true) if at not in dict(pairs)]
            instead = [e for at, e in enumerate(found) if at not in dict(pairs).values()]
            swapped = first_free(wrong, instead, lambda r, e: near(r, e, rule, judged))
            tp = [sum(true[r].label == label for r, _ in pairs) for label in LABELS]
            assert counts.tp[number].tolist() == tp
            assert counts.substitutions[number] == len(swapped)

    @given(tables, tables, rules, judged)
    @settings(max_examples=100, deadline=None)
    def test_optimal_counts_are_the_best_of_every_class(self, reference, estimate, rule, judged):
        counts = self.count(reference, estimate, rule, judged, "optimal")
        for number, (name, true) in enumerate(reference.items()):
            for at, label in enumerate(LABELS):
                pair = [
                    [event for event in each if event.label == label]
                    for each in (true, estimate.get(name, []))
                ]
                pairs = [
                    (r, e)
                    for r, event in enumerate(pair[0])
                    for e, other in enumerate(pair[1])
                    if near(event, other, rule, judged)
                ]
                tp = most(pairs) if pairs else 0
                assert counts.tp[number, at] == tp
                assert counts.fn[number, at] == len(pair[0]) - tp
                assert counts.fp[number, at] == len(pair[1]) - tp

    def count(self, reference, estimate, rule, judged, matching):
        return count_events(
            reference,
            estimate,
            LABELS,
            **rule,
            evaluate_onset=judged[0],
            evaluate_offset=judged[1],
            matching=matching,
        )

    @given(tables, tables)
    def test_files_count_alone_as_among_others(self, reference, estimate):
        counts = count_events(reference, estimate, LABELS, **RULE)
        for number, name in enumerate(reference):
            alone = count_events({name: reference[name]}, estimate, LABELS, **RULE)
            for table in ("tp", "fp", "fn", "substitutions"):
                assert getattr(alone, table)[0].tolist() == getattr(counts, table)[number].tolist()

    @given(tables, tables)
    def test_classes_count_alone_as_among_others(self, reference, estimate):
        scores = event_scores(reference, estimate, LABELS, **RULE)
        for label in LABELS:
            pair = [
                {name: [e for e in found if e.label == label] for name, found in each.items()}
                for each in (reference, estimate)
            ]
            alone = event_scores(*pair, [label], **RULE).class_wise[label]
            assert repr(alone) == repr(scores.class_wise[label])  # nan is not nan

    @given(tables)
    def test_with_reference_and_estimate_exchanged_precision_is_recall(self, reference):
        estimate = dict(zip(reference, reversed(reference.values()), strict=True))
        rule = RULE | {"percentage_of_length": 0.0}
        there = event_scores(reference, estimate, LABELS, **rule).overall["f_measure"]
        back = event_scores(estimate, reference, LABELS, **rule).overall["f_measure"]
        assert there["precision"] == pytest.approx(back["recall"], nan_ok=True)
        assert there["f_measure"] == pytest.approx(back["f_measure"], nan_ok=True)

    @given(tables, tables)
    def test_every_reference_event_is_right_deleted_or_substituted(self, reference, estimate):
        counts = count_events(reference, estimate, LABELS, **RULE)
        rates = counts.weighted_scores().overall["error_rate"]
        n_ref = (counts.tp + counts.fn).sum()
        assert (counts.substitutions <= np.minimum(counts.fp.sum(1), counts.fn.sum(1))).all()
        if n_ref:
            left = rates["substitution_rate"] + rates["deletion_rate"]
            assert counts.tp.sum() / n_ref + left == pytest.approx([1.0])

    @given(tables, tables)
    def test_counts_do_not_depend_on_the_block_size(self, reference, estimate):
        whole = count_events(reference, estimate, LABELS, **RULE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("earmark.metrics.event_arrays.BLOCK_EVENTS", 2)
            blocks = count_events(reference, estimate, LABELS, **RULE)
        for table in ("tp", "fp", "fn", "substitutions"):
            assert getattr(blocks, table).tolist() == getattr(whole, table).tolist()

    def test_files_of_only_the_reference_or_only_the_estimate_are_listed(self):
        reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 1, "dog")], "c": []}
        estimate = {"b": [Event(0, 1, "dog")], "z": [Event(0, 9, "dog")], "c": []}
        scores = event_scores(reference, estimate, **RULE)
        assert (scores.missing_files, scores.unknown_files) == (("a",), ("z",))
        assert scores.overall["error_rate"]["deletion_rate"] == 0.5
        assert scores.overall["error_rate"]["insertion_rate"] == 0.0
        assert scores.n_files == 3

    def test_files_can_be_weighted_and_counts_concatenated(self):
        reference = {"a": [Event(0, 1, "dog")], "b": [Event(0, 1, "dog"), Event(5, 6, "dog")]}
        counts = count_events(reference, {"b": reference["b"]}, **RULE)
        weights = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 2.0]])
        assert counts.weighted_scores(weights).overall["f_measure"]["recall"].tolist() == [
            0,
            1,
            4 / 5,
        ]
        both = counts.concatenate(count_events(reference, {"a": reference["a"]}, **RULE))
        assert both.files == ("a", "b", "a", "b")
        swapped = both.weighted_scores(np.array([[0.0, 1, 1, 0], [1, 0, 0, 1]]))
        assert swapped.overall["f_measure"]["recall"].tolist() == [1, 0]

    def test_counts_with_other_rules_cannot_be_concatenated(self):
        counts = count_events({"a": []}, {}, **RULE)
        with pytest.raises(SettingError, match="same labels, collars and matching"):
            counts.concatenate(count_events({"a": []}, {}, **RULE, matching="greedy"))


class TestWithoutReferenceOrEstimate:
    def test_a_class_without_reference_has_no_rates_and_stays_out_of_the_mean(self):
        scores = event_scores({"a": [Event(0, 1, "dog")]}, {"a": [Event(0, 1, "cat")]}, **RULE)
        assert all(math.isnan(rate) for rate in scores.class_wise["cat"]["error_rate"].values())
        assert math.isnan(scores.class_wise["cat"]["f_measure"]["f_measure"])
        assert scores.class_wise_average["error_rate"]["error_rate"] == 1.0

    def test_as_sed_eval_it_divides_by_almost_nothing_and_means_over_all(self):
        reference, estimate = {"a": [Event(0, 1, "dog")]}, {"a": [Event(0, 1, "cat")]}
        scores = event_scores(reference, estimate, LABELS, **RULE, as_sed_eval=True)
        assert scores.class_wise["cat"]["error_rate"]["insertion_rate"] == 2.0**52
        assert scores.class_wise["owl"]["error_rate"]["error_rate"] == 0
        assert scores.class_wise_average["error_rate"]["error_rate"] == (1 + 2.0**52) / 3
        assert scores.overall == event_scores(reference, estimate, LABELS, **RULE).overall

    def test_a_class_never_detected_is_left_out_of_the_mean_unless_it_counts_as_zero(self):
        reference = {"a": [Event(0, 1, "dog"), Event(0, 1, "cat")]}
        estimate = {"a": [Event(0, 1, "dog")]}
        average = [
            event_scores(reference, estimate, **RULE, empty_as_zero=zero).class_wise_average
            for zero in (False, True)
        ]
        assert [each["f_measure"]["f_measure"] for each in average] == [1.0, 0.5]

    @pytest.mark.parametrize("reference", [{}, {"a": []}])
    def test_nothing_at_all_gives_nan_and_no_warning(self, reference):
        scores = event_scores(reference, {}, LABELS, **RULE)
        assert math.isnan(scores.error_rate)
        assert math.isnan(scores.class_wise_average["f_measure"]["f_measure"])
        message = json.loads(json.dumps(scores.to_dict()))
        assert message["n_files"] == len(reference)
        assert message["rule"]["onset_collar"] == 0.2


class TestErrors:
    def test_an_event_that_is_not_of_the_labels_raises_with_its_table(self):
        with pytest.raises(DataError, match="The estimate has events of 'cat'"):
            event_scores({"a": []}, {"a": [Event(0, 1, "cat")]}, ["dog"], **RULE)

    @pytest.mark.parametrize("name", RULE)
    @pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
    def test_a_collar_must_be_a_length(self, name, value):
        with pytest.raises(SettingError, match=f"{name} must be .* Got {value}"):
            EventRule(**RULE | {name: value})

    def test_onset_or_offset_must_be_evaluated(self):
        with pytest.raises(SettingError, match="both False"):
            event_scores({}, {}, **RULE, evaluate_onset=False, evaluate_offset=False)

    def test_the_default_collars_are_those_of_sed_eval(self):
        assert event_scores({}, {}).rule == EventRule(**RULE)
