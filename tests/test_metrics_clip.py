"""Clip-based scores: known results, brute-force twins, and agreement with the segment scorer."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event, read_events
from earmark.metrics import segment_scores
from earmark.metrics.clip import clip_scores, count_clips, tags_of
from earmark.metrics.ranking import rank_classes, rank_items

LABELS = ["cat", "dog", "owl"]

tags = st.sets(st.sampled_from(LABELS))
tables = st.dictionaries(st.sampled_from(["a.wav", "b.wav", "c.wav", "d.wav"]), tags, max_size=4)
# few values, so that many are tied
items = st.lists(
    st.tuples(st.booleans(), st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(0, 3)),
    min_size=1,
    max_size=12,
)


def brute_average_precision(ref, scores):
    """Try the thresholds one by one."""
    total, before = 0.0, 0
    for threshold in sorted(set(scores), reverse=True):
        found = [t for t, s in zip(ref, scores, strict=True) if s >= threshold]
        total += (sum(found) - before) * sum(found) / len(found)
        before = sum(found)
    return total / sum(ref) if any(ref) else math.nan


def brute_auc(ref, scores):
    """Compare every positive with every negative."""
    true = [s for t, s in zip(ref, scores, strict=True) if t]
    false = [s for t, s in zip(ref, scores, strict=True) if not t]
    wins = [(t > f) + (t == f) / 2 for t in true for f in false]
    return sum(wins) / len(wins) if wins else math.nan


def brute_lwlrap(ref, scores):
    """For each tag of each clip, look at all classes that score as high; sums per class."""
    sums = np.zeros(ref.shape)
    for clip, row in enumerate(ref):
        for label in np.flatnonzero(row):
            high = scores[clip] >= scores[clip, label]
            sums[clip, label] = (high & row).sum() / high.sum()
    return sums


class TestRanking:
    @given(items)
    def test_a_weight_is_the_item_so_many_times(self, rows):
        ref, scores, times = map(np.array, zip(*rows, strict=True))
        precision, auc = rank_items(ref, scores, times[None].astype(float))
        repeated = np.repeat(ref, times).tolist(), np.repeat(scores, times).tolist()
        assert precision[0] == pytest.approx(brute_average_precision(*repeated), nan_ok=True)
        assert auc[0] == pytest.approx(brute_auc(*repeated), nan_ok=True)

    @given(items)
    def test_each_sample_is_ranked_as_if_alone_whatever_the_chunk_size(self, rows):
        ref, scores, _ = map(np.array, zip(*rows, strict=True))
        weights = np.random.default_rng(0).integers(0, 3, (5, len(rows))).astype(float)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("earmark.metrics.ranking._CHUNK_VALUES", 2 * len(rows))
            together = rank_items(ref, scores, weights)
        for at in range(5):
            alone = rank_items(ref, scores, weights[at : at + 1])
            for whole, part in zip(together, alone, strict=True):
                np.testing.assert_allclose(whole[at], part[0], rtol=1e-12)

    @given(items)
    def test_only_the_order_of_scores_matters(self, rows):
        ref, scores, times = map(np.array, zip(*rows, strict=True))
        weights = times[None].astype(float)
        spread = rank_items(ref, np.exp(9 * scores) - 3, weights)
        np.testing.assert_array_equal(spread, rank_items(ref, scores, weights))

    def test_infinite_scores_are_ranked_and_tied_like_others(self):
        ref = np.array([True, False, True, False])
        scores = np.array([np.inf, np.inf, -np.inf, 0.0])
        precision, auc = rank_items(ref, scores, np.ones((1, 4)))
        assert precision[0] == brute_average_precision(ref.tolist(), scores.tolist())
        assert auc[0] == brute_auc(ref.tolist(), scores.tolist())

    @given(st.integers(0, 6), st.integers(0, 5), st.integers(0, 2**32 - 1))
    def test_classes_of_a_clip_are_ranked_as_by_hand(self, n_clips, n_classes, seed):
        rng = np.random.default_rng(seed)
        ref = rng.random((n_clips, n_classes)) < 0.5
        scores = rng.integers(0, 3, ref.shape) / 2
        np.testing.assert_allclose(rank_classes(ref, scores), brute_lwlrap(ref, scores))


class TestTags:
    @given(tables, tables, st.booleans())
    def test_a_clip_counts_as_one_long_segment(self, reference, estimate, zero):
        pair = [
            {n: [Event(0, 10, tag) for tag in sorted(found)] for n, found in each.items()}
            for each in (reference, estimate)
        ]
        whole = segment_scores(*pair, LABELS, resolution=10, empty_as_zero=zero)
        ours = clip_scores(reference, estimate, labels=LABELS, empty_as_zero=zero)
        # A file without events has no segments, but it is a clip: true negatives differ.
        for group in ("f_measure", "error_rate"):
            assert ours.overall[group] == pytest.approx(whole.overall[group], nan_ok=True)
            average = whole.class_wise_average[group]
            assert ours.class_wise_average[group] == pytest.approx(average, nan_ok=True)
            for label in LABELS:
                each = whole.class_wise[label][group]
                assert ours.class_wise[label][group] == pytest.approx(each, nan_ok=True)
        for label in LABELS:
            assert ours.class_wise[label]["count"] == whole.class_wise[label]["count"]

    def test_a_clip_without_tags_in_reference_and_estimate_is_correct(self):
        scores = clip_scores(
            {"a": ["dog"], "b": []}, {"a": ["dog"], "b": []}, labels=["cat", "dog"]
        )
        assert scores.overall["accuracy"]["accuracy"] == 1
        assert scores.n_files == 2

    def test_a_repeated_tag_counts_once(self):
        assert clip_scores({"a": ["dog", "dog"]}, {"a": ["dog"]}).class_wise["dog"]["count"] == {
            "Nref": 1,
            "Nsys": 1,
        }

    def test_files_of_only_the_reference_or_only_the_estimate_are_listed(self):
        probs = {"a": [0.5], "b": [0.5], "y": [0.5], "z": [0.5]}
        scores = clip_scores({"a": ["dog"], "b": []}, {"b": [], "z": ["dog"]}, probs, ["dog"])
        assert (scores.missing_files, scores.unknown_files) == (("a",), ("z", "y"))
        assert scores.overall["f_measure"]["recall"] == 0

    def test_the_tags_of_events_leave_out_those_without_length(self):
        table = {"a": [Event(0, 0, "owl"), Event(1, 2, "dog"), Event(3, 4, "dog")], "b": []}
        assert tags_of(table) == {"a": ("dog",), "b": ()}

    def test_the_tags_of_the_reference_are_perfect_tags(self, dcase2017):
        events = read_events(dcase2017 / "groundtruth_strong_label_evaluation_set.csv")
        scores = clip_scores(tags_of(events), tags_of(events))
        assert scores.f_measure == 1
        assert (scores.n_files, len(scores.class_wise)) == (len(events), 17)


class TestProbabilities:
    def test_every_score_is_that_of_its_brute_force_twin(self):
        rng = np.random.default_rng(0)
        ref = rng.random((30, 3)) < 0.3
        probs = np.round(rng.random((30, 3)) + 0.3 * ref, 1)
        scores = score_matrices(ref, probs)
        for at, label in enumerate(LABELS):
            rows = ref[:, at].tolist(), probs[:, at].tolist()
            ranked = scores.class_wise[label]["ranking"]
            assert ranked["average_precision"] == pytest.approx(brute_average_precision(*rows))
            assert ranked["roc_auc"] == pytest.approx(brute_auc(*rows))
            right = brute_lwlrap(ref, probs)[:, at].sum()
            assert ranked["lwlrap"] == pytest.approx(right / ref[:, at].sum())
        flat = ref.ravel().tolist(), probs.ravel().tolist()
        overall = scores.overall["ranking"]
        assert overall["average_precision"] == pytest.approx(brute_average_precision(*flat))
        assert overall["roc_auc"] == pytest.approx(brute_auc(*flat))
        assert scores.lwlrap == pytest.approx(brute_lwlrap(ref, probs).sum() / ref.sum())
        each = [scores.class_wise[x]["ranking"]["average_precision"] for x in LABELS]
        assert scores.mean_average_precision == pytest.approx(sum(each) / 3)

    def test_the_reference_as_probabilities_is_perfect(self):
        ref = np.random.default_rng(0).random((20, 3)) < 0.4
        scores = score_matrices(ref, ref.astype(float))
        assert set(scores.overall["ranking"].values()) == {1.0}

    def test_without_tags_there_are_only_rankings_and_the_other_way_round(self):
        by_probs = clip_scores({"a": ["dog"]}, probs={"a": [0.5]}, labels=["dog"])
        by_tags = clip_scores({"a": ["dog"]}, {"a": ["dog"]})
        assert set(by_probs.overall) == {"ranking"}
        assert set(by_tags.overall) == {"f_measure", "error_rate", "accuracy"}
        assert math.isnan(by_probs.f_measure)
        assert math.isnan(by_tags.mean_average_precision)
        assert math.isnan(by_tags.lwlrap)

    def test_a_class_without_a_true_clip_is_undefined_and_leaves_the_mean(self):
        ref = np.array([[True, False, True], [False, False, True]])
        scores = score_matrices(ref, np.array([[0.9, 0.1, 0.3], [0.5, 0.2, 0.6]]))
        ranked = {label: scores.class_wise[label]["ranking"] for label in LABELS}
        assert all(map(math.isnan, ranked["dog"].values()))
        assert math.isnan(ranked["owl"]["roc_auc"])  # there is no negative
        assert ranked["owl"]["average_precision"] == 1
        assert scores.mean_average_precision == 1
        assert scores.class_wise_average["ranking"]["roc_auc"] == ranked["cat"]["roc_auc"] == 1

    @pytest.mark.parametrize("reference", [{}, {"a": []}])
    def test_nothing_at_all_gives_nan_and_no_warning(self, reference):
        scores = clip_scores(reference, {}, {"a": [0.1, 0.2, 0.3]}, LABELS)
        assert all(map(math.isnan, scores.overall["ranking"].values()))
        assert json.loads(json.dumps(scores.to_dict()))["n_files"] == len(reference)


def score_matrices(ref, probs):
    reference = {f"{at}": np.array(LABELS)[row].tolist() for at, row in enumerate(ref)}
    return clip_scores(
        reference, probs={f"{at}": row for at, row in enumerate(probs)}, labels=LABELS
    )


class TestConcatenate:
    def test_zeros_and_ones_choose_the_system_of_each_clip(self):
        rng = np.random.default_rng(1)
        reference = {f"{at}": set(rng.choice(LABELS, 2)) for at in range(10)}
        tagged = [{n: set(rng.choice(LABELS, 2)) for n in reference} for _ in range(2)]
        scored = [{n: rng.random(3) for n in reference} for _ in range(2)]
        a, b = (count_clips(reference, t, p, LABELS) for t, p in zip(tagged, scored, strict=True))
        chosen = rng.integers(0, 2, 10)
        mixed = [
            {n: pair[which][n] for n, which in zip(reference, chosen, strict=True)}
            for pair in (tagged, scored)
        ]
        expected = count_clips(reference, *mixed, LABELS).weighted_scores().sample(LABELS)
        weights = np.concatenate([chosen == 0, chosen == 1]).astype(float)[None]
        found = a.concatenate(b).weighted_scores(weights).sample(LABELS)
        assert json.dumps(found["class_wise"]["dog"]) == json.dumps(expected["class_wise"]["dog"])
        assert found["overall"]["ranking"] == pytest.approx(expected["overall"]["ranking"])

    def test_only_counts_of_the_same_kind_can_be_concatenated(self):
        tagged = count_clips({"a": ["dog"]}, {"a": ["dog"]}, labels=["dog"])
        scored = count_clips({"a": ["dog"]}, probs={"a": [0.5]}, labels=["dog"])
        other = count_clips({"a": ["cat"]}, {"a": ["cat"]})
        with pytest.raises(SettingError, match="if both have estimate, or neither"):
            tagged.concatenate(scored)
        with pytest.raises(SettingError, match="same labels"):
            tagged.concatenate(other)


class TestErrors:
    def test_nothing_to_score_raises(self):
        with pytest.raises(SettingError, match="Pass estimate=, probs= or both"):
            clip_scores({"a": ["dog"]})

    def test_probabilities_need_the_names_of_their_classes(self):
        with pytest.raises(SettingError, match="Pass labels="):
            clip_scores({"a": ["dog"]}, probs={"a": [0.5]})

    def test_files_without_probabilities_raise_with_their_number_and_the_first(self):
        reference = {"a.wav": ["dog"], "b.wav": [], "c.wav": []}
        with pytest.raises(DataError, match=r"lack 2 of 3 files .* first is b\.wav"):
            clip_scores(reference, probs={"a.wav": [0.5]}, labels=["dog"])

    def test_a_wrong_number_of_probabilities_raises_with_the_file(self):
        with pytest.raises(DataError, match=r"probs of a\.wav have the shape \(2,\).* 1 labels"):
            clip_scores({"a.wav": ["dog"]}, probs={"a.wav": [0.5, 0.1]}, labels=["dog"])

    def test_nan_is_not_a_score(self):
        with pytest.raises(DataError, match=r"1 files contain nan, the first is b\.wav"):
            clip_scores({"a": [], "b.wav": []}, probs={"a": [1], "b.wav": [np.nan]}, labels=["dog"])

    def test_a_tag_that_is_not_a_label_raises_with_its_table_and_file(self):
        with pytest.raises(DataError, match=r"The estimate of a\.wav has the tag 'cat'"):
            clip_scores({"a.wav": []}, {"a.wav": ["cat"]}, labels=["dog"])

    def test_a_text_is_not_a_list_of_tags(self):
        with pytest.raises(DataError, match=r"Pass a list of tags: \['dog'\]"):
            clip_scores({"a.wav": "dog"}, {})

    def test_labels_must_differ(self):
        with pytest.raises(SettingError, match="once"):
            clip_scores({}, {}, labels=["dog", "dog"])
