"""The network: shapes, counts, reproducible weights, and padding that has no effect."""

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own usage
from torch.utils.flop_counter import FlopCounterMode

from earmark.errors import SettingError
from earmark.frames import FrameGrid
from earmark.nn.loss import clip_loss
from earmark.nn.model import PRESETS, Model, ModelConfig
from earmark.pooling import POOLINGS, linear_pool


def make(preset="paper-fast", **changes):
    torch.manual_seed(0)
    return Model(ModelConfig.preset(preset, n_classes=5, **changes)).eval()


def shake(model):
    """Give batch norms random statistics, so that zeroed padding differs from a mean."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.5, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
            module.bias.data.normal_(0, 0.5, generator=generator)
    return model


def log_mels(n_frames, batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, n_frames, 80, generator=generator)


def pad(clips, n_frames, junk):
    batch = torch.full((len(clips), n_frames, 80), junk)
    mask = torch.zeros(len(clips), n_frames, dtype=torch.bool)
    for i, clip in enumerate(clips):
        batch[i, : clip.shape[1]] = clip[0]
        mask[i, : clip.shape[1]] = True
    return batch, mask


@pytest.mark.parametrize("preset", PRESETS)
def test_ten_seconds_give_125_frames_at_12_and_a_half_hz(preset):
    model = make(preset)
    prediction = model(log_mels(500))
    assert prediction.frame_probs.shape == (1, 125, 5)
    assert prediction.clip_probs.shape == (1, 5)
    n_hidden = 2 * model.config.n_recurrent or model.config.last_channels  # one mel is left
    assert prediction.hidden.shape == (1, 125, n_hidden)
    assert model.config.output_grid(FrameGrid(50)) == FrameGrid(12.5)
    assert model.config.n_frames(500) == 125


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("n_frames", [200, 201, 202, 203, 1, 3])
def test_a_clip_scores_the_same_alone_and_padded_in_a_batch(preset, n_frames):
    model = shake(make(preset))
    short, full = log_mels(n_frames), log_mels(500, seed=1)
    with torch.no_grad():
        alone = model(short)
        together = model(*pad([short, full], 500, junk=float("nan")))
        whole = model(full)
    n = alone.frame_probs.shape[1]
    assert together.mask.sum(1).tolist() == [n, 125]
    torch.testing.assert_close(together.frame_probs[:1, :n], alone.frame_probs, atol=1e-5, rtol=0)
    torch.testing.assert_close(together.clip_probs[:1], alone.clip_probs, atol=1e-5, rtol=0)
    torch.testing.assert_close(together.clip_probs[1:], whole.clip_probs, atol=1e-5, rtol=0)
    assert together.frame_probs[0, n:].eq(0).all()


def test_without_a_gru_a_frame_depends_on_its_receptive_field_and_padding_has_no_effect():
    model = shake(make(n_recurrent=0)).double()
    assert model.recurrent is None
    assert not any("recurrent" in name for name in model.state_dict())
    short, full = log_mels(203).double(), log_mels(500, seed=1).double()
    batch, mask = pad([short, full], 500, junk=float("nan"))
    with torch.no_grad():
        alone, together = model(short), model(batch.double(), mask)
        far = full.clone()
        far[:, 300:] = 0
        changed = (model(far).frame_probs - model(full).frame_probs).abs().amax((0, 2)) > 0
    torch.testing.assert_close(together.clip_probs[:1], alone.clip_probs)
    torch.testing.assert_close(together.frame_probs[:1, :51], alone.frame_probs)
    assert alone.hidden.shape == (1, 51, model.config.last_channels)
    reach = (model.config.receptive_field - 1) // 2
    first = int(changed.nonzero()[0])
    assert 300 - reach - 4 <= 4 * first <= 300
    assert sum(layer.n_parameters for layer in model.config.layers(500)) == sum(
        parameter.numel() for parameter in model.parameters()
    )


def test_without_a_gru_there_is_dropout_before_the_classifier():
    torch.manual_seed(0)
    model = make(n_recurrent=0, dropout=0.9).train()
    dropped = model.classify(torch.ones(2, 50, model.config.last_channels)).hidden
    assert 0.85 < (dropped == 0).float().mean() < 0.95


@pytest.mark.parametrize("name", POOLINGS)
def test_padding_has_no_effect_with_any_pooling(name):
    model = shake(make(pooling=name))
    short = log_mels(203)
    with torch.no_grad():
        padded = model(*pad([short], 500, junk=7.0))
        torch.testing.assert_close(padded.clip_probs, model(short).clip_probs, atol=1e-5, rtol=0)


def test_padding_changes_no_statistic_and_no_gradient_in_training():
    def step(n_frames):
        model = make(dropout=0.0).train()
        prediction = model(*pad([log_mels(203), log_mels(120, seed=1)], n_frames, junk=9.0))
        clip_loss(prediction.clip_probs, torch.eye(5)[:2]).backward()
        return model

    for (name, a), (_, b) in zip(
        step(203).state_dict().items(), step(400).state_dict().items(), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5, msg=name)
    pairs = zip(step(203).named_parameters(), step(400).parameters(), strict=True)
    for (name, a), b in pairs:
        torch.testing.assert_close(a.grad, b.grad, atol=1e-5, rtol=1e-3, msg=name)


def test_an_empty_clip_scores_zero_and_changes_no_other_clip():
    model = shake(make())
    full = log_mels(500)
    batch, mask = pad([full, log_mels(0)], 500, junk=3.0)
    with torch.no_grad():
        prediction = model(batch, mask)
        want = model(full).clip_probs
    assert prediction.clip_probs[1].eq(0).all()
    torch.testing.assert_close(prediction.clip_probs[:1], want, atol=1e-5, rtol=0)


def test_a_batch_of_no_clips_gives_none_with_a_mask_as_without():
    model, nothing = make(), torch.zeros(0, 100, 80)
    for mask in (None, torch.zeros(0, 100, dtype=torch.bool)):
        with torch.no_grad():
            prediction = model(nothing, mask)
        assert prediction.clip_probs.shape == (0, 5)
        assert prediction.frame_probs.shape == (0, 25, 5)


TINY = {
    "n_mels": 12,
    "channels": (3,),
    "pools": ((2, 2),),
    "last_channels": 4,
    "last_pool": (1, 2),
    "n_recurrent": 6,
}


def test_the_forward_pass_is_what_it_is_written_out_by_hand():
    model = shake(Model(ModelConfig(n_classes=2, stages=(2,), **TINY)).double().eval())
    x = torch.randn(2, 8, 12, dtype=torch.float64)

    def normed(maps, layer):
        maps = F.conv2d(maps, layer.convolution.weight, padding=1)
        mean, variance, scale, shift = (
            values[:, None, None]
            for values in (
                layer.norm.running_mean,
                layer.norm.running_var,
                layer.norm.weight,
                layer.norm.bias,
            )
        )
        return (maps - mean) / (variance + 1e-5).sqrt() * scale + shift

    maps = x[:, None]
    for layer in model.blocks[0][:2]:
        maps = normed(maps, layer)
        maps = maps[:, :3] * (1 / (1 + (-maps[:, 3:]).exp()))  # linear, times sigmoid of the other
    maps = maps.reshape(2, 3, 4, 2, 6, 2).amax((3, 5))
    maps = normed(maps, model.last).clamp(min=0)
    maps = maps.reshape(2, 4, 4, 3, 2).amax(4)
    # All mels of the first map, then all mels of the second, and so on.
    features = torch.cat([maps[:, number] for number in range(4)], dim=2)
    hidden = model.recurrent(features)
    logits = hidden @ model.classifier.weight.T + model.classifier.bias
    frame_probs = 1 / (1 + (-logits).exp())
    with torch.no_grad():
        prediction = model(x)
    torch.testing.assert_close(prediction.frame_probs, frame_probs)
    torch.testing.assert_close(prediction.clip_probs, linear_pool(frame_probs, stages=(2,)))


def test_dropout_is_there_in_training_and_gone_in_evaluation():
    x = log_mels(40, batch=2)

    def differs(model):
        with torch.no_grad():
            return not model(x).frame_probs.equal(model(x).frame_probs)

    assert differs(make(dropout=0.5).train())
    assert not differs(make(dropout=0.0).train())
    assert not differs(make(dropout=0.5).eval())
    assert make(dropout=0.3).dropout.p == 0.3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_step_of_training_under_autocast_is_the_same_with_a_mask_of_all_frames(dtype):
    def step(mask):
        model = make(dropout=0.0).train()
        with torch.autocast("cpu", dtype=dtype):
            prediction = model(20 * log_mels(100, batch=2), mask)
        clip_loss(prediction.clip_probs, torch.eye(5)[:2]).backward()
        return model, prediction

    (masked, got), (plain, want) = step(torch.ones(2, 100, dtype=torch.bool)), step(None)
    atol = 20 * torch.finfo(dtype).eps
    torch.testing.assert_close(got.frame_probs, want.frame_probs, atol=atol, rtol=0)
    for (name, a), b in zip(masked.state_dict().items(), plain.state_dict().values(), strict=True):
        assert a.isfinite().all(), name
        torch.testing.assert_close(a, b, atol=atol, rtol=atol, msg=name)
    assert all(parameter.grad.isfinite().all() for parameter in masked.parameters())


@pytest.mark.parametrize("preset", PRESETS)
def test_the_table_of_layers_has_the_shapes_and_parameters_of_the_network(preset):
    model = make(preset)
    outputs = []
    for module in model.modules():
        if hasattr(module, "describe"):
            module.register_forward_hook(
                lambda _, __, out: outputs.append(out[0] if isinstance(out, tuple) else out)
            )
    with torch.no_grad():
        model(log_mels(500))
    layers = model.layers(500)
    assert [tuple(output.shape[1:]) for output in outputs] == [layer.shape for layer in layers]
    assert layers == model.config.layers(500)
    assert layers[1].name == "block 1, gated convolution"
    network = [p for name, p in model.named_parameters() if not name.startswith("pooling")]
    assert sum(layer.n_parameters for layer in layers) == sum(p.numel() for p in network)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_operation_count_is_that_of_torchs_own_counter(preset):
    model = make(preset)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(log_mels(500))
    counted = {str(op): n for op, n in counter.get_flop_counts()["Global"].items()}
    convolutions = counted["aten.convolution"] // 2
    layers = model.layers(500)
    assert sum(layer.operations for layer in layers if "convolution" in layer.name) == convolutions
    # The counter does not see into a GRU: its products are repeated here, frame by frame.
    by_hand = FlopCounterMode(display=False)
    with by_hand, torch.no_grad():
        if model.config.n_recurrent:
            gru = model.recurrent
            frame, state = torch.zeros(1, gru.input_size), torch.zeros(1, gru.hidden_size)
            for end in ("", "_reverse"):
                for _ in range(125):
                    _ = frame @ getattr(gru, f"weight_ih_l0{end}").T
                    _ = state @ getattr(gru, f"weight_hh_l0{end}").T
        weight = model.classifier.weight
        _ = torch.zeros(125, weight.shape[1]) @ weight.T
    products = by_hand.get_total_flops() // 2
    assert model.config.operations(500) == convolutions + products


def test_paper_has_the_documented_cost_and_fast_far_less():
    cost = {name: ModelConfig.preset(name, n_classes=17).operations(500) for name in PRESETS}
    assert cost["paper"] == pytest.approx(5.1e9, rel=0.02)
    assert cost["fast"] < cost["paper-fast"] < cost["paper"] / 15


@pytest.mark.parametrize("preset", PRESETS)
def test_the_receptive_field_is_where_the_gradient_is(preset, monkeypatch):
    """Of the convolutions alone: the GRU is restricted to its own frame."""
    # A maximum passes the gradient to one of its frames, a mean to all of them.
    monkeypatch.setattr("earmark.runtime.kernels.max_pool", F.avg_pool2d)
    model = make(preset).double()
    if n := model.config.n_recurrent:
        for name, parameter in model.recurrent.named_parameters():
            if "weight_hh" in name or "bias" in name:
                parameter.data.zero_()
        # Without recurrent weights the update gate still passes the state on: close it.
        for suffix in ("", "_reverse"):
            getattr(model.recurrent, f"bias_ih_l0{suffix}").data[n : 2 * n] = -1e9
    x = log_mels(200).double().requires_grad_()
    middle = 25
    model(x).frame_probs[0, middle].sum().backward()
    touched = x.grad[0].abs().sum(1).nonzero().flatten().tolist()
    field, own = model.config.receptive_field, model.config.time_pool
    first = middle * own - (field - own) // 2
    assert touched == list(range(first, first + field))


def test_one_step_of_training_lowers_the_loss():
    model = make(dropout=0.0).train()
    x, targets = log_mels(500, batch=4), torch.eye(5)[:4]
    optimiser = torch.optim.Adam(model.parameters(), 1e-3)
    losses = []
    for _ in range(4):
        loss = clip_loss(model(x).clip_probs, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)


def test_it_runs_under_autocast_and_gives_single_precision_probabilities():
    model = make()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        got = model(log_mels(500))
    with torch.no_grad():
        want = model(log_mels(500))
    assert got.frame_probs.dtype == torch.float32
    torch.testing.assert_close(got.frame_probs, want.frame_probs, atol=0.05, rtol=0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: ModelConfig.preset("papper", 3), "did you mean 'paper'"),
        (lambda: ModelConfig.preset("paper", 3, chanels=(1,)), "did you mean 'channels'"),
        (lambda: ModelConfig(n_classes=0), "1 or more"),
        (lambda: ModelConfig(n_classes=3, kernel=4), "kernel must be odd"),
        (lambda: ModelConfig(n_classes=3, channels=(8, 8)), "one entry per block"),
        (lambda: ModelConfig(n_classes=3, dropout=1.0), "dropout"),
        (lambda: ModelConfig(n_classes=3, pooling="soft"), "no pooling 'soft'"),
        (lambda: ModelConfig(n_classes=3, stages=(0,)), r"1 or more, .* Got \(0,\)"),
        (lambda: ModelConfig(n_classes=3, stages=5), "integers .* Got 5"),
        (
            lambda: ModelConfig(n_classes=3, pooling="noisy-or", stage_weights="learned"),
            "no weights to learn",
        ),
        (lambda: make()(torch.zeros(1, 500, 64)), r"\(batch, frames, 80\)"),
        (lambda: make()(torch.zeros(1, 0, 80)), "at least one frame"),
        (lambda: make()(log_mels(9), torch.ones(1, 8).bool()), r"of shape \(1, 9\)"),
        (lambda: make()(log_mels(2), torch.tensor([[False, True]])), "first frames"),
    ],
)
def test_wrong_use_is_an_error_that_names_the_remedy(call, sentence):
    with pytest.raises(SettingError, match=sentence):
        call()


def test_a_config_made_of_lists_is_the_one_made_of_tuples():
    config = ModelConfig.preset("paper-fast", n_classes=3)
    lists = ModelConfig.preset(
        "paper-fast",
        n_classes=3,
        input_pool=[2, 2],
        channels=[16, 32, 32, 48],
        pools=[[2, 2], [1, 2], (1, 2), [1, 1]],
        stages=[5, 5, 5],
    )
    assert lists == config
    assert hash(lists) == hash(config)


def test_a_config_describes_its_network_without_weights_or_random_numbers():
    torch.manual_seed(0)
    want = torch.rand(3)
    torch.manual_seed(0)
    config = ModelConfig.preset("paper-fast", n_classes=7, channels=(4, 4, 4, 8))
    assert (config.time_pool, config.receptive_field) == (4, 68)
    assert config.layers(100)[-1].shape == (25, 7)
    assert torch.rand(3).equal(want)


def test_initial_weights_depend_on_the_seed_alone():
    """Guards the order in which parameters are made: results of old runs must be repeatable."""
    torch.manual_seed(0)
    model = Model(ModelConfig.preset("paper-fast", n_classes=5, pooling="attention"))
    names = [name for name, _ in model.named_parameters()]
    assert names[:3] == ["blocks.0.0.convolution.weight", "blocks.0.0.norm.weight",
                         "blocks.0.0.norm.bias"]  # fmt: skip
    assert [name for name in names if name.startswith(("last", "classifier", "pooling"))] == [
        "last.convolution.weight",
        "last.norm.weight",
        "last.norm.bias",
        "classifier.weight",
        "classifier.bias",
        "pooling.weighting.layer.weight",
        "pooling.weighting.layer.bias",
    ]
    assert names.index("last.norm.bias") < names.index("recurrent.weight_ih_l0")
    last = model.pooling.weighting.layer.bias
    torch.testing.assert_close(
        last[:2], torch.tensor([-0.05899148, -0.05692895]), atol=1e-6, rtol=0
    )


@pytest.mark.parametrize("name", POOLINGS)
def test_whether_classes_are_independent_is_known_of_every_pooling(name):
    """A network restricted to some classes predicts the same, unless its pooling mixes them."""
    model = make(pooling=name)
    with torch.no_grad():
        features = torch.randn(2, 30, model.config.last_channels)
        want = model.classify(features).clip_probs[:, :2]
        for parameter in (*model.classifier.parameters(), *model.pooling.parameters()):
            parameter[2:] = torch.randn_like(parameter[2:])
        same = torch.allclose(model.classify(features).clip_probs[:, :2], want)
    assert same is not model.config.mixes_classes
