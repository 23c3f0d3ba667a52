"""Every registered network keeps the same promises."""

from math import prod

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from earmark.data.batches import pad_batch
from earmark.data.features import FeatureConfig
from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.inference.member import Member
from earmark.inference.predictor import STRIP, Predictor
from earmark.nn import NETWORKS, FusedModel, read_network
from earmark.nn.frame_network import FrameNetwork
from earmark.nn.layers import Convolution, FusedConvolution, count_parameters
from earmark.training.settings import Settings

SMALL = {
    "crnn": {"n_mels": 20, "channels": [4, 4], "pools": [[2, 2], [2, 2]], "last_channels": 8},
    "head": {"n_features": 20, "n_hidden": 8, "n_convolutions": 2, "input_pool": 2},
    "wang": {"n_mels": 20, "channels": [3, 4], "pools": [[1, 2], [2, 2]]},
    "surrey": {"n_mels": 20, "channels": [4, 4], "pools": [[2, 2], [1, 2]], "last_channels": 8},
    "gccaps": {"n_mels": 20, "channels": [4, 4], "pools": [[2, 2], [1, 2]], "n_groups": 2},
    "emsi": {"n_mels": 20, "windows": [32, 10, 5], "channels": [4, 8]},
    "mlms": {
        "n_samples": 20,
        "nets": [[2, 2, 2, 2, 2], [3, 3, 3, 2, 2], [2, 2, 2, 2, 2, 5]],
        "channels": [2, 4, 6],
        "n_hidden": [8, 8],
        "second": 5,  # frames, of 20 samples each: two nets have longer windows
        "output_pool": 2,
    },
}
CHANGES = {
    "crnn": [{"n_recurrent": 0}, {"n_recurrent": 4}],
    "head": [{"n_recurrent": 0}, {"n_recurrent": 4}],
    "wang": [{"n_recurrent": 0}, {"n_recurrent": 4}],
    "surrey": [{"n_recurrent": 0}, {"n_recurrent": 4}],
    "emsi": [{}, {"hops": [16, 5, 2], "learns": "clips", "clip_score": "mean"}],
    "mlms": [{"train_windows": 0}, {"train_windows": 2}],
}
# Every network, in each of its ways to work.
VARIANTS = [(name, changes) for name in NETWORKS for changes in CHANGES.get(name, [{}])]


def small(name, **changes):
    return read_network({"network": name, "n_classes": 3, **SMALL[name], **changes})


def trained(name, changes):
    """An untrained network whose batch norms have statistics, and whose scores are no constant."""
    torch.manual_seed(0)
    network = small(name, **changes).build()
    network(torch.randn(8, 64, 20))
    return network.eval()


def without_dropout(name, changes):
    shares = ("dropout", "last_dropout", "input_dropout", "capsule_dropout")
    own = {share: 0.0 for share in shares if hasattr(small(name), share)}
    return small(name, **changes, **own).build().train()


