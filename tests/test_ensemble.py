"""Ensembles: the mean of their members, whatever their features, and models that become one."""

import hashlib
import io
import itertools
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pytest
import torch
from members import (
    KINDS,
    LABELS,
    encoder_member,
    log_mel_member,
    made_bundle,
    registered_levels,
    sound,
)
from tones import RATE, SMALL, write_tones

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.data.encoded import feature_blocks
from earmark.data.features import FeatureConfig, LogMel
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import build_store
from earmark.encoders.config import EncoderConfig
from earmark.errors import AudioError, SettingError
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.calibration import Calibration
from earmark.inference.combine import combine, ensemble, mean_decoding
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.description import describe_bundle
from earmark.inference.detector import Detector
from earmark.inference.ensemble import Ensemble, mean_scores
from earmark.inference.model_file import load_bundle, save_bundle
from earmark.inference.predictor import STRIP
from earmark.runtime.threads import share_items
from earmark.training.api import train, tune


@pytest.fixture(scope="module", autouse=True)
def levels():
    with registered_levels():
        yield


def own_scores(members, wave, rate=RATE):
    return [Detector(made_bundle(member)).frame_scores(wave, rate) for member in members]


@pytest.mark.parametrize("seconds", [0.05, 3.97, 61.3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_scores_are_the_mean_of_the_members_own(kind, seconds):
    """Those of a coarser grid are those of its frame at the centre of each finer one."""
    members, wave = KINDS[kind](), sound(seconds)
    detector = Detector(made_bundle(*members))
    found = detector.frame_scores(wave, RATE)
    finest = max((member.grid for member in members), key=lambda grid: grid.frame_rate)
    assert found.grid == detector.grid == finest
    assert len(found) == finest.count(seconds)
    frames, clips = np.zeros(found.scores.shape), np.zeros(found.scores.shape)
    for own in own_scores(members, wave):
        at = np.searchsorted(own.edges, found.grid.centres(len(found)) + 1e-9, "right") - 1
        at = np.minimum(at, len(own) - 1)
        frames += own.scores[at] / len(members)
        clips += own.clip_scores[at] / len(members)
    np.testing.assert_allclose(found.scores, frames, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.clip_scores, clips, rtol=0, atol=1e-6)
    if seconds > 60:
        assert min(np.std(own.scores, axis=0).min() for own in own_scores(members, wave)) > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_streamed_scores_are_mean_scores_to_the_last_bit(kind):
    members, wave = KINDS[kind](), sound(23.4)
    found = Detector(made_bundle(*members)).frame_scores(wave, RATE)
    (mean,) = mean_scores([own] for own in own_scores(members, wave))
    np.testing.assert_array_equal(found.scores, mean.scores)
    np.testing.assert_array_equal(found.clip_scores, mean.clip_scores)
    assert found.duration == pytest.approx(mean.duration)


def test_a_file_gives_what_its_waveform_gives_though_it_is_decoded_once(tmp_path):
    detector, wave = Detector(made_bundle(*KINDS["a head on an encoder"]())), sound(9.3)
    path = tmp_path / "a.wav"
    write_audio(path, wave, RATE)
    expected = detector.frame_scores(path)
    assert len(expected) == 117
    with path.open("rb") as file:
        for source in (str(path), file, io.BytesIO(path.read_bytes())):
            np.testing.assert_array_equal(detector.frame_scores(source).scores, expected.scores)
    waveform, _ = read_audio(path)
    of_wave = detector.frame_scores(waveform, RATE)
    np.testing.assert_allclose(of_wave.scores, expected.scores, atol=1e-6)
    tags = detector.tags(path)
    assert tags == dict(zip(LABELS, expected.clip_level().tolist(), strict=True))
    assert detector.detect(path) == detector.decode(expected)


def test_a_recording_that_cannot_be_read_is_the_same_error_as_with_one_network(tmp_path):
    detector = Detector(made_bundle(*KINDS["a head on an encoder"]()))
    (tmp_path / "b.wav").write_bytes(b"no audio at all")
    with pytest.raises(AudioError, match="not audio in a supported format"):
        detector.frame_scores(tmp_path / "b.wav")
    shared = Detector(made_bundle(*KINDS["checkpoints of one training"]()))
    for own in (detector, shared):
        with pytest.raises(AudioError, match="does not exist"):
            own.frame_scores(tmp_path / "none.wav")
    write_audio(tmp_path / "cut.wav", sound(30.0), RATE)
    whole = (tmp_path / "cut.wav").read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AudioError, match="truncated"):
        shared.frame_scores(tmp_path / "cut.wav")
    assert list(detector.detect_files(tmp_path).failed) == ["b.wav", "cut.wav"]


def test_features_that_differ_in_normalisation_only_are_computed_once(monkeypatch):
    chunks = []
    original = LogMel._chunk

    def counted(self, samples):
        chunks.append(self.config.n_mels)
        return original(self, samples)

    monkeypatch.setattr(LogMel, "_chunk", counted)
    wave = sound(12.0)
    Detector(made_bundle(log_mel_member())).frame_scores(wave, RATE)
    alone, chunks[:] = len(chunks), []
    members = [log_mel_member(0), log_mel_member(1), log_mel_member(2, mean=-6.0)]
    Detector(made_bundle(*members, log_mel_member(3, n_mels=24))).frame_scores(wave, RATE)
    assert sorted(chunks) == [16] * alone + [24] * alone


@pytest.mark.parametrize("threads", [1, 2])
def test_members_keep_pace_so_that_memory_is_constant(threads):
    """What is read but not yet scored does not grow with the recording."""
    members = [*KINDS["a head on an encoder"](), log_mel_member(9, window=8.0, hop=0.025)]
    bundle = made_bundle(*members)
    detector = Detector(bundle, threads=threads)

    def most_ahead(n_seconds):
        read, n_scored, ahead = [], 0, []

        def second_by_second():
            for n in range(n_seconds):
                read.append(n)
                yield np.zeros(2 * RATE, np.float32)

        shared = share_items(second_by_second(), len(bundle.feature_configs))
        streams = [
            feature_blocks(map(itemgetter(slice(config.sample_rate)), own), config)
            for own, config in zip(shared, bundle.feature_configs, strict=True)
        ]
        for frame_scores, _ in detector.stream_scores(*streams):
            ahead.append(len(read) - n_scored / 12.5)
            n_scored += len(frame_scores)
        assert n_scored == n_seconds * 12.5
        return max(ahead)

    assert most_ahead(1500) <= most_ahead(750) + 30 < 600


def test_the_number_of_threads_changes_no_bit():
    bundle, wave = made_bundle(*KINDS["a head on an encoder"]()), sound(90.0)
    assert len(wave) > 2 * STRIP * 0.02 * RATE
    first, *others = (Detector(bundle, threads=n).frame_scores(wave, RATE) for n in (1, 2, 3))
    for other in others:
        np.testing.assert_array_equal(other.scores, first.scores)
        np.testing.assert_array_equal(other.clip_scores, first.clip_scores)


def test_streams_of_features_are_one_per_kind_of_features():
    detector = Detector(made_bundle(*KINDS["a head on an encoder"]()))
    with pytest.raises(SettingError, match=r"needs 3 streams of features.* Got 1"):
        detector.stream_scores([torch.zeros(50, 16)])


def test_an_ensemble_survives_its_file_and_is_halved_and_selected(tmp_path):
    bundle = made_bundle(*KINDS["a head on an encoder"](), calibration=Calibration(0.1))
    wave = sound(5.0)
    again = load_bundle(save_bundle(bundle, tmp_path / "all.earmark"))
    expected = Detector(bundle).frame_scores(wave, RATE).scores
    np.testing.assert_array_equal(Detector(again).frame_scores(wave, RATE).scores, expected)
    assert again.calibration == bundle.calibration
    half = Detector(again.halved()).frame_scores(wave, RATE).scores
    np.testing.assert_allclose(half, expected, atol=0.01)
    low = Detector(again.select(["low"])).frame_scores(wave, RATE).scores
    np.testing.assert_allclose(low, expected[:, [1]], atol=1e-6)


def test_the_place_of_an_encoder_is_that_of_the_members_that_have_it(tmp_path):
    files = [tmp_path / "a.onnx", tmp_path / "b.onnx", tmp_path / "c.onnx"]
    for file in files:
        file.write_bytes(file.name.encode())

    def on_encoder(file):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        encoder = EncoderConfig("onnx", 0.5, 0.5, n_features=4, sha256=digest, file="old")
        member = encoder_member()
        return replace(member, feature_config=FeatureConfig(encoder=encoder))

    def places(bundle):
        configs = [member.feature_config.encoder for member in bundle.members]
        return [config and config.file for config in configs]

    a, b, plain = on_encoder(files[0]), on_encoder(files[1]), log_mel_member()
    assert places(made_bundle(a, plain, a).with_encoder(files[2])) == [
        str(files[2]),
        None,
        str(files[2]),
    ]
    both = made_bundle(a, plain, b).with_encoder(files[1])
    assert places(both) == ["old", None, str(files[1])]
    assert places(both.with_encoder(files[0])) == [str(files[0]), None, str(files[1])]
    with pytest.raises(SettingError, match=r"c\.onnx is none of the 2 encoders of the model"):
        both.with_encoder(files[2])
    with pytest.raises(SettingError, match="The model has no encoder"):
        made_bundle(plain, plain).with_encoder(files[0])


def test_scores_on_other_grids_come_to_the_finest_in_any_order():
    fine = FrameScores(
        [[0.1], [0.2], [0.3], [0.4], [0.5]], ["x"], FrameGrid(25), clip_scores=[0.5], duration=0.19
    )
    coarse = FrameScores([[0.5], [0.7], [0.9]], ["x"], FrameGrid(12.5), clip_scores=[0.7])
    for order in itertools.permutations([[fine], [coarse], [coarse]]):
        (mean,) = mean_scores(order)
        assert (mean.grid, mean.duration) == (fine.grid, 0.19)
        expected = np.array([0.1 + 1.0, 0.2 + 1.0, 0.3 + 1.4, 0.4 + 1.4, 0.5 + 1.8]) / 3
        np.testing.assert_allclose(mean.scores[:, 0], expected)
        np.testing.assert_allclose(mean.clip_scores[:, 0], (0.5 + 1.4) / 3)


def test_scores_on_three_grids_are_brought_to_the_finest_once_in_any_order():
    """At 0.175 s, 10 frames per second have their second frame; by way of 12.5, the third."""
    tables = {20: [0.1, 0.2, 0.3, 0.4, 0.5], 12.5: [0.5, 0.7, 0.9], 10: [0.0, 0.3, 0.9]}
    networks = [
        [FrameScores(np.array(own)[:, None], ["x"], FrameGrid(rate), clip_scores=[max(own)])]
        for rate, own in tables.items()
    ]
    expected = np.array([0.1 + 0.5, 0.2 + 0.5, 0.3 + 0.7 + 0.3, 0.4 + 0.9 + 0.3, 0.5 + 1.8]) / 3
    for order in itertools.permutations(networks):
        (mean,) = mean_scores(order)
        assert mean.grid == FrameGrid(20)
        np.testing.assert_allclose(mean.scores[:, 0], expected)


def test_scores_without_a_grid_are_no_part_of_an_ensemble():
    fine = FrameScores([[0.5]], ["x"], FrameGrid(25), clip_scores=[0.5])
    edges = FrameScores([[0.5]], ["x"], edges=[0, 0.2], clip_scores=[0.5])
    for pair in ([[fine], [edges]], [[edges], [fine]], [[edges], [edges]]):
        with pytest.raises(SettingError, match="from one frame grid to another"):
            mean_scores(pair)


def test_clips_of_stores_are_predicted_with_the_store_of_each_members_features(tmp_path):
    write_tones(tmp_path, 3, prefix="valid", ragged=True)
    clips = Manifest.read(tmp_path / "valid_weak.tsv", tmp_path / "audio", LABELS)
    members = [log_mel_member(0, n_mels=24), log_mel_member(1), log_mel_member(2)]
    stores = [
        build_store(tmp_path / str(at), clip_paths(clips), members[at].feature_config.raw)
        for at in (0, 1)
    ]
    networks = Ensemble(members)
    found = networks.predict_clips(clips, stores[::-1])
    by_file = Detector(made_bundle(*members))
    for path, own in zip(clips.paths, found, strict=True):
        np.testing.assert_allclose(own.scores, by_file.frame_scores(path).scores, atol=2e-3)
    with pytest.raises(SettingError, match="No feature store has the features of a network"):
        networks.predict_clips(clips, stores[:1])


# Models that become one.


def test_classes_in_another_order_are_aligned():
    one, other = made_bundle(log_mel_member(0)), made_bundle(log_mel_member(1), labels=LABELS[::-1])
    both, wave = combine([one, other]), sound(5.0)
    assert both.labels == LABELS
    scores = [Detector(x).frame_scores(wave, RATE).scores for x in (one, other, both)]
    np.testing.assert_allclose(scores[2], (scores[0] + scores[1][:, ::-1]) / 2, atol=1e-6)


def test_other_classes_are_refused_in_one_sentence(tmp_path):
    one = save_bundle(made_bundle(log_mel_member()), tmp_path / "one.earmark")
    other = made_bundle(log_mel_member(), labels=("high", "mid"))
    other = save_bundle(other, tmp_path / "other.earmark")
    with pytest.raises(SettingError) as caught:
        ensemble([one, other])
    assert str(caught.value) == (
        f"The models of an ensemble have the same classes; {other} and {one} differ in "
        "'low', 'mid'."
    )
    mixing = made_bundle(log_mel_member(pooling="class-attention"), labels=LABELS[::-1])
    with pytest.raises(SettingError, match="another order, and they cannot be reordered: The netw"):
        combine([load_bundle(one), mixing])
    with pytest.raises(SettingError, match="one model or more"):
        ensemble([])
    with pytest.raises(SettingError, match="a list of models"):
        ensemble(one)


def test_thresholds_are_the_mean_in_log_odds_and_lengths_those_of_the_first(caplog):
    rules = [
        Rule(0.5, 0.2, median=0.2, clip_threshold=0.3),
        Rule(0.8, 0.2, median=0.4, clip_threshold=0.6),
    ]
    one, other = (replace(made_bundle(log_mel_member()), decoding=Decoding(LABELS, (r, r)))
                  for r in rules)  # fmt: skip
    rule = combine([one, other]).decoding["low"]
    odds = (1.0 * 4.0) ** 0.5
    assert rule.threshold == pytest.approx(odds / (1 + odds))
    assert (rule.low_threshold, rule.median) == (0.2, 0.2)
    odds = (3 / 7 * 6 / 4) ** 0.5
    assert rule.clip_threshold == pytest.approx(odds / (1 + odds))
    assert "the ensemble has those of model 0 until it is tuned" in caplog.text
    none = Decoding.uniform(LABELS)
    assert mean_decoding([one.decoding, none])["low"].clip_threshold == 0.0
    assert mean_decoding([Decoding.uniform(["x"], 1.0)] * 2)["x"].threshold == 1.0
    assert 0.5 < mean_decoding([Decoding.uniform(["x"], p) for p in (1.0, 0.5)])["x"].threshold < 1


def test_segments_of_another_length_are_logged_as_other_lengths_are(caplog):
    seconds = Decoding.uniform(LABELS, 0.5, segment=1.0)
    one, other = (
        made_bundle(log_mel_member()),
        replace(made_bundle(log_mel_member()), decoding=seconds),
    )
    assert combine([one, one]).decoding == one.decoding
    assert not caplog.text
    assert combine([other, one]).decoding.segment == 1.0
    assert "differ in the lengths of their decoding" in caplog.text


def test_an_ensemble_of_ensembles_counts_every_network_once():
    a, b, c = (
        made_bundle(log_mel_member(n), licence=licence, attribution=("me", str(n)))
        for n, licence in enumerate(("CC0", "CC0", "MIT"))
    )
    a = replace(a, training={"n_epochs": 1, "classes": {}}, calibration=Calibration(0.5))
    nested, wave = combine([combine([a, b]), c]), sound(5.0)
    assert len(nested.members) == 3
    assert [x.get("n_epochs") for x in nested.training["models"]] == [1, None, None]
    assert (nested.licence, nested.attribution) == ("CC0 and MIT", ("me", "0", "1", "2"))
    assert nested.calibration is None and nested.tuning["supervision"] == "none"
    assert describe_bundle(nested.describe()).count("\ntraining: ") == 3
    flat = Detector(made_bundle(*(x.members[0] for x in (a, b, c)))).frame_scores(wave, RATE)
    found = Detector(nested).frame_scores(wave, RATE)
    np.testing.assert_array_equal(found.scores, flat.scores)
    assert combine([a]) is a


def test_a_trained_ensemble_is_tuned_and_teaches(tmp_path):
    for prefix, n_clips, seed in (("train", 12, 1), ("valid", 12, 2)):
        write_tones(tmp_path, n_clips, seed=seed, prefix=prefix)
    tables = (tmp_path / "train_weak.tsv", tmp_path / "valid_weak.tsv", tmp_path / "audio")
    short = [*SMALL, "training.max_epochs=2", "training.threads=1"]
    runs = [
        train(*tables, tmp_path / f"{seed}", overrides=[*short, f"training.seed={seed}"])
        for seed in (0, 1)
    ]
    both = ensemble(runs)
    assert both.bundle.calibration is None
    tuned, result = tune(both, tmp_path / "valid_weak.tsv", tmp_path / "audio")
    assert tuned.bundle.tuning["supervision"] == result.supervision == "weak"
    assert tuned.bundle.tuning["n_clips"] == 12
    assert tuned.bundle.members == both.bundle.members
    path = tuned.save(tmp_path / "both.earmark")
    student = train(*tables, tmp_path / "student", overrides=short, teachers=[path])
    labels = np.load(tmp_path / "student" / "pseudo_labels.npy")
    teachers = [tmp_path / name / "model.earmark" for name in "01"]
    pair = train(*tables, tmp_path / "pair", overrides=short, teachers=teachers)
    np.testing.assert_array_equal(labels, np.load(tmp_path / "pair" / "pseudo_labels.npy"))
    for name, value in student.bundle.weights.items():
        assert value.equal(pair.bundle.weights[name])
    other = combine(
        [tuned.bundle, made_bundle(log_mel_member(pools=((2, 2), (2, 2), (2, 2), (1, 2))))]
    )
    slow = save_bundle(other, tmp_path / "slow.earmark")
    with pytest.raises(SettingError, match=r"A teacher must have .*slow\.earmark"):
        train(*tables, tmp_path / "refused", overrides=short, teachers=[slow])
