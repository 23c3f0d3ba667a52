"""The input of an encoder in pieces of any length -> the embeddings of its frames.

Conventions: frame `i` covers [i * hop, (i + 1) * hop), and the frames of a patch are in its middle.
Beyond both ends of a recording there is silence. A recording of n hops, the last one perhaps
incomplete, has n frames. Patches are counted from the first one, whether the input comes whole or
in pieces: both give the same values.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from earmark.encoders.config import EncoderConfig, whole_multiple
from earmark.encoders.runtimes import load_encoder

BATCH = 32  # frames to encode at a time, or one patch if it has more


class Encoder:
    """An encoder that is ready to run.

    Args:
        config: of the encoder.
        unit: seconds per row of its input, a log-mel frame or a sample.
        silence: value of the input where there is no sound.

    >>> from earmark.encoders.runtimes import ENCODERS, register_encoder
    >>> register_encoder("levels", lambda file: torch.nn.AvgPool1d(4))
    >>> encoder = Encoder(EncoderConfig("levels", patch=4, hop=2, input="waveform"), unit=1.0)
    >>> torch.cat(list(encoder.stream([torch.ones(3), torch.ones(4)]))).flatten()
    tensor([0.7500, 1.0000, 1.0000, 0.5000])
    >>> del ENCODERS["levels"]
    """

    def __init__(self, config: EncoderConfig, unit: float, silence: float = 0.0) -> None:
        units = "samples" if config.input == "waveform" else "log-mel frames"
        self.config, self.silence = config, silence
        self.patch, self.step, self.hop = (
            whole_multiple(name, getattr(config, name), unit, units)
            for name in ("patch", "step", "hop")
        )
        self._encode = load_encoder(config)

    def stream(self, pieces: Iterable[Tensor], batch: int = BATCH) -> Iterator[Tensor]:
        """Yield the embeddings (frames, features) of an input (rows, mels) or (rows,), in pieces.

        Args:
            pieces: of the input, in order.
            batch: frames to encode at a time, or one patch if it has more.
        """
        n_frames = self.config.n_frames  # per patch
        n_patches = max(1, batch // n_frames)  # per call
        enough = (n_patches - 1) * self.step + self.patch
        front = (self.patch - self.step) // 2
        n_rows = n_done = 0
        held: Tensor | None = None
        for piece in pieces:
            if held is None:
                held = self._pad(piece[:0], front)
            held, n_rows = torch.cat([held, piece]), n_rows + len(piece)
            while len(held) >= enough:
                yield self._frames(held[:enough], n_patches)
                held, n_done = held[n_patches * self.step :], n_done + n_patches * n_frames
        n_left = -(-n_rows // self.hop) - n_done
        if held is None or n_left <= 0:
            return
        n_patches = -(-n_left // n_frames)
        lacking = (n_patches - 1) * self.step + self.patch - len(held)
        yield self._frames(self._pad(held, max(0, lacking)), n_patches)[:n_left]

    def _pad(self, rows: Tensor, n_rows: int) -> Tensor:
        return torch.cat([rows, rows.new_full((n_rows, *rows.shape[1:]), self.silence)])

    def _frames(self, rows: Tensor, n_patches: int) -> Tensor:
        patches = rows.unfold(0, self.patch, self.step)[:n_patches]  # the patch is the last axis
        inputs = np.ascontiguousarray(patches.movedim(-1, 1).numpy())
        return torch.from_numpy(self._encode(inputs)).flatten(0, 1)
