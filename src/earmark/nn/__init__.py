"""From a log-mel to frame and clip probabilities.

layers   the layers, each with its shape arithmetic and its fused version
model    ModelConfig, and Model, the network
fused    FusedModel: the network for inference on recordings of any length
loss     binary cross entropy of clips and of frames
"""

from earmark.nn.fused import FusedModel
from earmark.nn.loss import clip_loss, frame_loss
from earmark.nn.model import PRESETS, Model, ModelConfig, Prediction

__all__ = [
    "PRESETS",
    "FusedModel",
    "Model",
    "ModelConfig",
    "Prediction",
    "clip_loss",
    "frame_loss",
]
