"""YAMNet as a torch module whose weights are read from a TFLite file: frames instead of patches.

The file takes patches of 0.96 s and gives one embedding each. The same layers, run over a long
log-mel, give one embedding per frame: the last strides become dilations ("a trous"), so that a
frame every 0.08 or 0.16 s costs little more than one every 0.32 s. A frame is the mean over
frequency; that of a patch is the mean over its frames, too. Weights are 8-bit numbers as in the
file, activations are floating point.

Conventions: log-mels are (batch, frames, 64), 100 frames per second. `benchmarks/yamnet.toml`
describes the patches, `benchmarks/yamnet_frames.toml` the frames, after a call of `register`.
"""

import re
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage

from earmark.encoders import register_encoder

STRIDES = {1: 2, 4: 2, 8: 2, 12: 2, 24: 2}  # layer -> stride; all others have 1
WIDTHS = {1: 32, 3: 64, 5: 128, 7: 128, 9: 256, 11: 256, 25: 1024, 27: 1024}  # others: 512
N_LAYERS = 27
STRIDE = 8  # log-mel frames per frame of the registered module: 0.08 s


class Yamnet(nn.Module):
    """The convolutions of YAMNet: (batch, frames, 64) -> (batch, frames / stride, 1024).

    Args:
        stride: log-mel frames per output frame: 32 as in the file, 16 or 8.
    """

    def __init__(self, stride: int = STRIDE) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        n_in, in_time, dilation = 1, 1, 1
        for number in range(1, N_LAYERS + 1):
            step = STRIDES.get(number, 1)
            # Where the output would be coarser than wanted, later layers are dilated instead.
            step_in_time = step if in_time * step <= stride else 1
            depthwise = number % 2 == 0
            n_out = n_in if depthwise else WIDTHS.get(number, 512)
            layer = nn.Conv2d(
                n_in,
                n_out,
                3 if depthwise or number == 1 else 1,
                stride=(step_in_time, step),
                dilation=(dilation, 1),
                groups=n_in if depthwise else 1,
            )
            self.layers.append(layer)
            in_time, dilation = in_time * step_in_time, dilation * (step // step_in_time)
            n_in = n_out

    def forward(self, log_mel: Tensor) -> Tensor:
        """See the class."""
        maps = log_mel.unsqueeze(1)
        for layer in self.layers:
            maps = F.relu6(layer(_pad(maps, layer)), inplace=not torch.is_grad_enabled())
        return maps.mean(3).transpose(1, 2)


def _pad(maps: Tensor, layer: nn.Conv2d) -> Tensor:
    """Pad with zeros as TensorFlow's "SAME" does: with a stride of 2, behind only."""
    if layer.kernel_size == (1, 1):
        return maps
    in_time, in_frequency = ((0 if stride == 2 else 1) for stride in layer.stride)
    dilation = layer.dilation[0]
    return F.pad(maps, (in_frequency, 1, in_time * dilation, dilation))


def read_yamnet(path: str | Path, stride: int = STRIDE) -> Yamnet:
    """Return the module with the weights of a TFLite file."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path))
    interpreter.allocate_tensors()
    model = Yamnet(stride)
    kernels: dict[int, Tensor] = {}
    biases: dict[int, Tensor] = {}
    for about in interpreter.get_tensor_details():
        found = re.match(r"tower0/network/layer(\d+)/(conv|sepconv)/", about["name"])
        scales = torch.from_numpy(about["quantization_parameters"]["scales"]).double()
        if not found or about["dtype"].__name__ not in ("int8", "int32") or len(scales) < 2:
            continue
        values = torch.from_numpy(interpreter.get_tensor(about["index"])).double()
        target = kernels if values.ndim == 4 else biases
        if values.ndim == 4:  # (out, height, width, in), or (1, height, width, out) depthwise
            depthwise = found[2] == "sepconv"
            values = values.permute(3, 0, 1, 2) if depthwise else values.permute(0, 3, 1, 2)
            values = values * scales.view(-1, 1, 1, 1)
        else:
            values = values * scales
        target[int(found[1])] = values.float()
    with torch.no_grad():
        for number, layer in enumerate(model.layers, 1):
            layer.weight.copy_(kernels[number])
            layer.bias.copy_(biases[number])
    return model.eval().to(memory_format=torch.channels_last)


class Shift(nn.Module):
    """Delays log-mels (batch, frames, mels) by some frames.

    Since strides are padded behind only, output frame i depends on input around
    (i + 1) * stride; half a stride later it is centred on what it covers.
    """

    def __init__(self, n_frames: int) -> None:
        super().__init__()
        self.n_frames = n_frames

    def forward(self, log_mel: Tensor) -> Tensor:
        """See the class."""
        return F.pad(log_mel, (0, 0, self.n_frames, -self.n_frames))


def register() -> None:
    """Make the module known to Earmark as the encoder "yamnet"."""

    def make(file: Path | None) -> nn.Module:
        assert file is not None, "yamnet needs its TFLite file"
        return nn.Sequential(Shift(STRIDE // 2), read_yamnet(file))

    register_encoder("yamnet", make)
