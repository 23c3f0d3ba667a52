"""Validation: loss and metrics of known probabilities, and the clips of every process."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tones import RATE, write_tones

from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import build_store
from earmark.inference.predictor import Predictor, read_log_mels
from earmark.nn.model import Model, ModelConfig
from earmark.training.validation import predict_clip_probs, validate


@pytest.fixture
def clips():
    files = ["a", "b", "c", "d", "e"]
    tags = [["cat"], ["dog"], [], ["cat", "dog"], ["dog"]]
    return Manifest(files, [Path(name) for name in files], tags, ["cat", "dog"])


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 8])
def test_loss_and_metrics_are_over_all_clips_whatever_the_batches(clips, batch_size):
    probs = [[0.9, 0.4], [0.3, 0.5], [0.6, 0.1], [0.8, 0.3], [0.1, 0.7]]
    targets = [[1, 0], [0, 1], [0, 0], [1, 1], [0, 1]]
    terms = [
        -math.log(p if is_tagged else 1 - p)
        for row, tagged in zip(probs, targets, strict=True)
        for p, is_tagged in zip(row, tagged, strict=True)
    ]
    found = validate(torch.tensor(probs), clips, batch_size)
    assert found.loss == pytest.approx(sum(terms) / 10)
    # At 0.5 or more: 4 tags are right, the cat of c is wrong, the dog of d is missed.
    assert found.f1 == pytest.approx(2 * 4 / (2 * 4 + 1 + 1))
    # All cats are before c; of the three dogs, a is before that of d.
    assert found.mean_average_precision == pytest.approx((1 + (1 + 1 + 3 / 4) / 3) / 2)


def test_the_f1_without_any_tag_detected_is_0(clips):
    assert validate(torch.full((5, 2), 0.25), clips, batch_size=2).f1 == 0


def process(rank, n_processes):
    """Return one of several processes, whose sum is taken by the test."""
    return SimpleNamespace(
        global_rank=rank,
        world_size=n_processes,
        device=torch.device("cpu"),
        all_reduce=lambda probs, reduce_op: {"sum": probs}[reduce_op],
    )


@pytest.fixture
def setup(tmp_path):
    """A small network with random weights, and three clips of 4 s with their features."""
    write_tones(tmp_path, 3)
    features = FeatureConfig(sample_rate=RATE, n_mels=16, f_max=4000)
    small = {"channels": [8, 8, 8, 8], "last_channels": 16, "n_recurrent": 8, "n_mels": 16}
    torch.manual_seed(0)
    model = Model(ModelConfig.preset("fast", n_classes=2, **small))
    clips = Manifest.read(tmp_path / "clip_weak.tsv", tmp_path / "audio")
    store = build_store(tmp_path / "features", clip_paths(clips), features)
    return model, clips, store, features


def test_every_process_has_its_clips_and_the_sum_is_that_of_the_network(setup):
    model, clips, store, features = setup
    parts = [predict_clip_probs(process(rank, 2), *setup, window=4.0) for rank in (0, 1)]
    assert [(part > 0).all(dim=1).tolist() for part in parts] == [
        [True, False, True],
        [False, True, False],
    ]
    with torch.no_grad():
        whole = [
            model(torch.cat(list(pieces))[None]).clip_probs[0]
            for pieces in read_log_mels(store, clips.files, features)
        ]
    torch.testing.assert_close(sum(parts), torch.stack(whole), rtol=0, atol=1e-5)


def test_a_clip_longer_than_the_window_has_the_highest_of_its_windows(setup):
    model, clips, store, features = setup
    probs = predict_clip_probs(process(0, 1), *setup, window=1.0)
    predictor = Predictor(model, features.grid.count(1.0))
    by_window = predictor.predict(read_log_mels(store, clips.files, features))
    for row, (_, clip_scores) in zip(probs, by_window, strict=True):
        assert (clip_scores.min(axis=0) < clip_scores.max(axis=0)).all()
        assert row.tolist() == pytest.approx([max(own) for own in clip_scores.T.tolist()])
