"""The fused network: faster, and equal to the network to rounding."""

import pytest
import torch

from earmark.nn.fused import FusedModel
from earmark.nn.model import PRESETS, Model, ModelConfig


def network(preset, seed=0, **changes):
    """An untrained network with fitted batch norms, whose output depends on its input."""
    torch.manual_seed(seed)
    model = Model(ModelConfig.preset(preset, 5, **changes)).train()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 1.0
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.1)
        model(torch.randn(2, 120, 80))
        model.eval().classifier.weight *= 20
    return model


def test_the_networks_of_these_tests_depend_on_their_input():
    for preset in PRESETS:
        with torch.inference_mode():
            probs = network(preset)(torch.randn(4, 250, 80)).frame_probs
        assert probs.std((0, 1)).min() > 0.01


def assert_equal(got, want, atol=1e-5):
    for name in ("clip_probs", "frame_probs", "hidden"):
        torch.testing.assert_close(
            getattr(got, name), getattr(want, name), atol=atol, rtol=0, msg=name
        )


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("n_frames", [1, 7, 250, 500])
def test_the_fused_network_equals_the_network(preset, n_frames):
    model = network(preset)
    log_mel = torch.randn(3, n_frames, 80)
    with torch.inference_mode():
        assert_equal(FusedModel(model)(log_mel), model(log_mel))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_fused_network_equals_the_network_without_a_gru(preset):
    """In double precision: without a GRU the features are not bounded, and outputs are steep."""
    model = network(preset, n_recurrent=0).double()
    log_mel = torch.randn(3, 250, 80).double()
    with torch.inference_mode():
        assert_equal(FusedModel(model)(log_mel), model(log_mel), atol=1e-9)


@pytest.mark.parametrize("cut", [(0, 400), (100, 1200), (28, 1028), (1000, 500), (1100, 503)])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_a_part_with_its_margins_comes_out_as_in_the_whole_recording(cut, kernel):
    """A click at every edge of the part, in double precision: a wrong edge shows."""
    changes = {"channels": (4, 4, 4, 4), "last_channels": 8, "n_recurrent": 4}
    model = network("paper-fast", kernel=kernel, **changes).double()
    fused, recording = FusedModel(model), torch.randn(1603, 80).double()
    begin, length = cut
    for edge in (begin, begin + length):
        recording[max(0, edge - 1) : edge + 1] += 10
    before = min(begin, fused.margin)
    part = recording[begin - before : begin + length + fused.margin]
    with torch.inference_mode():
        found = fused.encode(part, before, length)
        wanted = model.encode(recording.unsqueeze(0))[0][0]
    wanted = wanted[begin // 4 : begin // 4 + -(-length // 4)]
    torch.testing.assert_close(found, wanted, atol=1e-9, rtol=0)


@pytest.mark.parametrize("preset", PRESETS)
def test_encoding_and_classification_equal_those_of_the_network(preset):
    model = network(preset)
    fused, log_mel = FusedModel(model), torch.randn(500, 80)
    with torch.inference_mode():
        features = model.encode(log_mel.unsqueeze(0))[0]
        torch.testing.assert_close(fused.encode(log_mel), features[0], atol=1e-4, rtol=1e-4)
        assert_equal(fused.classify(features), model.classify(features))


def test_the_network_itself_is_unchanged():
    model = network("paper-fast")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    FusedModel(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("preset", PRESETS)
def test_the_fused_network_takes_masks(preset):
    model = network(preset).double()
    log_mel, mask = (
        torch.randn(3, 203, 80).double(),
        torch.arange(203) < torch.tensor([[203], [9], [0]]),
    )
    with torch.inference_mode():
        assert_equal(FusedModel(model)(log_mel, mask), model(log_mel, mask), atol=1e-9)
