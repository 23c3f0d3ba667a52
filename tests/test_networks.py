"""Every registered network keeps the same promises."""

import numpy as np
import pytest
import torch

from earmark.data.batches import pad_batch
from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.inference.predictor import Predictor
from earmark.nn import NETWORKS, FusedModel, clip_loss, read_network
from earmark.training.settings import Settings

SMALL = {
    "crnn": {"n_mels": 20, "channels": [4, 4], "pools": [[2, 2], [2, 2]], "last_channels": 8},
    "head": {"n_features": 20, "n_hidden": 8, "n_convolutions": 2, "input_pool": 2},
    "wang": {"n_mels": 20, "channels": [3, 4], "pools": [[1, 2], [2, 2]]},
    "surrey": {"n_mels": 20, "channels": [4, 4], "pools": [[2, 2], [1, 2]], "last_channels": 8},
    "gccaps": {"n_mels": 20, "channels": [4, 4], "pools": [[2, 2], [1, 2]], "n_groups": 2},
}
NO_DROPOUT = {
    "head": {"dropout": 0.0, "input_dropout": 0.0},
    "gccaps": {"dropout": 0.0, "capsule_dropout": 0.0},
}
# With and without a recurrent layer, where there is a choice.
CHOICES = [
    (name, n_recurrent)
    for name, kind in NETWORKS.items()
    for n_recurrent in ([0, 4] if "n_recurrent" in kind.__dataclass_fields__ else [0])
]


def small(name, n_recurrent=0, **changes):
    if "n_recurrent" in NETWORKS[name].__dataclass_fields__:
        changes = {"n_recurrent": n_recurrent, **changes}
    return read_network({"network": name, "n_classes": 3, **SMALL[name], **changes})


def trained(name, n_recurrent=0, **changes):
    """An untrained network whose batch norms have statistics, and whose scores are no constant."""
    torch.manual_seed(0)
    network = small(name, n_recurrent, **changes).build()
    network(torch.randn(8, 64, 20))
    return network.eval()


