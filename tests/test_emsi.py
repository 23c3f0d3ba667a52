"""EMSI-like: the sizes of the specification, windows, and how members are combined."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.errors import SettingError
from earmark.nn.emsi import EmsiConfig
from earmark.nn.layers import count_parameters
from earmark.nn.windows import Windows, frame_averages, regular_starts
from earmark.training.settings import PRESETS, Settings

FULL = PRESETS["emsi-like"].for_classes(17).model
FAST = PRESETS["emsi-like-fast"].for_classes(17).model


def layers_of(config, window):
    name = f"windows of {window} frames, "
    return [layer for layer in config.layers(500) if layer.name.startswith(name)]


def small(**changes):
    sizes = {"n_classes": 2, "n_mels": 8, "windows": (16, 6), "channels": (3, 4)}
    torch.manual_seed(0)
    network = EmsiConfig(**(sizes | changes)).build().eval()
    with torch.no_grad():  # otherwise all windows score alike
        for member in network.members:
            member.classifier.weight *= 20
    return network


@pytest.mark.parametrize(
    ("config", "of_member", "of_all", "gmac_of_member", "gmac"),
    [(FULL, 1_177_009, 4_708_036, 2.03, 8.1), (FAST, 42_395, 169_580, 0.073, 0.29)],
)
def test_parameters_and_operations_are_those_of_the_specification(
    config, of_member, of_all, gmac_of_member, gmac
):
    members = [layers_of(config, window) for window in (500, 250, 100, 50)]
    assert [sum(layer.n_parameters for layer in own) for own in members] == [of_member] * 4
    with torch.device("meta"):
        assert count_parameters(config.build()) == of_all
    digits = 2 if gmac_of_member > 1 else 3
    per_member = [sum(layer.operations for layer in own) / 1e9 for own in members]
    assert round(per_member[0], digits) == gmac_of_member
    # Halving drops an odd frame: windows of other lengths cost up to 2 % less.
    assert all(0.98 * per_member[0] < other <= per_member[0] for other in per_member)
    assert round(config.operations(500) / 1e9, 1 if gmac > 1 else 2) == gmac


@pytest.mark.parametrize(
    ("window", "shapes"),
    [
        (500, [(250, 40), (125, 20), (62, 10), (31, 5)]),
        (50, [(25, 40), (12, 20), (6, 10), (3, 5)]),
    ],
)
def test_shapes_are_those_of_the_specification(window, shapes):
    pooled = [layer.shape for layer in layers_of(FULL, window) if "max pooling" in layer.name]
    maps = (32, 64, 128, 256)
    assert pooled == [(n, *shape) for n, shape in zip(maps, shapes, strict=True)]
    *_, hidden, probs = layers_of(FULL, window)
    assert (hidden.shape, probs.shape) == ((1, 256), (1, 17))
    assert FULL.n_frames(500) == 125


def test_half_a_hop_for_the_shortest_windows_adds_what_is_specified():
    halved = FAST.changed(hops=(500, 250, 100, 25))
    added = halved.operations(500) - FAST.operations(500)
    # The specification has ten more windows; of those, one would have no frame of its own.
    assert len(regular_starts(500, 50, 25)) == 10 + 9
    assert round(added * 10 / 9 / 1e9, 2) == 0.07


def test_the_presets_have_the_optimizer_and_the_stopping_rule_of_the_specification():
    for name in ("emsi-like", "emsi-like-fast"):
        training = PRESETS[name].training
        assert (training.optimizer, training.learning_rate) == ("adam", 1e-3)
        assert (training.balanced, training.patience, training.monitor) == (True, 10, "loss")
        assert PRESETS[name].features.n_features == 80


def test_a_member_is_what_it_is_written_out_by_hand():
    network = small(channels=(3,)).double()
    member = network.members[0]
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    maps = x[:, None]
    for layer in member.blocks[0][:2]:
        maps = F.conv2d(maps, layer.convolution.weight, padding=1)
        maps = F.batch_norm(
            maps,
            layer.norm.running_mean,
            layer.norm.running_var,
            layer.norm.weight,
            layer.norm.bias,
        ).clamp(min=0)
    hidden = maps[:, :, :6].reshape(2, 3, 3, 2, 4, 2).amax((3, 5)).amax((2, 3))
    logits = hidden @ member.classifier.weight.T + member.classifier.bias
    with torch.no_grad():
        torch.testing.assert_close(member(x), 1 / (1 + (-logits).exp()))


@pytest.mark.parametrize("hops", [(), (8, 3), (16, 4)])
@pytest.mark.parametrize("clip_score", ["max", "mean"])
@pytest.mark.parametrize("n_frames", [1, 16, 41])
def test_members_are_combined_as_the_formulas_say(hops, clip_score, n_frames):
    """A twin that goes through all frames one by one."""
    alpha, beta = (1.0, 3.0), (2.0, 0.5)
    network = small(
        hops=hops, clip_score=clip_score, frame_weights=alpha, clip_weights=beta
    ).double()
    clip = torch.randn(1, n_frames, 8, dtype=torch.float64)
    with torch.no_grad():
        prediction = network(clip)
    curves, scores = [], []
    for member, window, hop in zip(network.members, (16, 6), hops or (16, 6), strict=True):
        starts = [0]
        while starts[-1] + window < n_frames:
            starts.append(starts[-1] + hop)
        probs = []
        for start in starts:
            part = clip[:, start : start + window]
            mask = torch.arange(window)[None] < part.shape[1]
            with torch.no_grad():
                probs.append(member(F.pad(part, (0, 0, 0, window - part.shape[1])), mask)[0])
        probs = torch.stack(probs).numpy()
        scores.append(probs.max(0) if clip_score == "max" else probs.mean(0))
        curve = [
            np.mean([p for p, s in zip(probs, starts, strict=True) if s <= t < s + window], axis=0)
            for t in range(n_frames)
        ]
        curves.append([curve[min(t + 2, n_frames - 1)] for t in range(0, n_frames, 4)])
    x = (alpha[0] * np.array(curves[0]) + alpha[1] * np.array(curves[1])) / sum(alpha)
    y = (beta[0] * scores[0] + beta[1] * scores[1]) / sum(beta)
    np.testing.assert_allclose(prediction.frame_probs[0], x, atol=1e-12)
    np.testing.assert_allclose(prediction.clip_probs[0], y, atol=1e-12)
    assert n_frames < 41 or np.ptp(x, axis=0).min() > 0.01


def test_a_window_of_the_whole_clip_scores_all_frames_alike_and_shorter_ones_do_not():
    clip = torch.randn(1, 48, 8)
    with torch.no_grad():
        whole = small(windows=(48,))(clip).frame_probs[0]
        short = small(windows=(8,))(clip).frame_probs[0]
    assert whole.unique(dim=0).shape[0] == 1
    assert short.unique(dim=0).shape[0] == 6
    torch.testing.assert_close(short[0::2], short[1::2])  # 8 frames are 2 output frames


def test_what_is_masked_in_a_part_filled_window_wins_no_maximum():
    network = small(windows=(16,), channels=(3,))
    member = network.members[0]
    member.classifier.weight.data /= 20
    member.blocks[0][1].norm.bias.data += 0.5  # after this, padding would be above 0
    clip = torch.randn(1, 7, 8)
    mask = torch.arange(16)[None] < 7
    with torch.no_grad():
        want = network(clip).clip_probs
        for junk in (0.0, 100.0):
            padded = F.pad(clip, (0, 0, 0, 9), value=junk)
            torch.testing.assert_close(network(padded, mask).clip_probs, want)
        unmasked = member(F.pad(clip, (0, 0, 0, 9)))
    assert not torch.allclose(unmasked, want, atol=1e-3)


@pytest.mark.parametrize("learns", ["windows", "clips"])
def test_every_member_learns_as_it_would_alone(learns):
    """The gradient of a member is that of its own loss, whatever the others predict."""

    def step(windows, keep=None):
        network = small(learns=learns, dropout=0.0, last_dropout=0.0)
        if keep is not None:
            alone = EmsiConfig(
                2, 8, (windows[keep],), channels=(3, 4), dropout=0.0, last_dropout=0.0,
                learns=learns,
            ).build()  # fmt: skip
            alone.members[0].load_state_dict(network.members[keep].state_dict())
            network = alone
        network.train()
        torch.manual_seed(1)
        network.loss(network(torch.randn(3, 40, 8)), torch.eye(2)[[0, 1, 1]]).backward()
        return network

    together = step((16, 6))
    for number in (0, 1):
        alone = step((16, 6), keep=number)
        pairs = zip(
            together.members[number].named_parameters(),
            alone.members[0].parameters(),
            strict=True,
        )
        for (name, one), other in pairs:
            torch.testing.assert_close(one.grad, other.grad, msg=name)


def test_each_clip_counts_alike_in_the_loss_however_many_windows_it_has():
    network = small(windows=(4,), channels=(3,), dropout=0.0, last_dropout=0.0)
    long, short = torch.randn(1, 40, 8), torch.randn(1, 4, 8)
    batch = torch.cat([long, F.pad(short, (0, 0, 0, 36))])
    mask = torch.arange(40) < torch.tensor([[40], [4]])
    targets = torch.eye(2)
    with torch.no_grad():
        together = network.loss(network(batch, mask), targets)
        alone = [
            network.loss(network(clip), row[None])
            for clip, row in ((long, targets[0]), (short, targets[1]))
        ]
    torch.testing.assert_close(together, sum(alone) / 2)


def test_windows_are_cut_where_the_audio_is_and_dropped_where_there_is_none():
    windows = Windows([regular_starts(n, 4, 4) for n in (9, 4, 0)], [9, 4, 0], window=4)
    rows = torch.arange(1.0, 28.0).view(3, 9, 1)
    rows[1, 4:], rows[2] = 0, 0
    cut, mask = windows.cut(rows)
    assert cut[:, :, 0].tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 0, 0, 0], [10, 11, 12, 13]]
    assert mask.sum(1).tolist() == [4, 4, 1, 4]
    assert windows.present(torch.device("cpu")).sum(1).tolist() == [3, 1, 0]
    assert [len(windows.cut(rows, part)[0]) for part in windows.parts(3)] == [3, 1]


def test_every_frame_is_covered_and_its_windows_add_up_to_1():
    for n_frames in (1, 7, 50, 501):
        for window, hop in ((50, 50), (50, 25), (7, 3)):
            averages = frame_averages(n_frames, window, hop, 4)
            assert averages.shape[0] == -(-n_frames // 4)
            np.testing.assert_allclose(averages.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("windows=[]", "one entry or more"),
        ("windows=[500, 8]", "at least 16"),
        ("hops=[1, 2]", "one entry per window, 4"),
        ("hops=[501, 250, 100, 50]", "at most the windows"),
        ("frame_weights=[0, 0, 0, 0]", "at least one above 0"),
        ("clip_weights=[1, -1, 1, 1]", "0 or more"),
        ("clip_score=median", "no clip_score 'median'"),
        ("learns=frames", "no learns 'frames'"),
        ("last_dropout=1.0", "below 1"),
        ("pooling=max", "no setting 'model.pooling'"),
        ("n_recurrent=4", "no setting 'model.n_recurrent'"),
    ],
)
def test_sizes_and_settings_that_make_no_sense_are_refused(override, message):
    with pytest.raises(SettingError, match=message):
        Settings.load("emsi-like", overrides=[f"model.{override}"])
