"""The recurrent layers, which depend on the whole clip: a Bi-GRU, and the product of two.

Conventions: features are (batch, frames, features). The mask (batch, frames) is True for a valid
frame, or None if all are; padding comes last in a clip, and the output is zero there.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own usage
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from earmark.nn.layers import Layer, count_parameters
from earmark.runtime import kernels
from earmark.runtime.gru import bidirectional_gru


class BiGRU(nn.GRU):
    """A bidirectional GRU whose backward direction starts at the last valid frame of each clip.

    Shape: (batch, frames, features) -> (batch, frames, 2 * n_hidden).

    >>> import torch
    >>> BiGRU(3, 8)(torch.zeros(2, 50, 3)).shape
    torch.Size([2, 50, 16])
    """

    def __init__(self, n_in: int, n_hidden: int) -> None:
        super().__init__(n_in, n_hidden, batch_first=True, bidirectional=True)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """See the class."""
        if self.training and kernels.ours(features):
            return self._train(features, mask)
        if mask is None or not len(mask):  # packing needs at least one clip
            hidden: Tensor = super().forward(features)[0]
            return hidden
        # Packing needs at least one frame per clip too; that of an empty clip is masked later.
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(features, lengths, batch_first=True, enforce_sorted=False)
        unpacked, _ = pad_packed_sequence(
            super().forward(packed)[0], batch_first=True, total_length=features.shape[1]
        )
        return unpacked

    def _train(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Do the same with the steps of `earmark.runtime.gru`."""
        names = ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
        weight_ih, bias_ih, weight_hh, bias_hh = (
            torch.stack([getattr(self, f"{name}_l0"), getattr(self, f"{name}_l0_reverse")])
            for name in names
        )
        gates = F.linear(features, weight_ih.flatten(0, 1), bias_ih.flatten())
        return bidirectional_gru(
            gates.view(*gates.shape[:2], 2, 3 * self.hidden_size), weight_hh, bias_hh, mask
        )

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """Return name, output shape, parameters and operations, given (frames, features)."""
        n_weights = sum(p.numel() for name, p in self.named_parameters() if "weight" in name)
        return Layer(
            "Bi-GRU",
            (shape[0], 2 * self.hidden_size),
            count_parameters(self),
            operations=n_weights * shape[0],
        )


class GatedBiGRU(nn.Module):
    """The product of two Bi-GRUs on the same input: one is the value, the other gates it.

    Surrey's value has a linear candidate and its gate a sigmoid one, with hard sigmoids inside.
    Here both are the usual GRU with tanh, which runs fused; the gate is moved from (-1, 1) to
    (0, 1): value * (1 + gate) / 2. A linear candidate could grow without bound; this one cannot.

    Shape: (batch, frames, features) -> (batch, frames, 2 * n_hidden).

    >>> import torch
    >>> GatedBiGRU(3, 8)(torch.zeros(2, 50, 3)).shape
    torch.Size([2, 50, 16])
    """

    def __init__(self, n_in: int, n_hidden: int) -> None:
        super().__init__()
        self.value, self.gate = BiGRU(n_in, n_hidden), BiGRU(n_in, n_hidden)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """See the class."""
        value, gate = self.value(features, mask), self.gate(features, mask)
        gated: Tensor = value * (1 + gate) / 2
        return gated

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """Return name, output shape, parameters and operations, given (frames, features)."""
        one = self.value.describe(shape)
        return Layer(f"gated {one.name}", one.shape, 2 * one.n_parameters, 2 * one.operations)