@pytest.mark.parametrize(("name", "changes"), VARIANTS)
class TestEveryNetwork:
    def test_scores_a_clip_alone_as_padded_in_a_batch(self, name, changes):
        network = trained(name, changes)
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
                assert int(together.mask[row].sum()) == n_frames

    def test_gives_an_empty_clip_0_and_no_clips_nothing(self, name, changes):
        network = trained(name, changes)
        batch = torch.randn(2, 16, 20)
        mask = torch.tensor([[True] * 16, [False] * 16])
        with torch.no_grad():
            together, alone = network(batch, mask), network(batch[:1])
            assert not together.clip_probs[1].any()
            assert not together.frame_probs[1].any()
            torch.testing.assert_close(together.clip_probs[:1], alone.clip_probs)
            nothing = network(batch[:0], mask[:0])
        assert nothing.clip_probs.shape == (0, 3)
        assert nothing.frame_probs.shape == (0, network.config.n_frames(16), 3)

    def test_learns_nothing_from_padding(self, name, changes):
        losses = []
        for filled in (0.0, 1e3):
            torch.manual_seed(0)
            network = small(name, **changes).build().train()
            batch, mask = pad_batch([torch.ones(12, 20), torch.ones(4, 20)])
            batch = batch.masked_fill(~mask.unsqueeze(2), filled)
            prediction = network(batch, mask)
            loss = network.loss(prediction, torch.eye(3)[:2])
            losses.append((prediction.clip_probs.sum().item(), loss.item()))
        assert losses[0] == losses[1]

    def test_learns_the_same_from_a_clip_with_more_padding(self, name, changes):
        def step(n_frames):
            torch.manual_seed(0)
            network = without_dropout(name, changes).double()
            torch.manual_seed(1)
            clips = [torch.randn(12, 20), torch.randn(4, 20), torch.zeros(n_frames, 20)]
            batch, mask = pad_batch([clip.double() for clip in clips])
            prediction = network(batch[:2], mask[:2])
            network.loss(prediction, torch.eye(3).double()[:2]).backward()
            return network.state_dict(), {key: p.grad for key, p in network.named_parameters()}

        few, many = step(12), step(40)
        for short, long in zip(few, many, strict=True):
            for key, values in short.items():
                torch.testing.assert_close(values, long[key], msg=key)

    def test_sends_a_gradient_to_every_parameter(self, name, changes):
        torch.manual_seed(0)
        network = without_dropout(name, changes)
        batch, mask = pad_batch([torch.randn(n_frames, 20) for n_frames in (40, 30, 37, 0)])
        network.loss(network(batch, mask), torch.eye(3)[[0, 1, 2, 0]]).backward()
        for key, parameter in network.named_parameters():
            assert parameter.grad is not None, key
            assert parameter.grad.isfinite().all(), key
            assert parameter.grad.any(), key

    def test_is_the_same_fused_and_in_parts_of_a_recording(self, name, changes):
        network = trained(name, changes)
        fused = FusedModel(network)
        recording = torch.randn(120, 20)
        with torch.no_grad():
            whole = network.encode(recording.unsqueeze(0))[0][0]
            margin, pool = fused.margin, network.encoder_pool
            part = fused.encode(recording[40 - margin : 80 + margin], before=margin, length=40)
            torch.testing.assert_close(part, whole[40 // pool : 80 // pool])
            torch.testing.assert_close(
                fused(recording[None]).frame_probs, network(recording[None]).frame_probs
            )

    def test_is_fused_without_a_change_of_itself(self, name, changes):
        network = small(name, **changes).build().eval()
        before = {key: value.clone() for key, value in network.state_dict().items()}
        fused = network.fused()
        inner = [module for module in fused.modules() if isinstance(module, Convolution)]
        assert inner and all(isinstance(module, FusedConvolution) for module in inner)
        torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)

    def test_describes_itself(self, name, changes):
        config = small(name, **changes)
        assert read_network(config.to_dict()) == config
        assert hash(config) == hash(read_network(config.to_dict()))
        assert (config.network, config.n_features) == (name, 20)
        *_, last = config.layers(50)
        assert last.shape == (config.n_frames(50), 3)
        network = config.build().eval()
        prediction = network(torch.zeros(1, 50, 20))
        assert prediction.frame_probs.shape == (1, config.n_frames(50), 3)
        assert prediction.hidden.shape[:2] == (1, config.n_frames(50))
        assert config.output_grid(FrameGrid(50)).count(1.0) == config.n_frames(50)
        n_tensors = len(network.state_dict())
        assert config.n_layers <= n_tensors
        pooling = [p for key, p in network.named_parameters() if key.startswith("pooling.")]
        n_parameters = sum(layer.n_parameters for layer in config.layers(50))
        assert n_parameters == count_parameters(network) - sum(p.numel() for p in pooling)

    def test_counts_the_operations_that_torch_counts(self, name, changes):
        config = small(name, **changes)
        network = config.build().eval()
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            network(torch.zeros(1, 50, 20))
        counted = {str(op): n // 2 for op, n in counter.get_flop_counts()["Global"].items()}
        layers = config.layers(50)
        convolutions = sum(layer.operations for layer in layers if "convolution" in layer.name)
        # An even kernel computes one output more per window, which is dropped.
        assert convolutions <= counted["aten.convolution"] <= 1.3 * convolutions
        if name != "mlms":
            assert convolutions == counted["aten.convolution"]

    def test_counts_the_operations_and_outputs_of_a_step_of_training(self, name, changes):
        config = small(name, **changes)
        network, n_clips, outputs = config.build(), 4, []
        for module in network.modules():
            if isinstance(module, Convolution):
                module.register_forward_hook(lambda _, __, out: outputs.append(out[0].numel()))
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            network(torch.zeros(n_clips, 50, 20))
        counted = counter.get_flop_counts()["Global"][torch.ops.aten.convolution] // 2
        layers = [x for x in config.training_layers(50) if "convolution" in x.name]
        operations = n_clips * sum(layer.operations for layer in layers)
        assert operations <= counted <= (1.3 if name == "mlms" else 1) * operations
        assert sum(outputs) == n_clips * sum(prod(layer.shape) for layer in layers)

    def test_knows_whether_classes_are_independent(self, name, changes):
        network = trained(name, changes)
        features = 3 * network.encode(torch.randn(2, 30, 20))[0].detach()
        weights, axes = network.state_dict(), network.config.class_axes()
        with torch.no_grad():
            for key in axes:
                weights[key].normal_()
            want = network.classify(features).clip_probs[:, :2]
            for key, axis in axes.items():
                weights[key].select(axis, 2).normal_()
            same = torch.allclose(network.classify(features).clip_probs[:, :2], want, rtol=1e-6)
        assert same is not network.config.mixes_classes

    def test_of_some_classes_scores_them_as_among_all(self, name, changes):
        torch.manual_seed(0)
        network = trained(name, changes)
        config = network.config
        whole = Member(_features(config), config, network.state_dict())
        if config.mixes_classes:
            with pytest.raises(SettingError, match="weighs classes against each other"):
                whole.select([2, 0])
            return
        member = whole.select([2, 0])
        member.check_weights()
        batch = torch.randn(2, 50, 20)
        with torch.no_grad():
            want, got = network(batch), member.build_model()(batch)
        torch.testing.assert_close(got.clip_probs, want.clip_probs[:, [2, 0]])
        torch.testing.assert_close(got.frame_probs, want.frame_probs[:, :, [2, 0]])

    def test_predicts_a_long_recording_in_pieces_and_a_short_one_as_it_is(self, name, changes):
        network = trained(name, changes)
        predictor = Predictor(network, window=40)
        recording = torch.randn(3 * STRIP + 35, 20)  # its last frame is incomplete
        ((scores, clip_scores),) = predictor.predict([recording.split(77)])
        assert scores.shape == clip_scores.shape == (network.config.n_frames(len(recording)), 3)
        pieces = list(predictor.stream(recording.split(999)))
        assert len(pieces) > 1
        np.testing.assert_array_equal(np.concatenate([own for own, _ in pieces]), scores)
        for clip in (recording[:40], recording[:7]):
            ((scores, clip_scores),) = predictor.predict([[clip]])
            with torch.no_grad():
                want = network(clip[None])
            np.testing.assert_allclose(scores, want.frame_probs[0], atol=1e-6)
            np.testing.assert_allclose(clip_scores[0], want.clip_probs[0], atol=1e-6)

    def test_predicts_a_recording_in_strips_as_in_one_piece(self, name, changes, monkeypatch):
        network = trained(name, changes).double()
        recording = torch.randn(403, 20)
        recording[::50] += 5
        whole = next(Predictor(network, 100, threads=1).predict([[recording]]))
        monkeypatch.setattr("earmark.inference.predictor.STRIP", 60)
        pieces = next(Predictor(network, 100).predict([recording.split(37)]))
        for got, want in zip(pieces, whole, strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)

    def test_counts_the_shapes_of_its_layers(self, name, changes):
        network, shapes = trained(name, changes), []
        if not isinstance(network, FrameNetwork):
            return  # windows have shapes of their own
        modules = [module for _, module in network.map_layers()]
        modules += [m for m in (network.recurrent, network.classifier) if m is not None]
        for module in modules:
            module.register_forward_hook(
                lambda _, __, out: shapes.append((out[0] if isinstance(out, tuple) else out).shape)
            )
        with torch.no_grad():
            network(torch.zeros(1, 50, 20))
        assert [layer.shape for layer in network.layers(50)] == [tuple(s[1:]) for s in shapes]

    def test_is_chosen_by_a_setting(self, name, changes):
        base = "mlms8" if NETWORKS[name].takes == ("waveform",) else "fast"
        settings = Settings.load(base, overrides=[f"model.network={name}", "model.dropout=0.1"])
        assert (settings.model.network, settings.model.dropout) == (name, 0.1)
        again = Settings.from_dict(settings.to_dict())
        assert again == settings


def _features(config):
    """Features of 20 values per frame."""
    if config.takes == ("waveform",):
        return FeatureConfig(sample_rate=1000, kind="waveform")
    return FeatureConfig(sample_rate=8000, n_mels=20, f_max=4000.0)


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
