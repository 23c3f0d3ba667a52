"""Log-mels show the physics of sound, agree with librosa, and do not depend on how it is read."""

import io
import warnings
from dataclasses import replace
from fractions import Fraction

import librosa
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from earmark.audio.decode import find_audio, read_audio, read_blocks
from earmark.audio.encode import write_audio
from earmark.data.encoded import feature_blocks
from earmark.data.features import (
    FeatureConfig,
    LogMel,
    Normalise,
    log_mel,
    log_mel_blocks,
    mel_filters,
)
from earmark.errors import SettingError
from earmark.nn.model import Model, ModelConfig

CONFIG = FeatureConfig()
OTHERS = [
    CONFIG,
    FeatureConfig(sample_rate=16000, window=0.064, hop=0.020, n_mels=64, f_max=8000.0),
    FeatureConfig(
        sample_rate=44100, window=0.040, hop=0.010, n_mels=33, f_min=0.0, log_offset=1e-8
    ),
    FeatureConfig(sample_rate=8000, window=0.025, hop=0.025, n_mels=5, f_max=4000.0),
    FeatureConfig(sample_rate=22050, window=883 / 22050, hop=256 / 22050, n_mels=17, f_max=11025.0),
]


def noise(n_samples: int) -> np.ndarray:
    return 0.1 * np.random.default_rng(0).standard_normal(n_samples, dtype=np.float32)


def tone(hz: float, seconds: float = 1.0, sample_rate: int = 32000) -> np.ndarray:
    time = np.arange(round(seconds * sample_rate)) / sample_rate
    return np.sin(2 * np.pi * hz * time).astype(np.float32)


def padded(waveform: np.ndarray, config: FeatureConfig) -> np.ndarray:
    front = (config.window_samples - config.hop_samples) // 2
    behind = config.window_samples - config.hop_samples - front
    return np.pad(waveform, (front, behind + -len(waveform) % config.hop_samples))


def librosa_log_mel(waveform: np.ndarray, config: FeatureConfig) -> np.ndarray:
    mel = librosa.feature.melspectrogram(
        y=padded(waveform, config),
        sr=config.sample_rate,
        n_fft=config.window_samples,
        hop_length=config.hop_samples,
        center=False,
        n_mels=config.n_mels,
        fmin=config.f_min,
        fmax=config.f_max,
    )
    return np.log(mel + config.log_offset).T


def brute_force_log_mel(waveform: np.ndarray, config: FeatureConfig) -> np.ndarray:
    samples = padded(waveform.astype(np.float64), config)
    window, hop = config.window_samples, config.hop_samples
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    rows = []
    for first in range(0, len(samples) - window + 1, hop):
        power = np.abs(np.fft.rfft(samples[first : first + window] * hann)) ** 2
        rows.append(np.log(mel_filters(config) @ power + config.log_offset))
    return np.array(rows)


def test_ten_seconds_are_five_hundred_frames():
    assert log_mel(np.zeros(320000, np.float32), CONFIG).shape == (500, 80)
    assert CONFIG.grid.frame_rate == Fraction(50)