@pytest.mark.parametrize(("name", "n_recurrent"), CHOICES)
class TestEveryNetwork:
    def test_scores_a_clip_alone_as_padded_in_a_batch(self, name, n_recurrent):
        network = trained(name, n_recurrent)
        clips = [torch.randn(n_frames, 20) for n_frames in (37, 16, 3)]
        batch, mask = pad_batch(clips)
        with torch.no_grad():
            together = network(batch, mask)
            for row, clip in enumerate(clips):
                alone = network(clip.unsqueeze(0))
                n_frames = alone.frame_probs.shape[1]
                own = together.frame_probs[row]
                torch.testing.assert_close(own[:n_frames], alone.frame_probs[0])
                assert not own[n_frames:].any()
                torch.testing.assert_close(together.clip_probs[row], alone.clip_probs[0])

    def test_learns_nothing_from_padding(self, name, n_recurrent):
        losses = []
        for filled in (0.0, 1e3):
            torch.manual_seed(0)
            network = small(name, n_recurrent=n_recurrent).build().train()
            batch, mask = pad_batch([torch.ones(12, 20), torch.ones(4, 20)])
            batch = batch.masked_fill(~mask.unsqueeze(2), filled)
            losses.append(network(batch, mask).clip_probs.sum().item())
        assert losses[0] == losses[1]

    def test_is_the_same_fused_and_in_parts_of_a_recording(self, name, n_recurrent):
        network = trained(name, n_recurrent)
        fused = FusedModel(network)
        recording = torch.randn(120, 20)
        with torch.no_grad():
            whole = network.encode(recording.unsqueeze(0))[0][0]
            margin, pool = fused.margin, network.time_pool
            part = fused.encode(recording[40 - margin : 80 + margin], before=margin, length=40)
            torch.testing.assert_close(part, whole[40 // pool : 80 // pool])
            torch.testing.assert_close(
                fused(recording[None]).frame_probs, network(recording[None]).frame_probs
            )

    def test_sends_a_gradient_to_every_parameter(self, name, n_recurrent):
        torch.manual_seed(0)
        network = small(name, n_recurrent, dropout=0.0).build().train()
        batch, mask = pad_batch([torch.randn(n_frames, 20) for n_frames in (40, 24, 0)])
        targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        clip_loss(network(batch, mask).clip_probs, targets).backward()
        for parameter_name, parameter in network.named_parameters():
            assert parameter.grad is not None, parameter_name
            assert parameter.grad.isfinite().all(), parameter_name
            assert parameter.grad.any(), parameter_name

    def test_trains_the_same_however_long_the_padding_is(self, name, n_recurrent):
        def step(n_frames):
            torch.manual_seed(0)
            network = small(name, n_recurrent, **NO_DROPOUT.get(name, {"dropout": 0.0})).build()
            clips = [torch.randn(40, 20), torch.randn(23, 20), torch.zeros(n_frames, 20)]
            batch, mask = pad_batch(clips)
            prediction = network.train()(batch[:2], mask[:2])
            clip_loss(prediction.clip_probs, torch.eye(3)[:2]).backward()
            return network

        short, long = step(40), step(64)
        for (key, a), b in zip(short.state_dict().items(), long.state_dict().values(), strict=True):
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=key)
        for (key, a), b in zip(short.named_parameters(), long.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-3, msg=key)

    def test_scores_an_empty_clip_zero(self, name, n_recurrent):
        batch, mask = pad_batch([torch.randn(20, 20), torch.zeros(0, 20)])
        with torch.no_grad():
            prediction = trained(name, n_recurrent)(batch, mask)
        assert prediction.clip_probs[1].eq(0).all()
        assert prediction.frame_probs[1].eq(0).all()

    def test_predicts_a_recording_in_strips_as_in_one_piece(self, name, n_recurrent, monkeypatch):
        network = trained(name, n_recurrent).double()
        recording = torch.randn(403, 20)
        recording[::50] += 5
        whole = next(Predictor(network, 100, threads=1).predict([[recording]]))
        monkeypatch.setattr("earmark.inference.predictor.STRIP", 60)
        pieces = next(Predictor(network, 100).predict([recording.split(37)]))
        for got, want in zip(pieces, whole, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
        clip = recording[:97]  # fits into one window
        (frame_scores, clip_scores) = next(Predictor(network, 100).predict([[clip]]))
        with torch.no_grad():
            alone = network(clip.double().unsqueeze(0))
        np.testing.assert_allclose(frame_scores, alone.frame_probs[0], atol=1e-6)
        np.testing.assert_allclose(clip_scores[0], alone.clip_probs[0], atol=1e-6)

    def test_counts_its_parameters_and_shapes_layer_by_layer(self, name, n_recurrent):
        network, shapes = trained(name, n_recurrent), []
        modules = [module for _, module in network.map_layers()]
        modules += [m for m in (network.recurrent, network.classifier) if m is not None]
        for module in modules:
            module.register_forward_hook(
                lambda _, __, out: shapes.append((out[0] if isinstance(out, tuple) else out).shape)
            )
        with torch.no_grad():
            network(torch.zeros(1, 50, 20))
        layers = network.layers(50)
        assert [layer.shape for layer in layers] == [tuple(shape[1:]) for shape in shapes]
        own = [p for key, p in network.named_parameters() if not key.startswith("pooling.")]
        assert sum(layer.n_parameters for layer in layers) == sum(p.numel() for p in own)

    def test_knows_whether_classes_are_independent(self, name, n_recurrent):
        network = trained(name, n_recurrent)
        features = 3 * network.encode(torch.randn(2, 30, 20))[0].detach()
        heads = [*network.classifier.parameters(), *network.pooling.parameters()]
        with torch.no_grad():
            for parameter in heads:
                parameter.normal_()
            want = network.classify(features).clip_probs[:, :2]
            for parameter in heads:
                parameter[2:] = torch.randn_like(parameter[2:])
            same = torch.allclose(network.classify(features).clip_probs[:, :2], want, rtol=1e-6)
        assert same is not network.config.mixes_classes

    def test_describes_itself(self, name, n_recurrent):
        config = small(name, n_recurrent=n_recurrent)
        assert read_network(config.to_dict()) == config
        assert (config.network, config.n_features) == (name, 20)
        *_, last = config.layers(50)
        assert last.shape == (config.n_frames(50), 3)
        prediction = config.build().eval()(torch.zeros(1, 50, 20))
        assert prediction.frame_probs.shape == (1, config.n_frames(50), 3)
        assert config.output_grid(FrameGrid(50)).count(1.0) == config.n_frames(50)
        n_tensors = len(config.build().state_dict())
        assert config.n_layers <= n_tensors

    def test_is_chosen_by_a_setting(self, name, n_recurrent):
        settings = Settings.load("fast", overrides=[f"model.network={name}", "model.dropout=0.1"])
        assert (settings.model.network, settings.model.dropout) == (name, 0.1)
        again = Settings.from_dict(settings.to_dict())
        assert again == settings


def test_an_unknown_network_is_refused():
    with pytest.raises(SettingError, match=r"There is no model\.network 'haed'; did you mean 'he"):
        Settings.load("fast", overrides=["model.network=haed"])
    with pytest.raises(SettingError, match="There is no network 'haed'"):
        read_network({"network": "haed", "n_classes": 1})


@pytest.mark.parametrize(
    "wrong", [{"kernel": 2}, {"n_hidden": 0}, {"input_dropout": 1.0}, {"n_convolutions": -1}]
)
def test_a_head_refuses_sizes_that_make_no_sense(wrong):
    with pytest.raises(SettingError):
        small("head", **wrong)
