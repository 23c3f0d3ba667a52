"""The decision stages of published systems, against plain loops and their authors' frames."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from commands import run
from hypothesis import given
from hypothesis import strategies as st
from tones import RATE, write_tones

from earmark.data.features import FeatureConfig
from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.formats.tags import read_tags
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.decoding import Decoding, Rule, decode_events
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle
from earmark.inference.segments import pool_segments
from earmark.inference.tuning import (
    DECISIONS,
    decide_as_published,
    has_decision,
    network_of,
    tune_as_published,
    tune_decoding,
)
from earmark.inference.tuning.decisions import HIGHEST, search_tag_thresholds
from earmark.nn.model import ModelConfig
from earmark.nn.wang import WangConfig
from earmark.pooling import linear_pool
from earmark.training.api import tune

LABELS = ("dog", "cat")
NATIVE = {"surrey": FrameGrid(16000 / 664), "gccaps": FrameGrid(16000 / 664 / 8)}


def clip_of(values, grid, clip_scores=None):
    """Return scores of one class."""
    column = np.array(values, np.float64)[:, None]
    return FrameScores(column, ["dog"], grid, clip_scores=clip_scores or [max(values)])


@pytest.fixture
def task():
    """Random clips whose scores follow their events, with their tags and events."""
    rng = np.random.default_rng(3)
    grid, clips, tags, reference = FrameGrid(12.5), [], [], []
    for _ in range(24):
        frames = rng.uniform(0, 0.4, (125, 2))
        events = []
        for at, label in enumerate(LABELS):
            if rng.random() < 0.5:
                onset = int(rng.integers(0, 6))
                events.append(Event(onset, onset + 3, label))
                frames[round(12.5 * onset) : round(12.5 * (onset + 3)), at] += 0.5
        clip_scores = (frames**2).sum(axis=0) / frames.sum(axis=0)
        clips.append(FrameScores(frames, LABELS, grid, clip_scores=clip_scores))
        tags.append({event.label for event in events})
        reference.append(events)
    return clips, tags, reference


@given(st.integers(1, 60), st.sampled_from([0.5, 1.0, 1.7]), st.integers(0, 9))
def test_the_score_of_a_segment_is_the_linear_pooling_of_the_frames_whose_centre_is_in_it(
    n_frames, segment, seed
):
    frames = np.random.default_rng(seed).uniform(0, 1, (n_frames, 2))
    scores = FrameScores(frames, LABELS, FrameGrid(12.5), clip_scores=frames)
    pooled = pool_segments(scores, segment)
    by_segment = {}
    for at, time in enumerate(scores.times):
        by_segment.setdefault(int(time / segment + 1e-9), []).append(at)
    assert list(by_segment) == list(range(len(pooled)))
    for row, members in by_segment.items():
        twin = linear_pool(torch.from_numpy(frames[members])[None])[0]
        np.testing.assert_allclose(pooled.scores[row], twin.numpy(), rtol=1e-12)
        np.testing.assert_array_equal(pooled.clip_scores[row], frames[members].max(axis=0))
    assert pooled.duration <= scores.duration


def test_segments_of_silence_score_zero_and_odd_lengths_are_refused():
    silent = pool_segments(clip_of([0.0] * 30, FrameGrid(12.5)), 1.0)
    assert silent.scores.tolist() == [[0.0], [0.0], [0.0]]
    empty = FrameScores(np.zeros((0, 1)), ["dog"], FrameGrid(12.5), clip_scores=[0.5])
    assert decode_events(empty, Decoding.uniform(["dog"], segment=1.0)) == []
    with pytest.raises(SettingError, match=r"at least as long as a frame, 0\.08 s"):
        pool_segments(clip_of([0.5], FrameGrid(12.5)), 0.05)
    with pytest.raises(SettingError, match=r"same for all classes. Got \[0\.0, 1\.0\]"):
        Decoding(LABELS, [Rule(), Rule(segment=1.0)])


def test_events_of_segments_begin_and_end_with_them_in_recordings_of_any_length():
    """At 12.5 frames per second no frame begins at 1 s: the event must, all the same."""
    values = np.full(int(3600 * 12.5) + 7, 0.01)
    values[13:24] = values[45000 - 125 : 45000 - 100] = 0.9
    events = decode_events(
        clip_of(values, FrameGrid(12.5)), Decoding.uniform(["dog"], 0.5, segment=1.0)
    )
    assert [(event.onset, event.offset) for event in events] == [(1.0, 2.0), (3590.0, 3592.0)]
    cut = FrameScores(np.full((13, 1), 0.9), ["dog"], FrameGrid(12.5), duration=0.97)
    (event,) = decode_events(cut, Decoding.uniform(["dog"], 0.5, segment=1.0))
    assert event.offset == 0.97


def test_a_decoding_of_segments_survives_a_file_and_one_without_looks_as_before():
    decoding = Decoding.uniform(LABELS, 0.3, segment=1.0)
    assert Decoding.from_dict(decoding.to_dict()) == decoding
    assert "segment" not in Decoding.uniform(LABELS).to_dict()["dog"]
    assert decoding.shifted(1.0).segment == 1.0
    assert decoding.replaced("dog", threshold=0.2)["dog"].segment == 1.0


def test_tuning_from_segments_searches_on_segments(task):
    clips, tags, reference = task
    for labelled in ({"tags": tags}, {"reference": reference, "n_folds": 0}):
        tuned = tune_decoding(clips, start=Decoding.uniform(LABELS, segment=1.0), **labelled)
        assert tuned.decoding.segment == 1.0
        pooled = [pool_segments(own, 1.0) for own in clips]
        by_hand = tune_decoding(pooled, start=Decoding.uniform(LABELS), **labelled)
        assert tuned.decoding.with_segment(0.0) == by_hand.decoding
        assert tuned.score == by_hand.score


def micro_f1(clip_scores, tags, thresholds):
    found = clip_scores >= np.array(thresholds)
    wanted = np.array([[label in own for label in LABELS] for own in tags])
    return 2 * (found & wanted).sum() / max(1, found.sum() + wanted.sum())


def test_wangs_thresholds_have_the_best_micro_f1_of_all(task):
    clips, tags, _ = task
    clip_scores = np.array([own.clip_level() for own in clips])
    found = search_tag_thresholds(clips, tags)
    every = [np.append(np.unique(column), 2.0) for column in clip_scores.T]
    best = max(micro_f1(clip_scores, tags, pair) for pair in product(*every))
    assert micro_f1(clip_scores, tags, found) == pytest.approx(best)
    only_dogs = [own & {"dog"} for own in tags]
    assert search_tag_thresholds(clips, only_dogs)[1] == HIGHEST


def test_wang_decides_seconds_with_the_thresholds_of_clips(task):
    clips, tags, _ = task
    decision = DECISIONS["wang"](clips, tags, None)
    assert decision.supervision == "weak"
    assert tuple(rule.threshold for rule in decision.decoding.rules) == decision.tag_thresholds
    for rule in decision.decoding.rules:
        assert rule == Rule(rule.threshold, rule.threshold, segment=1.0)
    pooled = pool_segments(clips[0], 1.0).scores >= np.array(decision.tag_thresholds)
    active = np.zeros_like(pooled)
    for event in decode_events(clips[0], decision.decoding):
        active[int(event.onset) : int(event.offset), LABELS.index(event.label)] = True
    np.testing.assert_array_equal(active, pooled)


@pytest.mark.parametrize(
    ("system", "threshold", "max_gap", "longest_dropped"),
    [("surrey", 0.3, 9, 10), ("gccaps", 0.6, 10, 5)],
)
def test_gaps_and_runs_are_the_authors_on_their_own_frames(
    system, threshold, max_gap, longest_dropped
):
    """Counted in frames, as in their code."""
    grid, long = NATIVE[system], longest_dropped + 1

    def events(*runs):
        values = np.full(100, threshold - 0.01)
        for start, stop in runs:
            values[start:stop] = threshold
        clip = clip_of(values, grid)
        found = decode_events(clip, DECISIONS[system]([clip], [()], None).decoding)
        return [(grid.index(event.onset), grid.index(event.offset)) for event in found]

    assert events((20, 20 + long)) == [(20, 20 + long)]
    assert events((20, 20 + longest_dropped)) == []
    assert events((20, 20 + long), (20 + long + max_gap, 60)) == [(20, 60)]
    apart = (20, 20 + long), (20 + long + max_gap + 1, 60)
    assert events(*apart) == list(apart)


@pytest.mark.parametrize(("system", "threshold"), [("surrey", 0.3), ("gccaps", 0.35)])
def test_the_best_class_is_a_tag_where_none_reaches_the_threshold(system, threshold):
    def tags(*clip_scores):
        clip = FrameScores(np.zeros((5, 2)), LABELS, FrameGrid(12.5), clip_scores=clip_scores)
        return DECISIONS[system]([clip], [()], None).tags(clip)

    assert tags(threshold, threshold) == ["dog", "cat"]
    assert tags(threshold, threshold - 0.01) == ["dog"]
    assert tags(threshold - 0.02, threshold - 0.01) == ["cat"]


@pytest.mark.parametrize("system", ["emsi", "mlms"])
def test_thresholds_are_searched_on_events_where_they_are_known_and_on_tags_where_not(task, system):
    clips, tags, reference = task
    strong, weak = (DECISIONS[system](clips, tags, own) for own in (reference, None))
    assert (strong.supervision, weak.supervision) == ("strong", "weak")
    for rule in (*strong.decoding.rules, *weak.decoding.rules):
        assert rule.low_threshold == rule.threshold
        assert (rule.median, rule.max_gap) == (0.0, 0.0)
        assert rule.min_duration == (0.5 if system == "emsi" else 0.0)
        assert rule.segment == 1.0
    for decision in (strong, weak):
        clip_thresholds = tuple(rule.clip_threshold for rule in decision.decoding.rules)
        assert clip_thresholds == ((0.0, 0.0) if system == "mlms" else decision.tag_thresholds)

    def errors(decoding):
        """Return the error rate of seconds, by hand."""
        total = wanted = 0
        for own, events in zip(clips, reference, strict=True):
            rows = np.zeros((2, 11, 2), bool)
            for side, found in enumerate((events, decode_events(own, decoding))):
                for event in found:
                    stop = int(np.ceil(event.offset - 1e-9))
                    rows[side, int(event.onset + 1e-9) : stop, LABELS.index(event.label)] = True
            n_ref, n_est = rows.sum(axis=2)
            total += (np.maximum(n_ref, n_est) - (rows[0] & rows[1]).sum(axis=1)).sum()
            wanted += n_ref.sum()
        return total / wanted

    # No other threshold of frames is better, given those of clips.
    assert errors(strong.decoding) <= errors(weak.decoding) + 1e-9
    best = errors(strong.decoding)
    for pair in product(np.linspace(0.1, 0.9, 9), repeat=2):
        rules = (replace(rule, threshold=x, low_threshold=x)
                 for rule, x in zip(strong.decoding.rules, pair, strict=True))  # fmt: skip
        assert best <= errors(Decoding(LABELS, tuple(rules))) + 1e-9


def test_emsi_like_reports_a_class_only_where_its_clip_level_score_reaches_the_threshold(task):
    """The frames of all clips look alike, so only clip-level scores decide between them."""
    _, tags, _ = task
    frames, grid = np.zeros((125, 2)), FrameGrid(12.5)
    frames[25:50] = 0.9
    clips = [
        FrameScores(frames, LABELS, grid, clip_scores=[0.6 if x in own else 0.4 for x in LABELS])
        for own in tags
    ]
    for reference in (None, [[Event(2, 4, label) for label in sorted(own)] for own in tags]):
        decision = DECISIONS["emsi"](clips, tags, reference)
        assert decision.tag_thresholds == (0.5, 0.5)
        for clip, own in zip(clips, tags, strict=True):
            events = decode_events(clip, decision.decoding)
            assert {(x.onset, x.offset, x.label) for x in events} == {(2, 4, x) for x in own}


def test_the_f1_of_tags_of_a_published_stage_is_that_of_its_tags_and_not_of_its_events(
    monkeypatch,
):
    """Of GCCaps: 0.35 for tags, or the best class; its events need 0.6 and more than 1.7 s."""
    frames, grid = np.full((125, 2), 0.5), FrameGrid(12.5)
    rows = ((0.4, 0.1), (0.1, 0.2), (0.3, 0.4))
    clips = [FrameScores(frames, LABELS, grid, clip_scores=row) for row in rows]
    tags = [("dog",), ("cat",), ("dog",)]
    monkeypatch.setitem(DECISIONS, "crnn", DECISIONS["gccaps"])
    tuned = tune_as_published(ModelConfig(n_classes=2), clips, tags)
    assert not [event for clip in clips for event in decode_events(clip, tuned.decoding)]
    assert tuned.score == pytest.approx(2 / 3)
    assert tuned.classes["dog"].f_measure == pytest.approx(2 / 3)
    assert tuned.start_score == pytest.approx(2 * 3 / (3 + 6))  # 0.5 for frames: both, in all clips


@pytest.mark.parametrize("system", DECISIONS)
def test_every_decision_stage_gives_a_decoding_that_a_tuning_can_report(task, system, monkeypatch):
    clips, tags, reference = task
    config = ModelConfig(n_classes=2)
    monkeypatch.setitem(DECISIONS, "crnn", DECISIONS[system])
    tuned = tune_as_published(config, clips, tags, reference)
    assert tuned.objective == "published"
    decision = decide_as_published(config, clips, tags, reference)
    assert tuned.decoding == decision.decoding
    found = [set(decision.tags(own)) for own in clips]
    right = sum(len(a & b) for a, b in zip(found, tags, strict=True))
    total = sum(map(len, found)) + sum(map(len, tags))
    assert tuned.score == pytest.approx(2 * right / total)
    assert tuned.classes["dog"].n_positive == sum("dog" in own for own in tags)


@pytest.fixture
def wang(tmp_path):
    """Two tagged recordings of tones, and an untrained detector of Wang's network."""
    write_tones(tmp_path, 6, seed=1)
    torch.manual_seed(0)
    config = WangConfig(n_classes=2, n_mels=16, channels=(4, 4, 4), n_recurrent=4)
    features = FeatureConfig(sample_rate=RATE, n_mels=16, f_max=4000)
    member = Member(features, config, config.build().state_dict(), window=4.0)
    return Detector(Bundle(("high", "low"), (member,), Decoding.uniform(("high", "low"))))


