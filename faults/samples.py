"""Small good things that several readers start from: a tone and a model."""

import numpy as np
import torch

from earmark.data.features import FeatureConfig
from earmark.inference.decoding import Decoding
from earmark.inference.member import Member
from earmark.inference.model_file import Bundle
from earmark.nn.model import ModelConfig


def tone(seconds: float = 0.3, sample_rate: int = 8000) -> np.ndarray:
    """Return samples of 440 Hz, as float32."""
    times = np.arange(int(seconds * sample_rate)) / sample_rate
    return (0.3 * np.sin(2 * np.pi * 440 * times)).astype(np.float32)


def small_bundle() -> Bundle:
    """Return a model of two classes, of the smallest sizes."""
    torch.manual_seed(0)
    features = FeatureConfig(sample_rate=8000, n_mels=16, f_max=4000.0, window=0.064, hop=0.032)
    config = ModelConfig(n_classes=2, n_mels=16, channels=(2, 2, 2, 2), n_recurrent=2)
    member = Member(features, config, config.build().state_dict(), 1.0)
    labels = ("cat", "dog")
    return Bundle(labels, (member,), Decoding.uniform(labels), attribution=("A. Author",))
