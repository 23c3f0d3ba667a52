"""The paper's network as a textbook would write it in PyTorch, without any optimisation.

The baseline for the speed of training and detection. It has no mask, needs a number of frames that
the pooling divides, and pools by hierarchical linear softmax. Its parameters are in the order of
those of `earmark.nn.model.Model`.
"""

import torch
from torch import Tensor, nn

from earmark.nn.model import Model, ModelConfig


class GatedConvolution(nn.Module):
    """3 x 3 convolution, batch norm, and one half of the maps times the sigmoid of the other."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(n_in, 2 * n_out, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(2 * n_out)

    def forward(self, maps: Tensor) -> Tensor:
        """(batch, n_in, frames, mels) -> (batch, n_out, frames, mels)."""
        linear, gate = self.norm(self.convolution(maps)).chunk(2, dim=1)
        return linear * torch.sigmoid(gate)


class Textbook(nn.Module):
    """The gated CRNN: (batch, frames, mels) -> (batch, classes)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if config.input_pool != (1, 1):
            layers.append(nn.AvgPool2d(config.input_pool))
        n_in = 1
        for n_out, pool in zip(config.channels, config.pools, strict=True):
            layers += [GatedConvolution(n_in, n_out), GatedConvolution(n_out, n_out)]
            layers += [nn.Dropout(config.dropout), nn.MaxPool2d(pool)]
            n_in = n_out
        last = config.last_channels
        layers += [nn.Conv2d(n_in, last, 3, padding=1, bias=False), nn.BatchNorm2d(last), nn.ReLU()]
        layers.append(nn.MaxPool2d(config.last_pool))
        self.convolutions = nn.Sequential(*layers)
        n_recurrent = config.n_recurrent
        self.recurrent = nn.GRU(last, n_recurrent, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * n_recurrent, config.n_classes)
        self.stages = config.stages

    def forward(self, log_mel: Tensor) -> Tensor:
        """(batch, frames, mels) -> (batch, classes)."""
        maps = self.convolutions(log_mel.unsqueeze(1))  # (batch, maps, frames, 1)
        hidden, _ = self.recurrent(maps.squeeze(3).transpose(1, 2))
        probs = torch.sigmoid(self.classifier(hidden))
        for size in self.stages:  # sum(x^2) / sum(x) of each segment
            parts = probs.unflatten(1, (-1, size))
            probs = parts.square().sum(2) / parts.sum(2)
        return probs.squeeze(1)

    def copy_weights(self, model: Model) -> None:
        """Copy the parameters of our network, which are in the same order."""
        with torch.no_grad():
            for own, other in zip(self.parameters(), model.parameters(), strict=True):
                own.copy_(other)


def take_step(
    model: nn.Module, optimiser: torch.optim.Optimizer, batch: Tensor, targets: Tensor
) -> float:
    """Take one training step; return its loss."""
    optimiser.zero_grad()
    loss = nn.functional.binary_cross_entropy(model(batch), targets)
    loss.backward()
    optimiser.step()
    return loss.item()
