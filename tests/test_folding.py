"""The network for detection: what it saves, it must not change."""

import pytest
import torch

from earmark.folding import CHUNK, FoldedModel
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


def plain(model, recording, window, hop):
    """The reference: convolutions over the whole recording, then every window by itself."""
    pool = model.config.time_pool
    features, _ = model.encode(recording.unsqueeze(0))
    starts = range(0, len(recording) - window + 1, hop)
    return model.classify(
        torch.cat([features[:, s // pool : (s + window) // pool] for s in starts])
    )


CASES = [
    ("paper", {}, 500, 248, 3),
    ("fast", {}, 500, 248, 6),
    ("fast", {}, 500, 248, 1),
    ("fast", {}, 400, 200, 3),
    ("fast", {}, 500, 100, 12),
    ("fast", {}, 100, 48, 30),
    ("fast", {}, 4, 4, 3),  # no overlap at all
    ("fast", {"kernel": 1}, 500, 248, 5),  # convolutions that see no edge
    ("fast", {"kernel": 5}, 500, 248, 5),
    ("fast", {"pools": ((1, 2), (1, 2), (1, 2), (1, 1))}, 200, 100, 12),
    ("fast", {"pooling": "attention", "stages": ()}, 500, 248, 5),
]


@pytest.mark.parametrize(("preset", "changes", "window", "hop", "n_windows"), CASES)
def test_windows_share_the_convolutions_of_the_whole_recording(
    preset, changes, window, hop, n_windows
):
    model = network(preset, **changes)
    strip = torch.randn(window + (n_windows - 1) * hop, 80)
    with torch.inference_mode():
        assert_equal(
            FoldedModel(model).listen(strip, window, hop), plain(model, strip, window, hop)
        )


@pytest.mark.parametrize("n_frames", [CHUNK - 1, CHUNK, CHUNK + 1, CHUNK + 4, 2503])
@pytest.mark.parametrize("kernel", [1, 3, 5, 7])
def test_a_chunk_sees_as_far_as_its_kernels_do(n_frames, kernel):
    """A click at every edge of a chunk, in double precision: a wrong edge shows."""
    changes = {"channels": (4, 4, 4, 4), "last_channels": 8, "n_recurrent": 4}
    model = network("fast", kernel=kernel, **changes).double()
    recording = torch.randn(n_frames, 80).double()
    for edge in range(0, n_frames, CHUNK):
        recording[max(0, edge - 1) : edge + 1] += 10
    with torch.inference_mode():
        wanted, _ = model.encode(recording.unsqueeze(0))
        found = FoldedModel(model).encode(recording)
    torch.testing.assert_close(found, wanted[0], atol=1e-9, rtol=0)


@pytest.mark.parametrize("cut", [(100, 1200), (28, 1028), (1000, 500)])
def test_a_strip_with_its_margins_comes_out_as_in_the_whole_recording(cut):
    model = network("fast").double()
    folded, recording = FoldedModel(model), torch.randn(1600, 80).double()
    begin, length = cut
    before = min(begin, folded.margin)
    strip = recording[begin - before : begin + length + folded.margin]
    with torch.inference_mode():
        found = folded.listen(strip, 500, 100, before, length)
        features, _ = model.encode(recording.unsqueeze(0))
        starts = range(begin // 4, (begin + length - 500) // 4 + 1, 25)
        wanted = model.classify(torch.cat([features[:, s : s + 125] for s in starts]))
    assert_equal(found, wanted, atol=1e-9)


def test_no_frame_is_convolved_much_more_than_once(monkeypatch):
    seen = []
    folded = FoldedModel(network("paper"))
    plain = FoldedModel._convolve
    monkeypatch.setattr(
        FoldedModel,
        "_convolve",
        lambda self, log_mel: seen.append(log_mel.shape[1]) or plain(self, log_mel),
    )
    n_frames = 500 + 11 * 248
    with torch.inference_mode():
        folded.listen(torch.randn(n_frames, 80), 500, 248)
    assert n_frames < sum(seen) < 1.09 * n_frames  # in place of 12 x 500


def test_the_network_itself_stays_as_it_was():
    model = network("fast")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    FoldedModel(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
