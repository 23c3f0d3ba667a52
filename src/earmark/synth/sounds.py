"""Procedural sounds of ten classes, and background noises, from a random generator.

Conventions: every sound is a function (rng, duration, sample_rate) -> waveform, float32,
(samples,), with its peak at 1. Pitch, tempo and timbre are random. A sound is active from its first
sample to its last (a knock is repeated, a bell is struck again): silence is shorter than 0.2 s and
never at an end, so that onset and offset are exact. Partials above 0.45 of the sample rate are
omitted. The registries `SOUNDS` and `NOISES` are at the end.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from earmark.audio.waveform import Waveform
from earmark.errors import SettingError

Samples = NDArray[np.float64]
Rng = np.random.Generator


def siren(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """A tone that sweeps up and down continuously: a slow wail or a fast yelp.

    >>> siren(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    period = rng.uniform(0.9, 2.2) if rng.random() < 0.6 else rng.uniform(0.25, 0.45)
    low, high = rng.uniform(450, 700), rng.uniform(1100, 1700)
    swing = 0.5 - 0.5 * np.cos(2 * np.pi * (t / period + rng.random()))
    return _finish(_tone(low * (high / low) ** swing, _rolloff(rng, 6, 1.5), sample_rate))


def horn(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """A held chord of two or three bright, brassy notes.

    >>> horn(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    root = rng.uniform(180, 420)
    ratios = [1.0, rng.uniform(1.18, 1.27), rng.uniform(1.48, 1.6)][: rng.integers(2, 4)]
    flutter = 1 + 0.003 * np.sin(2 * np.pi * rng.uniform(4, 7) * t)
    chord = [_tone(root * ratio * flutter, _rolloff(rng, 24, 0.7), sample_rate) for ratio in ratios]
    return _finish(np.sum(chord, axis=0))


def beeps(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """One nearly pure tone switched on and off, like a reversing lorry.

    >>> beeps(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    tone = _tone(
        np.full_like(t, rng.uniform(950, 1500)), [1.0, 0.1, rng.uniform(0, 0.2)], sample_rate
    )
    duty = rng.uniform(0.5, 0.65)
    n_gaps = max(0, round(duration / rng.uniform(0.28, 0.4) - duty))
    period = duration / (n_gaps + duty)  # so that the last beep ends with the event
    return _finish(
        tone * _smooth(((t / period) % 1.0 < duty).astype(np.float64), 0.004, sample_rate)
    )


def bell(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Inharmonic partials that decay, struck again before they are silent.

    >>> bell(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    pitch, ring = rng.uniform(450, 1100), rng.uniform(0.35, 0.8)
    ratios = np.array([0.5, 1.0, 1.19, 1.56, 2.0, 2.51, 3.01, 4.17, 5.43, 6.8])
    ratios *= rng.uniform(0.99, 1.01, len(ratios))
    weights = rng.uniform(0.3, 1.0, len(ratios)) / np.sqrt(ratios)

    def strike(t: Samples) -> Samples:
        return sum(
            (
                weight
                * np.exp(-t / (ring / np.sqrt(ratio)))
                * np.sin(2 * np.pi * pitch * ratio * t)
                for ratio, weight in zip(ratios, weights, strict=True)
                if pitch * ratio < 0.45 * sample_rate
            ),
            np.zeros_like(t),
        )

    period = rng.uniform(0.45, 0.9)
    return _finish(_repeat(rng, strike, duration, period, period, sample_rate))


def engine(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Low pulses of varying rate, with noise between them.

    >>> engine(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    wander = np.sin(2 * np.pi * (rng.uniform(0.15, 0.5) * t + rng.random()))
    pace = rng.uniform(28, 65) * (1 + rng.uniform(0.02, 0.2) * wander)
    weights = rng.uniform(0.4, 1.0, 14) * np.exp(-np.arange(14) / rng.uniform(4, 8))
    pulses = _tone(pace, weights, sample_rate)
    roar = _band_noise(rng, len(t), sample_rate, 60, rng.uniform(500, 900))
    return _finish(_unit(pulses) + 0.5 * _unit(roar) * (1 + 0.7 * _unit(pulses)))


def knock(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Short knocks on wood, four to seven per second.

    >>> knock(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    modes = rng.uniform(110, 260) * np.array([1.0, rng.uniform(1.6, 2.2), rng.uniform(2.9, 3.8)])
    decay = rng.uniform(0.018, 0.035)

    def blow(t: Samples) -> Samples:
        body = sum(
            (np.sin(2 * np.pi * mode * t) / order for order, mode in enumerate(modes, start=1)),
            np.zeros_like(t),
        )
        click = rng.standard_normal(len(t)) * np.exp(-t / 0.003)
        return body * np.exp(-t / decay) + 0.8 * click

    return _finish(_repeat(rng, blow, duration, rng.uniform(0.14, 0.23), 4 * decay, sample_rate))


def alarm(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Two harsh tones in alternation.

    >>> alarm(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    low = rng.uniform(1700, 2300)
    high = low * rng.uniform(1.2, 1.45)
    second = (t / rng.uniform(0.2, 0.5)) % 1.0 < 0.5
    return _finish(_tone(np.where(second, low, high), [1, 0, 0.4, 0, 0.25, 0, 0.15], sample_rate))


def chirp(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """A bird: fast sweeps at high frequency, several per second.

    >>> chirp(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    top = min(0.4 * sample_rate, rng.uniform(4000, 6500))
    depth, length = rng.uniform(0.25, 0.5), rng.uniform(0.05, 0.11)
    rising = rng.random() < 0.5

    def sweep(t: Samples) -> Samples:
        along = np.clip(t / length, 0, 1)
        pitch = top * rng.uniform(0.9, 1.0) * (1 - depth * (1 - along if rising else along))
        return _tone(pitch, [1.0, 0.15], sample_rate) * np.sin(np.pi * along)

    return _finish(
        _repeat(rng, sweep, duration, length * rng.uniform(1.1, 1.7), length, sample_rate)
    )


def drill(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """A drill: harmonics of the motor and high noise of the bit.

    >>> drill(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    load = np.sin(2 * np.pi * (rng.uniform(0.3, 1.2) * t + rng.random()))
    speed = rng.uniform(150, 280) * (1 + rng.uniform(0.01, 0.06) * load)
    whine = _tone(speed, _rolloff(rng, 40, 0.35), sample_rate)
    low = rng.uniform(1500, 2500)
    rasp = _band_noise(rng, len(t), sample_rate, low, low * rng.uniform(2.5, 3.5))
    return _finish(_unit(whine) + rng.uniform(0.8, 1.4) * _unit(rasp) * (1 + 0.4 * _unit(whine)))


def whistle(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """A referee's whistle: one high tone with a fast trill, and breath noise.

    >>> whistle(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    pitch = min(0.4 * sample_rate, rng.uniform(2400, 3600))
    trill = np.sin(2 * np.pi * rng.uniform(22, 45) * t)
    tone = _tone(pitch * (1 + rng.uniform(0.02, 0.05) * trill), [1.0, 0.12], sample_rate)
    breath = _band_noise(rng, len(t), sample_rate, 0.8 * pitch, 1.25 * pitch)
    return _finish(tone * (1 + rng.uniform(0.2, 0.6) * trill) + 0.1 * _unit(breath))


def coloured(rng: Rng, duration: float, sample_rate: int, slope: float | None = None) -> Waveform:
    """Noise with power 1 / f^slope: 0 is white, 1 pink, 2 brown, None a random slope.

    >>> coloured(np.random.default_rng(0), 0.5, 16000, slope=1.0).shape
    (8000,)
    """
    exponent = rng.uniform(0.0, 2.0) if slope is None else slope + rng.uniform(-0.15, 0.15)
    n_samples = len(_times(duration, sample_rate))
    frequencies = np.fft.rfftfreq(n_samples, 1 / sample_rate)
    gains = np.maximum(frequencies, 20.0) ** (-exponent / 2)  # constant below 20 Hz: no rumble
    gains[0] = 0.0
    return _finish(_shaped_noise(rng, n_samples, gains))


def white(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Approximately white noise.

    >>> white(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    return coloured(rng, duration, sample_rate, slope=0.0)


def pink(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Approximately pink noise.

    >>> pink(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    return coloured(rng, duration, sample_rate, slope=1.0)


def brown(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Approximately brown noise.

    >>> brown(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    return coloured(rng, duration, sample_rate, slope=2.0)


def hum(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Mains hum of 50 or 60 Hz with noise.

    >>> hum(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    t = _times(duration, sample_rate)
    mains = _tone(np.full_like(t, rng.choice([50.0, 60.0])), _rolloff(rng, 12, 1.0), sample_rate)
    return _finish(
        _unit(mains) + rng.uniform(0.4, 0.8) * _unit(coloured(rng, duration, sample_rate, 1.0))
    )


def gusts(rng: Rng, duration: float, sample_rate: int) -> Waveform:
    """Wind: low noise whose level varies over seconds by up to 10 dB.

    >>> gusts(np.random.default_rng(0), 0.5, 16000).shape
    (8000,)
    """
    noise = coloured(rng, duration, sample_rate, slope=rng.uniform(1.2, 1.8))
    n_points = max(2, round(duration * rng.uniform(0.5, 1.5)) + 1)
    levels_db = np.interp(
        _times(duration, sample_rate),
        np.linspace(0, duration, n_points),
        rng.uniform(-10, 0, n_points),
    )
    return _finish(noise * 10 ** (levels_db / 20))


def _times(duration: float, sample_rate: int) -> Samples:
    """Return the time of every sample of a sound, in seconds."""
    n_samples = round(duration * sample_rate)
    if n_samples < 1 or sample_rate < 1:
        raise SettingError(
            f"A sound must have one sample or more. Got {duration} s at {sample_rate} Hz."
        )
    return np.arange(n_samples) / sample_rate


def _tone(pitch: Samples, weights: Sequence[float] | Samples, sample_rate: int) -> Samples:
    """Return a tone with pitch (samples,) in Hz and one weight per harmonic."""
    phase = 2 * np.pi * np.cumsum(pitch) / sample_rate
    tone = np.zeros_like(phase)
    for order, weight in enumerate(weights, start=1):
        if order == 1 or order * pitch.max() < 0.45 * sample_rate:
            tone += weight * np.sin(order * phase)
    return tone


def _rolloff(rng: Rng, n_harmonics: int, slope: float) -> Samples:
    """Return random weights that decrease as 1 / order^slope; the first is 1."""
    orders = np.arange(1, n_harmonics + 1)
    weights = rng.uniform(0.5, 1.0, n_harmonics) / orders**slope
    weights[0] = 1.0
    return weights


def _repeat(
    rng: Rng,
    unit: Callable[[Samples], Samples],
    duration: float,
    period: float,
    length: float,
    sample_rate: int,
) -> Samples:
    """Return `unit` repeated every `period` seconds or faster, the last `length` before the end.

    The level of each repetition is random, and it may decay for five more lengths.
    """
    t = _times(duration, sample_rate)
    sound = np.zeros_like(t)
    until = max(0.0, duration - length)
    n_ring = math.ceil(6 * length * sample_rate)
    for start in np.linspace(0, until, math.ceil(until / period) + 1):
        first = min(round(start * sample_rate), len(t) - 1)
        span = sound[first : first + n_ring]
        span += rng.uniform(0.7, 1.0) * unit(t[: len(span)])
    return sound


def _shaped_noise(rng: Rng, n_samples: int, gains: Samples) -> Samples:
    return np.fft.irfft(np.fft.rfft(rng.standard_normal(n_samples)) * gains, n_samples)


def _band_noise(rng: Rng, n_samples: int, sample_rate: int, low: float, high: float) -> Samples:
    """Return noise between two frequencies in Hz, with gradual edges."""
    octaves = np.log2(np.maximum(np.fft.rfftfreq(n_samples, 1 / sample_rate), 1.0))
    outside = np.maximum(np.log2(low) - octaves, octaves - np.log2(high))
    return _shaped_noise(rng, n_samples, np.exp(-((np.maximum(outside, 0.0) / 0.3) ** 2)))


def _smooth(envelope: Samples, seconds: float, sample_rate: int) -> Samples:
    """Return a switched envelope smoothed against clicks, unchanged at its ends."""
    half = max(1, round(seconds * sample_rate / 2))
    padded = np.pad(envelope, half, mode="edge")
    sums = np.cumsum(np.insert(padded, 0, 0.0))
    width = 2 * half + 1
    return (sums[width:] - sums[:-width]) / width


def _unit(waveform: Samples | Waveform) -> Samples:
    """Return the waveform with a root mean square of 1."""
    power = np.mean(np.square(waveform, dtype=np.float64))
    return np.asarray(waveform / np.sqrt(power) if power > 0 else waveform, dtype=np.float64)


def _finish(waveform: Samples) -> Waveform:
    """Return the waveform as float32 with its peak at 1."""
    peak = np.abs(waveform).max()
    return (waveform / peak if peak > 0 else waveform).astype(np.float32)


Sound = Callable[[Rng, float, int], Waveform]

# Name of a sound -> the function that synthesizes it.
SOUNDS: dict[str, Sound] = {
    "alarm": alarm,
    "beeps": beeps,
    "bell": bell,
    "chirp": chirp,
    "drill": drill,
    "engine": engine,
    "horn": horn,
    "knock": knock,
    "siren": siren,
    "whistle": whistle,
}

# Name of a background -> the function that synthesizes it.
NOISES: dict[str, Sound] = {
    "brown": brown,
    "coloured": coloured,
    "gusts": gusts,
    "hum": hum,
    "pink": pink,
    "white": white,
}
