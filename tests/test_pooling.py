"""Contracts that every registered pooling keeps, and facts about the hierarchy."""

import itertools
import math
from inspect import signature

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import earmark.pooling as pooling_package
from earmark.errors import SettingError
from earmark.nn.model import Model, ModelConfig
from earmark.pooling import (
    POOLINGS,
    STAGE_WEIGHTS,
    Pooling,
    Weighting,
    attention_pool,
    auto_pool,
    average_pool,
    class_attention_pool,
    exp_pool,
    linear_pool,
    max_pool,
    noisy_or_pool,
    pool,
    power_pool,
    prior_attention_pool,
)
from earmark.pooling.functions import FUNCTIONS, make_function
from earmark.pooling.stages import segment_means
from earmark.training.settings import Settings

N_HIDDEN, N_CLASSES = 6, 3
STAGES = [(), (5,), (5, 5), (5, 5, 5), (4, 3), (7,), (1,), (1000,), (2, 2, 2, 2, 2, 2, 2)]
MEANS = [name for name, weighting in POOLINGS.items() if weighting.has_weights]
ALL = [
    (name, rule)
    for name, rule in itertools.product(POOLINGS, STAGE_WEIGHTS)
    if name in MEANS or rule != "learned"
]
ATTENTIONS = [name for name in POOLINGS if name.endswith("attention")]
every_pooling = pytest.mark.parametrize(("name", "rule"), ALL)


def make(name, stages=(5, 5, 5), rule="self", dtype=torch.float64):
    torch.manual_seed(0)
    return Pooling(name, stages, rule, n_hidden=N_HIDDEN, n_classes=N_CLASSES).to(dtype)


