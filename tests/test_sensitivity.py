"""Sensitivity: one axis from few false events to few misses, and a limit of false events on it."""

import itertools

import numpy as np
import pytest
import torch

from earmark.audio.encode import write_audio
from earmark.data.features import FeatureConfig
from earmark.errors import DataError, EarmarkWarning, SettingError
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.calibration import Calibration
from earmark.inference.decoding import Decoding, Rule, decode_events
from earmark.inference.detector import SENSITIVITIES, Detector, parse_sensitivity
from earmark.inference.member import Member
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle
from earmark.inference.tuning import calibrated, find_sensitivity, sweep_sensitivity
from earmark.nn.model import Model, ModelConfig

GRID = FrameGrid(12.5)
LABELS = ("cat", "dog")
RULE = Rule(0.5, 0.1, median=0.24, min_duration=0.16, max_gap=0.16, clip_threshold=0.3)
DECODING = Decoding(LABELS, (RULE, RULE))


def logit(p):
    return np.log(p / (1 - p))


def some_scores(seed, n_frames=125):
    rng = np.random.default_rng(seed)
    smooth = np.convolve(rng.standard_normal(n_frames * 2 + 8), np.ones(9) / 3, "valid")
    frames = 1 / (1 + np.exp(1.5 - smooth.reshape(n_frames, 2)))
    return FrameScores(frames, LABELS, GRID, clip_scores=rng.uniform(0, 0.9, 2))


def test_thresholds_move_in_log_odds_and_lengths_stay():
    for shift in (-3, -0.5, 0.25, 2):
        rule = DECODING.shifted(shift)["dog"]
        assert logit(rule.threshold) == pytest.approx(logit(0.5) - shift)
        assert logit(rule.clip_threshold) == pytest.approx(logit(0.3) - shift)
        assert rule.low_threshold == 0.1
        assert (rule.median, rule.min_duration, rule.max_gap) == (0.24, 0.16, 0.16)
    there_and_back = DECODING.shifted(1.5).shifted(-1.5)["dog"]
    assert there_and_back.threshold == pytest.approx(0.5)


def test_special_thresholds_stay_valid():
    assert DECODING.shifted(0) is DECODING
    assert Decoding.uniform(["dog"], 1.0).shifted(5)["dog"].threshold == 1.0
    assert Decoding.uniform(["dog"], 0.5).shifted(2)["dog"].clip_threshold == 0.0
    low = DECODING.shifted(4)["dog"]
    assert low.low_threshold == low.threshold < 0.1
    plain = Decoding.uniform(["dog"], 0.5).shifted(-1)["dog"]
    assert plain.low_threshold == plain.threshold > 0.5
    for shift in (-20, 20):
        for threshold in (1e-12, 0.5, 1 - 1e-12):
            rule = Decoding.uniform(["dog"], threshold, clip_threshold=threshold).shifted(shift)
            assert 0 < rule["dog"].threshold <= 1


@pytest.mark.parametrize("shift", [21, -np.inf, np.nan, True, None, "1"])
def test_a_shift_that_is_no_number_in_range_is_refused(shift):
    with pytest.raises(SettingError, match="sensitivity must be a number from -20 to 20"):
        DECODING.shifted(shift)


def test_a_higher_sensitivity_detects_every_frame_that_a_lower_one_does():
    for seed in range(20):
        scores = some_scores(seed)
        before = np.zeros((2, 125), bool)
        for shift in (-2, -1, -0.3, 0, 0.4, 1, 3):
            active = np.zeros((2, 125), bool)
            for event in decode_events(scores, DECODING.shifted(shift)):
                first, last = round(event.onset * 12.5), round(event.offset * 12.5)
                active[LABELS.index(event.label), first:last] = True
            assert not (before & ~active).any()
            before = active
        assert before.any()


def test_names_and_numbers_are_sensitivities():
    assert [parse_sensitivity(name) for name in SENSITIVITIES] == [-1, 0, 1]
    assert parse_sensitivity("-1.5") == parse_sensitivity(-1.5) == -1.5
    with pytest.raises(SettingError, match="no sensitivity 'hihg'; did you mean 'high'"):
        parse_sensitivity("hihg")


@pytest.mark.parametrize("limit", [0, 1, 3, 10])
def test_the_sensitivity_found_is_the_highest_that_keeps_the_limit(limit):
    negatives = [some_scores(seed) for seed in range(12)]
    minutes = sum(own.duration for own in negatives) / 60

    def per_minute(shift):
        shifted = DECODING.shifted(shift)
        return sum(len(decode_events(own, shifted)) for own in negatives) / minutes

    found = find_sensitivity(negatives, DECODING, limit)
    assert per_minute(found) <= limit < per_minute(found + 0.1)
    assert found < 2


