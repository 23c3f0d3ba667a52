"""The loss: padding and unknown targets are ignored."""

import math

import pytest
import torch

from earmark.errors import SettingError
from earmark.nn.loss import clip_loss, contrast_loss, frame_loss
from earmark.nn.model import Model, ModelConfig
from earmark.pooling import linear_pool


def test_it_is_the_cross_entropy_of_the_appendix():
    y, t = torch.tensor([[0.9, 0.2]]), torch.tensor([[1.0, 0.0]])
    want = (-math.log(0.9) - math.log(0.8)) / 2
    assert clip_loss(y, t).item() == pytest.approx(want)


def test_clips_without_a_valid_frame_are_ignored():
    y, t = torch.tensor([[0.9], [0.1]]), torch.ones(2, 1)
    mask = torch.tensor([[True, True], [False, False]])
    assert clip_loss(y, t, mask) == clip_loss(y[:1], t[:1])


def test_padding_is_ignored():
    y = torch.tensor([[[0.9], [0.3], [float("nan")]]], requires_grad=True)
    t = torch.ones(1, 3, 1)
    loss = frame_loss(y, t, torch.tensor([[True, True, False]]))
    assert loss.item() == frame_loss(y[:, :2], t[:, :2]).item()
    loss.backward()
    assert y.grad[0, 2] == 0


def test_unknown_targets_are_ignored():
    y, t = torch.tensor([[0.9, 0.5]]), torch.tensor([[1.0, float("nan")]])
    assert clip_loss(y, t) == clip_loss(y[:, :1], t[:, :1])


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_wrong_certainty_has_a_large_but_finite_loss(value):
    y = torch.tensor([[value]], requires_grad=True)
    loss = clip_loss(y, torch.tensor([[1 - value]]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-7), rel=0.02)  # 1 - 1e-7 is rounded
    assert y.grad.isfinite().all()


def test_one_clip_beyond_rounding_has_no_larger_gradient_than_one_before_it():
    def steepest(logit):
        logits = torch.full((1, 1), logit, requires_grad=True)
        clip_loss(logits.sigmoid(), torch.zeros(1, 1)).backward()
        return logits.grad.abs().item()

    assert steepest(12.0) == pytest.approx(1, rel=0.05)
    assert max(map(steepest, (14.0, 15.5, 16.0, 17.0, 30.0))) < 2


def test_without_any_known_target_the_loss_is_zero():
    assert clip_loss(torch.tensor([[0.5]]), torch.tensor([[float("nan")]])) == 0


def test_it_works_under_autocast_in_single_precision():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = clip_loss(torch.tensor([[1e-6]], dtype=torch.bfloat16), torch.ones(1, 1))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(-math.log(1e-6), rel=1e-2)


def test_shapes_must_agree():
    with pytest.raises(SettingError, match=r"Got \(1, 2\) and \(1, 3\)"):
        clip_loss(torch.rand(1, 2), torch.rand(1, 3))


def test_the_loss_of_a_batch_is_the_mean_of_its_micro_batches():
    y, t = torch.rand(4, 10, 3), (torch.rand(4, 10, 3) < 0.3).float()
    mask = torch.arange(10) < torch.tensor([10, 10, 2, 3])[:, None]
    parts = [frame_loss(y[piece], t[piece], mask[piece]) for piece in (slice(0, 2), slice(2, 4))]
    torch.testing.assert_close(frame_loss(y, t, mask), sum(parts) / 2)


def test_a_clip_without_any_annotated_frame_does_not_dilute_the_loss_of_the_others():
    probs = torch.full((2, 3, 1), 0.5)
    targets = torch.stack([torch.ones(3, 1), torch.full((3, 1), float("nan"))])
    assert frame_loss(probs, targets).item() == pytest.approx(math.log(2))


def contrast_by_hand(probs, targets, lengths, share):
    """The definition as loops over clips and classes."""
    total = weight = 0.0
    for clip, n_frames in enumerate(lengths):
        for label in range(targets.shape[1]):
            own = sorted(probs[clip, :n_frames, label].tolist())
            n_ends = max(1, math.ceil(share * n_frames))
            distance = (sum(own[-n_ends:]) - sum(own[:n_ends])) / n_ends
            total += targets[clip, label].item() * (1 - distance)
            weight += targets[clip, label].item()
    return total / max(1.0, weight)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.34, 1.0])
def test_the_contrast_is_its_definition_written_as_loops(share):
    probs = torch.rand(3, 25, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets, lengths = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.5, 0.0]]).double(), [25, 13, 1]
    mask = torch.arange(25) < torch.tensor(lengths)[:, None]
    want = contrast_by_hand(probs, targets, lengths, share)
    assert contrast_loss(probs, targets, mask, share).item() == pytest.approx(want)
    junk = probs.masked_fill(~mask.unsqueeze(2), 7.0)
    assert contrast_loss(junk, targets, mask, share).item() == pytest.approx(want)


def test_the_contrast_raises_the_highest_frames_and_lowers_the_lowest():
    x = torch.tensor([[[0.9], [0.5], [0.4], [0.1]]], requires_grad=True)
    contrast_loss(x, torch.ones(1, 1)).backward()
    assert x.grad.flatten().tolist() == [-1, 0, 0, 1]


def test_the_contrast_ignores_unknown_targets_and_clips_without_a_frame():
    x = torch.rand(2, 8, 2)
    nothing = torch.zeros(2, 8, dtype=torch.bool)
    assert contrast_loss(x, torch.ones(2, 2), nothing) == 0
    known = contrast_loss(x[..., :1], torch.ones(2, 1))
    assert contrast_loss(x, torch.tensor([[1.0, float("nan")]] * 2)) == known


def test_the_level_loss_is_the_mean_loss_of_the_levels_below_the_clip():
    torch.manual_seed(0)
    config = ModelConfig.preset("paper-fast", n_classes=2, stages=(5, 5, 5), n_recurrent=0)
    model = Model(config).train()
    prediction = model(torch.randn(2, 500, 80))
    targets = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    below = [linear_pool(prediction.frame_probs, stages=stages) for stages in ((), (5,))]
    want = torch.stack([clip_loss(probs, targets) for probs in below]).mean()
    torch.testing.assert_close(model.level_loss(prediction, targets), want)
    model.level_loss(prediction, targets).backward()
    assert model.classifier.weight.grad.abs().sum() > 0
    single = Model(config.changed(stages=())).train()
    assert single.level_loss(single(torch.randn(2, 500, 80)), targets) == 0
    assert model.eval()(torch.randn(2, 500, 80)).stages == ()
