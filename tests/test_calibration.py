"""Calibrated scores: 0.8 is right eight times in ten, from tags or events, and safe with few."""

import numpy as np
import pytest

from earmark.errors import DataError, SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.calibration import Calibration, event_features
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.tuning import fit_calibration
from earmark.metrics import bootstrap_scores, calibration_scores, count_calibration
from earmark.metrics.calibration import expected_calibration_error, is_right
from earmark.plots import plot_reliability

GRID = FrameGrid(12.5)
LABELS = ("cat", "dog")


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


@pytest.mark.parametrize(
    ("event", "reference", "right"),
    [
        (Event(0, 2, "dog"), [Event(1, 3, "dog")], True),
        (Event(0, 1.9, "dog"), [Event(1, 3, "dog")], False),
        (Event(0, 2, "dog"), [Event(0, 2, "cat")], False),
        (Event(0, 4, "dog"), [Event(0, 1, "dog"), Event(3, 4, "dog")], True),
        (Event(0, 4, "dog"), [Event(0, 1, "dog"), Event(0.5, 1, "dog"), Event(0, 1, "dog")], False),
        (Event(0, 4, "dog"), [Event(-1, 9, "dog")], True),
        (Event(0, 4, "dog"), [], False),
        (Event(0, 4, "dog"), ["cat", "dog"], True),
        (Event(0, 4, "dog"), {"cat"}, False),
    ],
)
def test_an_event_is_right_if_half_of_it_is_in_the_reference(event, reference, right):
    assert is_right(event, reference) == right


def test_the_error_is_small_for_probabilities_and_large_for_distorted_ones():
    rng = np.random.default_rng(0)
    probs = rng.uniform(0, 1, 20_000)
    right = rng.random(20_000) < probs
    assert expected_calibration_error(probs, right) < 0.015
    for factor, least in ((0.5, 0.08), (2.0, 0.08)):
        distorted = sigmoid(factor * np.log(probs / (1 - probs)))
        assert expected_calibration_error(distorted, right) > least
    assert expected_calibration_error(np.full(100, 0.8), np.arange(100) < 80, 1) == pytest.approx(0)
    # the floor of perfect scores that the module states
    means = [
        expected_calibration_error(np.full(400, 0.8), rng.random(400) < 0.8) for _ in range(300)
    ]
    assert np.mean(means) == pytest.approx(0.8 * np.sqrt(10 / 400 * 0.16), rel=0.1)


def test_bins_have_as_many_events_each_and_intervals_come_from_files():
    rng = np.random.default_rng(1)
    estimate, reference = {}, {}
    for at in range(60):
        scores = rng.uniform(0, 1, 3)
        estimate[str(at)] = [Event(2 * i, 2 * i + 1, "dog", p) for i, p in enumerate(scores)]
        reference[str(at)] = [
            Event(2 * i, 2 * i + 1, "dog") for i, p in enumerate(scores) if rng.random() < p
        ]
    scores = calibration_scores(reference, estimate)
    assert [each.n_events for each in scores.bins] == [18] * 10
    assert [each.low for each in scores.bins] == sorted(each.low for each in scores.bins)
    n_right = sum(each.right * each.n_events for each in scores.bins)
    assert n_right == pytest.approx(sum(map(len, reference.values())))
    distances = [abs(each.mean_score - each.right) for each in scores.bins]
    assert scores.ece == pytest.approx(np.mean(distances))
    interval = bootstrap_scores(count_calibration(reference, estimate)).overall["calibration"]
    assert 0 < interval["ece"].low <= interval["ece"].high < 0.3
    assert interval["right"].low < scores.overall["calibration"]["right"] < interval["right"].high
    line = plot_reliability({"mine": scores.bins}).axes[0].lines[1]
    assert line.get_xdata().tolist() == [each.mean_score for each in scores.bins]


@pytest.mark.parametrize("score", [None, 1.5, -0.1])
def test_scores_that_are_no_probabilities_are_refused(score):
    with pytest.raises(DataError, match="a score from 0 to 1 for every event"):
        count_calibration({"a": []}, {"a": [Event(0, 1, "dog", score)]})


def simulated(n_clips, seed, weights=(1.0, 0.0, 0.0, 2.0)):
    """Clips with one run of each class, right as often as `weights` of its features say."""
    rng = np.random.default_rng(seed)
    clips, tags, reference = [], [], []
    for _ in range(n_clips):
        frames, clip_level = np.full((50, 2), 0.01), rng.uniform(0.1, 0.95, 2)
        frames[10:30] = rng.uniform(0.3, 0.7, (20, 2))
        clips.append(FrameScores(frames, LABELS, GRID, clip_scores=clip_level))
        events = decode_events(clips[-1], Decoding.uniform(LABELS, 0.2))
        probs = sigmoid(event_features(events, clips[-1]) @ np.array(weights))
        true = [e for e, p in zip(events, probs, strict=True) if rng.random() < p]
        tags.append({event.label for event in true})
        reference.append([Event(e.onset, e.offset, e.label) for e in true])
    return clips, tags, reference


