"""Capsules: squash and routing are their formulas written as loops, also where vectors are zero."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from earmark.errors import SettingError
from earmark.nn.capsules import ClassCapsules, PrimaryCapsules, lengths, route, squash

MASK = torch.arange(7) < torch.tensor([[7], [3]])


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def plain_squash(s):
    """One vector."""
    squares = float(sum(x * x for x in s))
    return squares / (1 + squares) * np.asarray(s) / np.sqrt(squares + 1e-7)


def plain_routing(predictions, n_iterations):
    """Section 3 of the specification, step by step: (classes, inputs, size) -> (classes, size)."""
    n_classes, n_inputs, size = predictions.shape
    b = np.zeros((n_inputs, n_classes))
    for iteration in range(n_iterations):
        c = np.array([np.exp(row) / np.exp(row).sum() for row in b])
        v = np.zeros((n_classes, size))
        for j in range(n_classes):
            s = sum(c[i, j] * predictions[j, i] for i in range(n_inputs))
            v[j] = plain_squash(s)
        if iteration < n_iterations - 1:
            for i in range(n_inputs):
                for j in range(n_classes):
                    b[i, j] += predictions[j, i] @ v[j]
    return v


def route_predictions(predictions, n_iterations=3):
    """Route the predictions (classes, inputs, size) of a frame, as weights of inputs of 1."""
    inputs = torch.ones(1, 1, predictions.shape[1], dtype=predictions.dtype)
    return route(inputs, predictions.unsqueeze(3), n_iterations)[0]


def test_squash_is_its_formula_and_keeps_the_direction():
    vectors = random(5, 4)
    got = squash(vectors)
    for vector, want in zip(vectors, got, strict=True):
        np.testing.assert_allclose(want, plain_squash(vector.numpy()), rtol=1e-12)
    assert squash(torch.tensor([3.0, 4.0])).norm() == pytest.approx(25 / 26)
    cosines = torch.nn.functional.cosine_similarity(vectors, got)
    torch.testing.assert_close(cosines, torch.ones(5, dtype=torch.float64))
    torch.testing.assert_close(squash(vectors.T, 0), got.T)


def test_values_and_gradients_at_zero_are_finite():
    for function in (squash, lengths, lambda x: lengths(squash(x))):
        vectors = torch.zeros(3, 4, requires_grad=True)
        function(vectors).sum().backward()
        assert vectors.grad.isfinite().all()
    inputs, weight = (torch.zeros(shape, requires_grad=True) for shape in ((6, 2, 5), (3, 5, 4, 2)))
    lengths(route(inputs, weight)).sum().backward()
    assert inputs.grad.isfinite().all()
    assert weight.grad.isfinite().all()
    assert lengths(torch.zeros(4)) < 1e-3


def test_a_length_is_never_above_1():
    for size in (1e2, 1e4, 1e18):
        assert lengths(squash(torch.full((8,), size))) <= 1


@pytest.mark.parametrize("n_iterations", [1, 2, 3])
def test_routing_is_its_algorithm_written_as_loops(n_iterations):
    inputs, weight = random(3, 2, 6), random(5, 6, 4, 2, seed=1)
    got = route(inputs, weight, n_iterations)
    predictions = np.einsum("jiok,fki->fjio", weight, inputs)
    want = [plain_routing(each, n_iterations) for each in predictions]
    np.testing.assert_allclose(got, np.stack(want), rtol=1e-10)


def test_routing_sends_more_to_the_class_on_which_the_inputs_agree():
    predictions = random(2, 20, 4, seed=1)
    predictions[0] = torch.tensor([1.0, 0.0, 0.0, 0.0])  # all inputs agree on class 0
    one, three = (lengths(route_predictions(predictions, n)) for n in (1, 3))
    assert three[0] > one[0]
    assert three[1] < three[0]


def test_gradients_run_through_all_passes():
    inputs, weight = random(2, 2, 4).requires_grad_(), random(3, 4, 2, 2, seed=1).requires_grad_()
    assert gradcheck(lambda x, w: lengths(route(x, w, 3)), (inputs, weight))


def test_class_capsules_route_the_predictions_of_each_input():
    layer = ClassCapsules(12, 4, n_classes=5, n_out=8).double()
    torch.nn.init.normal_(layer.weight)
    features = random(2, 7, 12)
    weight = layer.weight.detach().numpy()
    capsules = layer.capsules(features).detach().numpy()
    for clip in range(2):
        for frame in range(7):
            u = features[clip, frame].numpy().reshape(4, 3).T  # (inputs, components)
            predictions = np.einsum("jiok,ik->jio", weight, u)
            want = plain_routing(predictions, 3)
            np.testing.assert_allclose(capsules[clip, frame], want, rtol=1e-9)
    probs = layer(features, MASK).detach().numpy()
    norms = np.linalg.norm(capsules, axis=3)
    np.testing.assert_allclose(probs[0], np.sqrt(norms[0] ** 2 + 1e-7))
    assert not probs[1, 3:].any()


def test_class_capsules_count_the_products_of_the_specification():
    layer = ClassCapsules(256, 4, n_classes=17, n_out=8).describe((30, 256))
    assert layer.n_parameters == 17 * 64 * 8 * 4 == 34_816
    # 30 slices: one prediction per class and input; three weighted sums, two agreements.
    assert layer.operations == 30 * (34_816 + 5 * 17 * 64 * 8)
    assert layer.shape == (30, 17)


def test_primary_capsules_are_squashed_groups_of_neighbouring_maps_normalised_per_component():
    layer, maps = PrimaryCapsules(4).double(), random(2, 8, 7, 3)
    got, mask = layer(maps, MASK)
    assert got.shape == (2, 4, 7, 6)  # components, frames, capsules
    vectors = np.zeros((2, 7, 6, 4))
    for clip in range(2):
        for frame in range(7):
            for group in range(2):
                for mel in range(3):
                    vector = maps[clip, 4 * group : 4 * group + 4, frame, mel].numpy()
                    vectors[clip, frame, 3 * group + mel] = plain_squash(vector)
    valid = np.concatenate([vectors[0], vectors[1, :3]]).reshape(-1, 4)
    mean, variance = valid.mean(0), valid.var(0)
    want = (vectors - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(got[0].permute(1, 2, 0).detach(), want[0], rtol=1e-9)
    np.testing.assert_allclose(got[1, :, :3].permute(1, 2, 0).detach(), want[1, :3], rtol=1e-9)
    assert not got[1, :, 3:].any()
    assert mask is MASK
    assert layer.describe((8, 7, 3)).shape == (4, 7, 6)
    assert layer.describe((8, 7, 3)).n_parameters == 8


@pytest.mark.parametrize(("n_features", "n_iterations"), [(10, 3), (12, 0)])
def test_sizes_that_make_no_sense_are_refused(n_features, n_iterations):
    with pytest.raises(SettingError, match="Capsules of 4 components need"):
        ClassCapsules(n_features, 4, 3, 8, n_iterations)
