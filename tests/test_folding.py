"""The network for detection: what it saves, it must not change."""

import pytest
import torch

from earmark.folding import FoldedModel
from earmark.model import PRESETS, Model, ModelConfig


def network(preset, seed=0, **changes):
    """An untrained network whose batch norms have seen its maps: what goes in comes through."""
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


def test_the_networks_of_these_tests_hear_what_they_are_given():
    for preset in PRESETS:
        with torch.inference_mode():
            probs = network(preset)(torch.randn(4, 250, 80)).frame_probs
        assert probs.std((0, 1)).min() > 0.01


def assert_equal(found, wanted, atol=1e-5):
    for name in ("clip_probs", "frame_probs", "hidden"):
        torch.testing.assert_close(
            getattr(found, name), getattr(wanted, name), atol=atol, rtol=0, msg=name
        )


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("n_frames", [1, 7, 250, 500])
def test_the_folded_network_says_what_the_network_says(preset, n_frames):
    model = network(preset)
    log_mel = torch.randn(3, n_frames, 80)
    with torch.inference_mode():
        assert_equal(FoldedModel(model)(log_mel), model(log_mel))


CASES = [
    ("paper", {}, 500, 248, 3),
    ("fast", {}, 500, 248, 6),
    ("fast", {}, 500, 248, 1),
    ("fast", {}, 400, 200, 3),  # two halves
    ("fast", {}, 500, 100, 3),  # pieces that overlap: no seam
    ("fast", {}, 100, 48, 3),  # too short to share
    ("fast", {}, 4, 4, 3),  # no overlap at all
    ("fast", {"kernel": 1}, 500, 248, 3),  # convolutions that see no edge
    ("fast", {"kernel": 5}, 500, 248, 3),
    ("fast", {"pools": ((1, 2), (1, 2), (1, 2), (1, 1))}, 200, 100, 3),
    ("fast", {"pooling": "attention", "stages": ()}, 500, 248, 3),
]


@pytest.mark.parametrize(("preset", "changes", "window", "hop", "n_windows"), CASES)
def test_windows_that_share_say_what_each_says_alone(preset, changes, window, hop, n_windows):
    model = network(preset, **changes)
    strip = torch.randn(window + (n_windows - 1) * hop, 80)
    windows = torch.stack([strip[n * hop : n * hop + window] for n in range(n_windows)])
    with torch.inference_mode():
        assert_equal(FoldedModel(model).listen(strip, window, hop), model(windows))


@pytest.mark.parametrize("window", [120, 132, 260, 500])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_the_seam_is_wide_enough_whatever_the_kernel(window, kernel):
    """A click at the edge of every window and piece, in double precision: a wrong edge shows."""
    changes = {"channels": (4, 4, 4, 4), "last_channels": 8, "n_recurrent": 4}
    model = network("fast", kernel=kernel, **changes).double()
    hop = window // 4 // 2 * 4
    strip = torch.randn(window + 2 * hop, 80).double()
    for edge in range(0, len(strip), hop):
        strip[max(0, edge - 1) : edge + 1] += 10
        strip[max(0, edge + window - hop - 1) : edge + window - hop + 1] -= 10
    windows = torch.stack([strip[n * hop : n * hop + window] for n in range(3)])
    with torch.inference_mode():
        assert_equal(FoldedModel(model).listen(strip, window, hop), model(windows), atol=1e-9)


def test_sharing_saves_a_quarter_of_the_frames(monkeypatch):
    seen = []
    folded = FoldedModel(network("paper"))
    plain = FoldedModel._convolve
    monkeypatch.setattr(
        FoldedModel,
        "_convolve",
        lambda self, log_mel: (
            seen.append(log_mel.shape[0] * log_mel.shape[1]) or plain(self, log_mel)
        ),
    )
    with torch.inference_mode():
        folded.listen(torch.randn(500 + 3 * 248, 80), 500, 248)
    assert sum(seen) == 5 * 252 + 4 * 108  # in place of 4 x 500: more windows save more


def test_the_network_itself_stays_as_it_was():
    model = network("fast")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    FoldedModel(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