@pytest.mark.parametrize("n_samples", [0, 1, 639, 640, 641, 163840, 163841, 164500])
def test_an_incomplete_frame_counts(n_samples):
    features = log_mel(noise(n_samples), CONFIG)
    assert features.shape == (-(-n_samples // 640), 80)
    assert features.shape[0] == CONFIG.grid.count(n_samples / 32000)
    assert features.dtype == torch.float32


def test_silence_is_the_logarithm_of_the_offset():
    features = log_mel(np.zeros(32000, np.float32), CONFIG)
    assert torch.equal(features, torch.full((50, 80), CONFIG.log_offset).log())


@pytest.mark.parametrize("hz", [200.0, 1000.0, 4000.0, 10000.0])
def test_a_tone_peaks_in_the_mel_whose_centre_is_nearest(hz):
    centres = librosa.mel_frequencies(82, fmin=50.0, fmax=14000.0)[1:-1]
    peaks = log_mel(tone(hz), CONFIG)[2:-2].argmax(dim=1)
    assert (peaks == np.argmin(np.abs(centres - hz))).all()


def test_twice_the_amplitude_is_four_times_the_power():
    waveform = noise(32000)
    step = log_mel(2 * waveform, CONFIG) - log_mel(waveform, CONFIG)
    np.testing.assert_allclose(step, np.log(4), atol=1e-3)


@pytest.mark.parametrize("index", [0, 7, 49])
def test_a_click_in_the_middle_of_a_frame_appears_in_that_frame_only(index):
    waveform = np.zeros(32000, np.float32)
    waveform[index * 640 + 320] = 1.0
    loud = log_mel(waveform, CONFIG).mean(dim=1).numpy()
    assert np.argmax(loud) == index == CONFIG.grid.index((index * 640 + 320) / 32000)
    # With a window of two hops the neighbours' windows end at the click, where they are zero.
    assert np.allclose(np.delete(loud, index), np.log(CONFIG.log_offset))


def test_a_click_between_two_frames_appears_in_both_alike():
    waveform = np.zeros(32000, np.float32)
    waveform[20 * 640] = 1.0
    features = log_mel(waveform, CONFIG)
    np.testing.assert_allclose(features[19], features[20], atol=1e-4)
    assert features[19].mean() > features[18].mean() + 1


@settings(max_examples=20, deadline=None)
@given(hops=st.integers(0, 300))
def test_a_shift_by_hops_shifts_the_frames(hops):
    waveform = noise(20000)
    shifted = np.concatenate([np.zeros(hops * 640, np.float32), waveform])
    features = log_mel(waveform, CONFIG)
    # The first window begins half a hop before the waveform, in silence both times.
    np.testing.assert_allclose(log_mel(shifted, CONFIG)[hops:], features, atol=1e-4)


@pytest.mark.parametrize("config", OTHERS)
def test_it_equals_its_definition(config):
    waveform = noise(3 * config.sample_rate + 123)
    expected = brute_force_log_mel(waveform, config)
    np.testing.assert_allclose(log_mel(waveform, config), expected, atol=2e-5)


@pytest.mark.parametrize("config", OTHERS)
def test_it_agrees_with_librosa(config):
    waveform = noise(config.sample_rate + 77)
    expected = librosa_log_mel(waveform, config)
    np.testing.assert_allclose(log_mel(waveform, config), expected, atol=1e-4)


@pytest.mark.parametrize("config", OTHERS)
def test_the_filters_are_those_of_librosa(config):
    expected = librosa.filters.mel(
        sr=config.sample_rate,
        n_fft=config.window_samples,
        n_mels=config.n_mels,
        fmin=config.f_min,
        fmax=config.f_max,
    )
    np.testing.assert_allclose(mel_filters(config), expected, atol=1e-7, rtol=0)


def test_it_agrees_with_librosa_on_real_recordings_of_every_category(esc50):
    categories = {}
    for line in (esc50 / "clips.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, _, category = line.split("\t")[:3]
        categories.setdefault(category, name)
    assert len(categories) == 50
    # The last two have a larger range than float32 spectra resolve: without the second pass in
    # float64 they are off by up to 6e-4.
    for name in [*categories.values(), "3-148297-A.ogg", "1-72195-B.ogg"]:
        waveform, _ = read_audio(esc50 / "audio" / name)
        difference = np.abs(log_mel(waveform, CONFIG).numpy() - librosa_log_mel(waveform, CONFIG))
        assert difference.max() < 1e-4, name


def test_a_faint_sound_next_to_a_loud_one_keeps_its_level():
    loud = tone(1000.0) * np.hanning(32000).astype(np.float32)
    waveform = loud + 1e-5 * noise(32000)
    expected = brute_force_log_mel(waveform, CONFIG)
    assert expected.max() - expected.min() > 20  # 87 dB, more than float32 spectra resolve
    np.testing.assert_allclose(log_mel(waveform, CONFIG), expected, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(
    config=st.sampled_from(OTHERS),
    sizes=st.lists(st.integers(0, 300000), max_size=4),
    small=st.lists(st.integers(0, 3000), max_size=10),
)
def test_blocks_of_any_sizes_give_the_whole_bit_for_bit(config, sizes, small):
    waveform = noise(sum(sizes) + sum(small))
    cuts = np.cumsum([*small, *sizes])[:-1] if small or sizes else []
    pieces = list(log_mel_blocks(np.split(waveform, cuts), config))
    whole = log_mel(waveform, config)
    assert torch.equal(torch.cat([whole[:0], *pieces]), whole)


def test_a_batch_gives_what_each_waveform_gives():
    batch = noise(3 * 200000).reshape(3, -1)
    features = log_mel(batch, CONFIG)
    assert features.shape == (3, 313, 80)
    for waveform, expected in zip(batch, features, strict=True):
        assert torch.equal(log_mel(waveform, CONFIG), expected)
    assert log_mel(batch[:0], CONFIG).shape == (0, 313, 80)


def test_numpy_torch_and_all_float_types_give_the_same():
    waveform = noise(32000).astype(np.float16)
    expected = log_mel(waveform.astype(np.float32), CONFIG)
    for same in (waveform, waveform.astype(np.float64), torch.from_numpy(waveform)):
        assert torch.equal(log_mel(same, CONFIG), expected)


def test_the_waveform_is_not_changed():
    waveform = noise(200000)
    before = waveform.copy()
    log_mel(waveform, CONFIG)
    np.testing.assert_array_equal(waveform, before)


def test_a_file_in_blocks_gives_the_features_of_the_whole_file(tmp_path):
    path = tmp_path / "a.flac"
    write_audio(path, noise(441000), 44100)
    blocks = log_mel_blocks(read_blocks(path, 32000, block=0.7), CONFIG)
    whole = log_mel(read_audio(path, 32000)[0], CONFIG)
    assert torch.equal(torch.cat(list(blocks)), whole)


def test_normalised_is_raw_minus_mean_over_std():
    config = replace(CONFIG, mean=tuple(range(-80, 0)), std=(4.0,))
    waveform = noise(64000)
    raw = log_mel(waveform, config.raw)
    assert torch.equal(raw, log_mel(waveform, CONFIG))
    assert torch.equal(Normalise(config.mean, config.std)(raw), log_mel(waveform, config))
    torch.testing.assert_close(log_mel(waveform, config), (raw - torch.arange(-80, 0)) / 4)


def test_buffers_made_in_inference_mode_work_outside_of_it():
    config = replace(CONFIG, n_mels=41)
    with torch.inference_mode():
        inside = log_mel(noise(32000), config)
    assert torch.equal(log_mel(noise(32000), config), inside)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"sample_rate": 0}, "sample_rate must be an integer above 0"),
        ({"sample_rate": 32000.0}, "sample_rate must be an integer above 0"),
        ({"n_mels": -1}, "n_mels must be an integer above 0"),
        (
            {"sample_rate": 11025, "f_max": 5000.0},
            "220.5 samples at 11025 Hz; use 220 / 11025 s instead",
        ),
        ({"window": 0.01}, "window must be at least as long as the hop"),
        ({"window": 0.0400101}, "window must be a whole number of samples"),
        ({"hop": 0.0}, "hop must be at least one sample"),
        ({"hop": float("nan")}, "hop must be at least one sample"),
        ({"f_max": 16001.0}, "f_max <= 16000 Hz"),
        ({"f_min": 14000.0}, "f_min < f_max"),
        ({"f_min": -1.0}, "0 <= f_min"),
        ({"f_max": float("nan")}, "f_max"),
        ({"n_mels": 400}, "stay empty; use a smaller n_mels"),
        ({"log_offset": 0.0}, "log_offset must be above 0"),
        ({"std": (0.0,)}, "std must hold finite numbers above 0"),
        ({"std": (1.0, 2.0)}, "std must have one value, or 80, one per mel. Got 2"),
        ({"mean": (float("inf"),)}, "mean must hold finite numbers"),
        ({"mean": ()}, "mean must have one value"),
    ],
)
def test_an_impossible_parameter_is_an_error_at_construction(wrong, message):
    with pytest.raises(SettingError) as error:
        FeatureConfig(**wrong)
    assert message in str(error.value)


