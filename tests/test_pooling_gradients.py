"""The paper's closed forms against automatic differentiation, in double precision."""

import pytest
import torch

from earmark.errors import SettingError
from earmark.pooling import POOLINGS, gradients, linear_pool, pool
from earmark.pooling.gradients import PAPER_WEIGHTS, closed_form
from earmark.pooling.weightings import Linear

TOLERANCE = 1e-9
FIVE = ["max", "average", "linear", "exp", "attention"]
STAGES = [(), (5,), (25,), (5, 5), (5, 5, 5), (25, 5), (5, 25), (125,)]


def clip(seed=0, n_frames=125):
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(n_frames, generator=rng, dtype=torch.float64)
    w = torch.randn(n_frames, generator=rng, dtype=torch.float64).softmax(0)
    return x.requires_grad_(), w.requires_grad_()


def weights_of(name, x, w):
    return (
        w
        if name == "attention"
        else POOLINGS[name].frame_weights(x[None, :, None], mask(x)).flatten()
    )


def mask(x):
    return torch.ones(1, len(x), 1, dtype=torch.bool)


def autograd(name, x, w, stages):
    """dy/dx through the weights, and dy/dw with independent weights."""
    free = weights_of(name, x, w)
    if name == "exp":
        free = x.exp()  # Table 1 to the letter, without the scale that our weights leave out
    if name == "average":
        free = torch.full_like(x, 1 / len(x))
    y = pool(x[None, :, None], free[None, :, None], stages=stages)[-1].probs.squeeze()
    (dx,) = torch.autograd.grad(y, x, retain_graph=True)
    leaf = free.detach().requires_grad_()
    y = pool(x.detach()[None, :, None], leaf[None, :, None], stages=stages)[-1].probs.squeeze()
    (dw,) = torch.autograd.grad(y, leaf)
    return dx, dw


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("name", FIVE)
def test_the_chain_rule_equals_autograd_at_any_number_of_stages(name, stages, seed):
    x, w = clip(seed)
    got = closed_form(name, x.detach(), w.detach() if name == "attention" else None, stages)
    dx, dw = autograd(name, x, w, stages)
    assert (got.dx - dx).abs().max() < TOLERANCE
    assert (got.dw - dw).abs().max() < TOLERANCE * max(1, dw.abs().max().item())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("length", [1, 5, 25, 125])
def test_every_equation_as_printed_equals_autograd(length, seed):
    x, w = clip(seed)
    frames, weights = x.detach(), w.detach()
    printed = {
        "linear": gradients.linear_dx(frames, length),
        "exp": gradients.exp_dx(frames, length),
        "average": gradients.average_dx(frames),
        "max": gradients.max_dx(frames),
        "attention": gradients.attention_dx(frames, weights, length),
    }
    for name, want in printed.items():
        dx, dw = autograd(name, x, w, (length,))
        assert (dx - want).abs().max() < TOLERANCE, name
        if name == "attention":
            assert (dw - gradients.attention_dw(frames, weights, length)).abs().max() < TOLERANCE


def test_equation_6_equals_autograd():
    x, _ = clip()
    y = linear_pool(x[None, :, None]).squeeze()
    (dx,) = torch.autograd.grad(y, x)
    assert (gradients.linear_single_dx(x.detach()) - dx).abs().max() < TOLERANCE


def test_the_hierarchy_of_linear_softmax_is_linear_softmax_again_and_again():
    x, _ = clip()
    level, product = x.detach(), torch.ones(125, dtype=torch.float64)
    for _ in range(3):
        parts = level.reshape(-1, 5)
        pooled = parts.square().sum(1) / parts.sum(1)
        factor = (2 * parts - pooled[:, None]) / parts.sum(1, keepdim=True)
        product = product * factor.flatten().repeat_interleave(125 // len(level))
        level = pooled
    assert linear_pool(x[None, :, None], stages=(5, 5, 5)).item() == pytest.approx(level.item())
    dx, _ = autograd("linear", x, None, (5, 5, 5))
    assert (dx - product).abs().max() < TOLERANCE


def test_single_level_pooling_is_the_special_case_of_the_appendix():
    x, w = clip()
    segments_of_one = closed_form("attention", x.detach(), w.detach(), (1,))
    single = closed_form("attention", x.detach(), w.detach(), ())
    torch.testing.assert_close(segments_of_one.dx, single.dx)


def test_the_misprinted_denominator_of_the_appendix_is_indeed_wrong():
    x, w = clip()
    s = gradients._segments(x.detach(), x.detach().exp(), 5)
    printed = gradients.exp_dx(x.detach(), 5) * s.w_hat_sum / s.x_hat[::5].sum()
    dx, _ = autograd("exp", x, w, (5,))
    assert (printed - dx).abs().max() > 1e-3


def test_modules_and_closed_forms_agree_through_their_own_weights():
    x, _ = clip()
    y = pool(x[None, :, None], Linear.frame_weights, stages=(5, 5, 5))[-1].probs.squeeze()
    (dx,) = torch.autograd.grad(y, x)
    assert (closed_form("linear", x.detach(), stages=(5, 5, 5)).dx - dx).abs().max() < TOLERANCE


@pytest.mark.parametrize("stages", [(), (5,), (5, 5, 5)])
@pytest.mark.parametrize("name", ["max", "average", "linear", "exp"])
def test_a_clip_of_zeros_has_the_gradient_that_autograd_gives_it(name, stages):
    x = torch.zeros(125, dtype=torch.float64, requires_grad=True)
    dx, _ = autograd(name, x, None, stages)
    torch.testing.assert_close(closed_form(name, x.detach(), stages=stages).dx, dx)
    if name == "linear":
        assert dx.eq(0).all()
        assert gradients.linear_single_dx(x.detach()).eq(0).all()
        assert gradients.linear_dx(x.detach(), 5).eq(0).all()


def test_attention_without_weight_has_no_gradient_in_x():
    x, _ = clip()
    nothing = torch.zeros(125, dtype=torch.float64)
    for stages in ((), (5, 5, 5)):
        assert closed_form("attention", x.detach(), nothing, stages).dx.eq(0).all()
    assert gradients.attention_dx(x.detach(), nothing, 5).eq(0).all()
    assert gradients.attention_dw(x.detach(), nothing, 5).isfinite().all()


def test_exp_raises_every_frame_in_single_level_pooling_but_not_in_a_hierarchy():
    for seed in range(3):
        assert (closed_form("exp", clip(seed)[0].detach()).dx > 0).all()
    x = torch.full((125,), 0.95, dtype=torch.float64)
    x[:25], x[0] = 0.02, 0.95
    assert (closed_form("exp", x).dx > 0).all()
    pushed = closed_form("exp", x, stages=(5, 5, 5)).dx
    assert pushed[0].item() == pytest.approx(-0.0075, abs=1e-4)  # a single high frame in a low part
    assert (pushed[1:] > 0).all()
    dx, _ = autograd("exp", x.requires_grad_(), None, (5, 5, 5))
    assert (pushed - dx).abs().max() < TOLERANCE


def test_wrong_use_is_an_error():
    x, w = clip()
    with pytest.raises(SettingError, match="segment length 7"):
        closed_form("linear", x, stages=(7,))
    with pytest.raises(SettingError, match="only with attention"):
        closed_form("attention", x)
    with pytest.raises(SettingError, match="only with attention"):
        closed_form("linear", x, w)
    with pytest.raises(SettingError, match="Known: attention, average"):
        closed_form("noisy-or", x)
    assert {*PAPER_WEIGHTS, "attention"} == set(FIVE)