@pytest.mark.parametrize("supervision", ["tags", "reference"])
def test_a_fitted_calibration_holds_on_other_clips_at_every_sensitivity(supervision):
    clips, tags, reference = simulated(250, 0)
    decoding = Decoding.uniform(LABELS, 0.25, clip_threshold=0.3)
    labels = {"tags": tags} if supervision == "tags" else {"reference": reference}
    result = fit_calibration(clips, decoding, **labels)
    assert result.start_ece > 0.2
    assert result.ece < 0.08
    assert result.calibration.clip == pytest.approx(2.0, abs=0.4)
    others, tags, _ = simulated(500, 1)
    for sensitivity in (-1, 0, 1):
        estimate, reference = {}, {}
        for at, (scores, own) in enumerate(zip(others, tags, strict=True)):
            events = decode_events(scores, decoding.shifted(sensitivity))
            estimate[str(at)] = result.calibration.apply(events, scores)
            reference[str(at)] = own
        assert calibration_scores(reference, estimate).ece < 0.06


def test_weights_are_never_negative_but_the_intercept():
    clips, tags, _ = simulated(200, 0, weights=(-1.0, 0.0, -2.0, 1.0))
    calibration = fit_calibration(clips, Decoding.uniform(LABELS, 0.2), tags=tags).calibration
    assert min(calibration.score, calibration.peak, calibration.clip) >= 0
    assert calibration.intercept < 0


def test_few_events_change_little_and_none_change_nothing():
    clips, _, _ = simulated(3, 0)
    decoding = Decoding.uniform(LABELS, 0.2)
    silent = Decoding.uniform(LABELS, 0.9)
    for tags in ([{"cat", "dog"}] * 3, [set()] * 3):
        result = fit_calibration(clips, decoding, tags=tags)
        assert result.n_events == 6
        if result.calibration is not None:
            events = result.calibration.apply(decode_events(clips[0], decoding), clips[0])
            assert all(0.02 < event.score < 0.98 for event in events)
    result = fit_calibration(clips, silent, tags=[set()] * 3)
    assert result.calibration is None
    assert result.to_dict() == {"n_events": 0}


def test_scores_that_are_right_already_are_left_alone():
    clips, tags, _ = simulated(300, 0, weights=(0.0, 1.0, 0.0, 0.0))
    result = fit_calibration(clips, Decoding.uniform(LABELS, 0.2), tags=tags)
    assert result.start_ece < 0.08
    if result.calibration is not None:
        for scores in clips[:20]:
            events = decode_events(scores, Decoding.uniform(LABELS, 0.2))
            calibrated = result.calibration.apply(events, scores)
            for event, other in zip(events, calibrated, strict=True):
                assert other.score == pytest.approx(event.score, abs=0.12)


def test_what_cannot_be_fitted_is_refused():
    clips, tags, reference = simulated(2, 0)
    decoding = Decoding.uniform(LABELS)
    for labels in ({}, {"tags": tags, "reference": reference}):
        with pytest.raises(SettingError, match=r"either tags=.* or reference="):
            fit_calibration(clips, decoding, **labels)
    with pytest.raises(SettingError, match=r"each of 2 clips\. Got 1"):
        fit_calibration(clips, decoding, tags=tags[:1])
    with pytest.raises(SettingError, match="clip of a calibration must be a finite number"):
        Calibration(clip=float("nan"))
    bare = FrameScores([[0.5]], ["dog"], GRID)
    with pytest.raises(SettingError, match="clip-level scores"):
        Calibration().apply([Event(0, 0.08, "dog", 0.5)], bare)


def test_the_identity_changes_no_score_and_nothing_but_the_score_changes():
    (scores,), _, _ = simulated(1, 0)
    events = decode_events(scores, Decoding.uniform(LABELS, 0.2))
    same = Calibration().apply(events, scores)
    assert [event.score for event in same] == pytest.approx([event.score for event in events])
    other = Calibration(1.0, 0.5, 0.5, 0.5).apply(events, scores)
    assert [(e.onset, e.offset, e.label) for e in other] == [
        (e.onset, e.offset, e.label) for e in events
    ]
    assert Calibration().apply([], scores) == []


def test_an_event_has_the_same_score_wherever_it_is_in_a_recording():
    clips, _, _ = simulated(3, 4)
    decoding, calibration = Decoding.uniform(LABELS, 0.2), Calibration(0.3, 0.2, 0.4, 1.5)
    alone = [calibration.apply(decode_events(clip, decoding), clip) for clip in clips]
    whole = FrameScores(
        np.concatenate([clip.scores for clip in clips]),
        LABELS,
        GRID,
        duration=149.5 / 12.5,  # the last frame is cut
        clip_scores=np.concatenate([clip.clip_scores for clip in clips]),
    )
    together = calibration.apply(decode_events(whole, decoding), whole)
    assert [e.score for e in together] == pytest.approx([e.score for own in alone for e in own])