def test_limits_and_negatives_that_cannot_be_kept_are_refused():
    full = FrameScores(np.ones((125, 2)), LABELS, GRID, clip_scores=[1.0, 1.0])
    with pytest.raises(DataError, match="Even at a sensitivity of -8 there are more than 1 false"):
        find_sensitivity([full], DECODING, 1)
    for limit in (-1, np.nan, np.inf):
        with pytest.raises(SettingError, match="max_per_minute must be 0 or more"):
            find_sensitivity([full], DECODING, limit)
    with pytest.raises(SettingError, match=r"tags=.* or reference="):
        sweep_sensitivity([full], [full], DECODING)


def test_negatives_that_limit_nothing_get_a_warning():
    silence = FrameScores(np.full((125, 2), 1e-4), LABELS, GRID, clip_scores=[1e-4, 1e-4])
    with pytest.warns(EarmarkWarning, match="The negatives are too easy or too few"):
        assert find_sensitivity([silence], DECODING, 1) == 2


def test_a_sweep_gives_more_recall_for_more_false_events():
    clips = [some_scores(seed) for seed in range(15)]
    negatives = [some_scores(seed) for seed in range(100, 115)]
    reference = [decode_events(own, DECODING.shifted(0.5)) for own in clips]
    points = sweep_sensitivity(clips, negatives, DECODING, reference=reference)
    recalls = [point.clip_recall for point in points]
    assert recalls == sorted(recalls)
    assert {point.setting: point.event_recall for point in points}[0.5] == 1
    tags = [{event.label for event in events} for events in reference]
    of_tags = sweep_sensitivity(clips, negatives, DECODING, tags=tags)
    assert [point.clip_recall for point in of_tags] == recalls
    assert [p.per_minute for p in of_tags] == [p.per_minute for p in points]
    assert points[-1].per_minute > points[0].per_minute


@pytest.fixture(scope="module")
def detectors():
    """A detector whose scores mean nothing, without and with a calibration."""
    torch.manual_seed(0)
    config = ModelConfig.preset("paper-fast", n_classes=2, channels=(4, 4, 4, 4))
    features = FeatureConfig(mean=(-9.0,) * 80, std=(2.0,) * 80)
    member = Member(features, config, Model(config).state_dict())
    made = [
        Bundle(
            labels=LABELS,
            members=(member,),
            decoding=Decoding.uniform(LABELS, 0.5, low_threshold=0.4),
            calibration=calibration,
        )
        for calibration in (None, Calibration(-0.4, 0.5, 2.0, 1.0))
    ]
    return [Detector(bundle, threads=1) for bundle in made]


def test_the_detector_shifts_calibrates_and_drops_low_scores(detectors):
    plain, calibrated = detectors
    scores = FrameScores(
        np.repeat([[0.2, 0.45], [0.6, 0.55], [0.1, 0.9]], 25, axis=0),
        LABELS,
        GRID,
        clip_scores=[0.5, 0.7],
    )
    assert plain.decode(scores) == decode_events(scores, plain.bundle.decoding)
    events, own = calibrated.decode(scores), plain.decode(scores)
    assert [(e.onset, e.offset) for e in events] == [(e.onset, e.offset) for e in own]
    assert events == calibrated.bundle.calibration.apply(own, scores)
    for detector, sensitivity in itertools.product(detectors, ("low", 1.0, "-0.2")):
        shifted = detector.bundle.decoding.shifted(parse_sensitivity(sensitivity))
        assert detector.decode(scores, sensitivity=sensitivity) == detector.decode(scores, shifted)
    least = sorted(event.score for event in events)[-1]
    (kept,) = calibrated.decode(scores, min_score=least)
    assert kept.score == least
    assert calibrated.decode(scores, min_score=1.0) == []
    for min_score in (-0.1, 1.1, np.nan, "0.5"):
        with pytest.raises(SettingError, match="min_score must be a number from 0 to 1"):
            calibrated.decode(scores, min_score=min_score)


def test_detect_and_detect_files_take_the_same_settings(detectors, tmp_path):
    rng = np.random.default_rng(0)
    wave = (rng.standard_normal(32000 * 12) * 0.1).astype(np.float32)
    path = tmp_path / "noise.wav"
    write_audio(path, wave, 32000)
    _, calibrated = detectors
    for settings in ({}, {"sensitivity": 2.0}, {"sensitivity": 2.0, "min_score": 0.3}):
        events = calibrated.detect(path, **settings)
        assert calibrated.detect_files(tmp_path, **settings) == {"noise.wav": events}
        assert events == calibrated.decode(calibrated.frame_scores(path), **settings)
    assert calibrated.detect(path, sensitivity=4.0)
    assert isinstance(calibrated.detect(path, sensitivity=4.0)[0], Event)


def test_no_false_event_in_a_minute_may_still_be_some():
    quiet = FrameScores(np.full((750, 1), 0.1), ["dog"], FrameGrid(12.5), clip_scores=[0.1])
    bundle = load_bundle(BUNDLED).select(["dog"])
    tuned = calibrated(bundle, [quiet] * 4, [quiet], tags=[["dog"], [], [], []])
    record = tuned.tuning["false_events"]
    assert record["per_minute"] == record["low"] == 0
    assert record["high"] == pytest.approx(3.69)  # of one minute
