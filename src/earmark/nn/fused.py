"""The network for inference: faster than a `Network`, with values equal to rounding.

Batch norm is folded into the convolutions, whose maps are stored channels last. And overlapping
windows of a recording share what `Network.encode` computes, mostly convolutions, which run over the
recording as over one long clip: a frame at the edge of a window depends on the neighbouring audio,
not on the zeros beyond the end of a clip. `Network.classify`, such as a GRU whose receptive field
is the whole window, runs on each window separately.

Conventions: a frame of `encode` depends on `NetworkConfig.receptive_field` input frames. So a
recording can be cut anywhere: encoded with `margin` more frames on both sides, a part has the
values that it has in the whole recording.
"""

from torch import Tensor, nn

from earmark.frames import pooled_length
from earmark.nn.network import Network, Prediction


class FusedModel(nn.Module):
    """A trained network for inference: (batch, frames, mels) -> `Prediction`, as a `Network` does.

    >>> import torch
    >>> from earmark.nn.model import Model, ModelConfig
    >>> model = Model(ModelConfig.preset("fast", n_classes=3)).eval()
    >>> log_mel = torch.randn(2, 500, 80)
    >>> with torch.no_grad():
    ...     torch.allclose(FusedModel(model)(log_mel).clip_probs, model(log_mel).clip_probs)
    True
    """

    def __init__(self, model: Network) -> None:
        super().__init__()
        self.config = model.config
        self.network = model.fused()
        pool = self.pool = model.encoder_pool
        self.margin = -(-(model.receptive_field - pool) // (2 * pool)) * pool

    def forward(self, log_mel: Tensor, mask: Tensor | None = None) -> Prediction:
        """See `Network.forward`."""
        prediction: Prediction = self.network(log_mel, mask)
        return prediction

    def encode(self, log_mel: Tensor, before: int = 0, length: int | None = None) -> Tensor:
        """Run `Network.encode` on a part of a recording: (frames, mels) -> (frames, features).

        Args:
            log_mel: the part, with up to `margin` frames of the recording on both sides.
            before: number of frames in front of the part, a multiple of `Network.time_pool`.
            length: number of frames of the part; by default all that follow.

        >>> import torch
        >>> from earmark.nn.model import Model, ModelConfig
        >>> fused = FusedModel(Model(ModelConfig.preset("fast", n_classes=3)).eval())
        >>> with torch.no_grad():
        ...     fused.encode(torch.randn(264, 80), before=32, length=200).shape
        torch.Size([50, 96])
        """
        pool = self.pool
        length = len(log_mel) - before if length is None else length
        features = self.network.encode(log_mel.unsqueeze(0))[0][0]
        return features[before // pool : before // pool + pooled_length(length, pool)]

    def classify(self, features: Tensor, mask: Tensor | None = None) -> Prediction:
        """See `Network.classify`.

        >>> import torch
        >>> from earmark.nn.model import Model, ModelConfig
        >>> fused = FusedModel(Model(ModelConfig.preset("fast", n_classes=3)).eval())
        >>> fused.classify(torch.zeros(2, 125, 96)).clip_probs.shape
        torch.Size([2, 3])
        """
        return self.network.classify(features, mask)
