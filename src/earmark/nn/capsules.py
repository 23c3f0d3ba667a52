"""Capsules: vectors whose direction says what there is, and whose length how probable it is.

Primary capsules are groups of maps. Class capsules are made of them by routing: each primary
capsule predicts each class capsule, and sends more of its prediction to the classes that the others
agree with. Every frame is routed for itself.

Conventions: a length is at least 0 and below 1. Sums of squares have `EPS` added before their root,
whose slope at 0 would be infinite otherwise.
"""

import torch
from torch import Tensor, nn

from earmark.errors import SettingError
from earmark.nn.layers import Layer, MapLayer, Maps, MaskedBatchNorm, count_parameters, zero_padding

EPS = 1e-7


def squash(vectors: Tensor, dim: int = -1) -> Tensor:
    """Return vectors of the same directions with lengths in [0, 1): |s|^2 / (1 + |s|^2) s / |s|.

    >>> squash(torch.tensor([3.0, 4.0])).norm()
    tensor(0.9615)
    """
    squares = vectors.square().sum(dim, keepdim=True)
    return vectors * (squares / (1 + squares) * (squares + EPS).rsqrt())


def lengths(vectors: Tensor) -> Tensor:
    """Return the length of each vector along the last axis, at most 1, with a gradient at 0.

    >>> lengths(torch.tensor([[0.3, 0.4], [0.0, 0.0]])).round(decimals=3)
    tensor([0.5000, 0.0000])
    """
    return (vectors.square().sum(-1) + EPS).sqrt().clamp(max=1)


def route(inputs: Tensor, weight: Tensor, n_iterations: int = 3) -> Tensor:
    """Return class capsules v_j, given primary capsules u_i and the weights W_ij of predictions.

    Input i predicts W_ij u_i of class j. With shares c_ij of the inputs, v_j is the squashed sum of
    c_ij W_ij u_i over i, and the agreement of i and j is the product of W_ij u_i and v_j. The
    predictions themselves, classes x n_out values per input and frame, are never stored: sums are
    W_j (c_j u), agreements u (W_j^T v_j), where W_j has the weights of all inputs in one matrix.

    Shape: `inputs` (frames, n_in, n_inputs), `weight` (classes, n_inputs, n_out, n_in) -> (frames,
    classes, n_out). Gradients run through all passes.

    >>> route(torch.ones(125, 4, 80), torch.ones(17, 80, 8, 4)).shape
    torch.Size([125, 17, 8])
    """
    n_classes, _, n_out, _ = weight.shape
    flat = inputs.flatten(1)
    by_class = weight.permute(0, 3, 1, 2).flatten(1, 2)  # (classes, n_in * n_inputs, n_out)
    # Without any agreement yet, every input is divided equally among the classes.
    sums = flat @ by_class.transpose(0, 1).flatten(1) / n_classes
    capsules = squash(sums.reshape(-1, n_classes, n_out).transpose(0, 1))
    logits = sums.new_zeros(())
    for _ in range(n_iterations - 1):
        agreements = capsules @ by_class.transpose(1, 2) * flat  # still per component
        logits = logits + agreements.reshape(n_classes, *inputs.shape).sum(2)
        shares = logits.softmax(0).unsqueeze(2)  # (classes, frames, 1, n_inputs), over the classes
        capsules = squash((shares * inputs).flatten(2) @ by_class)
    return capsules.transpose(0, 1)


