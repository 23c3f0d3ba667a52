"""From a log-mel, a waveform or the embeddings of an encoder to frame and clip probabilities.

layers     the layers, each with its shape arithmetic and its fused version
recurrent  the recurrent layers
network    Network and NetworkConfig: what all networks have
frame_network  FrameNetwork and its config: networks that score frames and pool them to clips
embedding_network  EmbeddingConfig and EmbeddingNetwork: around a module of your own
windows    clips cut into windows, for networks that score windows
model      Model and ModelConfig: the gated CRNN on log-mels
head       Head and HeadConfig: a small network on embeddings
wang       Wang and WangConfig: plain convolutions and a Bi-GRU, on log-mels
surrey     Surrey and SurreyConfig: a gated CRNN with two Bi-GRUs, on log-mels
gccaps     GCCaps and GCCapsConfig: a gated CNN with capsules, on log-mels
emsi       Emsi and EmsiConfig: CNNs on windows of several lengths, of log-mels
mlms       Mlms and MlmsConfig: sample-level CNNs on windows of several lengths, of waveforms
blocks     blocks of convolutions, which these networks share
capsules   capsules and their routing
networks   the registry of networks
fused      FusedModel: a network for inference on recordings of any length
loss       binary cross entropy of clips and of frames
"""

from earmark.nn.embedding_network import EmbeddingConfig, EmbeddingNetwork
from earmark.nn.fused import FusedModel
from earmark.nn.head import Head, HeadConfig
from earmark.nn.loss import clip_loss, frame_loss
from earmark.nn.model import PRESETS, Model, ModelConfig
from earmark.nn.network import Network, NetworkConfig, Prediction
from earmark.nn.networks import NETWORKS, read_network, register_network

__all__ = [
    "NETWORKS",
    "PRESETS",
    "EmbeddingConfig",
    "EmbeddingNetwork",
    "FusedModel",
    "Head",
    "HeadConfig",
    "Model",
    "ModelConfig",
    "Network",
    "NetworkConfig",
    "Prediction",
    "clip_loss",
    "frame_loss",
    "read_network",
    "register_network",
]
