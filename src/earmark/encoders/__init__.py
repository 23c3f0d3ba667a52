"""A pretrained network that turns audio into frame embeddings, in place of the log-mel.

config     EncoderConfig: which network, its input, its patches
runtimes   TFLite and ONNX files and registered modules -> a function of patches
stream     Encoder: the input in pieces of any length -> the embeddings of its frames
"""

from earmark.encoders.config import EncoderConfig
from earmark.encoders.runtimes import ENCODERS, register_encoder
from earmark.encoders.stream import Encoder

__all__ = ["ENCODERS", "Encoder", "EncoderConfig", "register_encoder"]