def test_a_model_file_carries_the_published_decision_stage_and_detects_with_it(wang, tmp_path):
    path = wang.save(tmp_path / "model.earmark")
    more = ["--valid", tmp_path / "clip_weak.tsv", "--audio", tmp_path / "audio"]
    done = run("tune", "--model", path, *more, "--decision", "published")
    assert "decides as published (from tags), F1 of tags" in done.stdout
    tuned = Detector.load(path)
    assert tuned.bundle.decoding.segment == 1.0
    assert tuned.bundle.tuning["objective"] == "published"
    record = {x.name: tuned.frame_scores(x) for x in sorted((tmp_path / "audio").iterdir())}
    tags = list(read_tags(tmp_path / "clip_weak.tsv").values())
    decision = DECISIONS["wang"](list(record.values()), tags, None)
    assert tuned.bundle.decoding == decision.decoding
    rng = np.random.default_rng(0)
    for event in tuned.detect(rng.standard_normal(35 * RATE) / 20, RATE, sensitivity=3.0):
        assert event.onset == round(event.onset)


def test_an_ensemble_decides_as_its_members_if_they_are_of_one_system(wang, tmp_path):
    (member,) = wang.bundle.members
    several = replace(wang.bundle, members=(member,) * 3)
    where = (tmp_path / "clip_weak.tsv", tmp_path / "audio")
    alone, together = (
        tune(Detector(own), *where, decision="published")[0].bundle.decoding
        for own in (wang.bundle, several)
    )
    for one, other in zip(alone.rules, together.rules, strict=True):
        assert other.threshold == pytest.approx(one.threshold, abs=1e-6)
    config = ModelConfig.preset("paper-fast", n_classes=2, n_mels=16)
    ours = Member(member.feature_config, config, config.build().state_dict(), window=4.0)
    mixed = replace(wang.bundle, members=(member, ours))
    with pytest.raises(SettingError, match=r"different networks .* Got wang, crnn"):
        network_of(mixed)


