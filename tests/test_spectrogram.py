"""Spectrograms to look at: in Hz, of any length, with the sounds where they are."""

import numpy as np
import pytest

from earmark.data.features import FeatureConfig, mel_filters, mel_frequencies
from earmark.data.spectrogram import drawn_features, spectrogram
from earmark.encoders.config import EncoderConfig
from earmark.errors import SettingError

RATE = 32000


def tone(hz, start, end, seconds):
    """Return a tone between two times, and silence around it."""
    time = np.arange(round(seconds * RATE)) / RATE
    inside = (time >= start) & (time < end)
    return (0.5 * np.sin(2 * np.pi * hz * time) * inside).astype(np.float32)


@pytest.mark.parametrize("scale", ["slaney", "htk"])
def test_the_frequency_of_a_mel_is_where_its_filter_peaks(scale):
    config = FeatureConfig(mel_scale=scale, n_mels=40)
    bins = np.arange(config.fft_samples // 2 + 1) * config.sample_rate / config.fft_samples
    peaks = bins[mel_filters(config).argmax(axis=1)]
    assert np.abs(peaks - mel_frequencies(config)).max() <= config.sample_rate / config.fft_samples


@pytest.mark.parametrize("hz", [300, 1000, 6000])
def test_a_tone_is_loudest_at_its_frequency_and_its_time(hz):
    seen = spectrogram([tone(hz, 2.0, 3.0, 5.0)], FeatureConfig())
    _, mel = np.unravel_index(seen.log_mel.argmax(), seen.log_mel.shape)
    assert abs(seen.frequencies[mel] - hz) < 0.1 * hz
    loud = np.flatnonzero(seen.log_mel[:, mel] > seen.log_mel.max() - 2) * seen.column
    assert loud[0] == pytest.approx(2.0, abs=0.05) and loud[-1] == pytest.approx(3.0, abs=0.05)


def test_many_frames_become_few_columns_and_a_click_stays_visible():
    wave = np.zeros(40 * RATE, np.float32)
    wave[31 * RATE] = 1.0
    whole = spectrogram([wave], FeatureConfig())
    few = spectrogram(np.array_split(wave, 7), FeatureConfig(), max_columns=100)
    assert len(few.log_mel) <= 100
    assert few.log_mel.max() == whole.log_mel.max()
    at = few.log_mel.max(axis=1).argmax()
    assert at * few.column <= 31.0 <= (at + 1) * few.column
    assert few.end == pytest.approx(40.0, abs=few.column)


def test_each_column_has_the_highest_values_of_its_frames():
    wave = np.random.default_rng(0).standard_normal(7 * RATE).astype(np.float32) / 8
    frames = spectrogram([wave], FeatureConfig(), max_columns=10_000).log_mel
    few = spectrogram([wave], FeatureConfig(), max_columns=40)
    per_column = round(few.column / 0.02)
    for number, column in enumerate(few.log_mel):
        own = frames[number * per_column : (number + 1) * per_column]
        np.testing.assert_array_equal(column, own.max(axis=0))


def test_a_part_is_the_same_as_in_the_whole():
    wave = np.random.default_rng(0).standard_normal(12 * RATE).astype(np.float32) / 8
    whole = spectrogram([wave], FeatureConfig())
    part = spectrogram([wave], FeatureConfig(), 6.5, 8.0)
    assert (part.start, part.end) == (6.5, 8.0)
    np.testing.assert_array_equal(part.log_mel, whole.log_mel[325:400])
    with pytest.raises(SettingError, match="must end after its start"):
        spectrogram([wave], FeatureConfig(), 8.0, 6.5)
    with pytest.raises(SettingError, match="ends before 13 s"):
        spectrogram([wave], FeatureConfig(), 13.0)


@pytest.mark.parametrize("rate", [2000, 8000, 11025, 44100])
def test_features_that_are_no_log_mels_are_drawn_as_log_mels(rate):
    hop = round(0.02 * rate) / rate
    config = drawn_features(FeatureConfig(sample_rate=rate, hop=hop, kind="waveform"))
    assert (config.kind, config.sample_rate) == ("log-mel", rate)
    assert len(spectrogram([np.zeros(rate, np.float32)], config).log_mel) >= 49


def test_the_log_mel_of_an_encoder_is_drawn():
    encoder = EncoderConfig(
        kind="x", file="x", sha256="x", input="log-mel", patch=0.96, hop=0.48, n_features=4
    )
    assert drawn_features(FeatureConfig(n_mels=64, encoder=encoder)) == FeatureConfig(n_mels=64)
