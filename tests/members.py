"""Small untrained networks whose scores differ from frame to frame, alone and in ensembles."""

from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from tones import RATE, make_tone_clip
from torch import nn

from earmark.data.encoded import read_encoder
from earmark.data.features import FeatureConfig
from earmark.encoders import ENCODERS, register_encoder
from earmark.formats.events import Event
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle
from earmark.nn.head import HeadConfig
from earmark.nn.model import ModelConfig

LABELS = ("high", "low")
SLOW = ((2, 2), (2, 2), (2, 2), (1, 2))  # half the frame rate
SIZES = {"channels": (4, 4, 4, 4), "last_channels": 8, "n_recurrent": 4}


class Levels(nn.Module):
    """Log power of each 0.1 s in 4 bands: (batch, samples) -> (batch, frames, 4)."""

    def forward(self, samples):
        power = torch.fft.rfft(samples.unfold(1, 1600, 1600)).abs().square()[..., 1:]
        return (power.unflatten(-1, (4, 200)).mean(-1) + 1e-6).log()


@contextmanager
def registered_levels():
    """An encoder with another sample rate and another frame rate than the log-mel networks."""
    register_encoder(
        "levels",
        lambda file: Levels(),
        encoder={"patch": 0.4, "step": 0.4, "hop": 0.1, "input": "waveform"},
        features={"sample_rate": 2 * RATE},
    )
    try:
        yield
    finally:
        ENCODERS.pop("levels")


def fitted(features, config, seed, window):
    """An untrained network whose scores differ from frame to frame and from class to class."""
    torch.manual_seed(seed)
    model = config.build()
    inputs = torch.randn(4, 60, features.n_features)
    with torch.no_grad():
        for _ in range(20):
            model(inputs)
        logits = model.eval()(inputs).hidden @ model.classifier.weight.T
        scale = 0.5 / logits.std((0, 1))
        model.classifier.weight *= scale[:, None]
        model.classifier.bias[:] = -logits.mean((0, 1)) * scale
    return Member(features, config, model.state_dict(), window)


def log_mel_member(seed=0, *, mean=-8.0, window=4.0, hop=0.02, rate=RATE, n_mels=16, **sizes):
    features = FeatureConfig(
        sample_rate=rate,
        n_mels=n_mels,
        f_max=4000.0,
        hop=hop,
        window=0.04,
        mean=(mean,),
        std=(3.0,),
    )
    config = ModelConfig.preset("paper-fast", len(LABELS), n_mels=n_mels, **SIZES | sizes)
    return fitted(features, config, seed, window)


def encoder_member(seed=0, window=4.0):
    features = replace(read_encoder("levels"), mean=(-5.0,), std=(3.0,))
    return fitted(features, HeadConfig(len(LABELS), n_features=4, n_hidden=8), seed, window)


def made_bundle(*members, labels=LABELS, **more):
    return Bundle(labels, members, Decoding.uniform(labels, 0.5), **more)


KINDS = {
    "checkpoints of one training": lambda: [log_mel_member(seed) for seed in range(3)],
    "another normalisation": lambda: [log_mel_member(0), log_mel_member(1, mean=-6.0)],
    "other mels": lambda: [log_mel_member(0), log_mel_member(1, n_mels=24)],
    "another window": lambda: [log_mel_member(0), log_mel_member(1, window=2.5)],
    "half the frame rate": lambda: [
        log_mel_member(0, pools=SLOW),
        log_mel_member(1),
    ],
    "10 and 12.5 frames per second": lambda: [log_mel_member(0, hop=0.025), log_mel_member(1)],
    "6.25, 10 and 12.5 frames per second": lambda: [
        log_mel_member(0, pools=SLOW),
        log_mel_member(1, hop=0.025),
        log_mel_member(2),
        log_mel_member(3, hop=0.025),
        log_mel_member(4, pools=SLOW),
    ],
    "another sample rate": lambda: [log_mel_member(0), log_mel_member(1, rate=11000)],
    "a head on an encoder": lambda: [
        encoder_member(0),
        log_mel_member(1),
        log_mel_member(2, mean=-6.0),
        encoder_member(3, window=3.0),
    ],
}


def sound(seconds, seed=3):
    events = [Event(n + 0.3, n + 0.8, LABELS[n % 2]) for n in range(int(seconds))]
    return make_tone_clip(np.random.default_rng(seed), events, seconds)


def steep(member, wave, factor=60.0):
    """Return the network with scores around 0.5 in a waveform, and far from it in most frames."""
    scores = Detector(made_bundle(member), threads=1).frame_scores(wave, RATE).scores
    middle = np.median(np.log(scores / (1 - scores)), axis=0)
    weights = dict(member.weights)
    weights["classifier.weight"] = factor * weights["classifier.weight"]
    weights["classifier.bias"] = factor * (
        weights["classifier.bias"] - torch.tensor(middle, dtype=torch.float32)
    )
    return replace(member, weights=weights)