def test_choices_of_a_tuning_do_not_go_with_a_published_decision_stage(wang, tmp_path):
    where = (wang, tmp_path / "clip_weak.tsv", tmp_path / "audio")
    for choice in ({"shared": True}, {"objective": "f_measure"}):
        with pytest.raises(SettingError, match=f"no choices: leave out {next(iter(choice))}"):
            tune(*where, decision="published", **choice)
    with pytest.raises(SettingError, match="did you mean 'published'"):
        tune(*where, decision="publishd")


def test_wang_with_another_pooling_has_no_published_decision_stage():
    assert has_decision(WangConfig(n_classes=2))
    assert not has_decision(WangConfig(n_classes=2, pooling="max"))
    assert not has_decision(WangConfig(n_classes=2, stages=(5, 5, 5)))


def test_an_ensemble_with_a_member_without_a_decision_stage_has_none_in_any_order(wang, task):
    (member,) = wang.bundle.members
    for change in ({"pooling": "max"}, {"stages": (5, 5)}):
        config = member.model_config.changed(**change)
        other = replace(member, model_config=config, weights=config.build().state_dict())
        for members in ((member, other), (other, member), (member, other, member)):
            config = network_of(replace(wang.bundle, members=members))
            with pytest.raises(SettingError, match=r"'wang' has no decision stage of its own"):
                decide_as_published(config, *task)
    assert has_decision(network_of(replace(wang.bundle, members=(member, member))))


def test_a_network_without_a_decision_stage_of_its_own_is_refused(task):
    config = ModelConfig(n_classes=2)
    assert not has_decision(config)
    with pytest.raises(SettingError, match=r"'crnn' has no decision stage of its own; there is"):
        decide_as_published(config, *task)
