"""The GRU for training is torch's own: values and gradients, with padding and without."""

import pytest
import torch
from torch.autograd import gradcheck

from earmark.nn.recurrent import BiGRU
from earmark.runtime.gru import bidirectional_gru
from earmark.runtime.switch import VARIABLE

MASK = torch.arange(9) < torch.tensor([[9], [4], [1], [0]])


def both(gru, features, mask, monkeypatch, kernels):
    """The output of valid frames, and the gradients of a weighted sum of it."""
    monkeypatch.setenv(VARIABLE, kernels)
    gru.zero_grad()
    features = features.clone().requires_grad_()
    hidden = gru(features, mask)
    if mask is not None:
        hidden = hidden * mask.unsqueeze(2)
    weights = torch.linspace(-1, 1, hidden.numel(), dtype=hidden.dtype).view(hidden.shape)
    (hidden * weights).sum().backward()
    return [hidden.detach(), features.grad, *(x.grad.clone() for x in gru.parameters())]


@pytest.mark.parametrize("n_frames", [1, 9])
@pytest.mark.parametrize("mask", [None, MASK], ids=["all valid", "padded"])
def test_values_and_gradients_are_torchs(mask, n_frames, monkeypatch):
    gru, features = BiGRU(5, 3).double().train(), torch.randn(4, n_frames, 5).double()
    mask = None if mask is None else mask[:, :n_frames]
    ours, torchs = (both(gru, features, mask, monkeypatch, x) for x in ("earmark", "torch"))
    for own, other in zip(ours, torchs, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-10, atol=1e-12)


def test_the_output_is_zero_at_padding_whatever_is_there():
    gru, features = BiGRU(5, 3).train(), torch.randn(4, 9, 5)
    hidden = gru(features, MASK)
    assert not hidden[~MASK].any()
    assert hidden[MASK].abs().min() > 0
    other = torch.where(MASK.unsqueeze(2), features, 99.0)
    torch.testing.assert_close(gru(other, MASK), hidden)


@pytest.mark.parametrize("mask", [None, MASK[:, :5]], ids=["all valid", "padded"])
def test_gradients_are_those_of_finite_differences(mask):
    gates = torch.randn(4, 5, 2, 6).double().requires_grad_()
    weight = torch.randn(2, 6, 2).double().requires_grad_()
    bias = torch.randn(2, 6).double().requires_grad_()
    assert gradcheck(lambda *x: bidirectional_gru(*x, mask), (gates, weight, bias))


def test_under_autocast_the_steps_are_in_single_precision(monkeypatch):
    gru, features = BiGRU(5, 3).train(), torch.randn(4, 9, 5)
    exact = gru(features)
    with torch.autocast("cpu", torch.bfloat16):
        hidden = gru(features)
    assert hidden.dtype == torch.float32
    torch.testing.assert_close(hidden, exact, atol=0.02, rtol=0.02)


def test_no_clip_and_evaluation_are_torchs(monkeypatch):
    assert BiGRU(5, 3).train()(torch.zeros(0, 9, 5), MASK[:0]).shape == (0, 9, 6)
    gru = BiGRU(5, 3).eval()
    monkeypatch.setattr("earmark.nn.recurrent.bidirectional_gru", None)
    assert gru(torch.zeros(2, 9, 5)).shape == (2, 9, 6)
