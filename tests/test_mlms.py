"""MLMS8: the sizes of the specification, its windows, features and seconds, and who learns what."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.errors import SettingError
from earmark.nn.layers import count_parameters
from earmark.nn.mlms import NETS, MlmsConfig, halved_nets, place_windows
from earmark.training.checkpoint import Epoch
from earmark.training.schedule import is_finished, learning_rate
from earmark.training.settings import PRESETS, Settings

FULL = PRESETS["mlms8"].for_classes(17).model
FAST = PRESETS["mlms8-fast"].for_classes(17).model

# Window in ms -> samples, parameters in millions, GMAC of 10 s in windows end to end; 44.1 kHz.
TABLE = {
    372: (16_384, 1.856, 21.7),
    557: (24_576, 1.987, 21.7),
    627: (27_648, 1.986, 21.8),
    743: (32_768, 1.988, 21.7),
    893: (39_366, 1.722, 12.9),
    1486: (65_536, 2.120, 21.7),
    2678: (118_098, 1.919, 12.9),
    3543: (156_250, 1.852, 9.6),
}


def on_meta(config):
    with torch.device("meta"):
        return config.build()


def operations(config, number):
    """Multiply-adds of one window of a net, without the output that only training uses."""
    net, window = on_meta(config).nets[number], config.windows[number]
    *layers, _ = net.describe(window, 1)
    return sum(layer.operations for layer in layers)


def small(**changes):
    sizes = {
        "n_classes": 2,
        "n_samples": 8,
        "nets": ((2,) * 5, (3, 3, 2, 2, 2)),
        "channels": (2, 4, 6),
        "n_hidden": (5,),
        "second": 5,  # 40 samples: one net has longer windows
        "output_pool": 2,
    }
    torch.manual_seed(0)
    return MlmsConfig(**(sizes | changes)).build()


def test_the_nets_are_those_of_the_specification():
    net_of = on_meta(FULL).nets
    assert FULL.windows == [samples for samples, _, _ in TABLE.values()]
    for number, (ms, (samples, parameters, gmac)) in enumerate(TABLE.items()):
        assert round(1000 * samples / 44_100) == ms
        assert round(count_parameters(net_of[number]) / 1e6, 3) == parameters
        assert round(operations(FULL, number) * 441_000 / samples / 1e9, 1) == gmac
    total = sum(operations(FULL, at) * 441_000 / n for at, n in enumerate(FULL.windows))
    assert round(total / 1e9) == 144
    assert sum(count_parameters(net) for net in net_of) == 15_429_128  # 15.4 M


def test_the_shapes_of_the_net_of_893_ms_are_those_of_the_specification():
    net = on_meta(FULL).nets[4]
    rows = net.describe(39_366, 1)
    pooled = [row.shape[1] for row in rows if "max pooling" in row.name]
    assert rows[0].shape == (128, 13_122, 1)
    assert pooled == [4374, 1458, 486, 162, 54, 18, 6, 2, 1]
    maps = [row.shape[0] for row in rows if "convolution" in row.name]
    assert maps == [128, 128, 128, 256, 256, 256, 256, 256, 256, 512, 512]
    kernels = [row.kernel[0] for row in rows if "level" in row.name and "conv" in row.name]
    assert kernels == [3] * 8 + [2]
    assert rows[-1].shape == (1, 17)


def test_half_the_sample_rate_has_the_windows_of_the_specification():
    assert FAST.windows == [
        *(2**13, 3 * 2**12, 27 * 2**9, 2**14),
        *(3**9, 2**15, 3**10, 5**7),
    ]
    assert [2 * window for window in FAST.windows] == FULL.windows
    assert FULL.n_samples * 50 == 44_100
    assert FAST.n_samples * 50 == 22_050


def n_windows(config, localise):
    samples, second = 500 * config.n_samples, 50 * config.n_samples
    return [len(place_windows(samples, n, second, localise)[0]) for n in config.windows]


def test_the_fast_variant_costs_what_is_specified():
    network = on_meta(FAST)
    costs = [operations(FAST, number) for number in range(8)]
    of_clip = n_windows(FAST, localise=False)
    assert of_clip == [220_500 // n + 1 for n in FAST.windows] == [27, 18, 16, 14, 12, 7, 4, 3]
    assert round(np.dot(costs, of_clip) / 1e9, 3) == 0.174
    # Seconds use the windows of the clip, or, of the nets with longer ones, one each.
    of_seconds = [*of_clip[:5], 10, 10, 10]
    assert round(np.dot(costs, of_seconds) / 1e9, 3) == 0.239
    # Both together share the windows of up to a second.
    both = n_windows(FAST, localise=True)
    assert both == [*of_clip[:5], 17, 14, 13]
    assert round(FAST.operations(500) / 1e9, 3) == 0.295
    assert sum(count_parameters(net) for net in network.nets) == 39_274  # 39 k
    assert network.classifier.standardise.num_features == 480
    widths = [layer.n_out for layer in network.classifier.layers[::2]]
    assert (widths, network.classifier.output.out_features) == ([128, 128], 17)


def test_the_full_classifier_takes_10240_features():
    network = on_meta(FULL)
    assert network.classifier.standardise.num_features == 10_240
    assert [layer.n_out for layer in network.classifier.layers[::2]] == [512, 512]
    assert all(layer.p == 0.5 for layer in network.classifier.layers[1::2])


def test_the_presets_have_the_optimizer_and_the_rates_of_the_nets_of_the_original():
    rows = [Epoch(i, 0.01, 0.5, 0.4, 0.7, 0.6, 9.0) for i in range(13)]
    wanted = [0.01, 0.002, 0.0004, 0.00008, 0.000016]
    for name in ("mlms8", "mlms8-fast"):
        settings = PRESETS[name]
        training = settings.training
        assert (training.optimizer, training.learning_rate, training.batch_size) == (
            *("sgd", 0.01, 23),
        )
        # After the first epoch, every third one without an improvement is the next rate's first.
        rates = [learning_rate(training, n, rows[:n]) for n in (1, 4, 7, 10, 13)]
        assert not is_finished(rows, training)  # it still goes on with the last of them
        assert rates == pytest.approx(wanted)
        assert [learning_rate(training, n, rows[:n]) for n in (3, 6)] == pytest.approx(wanted[:2])
        assert not training.balanced
        assert settings.features.kind == "waveform"
    assert PRESETS["mlms8"].features.sample_rate == 44_100
    assert PRESETS["mlms8-fast"].features.sample_rate == 22_050


def test_windows_are_spread_evenly_and_seconds_take_those_with_their_centre_in_them():
    starts, averages = place_windows(1000, window=90, second=100, localise=True)
    np.testing.assert_allclose(starts, np.linspace(0, 910, 12), atol=0.5)
    np.testing.assert_allclose(averages[0], 1 / 12)
    for second in range(10):
        inside = [second * 100 <= start + 45 < second * 100 + 100 for start in starts]
        np.testing.assert_allclose(averages[1 + second], np.array(inside) / sum(inside))


def test_longer_windows_are_centred_on_a_second_and_stay_inside_the_clip():
    starts, averages = place_windows(1000, window=300, second=100, localise=True)
    assert starts[:4] == (0, 233, 467, 700)
    assert starts[4:] == (0, 0, 100, 200, 300, 400, 500, 600, 700, 700)
    np.testing.assert_allclose(averages[0], [0.25] * 4 + [0] * 10)
    np.testing.assert_array_equal(averages[1:, 4:], np.eye(10))
    assert not averages[1:, :4].any()


@pytest.mark.parametrize("n_samples", [1, 30, 99, 100, 101, 130, 777])
@pytest.mark.parametrize("window", [20, 90, 100, 300])
def test_every_second_of_a_clip_has_windows_and_none_lies_beyond_its_end(n_samples, window):
    starts, averages = place_windows(n_samples, window, 100, localise=True)
    assert averages.shape == (1 + -(-n_samples // 100), len(starts))
    np.testing.assert_allclose(averages.sum(axis=1), 1)
    assert all(0 <= start <= max(0, n_samples - window) for start in starts)


def test_a_net_is_what_it_is_written_out_by_hand():
    net = small().eval().double().nets[1]
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.5)
            module.bias.data.normal_(0, 0.5)
    windows = torch.randn(3, 72, dtype=torch.float64)

    def level(x, layer, k, stride=1):
        weight = layer.convolution.weight
        if stride > 1:  # (maps, samples, 1, 1) -> (maps, 1, samples)
            x = F.conv1d(x, weight[:, :, 0, 0].unsqueeze(1), layer.convolution.bias, stride)
        else:
            x = F.pad(x, ((k - 1) // 2, k - 1 - (k - 1) // 2))
            x = F.conv1d(x, weight[..., 0], layer.convolution.bias)
        norm = layer.norm
        return F.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias).clamp(
            min=0
        )

    x, outputs = level(windows[:, None], net.stem, 3, stride=3), []
    for (convolution, _), k in zip(net.levels, (3, 2, 2, 2), strict=True):
        outputs.append(level(x, convolution, k))
        x = F.max_pool1d(outputs[-1], k)
    assert x.shape == (3, 6, 1)
    outputs.append(level(x, net.top, 1))
    want = torch.cat([output.amax(2) for output in outputs[-3:]], 1)
    with torch.no_grad():
        torch.testing.assert_close(net(windows), want)
    assert want.shape == (3, 4 + 6 + 6)


def test_clip_and_seconds_are_scored_by_the_classifier_on_the_mean_of_their_windows():
    network = small()
    network(torch.randn(8, 50, 8))  # statistics
    network.eval()
    clip = torch.randn(1, 20, 8)  # 160 samples, 4 seconds
    with torch.no_grad():
        prediction = network(clip)
        rows = []
        for net, window in zip(network.nets, (32, 72), strict=True):
            starts, averages = place_windows(160, window, 40, localise=True)
            samples = clip.flatten()
            windows = torch.stack([samples[start : start + window] for start in starts])
            rows.append(torch.from_numpy(averages).float() @ net(windows))
        features = torch.cat(rows, 1)
        norm = network.classifier.standardise
        x = (features - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
        layer = network.classifier.layers[0]
        x = x @ layer.convolution.weight[:, :, 0, 0].T + layer.convolution.bias
        x = F.batch_norm(
            x, layer.norm.running_mean, layer.norm.running_var, layer.norm.weight, layer.norm.bias
        ).clamp(min=0)
        output = network.classifier.output
        probs = (x @ output.weight.T + output.bias).sigmoid()
    torch.testing.assert_close(prediction.clip_probs, probs[:1])
    # A second is 2.5 output frames: the third one's centre lies where the next second begins.
    first, second = probs[1], probs[2]
    want = torch.stack([first, first, second, second, second])
    torch.testing.assert_close(prediction.frame_probs[0, :5], want)
    assert probs[1:].std(0).min() > 1e-4


def test_the_nets_learn_from_their_windows_and_the_classifier_from_features_without_a_gradient():
    def gradients(pick):
        network = small(dropout=0.0).train()
        torch.manual_seed(1)
        prediction = network(torch.randn(4, 30, 8))
        pick(network, prediction, torch.eye(2)[[0, 1, 1, 0]]).backward()
        return {name: weight.grad for name, weight in network.named_parameters()}

    whole = gradients(lambda network, *of: network.loss(*of))
    of_classifier = gradients(
        lambda network, prediction, targets: F.binary_cross_entropy(prediction.clip_probs, targets)
    )
    for name, gradient in of_classifier.items():
        if name.startswith("classifier."):
            torch.testing.assert_close(whole[name], gradient, msg=name)
        else:
            assert gradient is None, name
    for number in (0, 1):
        of_net = gradients(
            lambda network, prediction, targets, at=number: F.binary_cross_entropy(
                prediction.windows[at].probs,
                targets[:, None].expand_as(prediction.windows[at].probs),
            )
        )
        for name, gradient in of_net.items():
            if name.startswith(f"nets.{number}."):
                torch.testing.assert_close(whole[name], gradient, msg=name)
            else:
                assert gradient is None, name


def test_training_sees_the_windows_of_clips_only():
    clips = torch.randn(2, 30, 8)  # 240 samples: 8 windows of 32, 4 of 72
    trained, used = small(train_windows=0).train()(clips), small().eval()(clips)
    for prediction in (trained, used):
        assert [int(said.mask.sum()) for said in prediction.windows] == [16, 8]
    assert trained.windows[1].probs.shape[1] == 4
    assert used.windows[1].probs.shape[1] == 4 + 6
    # And frames have the score of their clip.
    want = trained.clip_probs[:, None].expand_as(trained.frame_probs)
    torch.testing.assert_close(trained.frame_probs, want)


def test_a_step_of_training_draws_windows_of_each_clip():
    network, batch = small(train_windows=3).train(), torch.randn(2, 30, 8)
    mask = torch.arange(30) < torch.tensor(
        [[30], [8]]
    )  # the second clip has 3 windows of 32, 1 of 72
    drawn = set()
    for seed in range(20):
        before = deepcopy(network.state_dict())  # two clips are normalised by what came before
        torch.manual_seed(seed)
        prediction = network(batch, mask)
        assert [said.mask.sum(1).tolist() for said in prediction.windows] == [[3, 3], [3, 1]]
        torch.manual_seed(seed)
        drawn.update(network._place(240, 32, 40)[0])
    assert drawn == set(place_windows(240, 32, 40, False)[0])  # each window in its turn
    network.load_state_dict(before)
    torch.manual_seed(19)
    torch.testing.assert_close(network(batch, mask).clip_probs, prediction.clip_probs)
    assert network.eval()(batch, mask).windows[0].mask.sum() == 8 + 3


def test_windows_go_through_a_net_in_parts_that_change_nothing(monkeypatch):
    network, clips = small().eval(), torch.randn(2, 30, 8)
    with torch.no_grad():
        want = network(clips)
        monkeypatch.setattr("earmark.nn.mlms.MOST_SAMPLES", 100)
        got = network(clips)
    torch.testing.assert_close(got.clip_probs, want.clip_probs)
    torch.testing.assert_close(got.frame_probs, want.frame_probs)


def test_the_first_weights_are_uniform_by_he_and_biases_0():
    net = on_cpu_net()
    weight = net.levels[3][0].convolution.weight  # 256 maps, filters of 2: fan-in 512
    limit = (6 / 512) ** 0.5
    assert 0.99 * limit < weight.abs().max() <= limit
    assert not net.top.convolution.bias.any()


def on_cpu_net():
    torch.manual_seed(0)
    return MlmsConfig(n_classes=3, nets=((2,) * 6,)).build().nets[0]


def test_a_level_of_2_is_what_half_the_rate_loses():
    assert halved_nets(NETS)[1] == (*(2,) * 12, 3)
    assert halved_nets(NETS)[7] == (5,) * 7


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nets=[]", "one entry or more"),
        ("nets=[[2, 2, 2, 2]]", "4 levels or more"),
        ("nets=[[2, 2, 2, 2, 0]]", "integers of 1 or more"),
        ("channels=[2, 2]", "channels"),
        ("n_hidden=[]", "n_hidden one or more"),
        ("dropout=1.0", "below 1"),
        ("pooling=max", "no setting 'model.pooling'"),
        ("n_samples=80", "no setting 'model.n_samples'"),
    ],
)
def test_sizes_and_settings_that_make_no_sense_are_refused(override, message):
    with pytest.raises(SettingError, match=message):
        Settings.load("mlms8", overrides=[f"model.{override}"])