class PrimaryCapsules(MapLayer):
    """Neighbouring maps grouped to vectors, squashed, then batch norm of their components.

    Its output has one map per component, and in place of mels the capsules of a frame; all capsules
    share the statistics of a component.

    Shape: (batch, maps, frames, mels) -> (batch, size, frames, capsules), where a frame has
    maps / size * mels capsules; zero at padding.

    >>> maps, mask = PrimaryCapsules(4)(torch.zeros(2, 64, 125, 5))
    >>> maps.shape
    torch.Size([2, 4, 125, 80])
    """

    kind = "primary capsules"

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.norm = MaskedBatchNorm(size)

    def forward(self, maps: Tensor, mask: Tensor | None = None) -> Maps:
        """See the class."""
        n_clips, n_maps, n_frames, n_mels = maps.shape
        groups = maps.reshape(n_clips, n_maps // self.size, self.size, n_frames, n_mels)
        vectors = groups.permute(0, 2, 3, 1, 4).flatten(3)
        return zero_padding(self.norm(squash(vectors, 1), mask), mask), mask

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """See `MapLayer.describe`."""
        maps, frames, mels = shape
        return Layer(
            self.kind, (self.size, frames, maps // self.size * mels), count_parameters(self)
        )


class ClassCapsules(nn.Module):
    """One capsule per class, routed from the primary capsules of a frame; its length is the score.

    The weights of a prediction are shared by all frames. Xavier's rule sees a convolution in them,
    whose kernel are the classes and inputs, as in the Keras original: first predictions are small,
    and so are first scores.

    Shape: (batch, frames, n_in * n_inputs), all inputs of the first component first, -> frame
    probabilities (batch, frames, n_classes), in single precision or better, 0 at padding.

    Args:
        n_features: n_in times the number of primary capsules of a frame.
        n_in: components of a primary capsule.
        n_classes: number of classes.
        n_out: components of a class capsule.
        n_iterations: passes of the routing.

    >>> ClassCapsules(320, 4, n_classes=17, n_out=8)(torch.randn(2, 125, 320)).shape
    torch.Size([2, 125, 17])
    """

    def __init__(
        self, n_features: int, n_in: int, n_classes: int, n_out: int, n_iterations: int = 3
    ) -> None:
        super().__init__()
        if n_features % n_in or n_iterations < 1:
            raise SettingError(
                f"Capsules of {n_in} components need a multiple of {n_in} features and one or more "
                f"iterations of routing. Got {n_features} features and {n_iterations} iterations."
            )
        self.n_iterations = n_iterations
        self.weight = nn.Parameter(torch.empty(n_classes, n_features // n_in, n_out, n_in))
        limit = (6 / (self.weight[..., 0, 0].numel() * (n_in + n_out))) ** 0.5
        nn.init.uniform_(self.weight, -limit, limit)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """See the class."""
        probs = lengths(self.capsules(features))
        return probs if mask is None else probs.masked_fill(~mask.unsqueeze(2), 0)

    def capsules(self, features: Tensor) -> Tensor:
        """Return the class capsules: (batch, frames, features) -> (batch, frames, classes, n_out).

        >>> ClassCapsules(320, 4, n_classes=17, n_out=8).capsules(torch.zeros(2, 9, 320)).shape
        torch.Size([2, 9, 17, 8])
        """
        n_clips, n_frames, _ = features.shape
        _, n_inputs, _, n_in = self.weight.shape
        wide = features.to(torch.promote_types(features.dtype, torch.float32))
        inputs = wide.reshape(n_clips * n_frames, n_in, n_inputs)
        with torch.autocast(features.device.type, enabled=False):  # squares need single precision
            capsules = route(inputs, self.weight, self.n_iterations)
        return capsules.reshape(n_clips, n_frames, *capsules.shape[1:])

    def describe(self, shape: tuple[int, ...]) -> Layer:
        """Return name, output shape, parameters and operations, given (frames, features)."""
        n_classes, n_inputs, n_out, _ = self.weight.shape
        # As the specification counts: every prediction once, which `route` does not store; a pass
        # has one product with the shares, and all but the last one with the capsules.
        per_product, n_products = n_classes * n_inputs * n_out, 2 * self.n_iterations - 1
        operations = (self.weight.numel() + n_products * per_product) * shape[0]
        return Layer("class capsules", (shape[0], n_classes), count_parameters(self), operations)
