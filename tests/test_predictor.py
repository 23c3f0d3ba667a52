"""The predictor: clips together score as clips alone, whatever their lengths, threads or type."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.data.features import FeatureConfig, Normalise
from earmark.data.manifest import Manifest
from earmark.errors import SettingError
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.ensemble import mean_scores
from earmark.inference.predictor import N_WINDOWS, STRIP, Predictor, predict_clips
from earmark.nn.emsi import EmsiConfig
from earmark.nn.mlms import MlmsConfig
from earmark.nn.model import Model, ModelConfig

WINDOW = 200  # input frames, of which four become one
N_MELS = 16
GRID = FrameGrid(12.5)


@pytest.fixture(scope="module")
def model():
    """Untrained, but with batch norms that fit the input and scores that differ."""
    torch.manual_seed(0)
    config = ModelConfig.preset(
        "paper-fast", 3, n_mels=N_MELS, channels=(4, 4, 4, 4), last_channels=8, n_recurrent=4
    )
    model = Model(config)
    with torch.no_grad():
        log_mel = torch.randn(4, WINDOW, N_MELS)
        for _ in range(20):
            model(log_mel)
        logits = model.eval()(log_mel).hidden @ model.classifier.weight.T
        scale = 0.3 / logits.std((0, 1))
        model.classifier.weight *= scale[:, None]
        model.classifier.bias[:] = -logits.mean((0, 1)) * scale
    return model


def make_clips(lengths, seed=1):
    rng = torch.Generator().manual_seed(seed)
    return [torch.randn(length, N_MELS, generator=rng) for length in lengths]


def predict(predictor, clips):
    return list(predictor.predict([clip] for clip in clips))


LENGTHS = {
    "equal": [WINDOW] * 7,
    "more of one length than a batch": [WINDOW] * (N_WINDOWS + 3),
    "unequal": [WINDOW, 80, 80, 1, 3, WINDOW, 120, 120, 120, 5, 80],
    "longer than the window": [WINDOW + 1, 3 * WINDOW, WINDOW, 2 * WINDOW + 50, WINDOW],
    "longer than a strip": [40, STRIP + 7, WINDOW, 2 * STRIP, 40, 40],
}


@pytest.mark.parametrize("name", LENGTHS)
def test_clips_predicted_together_score_as_each_alone_and_in_order(model, name):
    clips = make_clips(LENGTHS[name])
    predictor = Predictor(model, WINDOW, threads=2)
    together = predict(predictor, clips)
    assert len(together) == len(clips)
    for clip, (scores, clip_scores) in zip(clips, together, strict=True):
        ((alone, clip_alone),) = predict(predictor, [clip])
        assert scores.shape == clip_scores.shape == (model.config.n_frames(len(clip)), 3)
        np.testing.assert_allclose(scores, alone, rtol=0, atol=1e-6)
        np.testing.assert_allclose(clip_scores, clip_alone, rtol=0, atol=1e-6)
    assert np.std(np.concatenate([scores for scores, _ in together]), axis=0).min() > 0.01


@pytest.mark.parametrize("window", [WINDOW, WINDOW + 1, WINDOW + 3])
def test_a_clip_of_one_window_has_the_scores_of_the_plain_network(model, window):
    for clip in make_clips([window, 80, 3]):
        ((scores, clip_scores),) = predict(Predictor(model, window), [clip])
        with torch.no_grad():
            want = model(clip.unsqueeze(0))
        np.testing.assert_allclose(scores, want.frame_probs[0], atol=1e-6)
        np.testing.assert_allclose(clip_scores, want.clip_probs.expand(len(scores), -1), atol=1e-6)


def test_the_number_of_threads_changes_no_bit(model):
    clips = make_clips([*LENGTHS["unequal"], *LENGTHS["longer than a strip"]])
    first, *others = (predict(Predictor(model, WINDOW, threads=n), clips) for n in (1, 2, 3))
    for other in others:
        for (scores, clip_scores), (want, clip_want) in zip(other, first, strict=True):
            np.testing.assert_array_equal(scores, want)
            np.testing.assert_array_equal(clip_scores, clip_want)


def test_a_model_in_double_precision_predicts_in_it(model):
    clips = make_clips([WINDOW, 3 * WINDOW, STRIP + 7])
    double = deepcopy(model).double()
    for clip, single, exact in zip(
        clips,
        predict(Predictor(model, WINDOW), clips),
        predict(Predictor(double, WINDOW), clips),
        strict=True,
    ):
        np.testing.assert_allclose(single[0], exact[0], rtol=0, atol=1e-5)
        if len(clip) <= WINDOW:  # rounded to single precision once, at the end
            with torch.no_grad():
                want = double(clip.double().unsqueeze(0)).frame_probs[0].float()
            np.testing.assert_allclose(exact[0], want, rtol=0, atol=1e-7)


def test_pieces_of_a_recording_are_the_recording(model):
    (clip,) = make_clips([2 * STRIP + 30])
    predictor = Predictor(model, WINDOW)
    ((whole, clip_whole),) = predict(predictor, [clip])
    for size in (1, 77, STRIP):
        ((scores, clip_scores),) = predictor.predict([clip.split(size)])
        np.testing.assert_array_equal(scores, whole)
        np.testing.assert_array_equal(clip_scores, clip_whole)
    pieces = list(predictor.stream(clip.split(77)))
    assert len(pieces) > 1
    np.testing.assert_array_equal(np.concatenate([piece for piece, _ in pieces]), whole)
    np.testing.assert_array_equal(np.concatenate([piece for _, piece in pieces]), clip_whole)


def test_the_model_is_not_changed(model):
    before = deepcopy(model.state_dict())
    predict(Predictor(model, WINDOW), make_clips([WINDOW]))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_clips_of_a_store_are_normalised_and_keep_their_labels_and_grid(model):
    config = FeatureConfig(sample_rate=8000, n_mels=N_MELS, f_max=4000, mean=(0.5,), std=(2.0,))
    names, labels = ("a.wav", "b.wav", "c.wav"), ("cat", "dog", "owl")
    own = make_clips([80, 500, 80])
    store = {name: clip.half().numpy() for name, clip in zip(names, own, strict=True)}
    clips = Manifest(names[::-1], [Path(name) for name in names[::-1]], [()] * 3, labels)
    predictor = Predictor(model, WINDOW)
    found = predict_clips(predictor, store, clips, config)
    for name, own in zip(clips.files, found, strict=True):
        raw = torch.from_numpy(store[name].astype(np.float32))
        features = Normalise(config.mean, config.std)(raw)
        ((scores, clip_scores),) = predict(predictor, [features])
        np.testing.assert_allclose(own.scores, scores, rtol=0, atol=1e-6)
        np.testing.assert_allclose(own.clip_scores, clip_scores, rtol=0, atol=1e-6)
        assert (own.labels, own.grid) == (labels, GRID)


def test_the_scores_of_an_ensemble_are_their_mean():
    rng = np.random.default_rng(0)

    def scores(n_frames):
        values = rng.random((n_frames, 2), dtype=np.float32)
        duration = GRID.onset(n_frames) - 0.01
        return FrameScores(values, ["cat", "dog"], GRID, duration=duration, clip_scores=values[0])

    networks = [[scores(5), scores(8)] for _ in range(3)]
    for at, mean in enumerate(mean_scores(iter(networks))):
        own = [network[at] for network in networks]
        np.testing.assert_allclose(mean.scores, np.mean([x.scores for x in own], axis=0), rtol=1e-6)
        clip_scores = np.mean([x.clip_scores for x in own], axis=0)
        np.testing.assert_allclose(mean.clip_scores, clip_scores, rtol=1e-6)
        assert (mean.labels, mean.grid) == (own[0].labels, GRID)
        assert mean.duration == own[0].duration
        np.testing.assert_array_equal(mean_scores([networks[0]])[at].scores, own[0].scores)


def test_an_ensemble_needs_networks_and_clip_level_scores():
    with pytest.raises(SettingError, match="one network or more"):
        mean_scores([])
    with pytest.raises(SettingError, match="need clip-level scores"):
        mean_scores([[FrameScores([[0.5]], ["dog"], GRID)]])


ON_SEGMENTS = {
    "emsi": EmsiConfig(n_classes=2, n_mels=N_MELS, windows=(50,), channels=(4, 4)),
    "mlms": MlmsConfig(2, n_samples=8, nets=((2,) * 6,), channels=(2, 4, 8), n_hidden=(8,)),
}


@pytest.mark.parametrize("name", ON_SEGMENTS)
@pytest.mark.parametrize("window", [100, 150, 200, 500])
def test_windows_of_a_long_recording_begin_where_a_segment_does(name, window):
    config = ON_SEGMENTS[name]
    assert config.segment == 50
    predictor = Predictor(config.build().eval(), window)
    recording = torch.zeros(1737, config.n_features)
    windows = list(predictor._score([[recording]]))
    assert all(4 * own.start % config.segment == 0 for own in windows)
    ends = [own.start + len(own.frame_scores) for own in windows]
    assert all(own.start <= end for own, end in zip(windows[1:], ends, strict=False))
    assert ends[-1] == config.n_frames(1737)


@pytest.mark.parametrize("n_frames", [500, 523, 800, 1737, 3999])
def test_seconds_of_a_long_recording_are_those_of_the_whole(n_frames):
    """A network on windows of 1 s scores each second for itself, wherever longer windows begin."""
    torch.manual_seed(0)
    network = ON_SEGMENTS["emsi"].build().eval()
    (recording,) = make_clips([n_frames])
    with torch.no_grad():
        whole = network(recording.unsqueeze(0)).frame_probs[0].numpy()
    ((scores, _),) = predict(Predictor(network, 500), [recording])
    assert whole.std() > 1e-3
    np.testing.assert_allclose(scores, whole, atol=1e-6)


def test_a_window_shorter_than_a_segment_is_predicted_all_the_same():
    predictor = Predictor(ON_SEGMENTS["emsi"].build().eval(), 40)
    ((scores, _),) = predict(predictor, make_clips([130]))
    assert len(scores) == 33


@pytest.mark.parametrize("step", [16, 50])
@pytest.mark.parametrize("n_frames", [1, 3, WINDOW - 1, WINDOW, WINDOW + 1, 5 * WINDOW + 7])
def test_a_live_recording_has_the_scores_of_the_whole(model, step, n_frames):
    (clip,) = make_clips([n_frames])
    predictor = Predictor(model, WINDOW)
    ((whole, clip_whole),) = predict(predictor, [clip])
    pieces = list(predictor.stream(clip.split(7), step))
    for scores, want in zip(zip(*pieces, strict=True), (whole, clip_whole), strict=True):
        np.testing.assert_allclose(np.concatenate(scores), want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("step", [10, 50])
def test_scores_of_a_live_recording_come_within_the_stated_delay(model, step):
    (clip,) = make_clips([6 * WINDOW])
    predictor, pool = Predictor(model, WINDOW), model.config.time_pool
    n_read = 0

    def read():
        nonlocal n_read
        for frame in clip.split(1):
            n_read += 1
            yield frame

    n_final, delays = 0, []
    for scores, _ in predictor.stream(read(), step):
        delays.append(n_read - n_final - pool)  # behind the first frame of the piece
        n_final += len(scores) * pool
    in_time = [delay for delay in delays[:-1] if delay]
    assert predictor.delay(step) - pool <= max(in_time) <= predictor.delay(step)