def test_what_an_error_suggests_works():
    FeatureConfig(sample_rate=11025, f_max=5000.0, hop=220 / 11025, window=440 / 11025)


@pytest.mark.parametrize("shape", [(), (2, 3, 640)])
def test_a_shape_that_is_no_waveform_is_an_error(shape):
    with pytest.raises(SettingError, match="Got shape"):
        log_mel(np.zeros(shape, np.float32), CONFIG)
    with pytest.raises(SettingError, match=r"\(samples,\)\. Got"):
        list(log_mel_blocks([np.zeros((2, 640), np.float32)], CONFIG))


def test_integers_are_an_error_that_explains_the_scale():
    with pytest.raises(SettingError, match=r"divide integers.*int16"):
        log_mel(np.zeros(640, np.int16), CONFIG)


def test_lists_are_accepted_as_mean_and_std():
    config = FeatureConfig(mean=[-8], std=[4])  # type: ignore[arg-type]
    assert config == FeatureConfig(mean=(-8.0,), std=(4.0,))
    assert hash(config)


def test_it_takes_what_read_audio_returns(esc50):
    path = find_audio(esc50)[0]
    assert log_mel(read_audio(path, CONFIG.sample_rate)[0], CONFIG).isfinite().all()


NORMALISED = replace(CONFIG, mean=tuple(range(-80, 0)), std=(4.0,))


def test_the_module_and_the_function_are_equal_bit_for_bit():
    module = LogMel(NORMALISED)
    waveform = torch.from_numpy(noise(200000))
    assert torch.equal(module(waveform), log_mel(waveform, NORMALISED))
    batch = waveform.view(2, -1)
    assert torch.equal(module(batch), log_mel(batch, NORMALISED))
    pieces = list(module.stream(waveform.split(70000)))
    assert torch.equal(torch.cat(pieces), module(waveform))


def test_the_module_follows_from_its_config_and_has_no_state():
    module = LogMel(NORMALISED)
    assert not module.state_dict()
    assert not list(module.parameters())
    names = {name for name, _ in module.named_buffers()}
    assert {"window", "limits", "normalise.mean", "normalise.std", "bands.0.weights"} <= names
    meta = LogMel(NORMALISED).to("meta")
    assert {buffer.device.type for buffer in meta.buffers()} == {"meta"}


