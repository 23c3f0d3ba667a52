"""Every registered network keeps the same promises."""

import pytest
import torch

from earmark.data.batches import pad_batch
from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.nn import NETWORKS, FusedModel, read_network
from earmark.training.settings import Settings

SMALL = {
    "crnn": {"n_mels": 20, "channels": [4, 4], "pools": [[2, 2], [2, 2]], "last_channels": 8},
    "head": {"n_features": 20, "n_hidden": 8, "n_convolutions": 2, "input_pool": 2},
}


def small(name, **changes):
    return read_network({"network": name, "n_classes": 3, **SMALL[name], **changes})


@pytest.mark.parametrize("n_recurrent", [0, 4])
@pytest.mark.parametrize("name", NETWORKS)
class TestEveryNetwork:
    def test_scores_a_clip_alone_as_padded_in_a_batch(self, name, n_recurrent):
        torch.manual_seed(0)
        network = small(name, n_recurrent=n_recurrent).build().eval()
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
        torch.manual_seed(0)
        network = small(name, n_recurrent=n_recurrent).build()
        network(torch.randn(8, 64, 20))  # statistics to fold
        fused = FusedModel(network.eval())
        recording = torch.randn(120, 20)
        with torch.no_grad():
            whole = network.encode(recording.unsqueeze(0))[0][0]
            margin, pool = fused.margin, network.time_pool
            part = fused.encode(recording[40 - margin : 80 + margin], before=margin, length=40)
            torch.testing.assert_close(part, whole[40 // pool : 80 // pool])
            torch.testing.assert_close(
                fused(recording[None]).frame_probs, network(recording[None]).frame_probs
            )

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