def bags(n_frames, batch=2, dtype=torch.float64, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.rand(batch, n_frames, N_CLASSES, generator=rng, dtype=torch.float64).to(dtype)
    u = torch.randn(batch, n_frames, N_HIDDEN, generator=rng, dtype=torch.float64).to(dtype)
    return x, u


def brute_force(x, w, stages, rule, logits=None):
    """The paper's sums as loops over Python lists, one clip and class; w^_j of `rule`."""
    x, w = list(x), list(w)
    for step, length in enumerate(stages):
        next_x, next_w = [], []
        for j, start in enumerate(range(0, len(x), length)):
            xs, ws = x[start : start + length], w[start : start + length]
            total = math.fsum(ws)
            next_x.append(math.fsum(a * b for a, b in zip(xs, ws, strict=True)) / total)
            if rule == "self":
                next_w.append(math.fsum(b * b for b in ws) / total)
            elif rule == "mean":
                next_w.append(total / len(ws))
            else:
                next_w.append(math.exp(logits[step][j]))
        x, w = next_x, next_w
    return math.fsum(a * b for a, b in zip(x, w, strict=True)) / math.fsum(w)


PLAIN_WEIGHTS = {
    "average": np.ones_like,
    "linear": lambda x: x,
    "exp": np.exp,
    "auto": lambda x: np.exp(2.5 * x),
    "power": lambda x: x**2.5,
}


@pytest.mark.parametrize("rule", STAGE_WEIGHTS)
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("name", PLAIN_WEIGHTS)
def test_pooling_equals_its_formula_written_as_loops(name, stages, rule):
    x, u = bags(33)
    pooling = make(name, stages, rule)
    for parameter in pooling.weighting.parameters():
        torch.nn.init.constant_(parameter, 2.5)
    got = pooling(x, u)
    for b, c in itertools.product(range(2), range(N_CLASSES)):
        logits, mean = [], u[b].numpy()
        for step, length in enumerate(stages):
            parts = [mean[i : i + length].mean(0) for i in range(0, len(mean), length)]
            mean = np.stack(parts)
            if rule == "learned":
                layer = pooling.stage_layers[step]
                weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
                logits.append((mean @ weight.T + bias)[:, c])
        column = x[b, :, c].numpy()
        want = brute_force(column, PLAIN_WEIGHTS[name](column), stages, rule, logits)
        assert got[b, c].item() == pytest.approx(want, abs=1e-13)


@pytest.mark.parametrize("stages", STAGES)
def test_functions_and_modules_are_equal(stages):
    x, u = bags(33)
    mask = torch.arange(33).expand(2, 33) < torch.tensor([[33], [17]])
    for rule in ("self", "mean"):
        for name in POOLINGS:
            pooling = make(name, stages, rule)
            function = FUNCTIONS[f"{name.replace('-', '_')}_pool"]
            want = function(x, *pooling.weighting.arguments(u), mask, stages, stage_weights=rule)
            torch.testing.assert_close(pooling(x, u, mask), want, atol=1e-15, rtol=0)
    logits = make("attention").weighting.layer(u)
    assert attention_pool(x, logits, mask, stages, "classes").equal(
        class_attention_pool(x, logits, mask, stages)
    )


def test_attention_from_probabilities_is_surreys_formula():
    x, _ = bags(33)
    layer = make("probs-attention", ()).weighting.layer
    logits = x.numpy() @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    w = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    want = (w * x.numpy()).sum(1) / np.clip(w, 1e-7, 1).sum(1)
    got = make("probs-attention", ())(x).detach().numpy()
    np.testing.assert_allclose(got, want, atol=1e-13)
    assert POOLINGS["probs-attention"].mixes_classes


def test_attention_with_a_prior_is_its_formula_and_linear_softmax_without_attention():
    x, u = bags(33)
    pooling = make("prior-attention", ())
    layer = pooling.weighting.layer
    logits = u.numpy() @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    w = x.numpy() * np.exp(logits)
    want = (w * x.numpy()).sum(1) / w.sum(1)
    np.testing.assert_allclose(pooling(x, u).detach().numpy(), want, atol=1e-13)
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    for stages in ((), (5, 5)):
        same = Pooling("prior-attention", stages, n_hidden=N_HIDDEN, n_classes=N_CLASSES).double()
        same.load_state_dict(pooling.state_dict())
        torch.testing.assert_close(same(x, u), linear_pool(x, stages=stages))


def test_the_gradient_of_attention_with_a_prior_is_that_of_the_documentation():
    x, logits = (torch.rand(1, 20, 1, dtype=torch.float64).requires_grad_() for _ in range(2))
    y = prior_attention_pool(x, logits)
    of_x, of_logits = torch.autograd.grad(y, (x, logits))
    e = logits.exp()
    total = (x * e).sum()
    torch.testing.assert_close(of_x, e * (2 * x - y) / total)
    torch.testing.assert_close(of_logits, x * e * (x - y) / total)


def test_the_gradient_of_power_pooling_is_that_of_the_documentation():
    x = torch.rand(1, 20, 1, dtype=torch.float64).requires_grad_()
    n = torch.tensor([1.7], dtype=torch.float64, requires_grad=True)
    y = power_pool(x, n)
    of_x, of_n = torch.autograd.grad(y, (x, n))
    total = (x**n).sum()
    torch.testing.assert_close(of_x, x ** (n - 1) * ((n + 1) * x - n * y) / total)
    torch.testing.assert_close(of_n, ((x**n * x.log()) * (x - y)).sum()[None] / total)


@every_pooling
def test_the_lowest_level_gives_what_single_level_pooling_gives(name, rule):
    x, u = bags(125)
    pooling = make(name, (5, 5, 5), rule)
    levels = pooling(x, u, return_stages=True)[1]
    lower = pooling.lower_levels(levels)
    assert len(lower) == 2
    torch.testing.assert_close(lower[0], make(name, ())(x, u))
    if rule == "self" and name in MEANS:
        torch.testing.assert_close(lower[1], make(name, (5,))(x, u))
    assert pooling.lower_levels(levels[2:]) == []
    single = make(name, ())
    assert single.lower_levels(single(x, u, return_stages=True)[1]) == []


def test_sigmoid_attention_is_the_formula_of_gccaps():
    x, u = bags(33)
    pooling = make("sigmoid-attention", ())
    torch.nn.init.constant_(pooling.weighting.layer.bias, -15.0)  # some weights are cut at 1e-7
    logits = pooling.weighting.layer(20 * u).detach().numpy()
    a = np.clip(1 / (1 + np.exp(-logits)), 1e-7, 1)
    assert (a == 1e-7).any()
    want = (a * x.numpy()).sum(1) / a.sum(1)
    np.testing.assert_allclose(pooling(x, 20 * u).detach().numpy(), want, atol=1e-13)
    assert not POOLINGS["sigmoid-attention"].mixes_classes


def test_every_pooling_has_a_function_in_the_package_that_documents_itself():
    for name, weighting in POOLINGS.items():
        function = getattr(pooling_package, f"{name.replace('-', '_')}_pool")
        assert function.__name__ in pooling_package.__all__
        assert function.__doc__.startswith(weighting.__doc__.partition("\n")[0])
        assert weighting.formula
        assert weighting.example[0].startswith(f"{function.__name__}(")
    names = {name: list(signature(function).parameters) for name, function in FUNCTIONS.items()}
    shared = ["mask", "stages", "stage_weights"]
    assert names["max_pool"] == names["noisy_or_pool"] == ["frame_probs", *shared]
    assert names["power_pool"] == ["frame_probs", "exponent", *shared]
    assert names["attention_pool"] == [
        "frame_probs", "logits", "mask", "stages", "over", "stage_weights"
    ]  # fmt: skip


def test_a_new_pooling_is_one_class_and_one_line(monkeypatch):
    class Square(Weighting):
        """w = x^2."""

        formula = "x²"
        example = ("square_pool(frame_probs)", "tensor([[0.4471, 0.8902]])")

        @staticmethod
        def frame_weights(frame_probs, mask):
            return frame_probs**2

    monkeypatch.setitem(POOLINGS, "square", Square)
    x, _ = bags(33)
    want = power_pool(x, 2.0, stages=(5, 5))
    torch.testing.assert_close(Pooling("square", (5, 5))(x), want)
    torch.testing.assert_close(make_function("square", Square)(x, stages=(5, 5)), want)
    config = ModelConfig.preset("paper-fast", n_classes=3, pooling="square", stages=())
    assert Model(config).pooling.name == "square"
    assert Settings.load("fast", overrides=["model.pooling=square"]).model.pooling == "square"


def test_a_function_that_is_called_wrongly_raises():
    with pytest.raises(TypeError, match="missing a required argument: 'logits'"):
        attention_pool(bags(4)[0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'masc'"):
        max_pool(bags(4)[0], masc=None)


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("stages", [(5,), (5, 5), (5, 5, 5), (25, 5), (125,)])
def test_the_formula_first_published_is_single_level_pooling(name, stages):
    x, u = bags(125)
    difference = make(name, stages, "mean")(x, u) - make(name, ())(x, u)
    assert difference.abs().max() < 1e-12


@pytest.mark.parametrize("name", ["linear", "exp", "attention", "auto", "power", "prior-attention"])
def test_the_corrected_formula_is_not_single_level_pooling(name):
    x, u = bags(125)
    difference = make(name, (5, 5, 5))(x, u) - make(name, ())(x, u)
    assert difference.abs().max() > 1e-4


@every_pooling
@pytest.mark.parametrize("length", [125, 126, 10_000])
def test_a_hierarchy_of_one_stage_is_single_level_pooling(name, rule, length):
    x, u = bags(125)
    torch.testing.assert_close(
        make(name, (length,), rule)(x, u), make(name, ())(x, u), atol=1e-15, rtol=0
    )


@pytest.mark.parametrize("name", ["max", "average", "noisy-or"])
@pytest.mark.parametrize("stages", [(5,), (5, 5), (5, 5, 5), (25, 5)])
def test_max_average_and_noisy_or_are_unchanged_by_equal_segments(name, stages):
    x, u = bags(125)
    torch.testing.assert_close(
        make(name, stages)(x, u), make(name, ())(x, u), atol=1e-14, rtol=1e-14
    )


def test_max_is_unchanged_by_any_segments_and_average_is_not():
    x = bags(13)[0]
    torch.testing.assert_close(max_pool(x, stages=(5,)), x.amax(1), atol=0, rtol=0)
    means = torch.stack([part.mean(1) for part in x.split(5, dim=1)], 1).mean(1)
    torch.testing.assert_close(average_pool(x, stages=(5,)), means)
    assert (means - x.mean(1)).abs().max() > 1e-4


@every_pooling
@pytest.mark.parametrize("junk", [0.7, 1.0, math.nan, math.inf])
@pytest.mark.parametrize("stages", [(), (5, 5, 5), (4, 3)])
def test_padding_never_changes_a_score_whatever_it_holds(name, rule, stages, junk):
    x, u = bags(33)
    pooling = make(name, stages, rule)
    alone = pooling(x, u)
    padding = torch.full((2, 92, N_CLASSES), junk, dtype=x.dtype)
    padded = torch.cat([x, padding], 1).requires_grad_()
    hidden_padding = torch.full((2, 92, N_HIDDEN), junk, dtype=x.dtype)
    padded_hidden = torch.cat([u, hidden_padding], 1).requires_grad_()
    mask = torch.arange(125).expand(2, 125) < 33
    scores = pooling(padded, padded_hidden, mask)
    torch.testing.assert_close(scores, alone, atol=1e-14, rtol=0)
    scores.sum().backward()
    assert padded.grad[:, 33:].eq(0).all()
    assert padded.grad.isfinite().all()
    if padded_hidden.grad is not None:
        assert padded_hidden.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in pooling.parameters())


@every_pooling
def test_ragged_bags_in_one_batch_score_as_they_do_alone(name, rule):
    x, u = bags(60, batch=4)
    lengths = [60, 1, 27, 33]
    mask = torch.arange(60).expand(4, 60) < torch.tensor(lengths)[:, None]
    pooling = make(name, (5, 5), rule)
    together = pooling(x, u, mask)
    for i, length in enumerate(lengths):
        alone = pooling(x[i : i + 1, :length], u[i : i + 1, :length])
        torch.testing.assert_close(together[i : i + 1], alone, atol=1e-14, rtol=0)


@pytest.mark.parametrize("name", ["max", "average", "linear", "exp", "power", "noisy-or"])
def test_masks_may_have_gaps_for_single_level_pooling(name):
    x, u = bags(9)
    mask = torch.tensor([[True, False, True] * 3, [False, True, True] * 3])
    got = make(name, ())(x, u, mask)
    for i in range(2):
        want = make(name, ())(x[i : i + 1, mask[i]], u[i : i + 1, mask[i]])
        torch.testing.assert_close(got[i : i + 1], want, atol=1e-15, rtol=0)


def test_with_stages_segments_are_counted_by_position_padding_included():
    x = torch.tensor([[[0.9], [0.1], [0.2], [0.2]]], dtype=torch.float64)
    alone = linear_pool(x, stages=(2,))
    empty = torch.zeros(1, 1, 1, dtype=torch.float64)
    behind, in_front = torch.cat([x, empty], 1), torch.cat([empty, x], 1)
    real = torch.tensor([[True] * 4])
    last, first = torch.nn.functional.pad(real, (0, 1)), torch.nn.functional.pad(real, (1, 0))
    assert linear_pool(behind, last, stages=(2,)).equal(alone)
    # (-, 0.9), (0.1, 0.2), (0.2): another grouping, and another score.
    assert (linear_pool(in_front, first, stages=(2,)) - alone).abs() > 1e-3
    assert linear_pool(in_front, first).equal(linear_pool(x))


@pytest.mark.parametrize("junk", [9.0, -9.0, math.nan, math.inf])
@pytest.mark.parametrize("stages", [(), (5, 5, 5)])
def test_custom_weights_may_hold_anything_at_padding(stages, junk):
    x, _ = bags(33)
    w, _ = bags(33, seed=1)
    mask = torch.arange(33).expand(2, 33) < torch.tensor([[20], [33]])
    filled = w.masked_fill(~mask.unsqueeze(2), junk).requires_grad_()
    got = pool(x, filled, mask, stages)[-1].probs.squeeze(1)
    want = pool(x[:1, :20], w[:1, :20], stages=stages)[-1].probs.squeeze(1)
    torch.testing.assert_close(got[:1], want, atol=1e-15, rtol=0)
    got.sum().backward()
    assert filled.grad.isfinite().all()
    assert filled.grad[0, 20:].eq(0).all()


@pytest.mark.parametrize("over", ["frames", "classes"])
def test_custom_logits_may_hold_anything_at_padding(over):
    x, _ = bags(33)
    logits, _ = bags(33, seed=1)
    mask = torch.arange(33).expand(2, 33) < torch.tensor([[20], [0]])
    filled = logits.masked_fill(~mask.unsqueeze(2), math.nan).requires_grad_()
    got = attention_pool(x, filled, mask, over=over)
    want = attention_pool(x[:1, :20], logits[:1, :20], over=over)
    torch.testing.assert_close(got[:1], want, atol=1e-15, rtol=0)
    assert got[1].eq(0).all()
    got.sum().backward()
    assert filled.grad.isfinite().all()


@every_pooling
def test_a_batch_of_no_clips_gives_no_scores(name, rule):
    x, u = bags(33, batch=0)
    pooling = make(name, rule=rule)
    assert pooling(x, u).shape == (0, N_CLASSES)
    assert pooling(x, u, torch.ones(0, 33, dtype=torch.bool)).shape == (0, N_CLASSES)


@pytest.mark.parametrize("exponent", [-0.5, 0.0])
def test_a_learned_power_recovers_from_zero_and_below(exponent):
    x, _ = bags(33)
    pooling = Pooling("power", stages=(5,)).double()
    torch.nn.init.constant_(pooling.weighting.exponent, exponent)
    optimiser = torch.optim.SGD(pooling.parameters(), lr=1.0)
    target = power_pool(x, 2.0, stages=(5,))
    for _ in range(300):
        loss = (pooling(x) - target).square().sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert abs(pooling.weighting.exponent.item()) == pytest.approx(2.0, abs=0.05)


def test_a_power_never_acts_as_a_negative_one():
    x, _ = bags(33)
    pooling = Pooling("power", stages=()).double()
    for exponent in (-3.0, -0.5, -1e-9, 0.0, 0.5):
        torch.nn.init.constant_(pooling.weighting.exponent, exponent)
        torch.testing.assert_close(pooling(x), power_pool(x, abs(exponent)))
        assert (pooling(x) >= x.mean(1) - 1e-15).all()
    assert power_pool(x, -3.0).equal(power_pool(x, 0.0))


def test_stages_may_be_numpys_integers():
    x, _ = bags(33)
    want = linear_pool(x, stages=(5, 3))
    for stages in (np.array([5, 3]), [np.int64(5), np.uint8(3)]):
        assert linear_pool(x, stages=stages).equal(want)
        assert Pooling("linear", stages).stages == (5, 3)
        assert all(type(length) is int for length in Pooling("linear", stages).stages)


floats_32 = st.floats(0, 1, width=32)


@pytest.mark.parametrize("rule", ["self", "mean", "learned"])
@pytest.mark.parametrize("name", MEANS)
@settings(deadline=None, max_examples=40)
@given(frames=st.lists(floats_32, min_size=1, max_size=40), stages=st.sampled_from(STAGES))
def test_weighted_means_lie_within_the_range_of_their_frames_to_the_last_bit(
    name, rule, frames, stages
):
    x = torch.tensor(frames, dtype=torch.float32).reshape(1, -1, 1).repeat(1, 1, N_CLASSES)
    u = torch.linspace(-9, 9, len(frames) * N_HIDDEN).reshape(1, -1, N_HIDDEN)
    x = x.requires_grad_()
    y = make(name, stages, rule, torch.float32)(x, u)
    assert min(frames) <= y.min().item()
    assert y.max().item() <= max(frames)
    y.sum().backward()
    assert x.grad.isfinite().all()


@settings(deadline=None)
@given(frames=st.lists(floats_32, min_size=1, max_size=40), stages=st.sampled_from(STAGES))
def test_noisy_or_lies_between_its_largest_frame_and_one(frames, stages):
    x = torch.tensor(frames, dtype=torch.float64).reshape(1, -1, 1)
    y = noisy_or_pool(x, stages=stages).item()
    assert max(frames) - 1e-15 <= y <= 1
    want = -math.expm1(math.fsum(math.log1p(-f) for f in frames)) if max(frames) < 1 else 1.0
    assert y == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("rule", STAGE_WEIGHTS)
@pytest.mark.parametrize("name", MEANS)
def test_constant_in_constant_out_to_the_last_bit(name, rule):
    pooling = make(name, (5, 5), rule, torch.float32)
    for value in (0.0, 1e-45, 1e-39, 1e-20, 0.1, 0.3, 1 - 2**-24, 1.0):
        x = torch.full((1, 33, N_CLASSES), value)
        assert pooling(x, bags(33, 1, torch.float32)[1]).eq(x[0, 0, 0]).all()


EXTREMES = {
    "all zero": torch.zeros_like,
    "all one": torch.ones_like,
    "one-hot": lambda x: torch.zeros_like(x).index_fill_(1, torch.tensor([7]), 1.0),
    "a single zero": lambda x: torch.ones_like(x).index_fill_(1, torch.tensor([7]), 0.0),
    "subnormal": lambda x: x * torch.finfo(x.dtype).tiny,
    "smallest": lambda x: torch.full_like(x, torch.finfo(x.dtype).smallest_normal / 2**9),
    "one subnormal": lambda x: torch.zeros_like(x).index_fill_(
        1, torch.tensor([7]), torch.finfo(x.dtype).tiny / 4
    ),
    "wide": lambda x: 10 ** (-40 * x),
}


@every_pooling
@pytest.mark.parametrize("extreme", EXTREMES)
def test_extremes_give_finite_values_and_gradients(name, rule, extreme):
    for dtype, stages, masked in itertools.product(
        (torch.float16, torch.bfloat16, torch.float32, torch.float64),
        ((), (5, 5, 5)),
        (False, True),
    ):
        x, u = bags(125, dtype=dtype)
        x = EXTREMES[extreme](x).requires_grad_()
        u.requires_grad_()
        mask = torch.zeros(2, 125, dtype=torch.bool) if masked else None
        pooling = make(name, stages, rule, dtype)
        y, levels = pooling(x, u, mask, return_stages=True)
        assert y.dtype == dtype
        assert y.isfinite().all()
        assert all(level.probs.isfinite().all() for level in levels)
        assert all(level.weights.isfinite().all() for level in levels)
        if masked:
            assert y.eq(0).all()
        gradients = torch.autograd.grad(y.sum(), [x, u, *pooling.parameters()], allow_unused=True)
        assert all(g is None or g.isfinite().all() for g in gradients)


def test_subnormal_clips_keep_their_mean_and_gradient():
    ratios = torch.tensor([1.0, 2.0, 4.0, 1.0, 0.0, 2.0], dtype=torch.float64)
    x = (ratios * 1e-40).float().reshape(1, -1, 1).requires_grad_()
    y = linear_pool(x, stages=(3,))
    reference = ratios.reshape(1, -1, 1).requires_grad_()
    want = linear_pool(reference, stages=(3,))
    assert y.item() == pytest.approx(want.item() * 1e-40, rel=1e-4)
    y.backward()
    want.backward()
    torch.testing.assert_close(x.grad.double(), reference.grad, atol=1e-4, rtol=1e-4)


def test_noisy_or_has_its_gradient_where_one_frame_is_certain():
    x = torch.tensor([[[1.0], [0.5], [0.25]]], dtype=torch.float64, requires_grad=True)
    y = noisy_or_pool(x)
    y.backward()
    assert y.item() == 1
    assert x.grad.flatten().tolist() == [0.375, 0, 0]


def test_equal_largest_frames_send_the_gradient_of_max_to_the_first():
    x = torch.tensor([[[0.2], [0.9], [0.9]]], requires_grad=True)
    max_pool(x).backward()
    assert x.grad.flatten().tolist() == [0, 1, 0]


@every_pooling
def test_gradients_are_those_of_finite_differences(name, rule):
    x, u = bags(8, batch=1)  # segments of 3, 3 and 1 frames, then of 2 and 1
    pooling = make(name, (3, 2), rule)
    mask = torch.arange(8)[None] < 7
    inputs = [x.requires_grad_(), u.requires_grad_()]
    assert torch.autograd.gradcheck(lambda a, b: pooling(a, b, mask), inputs)
    if name not in ("max", "average", "noisy-or"):
        assert torch.autograd.gradgradcheck(lambda a, b: pooling(a, b, mask), inputs)


@every_pooling
def test_every_stage_is_returned_on_request(name, rule):
    x, u = bags(126)
    y, levels = make(name, (5, 5, 5), rule)(x, u, return_stages=True)
    assert [level.probs.shape[1] for level in levels] == [126, 26, 6, 2, 1]
    for level in levels:
        assert level.probs.shape == level.weights.shape
        assert level.mask.shape == level.probs.shape[:2]
        assert level.mask.all()
    assert levels[0].probs.equal(x)
    assert levels[-1].probs[:, 0].equal(y)
    # The levels explain the result: each is the weighted mean of the one before.
    if name in MEANS:
        last = levels[-2]
        torch.testing.assert_close((last.weights * last.probs).sum(1) / last.weights.sum(1), y)


def test_125_frames_have_a_hierarchy_of_three_levels():
    _, levels = make("linear")(*bags(125), return_stages=True)
    assert [level.probs.shape[1] for level in levels] == [125, 25, 5, 1]
    _, levels = make("linear", (5, 5))(*bags(125), return_stages=True)
    assert [level.probs.shape[1] for level in levels] == [125, 25, 5, 1]


def test_segments_without_the_maximum_have_no_effect():
    x = torch.tensor([[[0.1], [0.2], [0.9], [0.3]]])
    _, (_, segments, clip) = Pooling("max", stages=(2,))(x, return_stages=True)
    assert segments.weights.flatten().tolist() == [0, 1]
    assert clip.probs.item() == pytest.approx(0.9)


@pytest.mark.parametrize("rule", STAGE_WEIGHTS)
def test_learned_weights_give_no_weight_to_a_weightless_segment(rule):
    x = torch.zeros(1, 10, N_CLASSES, dtype=torch.float64)
    x[:, :5] = 0.8
    u = bags(10, 1)[1]
    torch.testing.assert_close(
        make("linear", (5,), rule)(x, u), torch.full((1, N_CLASSES), 0.8, dtype=torch.float64)
    )


def test_the_means_behind_learned_stage_weights_leave_out_padding_at_every_stage():
    values, n_valid, stages = bags(24)[1], (24, 10), (3, 2, 4)
    valid = torch.arange(24)[None, :, None] < torch.tensor(n_valid)[:, None, None]
    made = segment_means(values * valid, valid, stages)
    for clip, n in enumerate(n_valid):
        own = values[clip, :n]
        for length, means in zip(stages, made, strict=True):
            own = torch.stack([part.mean(0) for part in own.split(length)])
            torch.testing.assert_close(means[clip, : len(own)], own)


def test_learned_stage_weights_add_one_dense_layer_per_stage():
    plain = sum(p.numel() for p in make("attention", (5, 5)).parameters())
    learned = sum(p.numel() for p in make("attention", (5, 5), "learned").parameters())
    assert learned - plain == 2 * (N_HIDDEN + 1) * N_CLASSES
    for name in ("max", "average", "linear", "exp", "noisy-or"):
        assert not list(make(name).parameters())


@every_pooling
def test_half_precision_is_pooled_in_single_precision(name, rule):
    x, u = bags(125)
    exact = make(name, rule=rule)(x.half().double(), u.half().double())
    got = make(name, rule=rule, dtype=torch.float16)(x.half(), u.half())
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.double(), exact, atol=3e-3, rtol=0)


@pytest.mark.parametrize("name", MEANS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_long_bags_in_half_precision_are_exact_to_the_last_rounding(name, dtype):
    # 70,000 frames: in float16 the sum of their weights alone would be infinite.
    x, u = bags(70_000, batch=1, dtype=dtype)
    pooling = make(name, (), dtype=dtype)
    with torch.no_grad():
        got = pooling(x, u)
        # The layer on `hidden` itself may round; what follows may not.
        arguments = [value.double() for value in pooling.weighting.arguments(u)]
        want = FUNCTIONS[f"{name.replace('-', '_')}_pool"](x.double(), *arguments)
    torch.testing.assert_close(got.double(), want, atol=0, rtol=0.51 * torch.finfo(dtype).eps)


@every_pooling
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_little(name, rule, dtype):
    x, u = bags(125, dtype=torch.float32)
    x = (x * 1e-6).requires_grad_()  # would vanish or lose its digits if summed in half precision
    pooling = make(name, rule=rule, dtype=torch.float32)
    want = pooling(x, u)
    with torch.autocast("cpu", dtype=dtype):
        got = pooling(x, u)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, want, atol=0, rtol=2e-2)
    got.sum().backward()
    assert x.grad.isfinite().all()


@every_pooling
def test_it_runs_on_another_device(name, rule):
    x, u = bags(125, dtype=torch.float32)
    pooling = make(name, rule=rule, dtype=torch.float32).to("meta")
    mask = torch.ones(2, 125, dtype=torch.bool, device="meta")
    y = pooling(x.to("meta"), u.to("meta"), mask)
    assert y.shape == (2, N_CLASSES)
    assert y.device.type == "meta"


def test_a_stage_of_one_frame_changes_nothing():
    x, u = bags(20)
    torch.testing.assert_close(make("linear", (1, 1))(x, u), make("linear", ())(x, u))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Pooling("liner"), "did you mean 'linear'"),
        (lambda: Pooling("linear", stage_weights="own"), "rule for stage weights 'own'"),
        (lambda: Pooling("linear", stages=(5, 0)), r"1 or more, .* Got \(5, 0\)"),
        (lambda: Pooling("linear", stages=(2.5,)), "integers"),
        (lambda: Pooling("attention"), "need n_hidden and n_classes"),
        (lambda: Pooling("linear", stage_weights="learned"), "need n_hidden and n_classes"),
        (lambda: Pooling("noisy-or", stage_weights="learned"), "no weights to learn"),
        (lambda: Pooling("linear")(torch.rand(2, 3)), r"\(batch, frames, classes\)"),
        (lambda: Pooling("linear")(torch.rand(2, 0, 3)), "one masked frame"),
        (lambda: Pooling("linear")(torch.ones(2, 3, 4, dtype=torch.int64)), "torch.int64"),
        (
            lambda: Pooling("linear")(torch.rand(2, 3, 4), mask=torch.ones(2, 3)),
            "bool tensor .* Got torch.float32",
        ),
        (
            lambda: Pooling("linear")(torch.rand(2, 3, 4), mask=torch.ones(2, 4).bool()),
            r"of shape \(2, 4\)",
        ),
        (lambda: make("attention")(bags(4)[0]), "needs hidden .* Got None"),
        (lambda: make("attention")(bags(4)[0], bags(5)[1]), r"Got shape \(2, 5, 6\)"),
        (
            lambda: make("attention")(bags(4)[0], bags(4)[1], torch.ones(2, 4)),
            "bool tensor .* Got torch.float32",
        ),
        (
            lambda: make("linear", rule="learned")(*bags(4), torch.ones(2, 3).bool()),
            r"mask must .* of shape \(2, 3\)",
        ),
        (lambda: make("attention")(torch.rand(2, 3), bags(4)[1]), r"\(batch, frames, classes\)"),
        (lambda: make("attention")(bags(4)[0], bags(4)[1][..., :5]), r"\(2, 4, 6\)\. Got .* 5\)"),
        (lambda: make("linear", rule="learned")(bags(4)[0]), "needs hidden .* Got None"),
        *(
            (lambda name=name: make(name)(bags(4)[0][..., :2], bags(4)[1]), "n_classes=3. Got .* 2")
            for name in (*ATTENTIONS, "auto", "power")
        ),
        (
            lambda: make("linear", rule="learned")(bags(4)[0][..., :1], bags(4)[1]),
            "n_classes=3. Got .* 1",
        ),
        *(
            (
                lambda stages=stages: linear_pool(bags(4)[0], stages=stages),
                "stages must be integers",
            )
            for stages in (5, (0,), (2.0,), (True,), ("5",), None, (-1,), np.array([2.5]))
        ),
        (lambda: Pooling("linear", stages=5), "integers .* Got 5"),
        (
            lambda: linear_pool(bags(4)[0], stage_weights="meen"),
            "rule for stage weights 'meen'; did you mean 'mean'",
        ),
        (lambda: exp_pool(bags(4)[0], stages=(2,), stage_weights="learned"), "need stage_logits"),
        (
            lambda: pool(*bags(4)[:1] * 2, None, (2, 2), "learned", [torch.zeros(2, 2, 3)]),
            r"Got 1 for stages=\(2, 2\)",
        ),
        (
            lambda: pool(*bags(4)[:1] * 2, None, (2,), "learned", [torch.zeros(2, 3, 3)]),
            r"stage_logits must have the shape \(2, 2, 3\)\. Got shape \(2, 3, 3\)",
        ),
        (
            lambda: pool(*bags(4)[:1] * 2, None, (2,), "self", [torch.zeros(2, 2, 3)]),
            "other rules take none",
        ),
        (lambda: attention_pool(*bags(4)[:1] * 2, over="foo"), "axis for attention 'foo'"),
        (lambda: attention_pool(*bags(4)), r"logits must .* \(2, 4, 3\)\. Got shape \(2, 4, 6\)"),
        (lambda: pool(bags(4)[0], torch.ones(2, 4, 1)), r"weights must have the shape \(2, 4, 3\)"),
        (lambda: pool(bags(4)[0], torch.ones(2, 4)), r"Got shape \(2, 4\)"),
        (lambda: auto_pool(bags(4)[0], torch.ones(4)), r"sharpness must .* \(3,\).* \(4,\)"),
        (lambda: power_pool(bags(4)[0], torch.ones(2, 3)), r"exponent must .* \(2, 3\)"),
        (
            lambda: pool(bags(4)[0], bags(4)[0], stages=(2,), stage_weights="learned"),
            "need stage_logits",
        ),
    ],
)
def test_wrong_use_is_an_error_of_one_line(call, sentence):
    with pytest.raises(SettingError, match=sentence) as error:
        call()
    assert "\n" not in str(error.value)