def test_the_module_can_be_the_first_layer_of_a_network():
    network = torch.nn.Sequential(LogMel(NORMALISED), torch.nn.Linear(80, 3), torch.nn.Sigmoid())
    probs = network(torch.from_numpy(noise(64000)).view(2, -1))
    assert probs.shape == (2, 50, 3)
    probs.sum().backward()
    assert network[1].weight.grad.isfinite().all()
    assert list(network.state_dict()) == ["1.weight", "1.bias"]


class Tagger(torch.nn.Module):
    """Waveform -> clip probabilities, in one graph."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.log_mel = LogMel(NORMALISED)
        self.model = Model(ModelConfig.preset("paper-fast", n_classes=3)).eval()

    def forward(self, waveform):
        return self.model(self.log_mel(waveform)).clip_probs


@pytest.mark.parametrize("n_samples", [64000, 63999])
def test_the_module_is_exported_with_a_network(n_samples):
    tagger, waveform = Tagger(), torch.from_numpy(noise(2 * n_samples)).view(2, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about torch's own GRU
        program = torch.export.export(tagger, (waveform,))
    with torch.no_grad():
        torch.testing.assert_close(program.module()(waveform), tagger(waveform))


def test_the_module_is_exported_with_free_batch_and_length():
    module, axes = LogMel(NORMALISED), {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    example = torch.from_numpy(noise(2 * 64000)).view(2, -1)
    program = torch.export.export(module, (example,), dynamic_shapes=(axes,)).module()
    for n_samples in (700, 32000, 200001):
        waveform = torch.from_numpy(noise(3 * n_samples)).view(3, -1)
        torch.testing.assert_close(program(waveform), module(waveform), atol=2e-5, rtol=0)


def test_the_module_is_exported_to_onnx():
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra 'onnx'")
    pytest.importorskip("onnxscript", reason="needs the extra 'onnx'")
    module, waveform = LogMel(NORMALISED), torch.from_numpy(noise(2 * 32000)).view(2, -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter's own deprecations
        program = torch.onnx.export(module, (waveform,), dynamo=True, verbose=False)
    file = io.BytesIO()
    program.save(file)
    session = onnxruntime.InferenceSession(file.getvalue())
    (got,) = session.run(None, {session.get_inputs()[0].name: waveform.numpy()})
    np.testing.assert_allclose(got, module(waveform), atol=2e-5)


WAVEFORM = FeatureConfig(sample_rate=8000, kind="waveform")  # 160 samples per frame


@pytest.mark.parametrize("n_samples", [1, 159, 160, 161, 50_001])
def test_frames_of_a_waveform_are_its_samples_and_then_zeros(n_samples):
    waveform = noise(n_samples)
    frames = torch.cat(list(feature_blocks([waveform], WAVEFORM)))
    assert frames.shape == (WAVEFORM.grid.count(n_samples / 8000), WAVEFORM.n_features)
    flat = frames.flatten().numpy()
    np.testing.assert_array_equal(flat[:n_samples], waveform)
    assert not flat[n_samples:].any()
    cuts = np.sort(np.random.default_rng(0).integers(0, n_samples + 1, 6))
    blocks = feature_blocks(np.split(waveform, cuts), WAVEFORM)
    assert torch.cat(list(blocks)).equal(frames)


def test_all_samples_of_a_waveform_are_normalised_alike():
    config = replace(WAVEFORM, mean=(0.5,), std=(2.0,))
    waveform = noise(200)
    (frames,) = feature_blocks([waveform], config)
    want = (np.append(waveform, np.zeros(120, np.float32)) - 0.5) / 2
    np.testing.assert_allclose(frames.flatten(), want, rtol=1e-6)
    with pytest.raises(SettingError, match="mean must have one value for all samples"):
        replace(WAVEFORM, mean=(0.0,) * 160)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_mels": 40}, "n_mels is a setting of log-mels"),
        ({"f_max": 4000.0}, "f_max is a setting of log-mels"),
        ({"window": 0.02}, "window is a setting of log-mels"),
        ({"sample_rate": 11025}, "hop must be a whole number of samples"),
        ({"kind": "wave"}, r"no features.kind 'wave'; did you mean 'waveform'"),
    ],
)
def test_a_waveform_has_no_settings_of_log_mels(changes, message):
    with pytest.raises(SettingError, match=message):
        replace(WAVEFORM, **changes)


def test_the_kind_of_features_is_in_a_file_where_it_is_no_log_mel():
    assert "kind" not in FeatureConfig().to_dict()
    assert FeatureConfig(**WAVEFORM.to_dict()) == WAVEFORM
