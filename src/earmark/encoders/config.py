"""The description of an encoder: which network, what it takes, and how its frames are spaced.

Conventions: an encoder takes patches of a fixed length. Patches are `step` seconds apart, each
gives the frames in its middle, and a frame covers `hop` seconds. A network that gives one embedding
per patch has a step of one hop; one that gives many frames per patch may have longer steps, and the
frames near the edges of its patches, which know too little of their surroundings, are not used.

The sha256 identifies an encoder; the file says where it was and may be elsewhere tomorrow.
"""

from dataclasses import dataclass, field
from math import isfinite

from earmark.errors import SettingError, choose

MAX_FEATURES = 2**20  # per frame
MAX_PATCH = 600.0  # seconds, which are held in memory
INPUTS = ("log-mel", "waveform")


@dataclass(frozen=True)
class EncoderConfig:
    """Which encoder, and how its frames are spaced; times in seconds.

    Args:
        kind: what runs it: "tflite", "onnx" or the name of a registered module.
        patch: length of a patch, which is one input of the network.
        hop: distance between frames.
        step: distance between patches, a multiple of the hop; 0 is one hop.
        input: "log-mel" or "waveform".
        tensor: name of the embedding among the tensors of the network; "" is its first output.
        n_features: values per frame.
        sha256: of the file, or of the weights of a module without one.
        file: where it was when the features were computed; two configurations that differ in
            nothing else are equal.

    >>> EncoderConfig("tflite", patch=0.96, hop=0.16).n_frames
    1
    >>> EncoderConfig("tflite", patch=0.96, hop=0.16, step=0.2)
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: step must be a whole number of hops of 0.16 s. Got 0.2 s.
    """

    kind: str
    patch: float
    hop: float
    step: float = 0.0
    input: str = "log-mel"
    tensor: str = ""
    n_features: int = 1
    sha256: str = ""
    file: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        choose("encoder input", self.input, INPUTS)
        for name in ("patch", "hop"):
            value = getattr(self, name)
            if not (isfinite(value) and value > 0):
                raise SettingError(f"{name} must be a number of seconds above 0. Got {value!r}.")
        if self.patch > MAX_PATCH:
            raise SettingError(
                f"patch must be at most {MAX_PATCH:g} s, since it is held in memory. Got "
                f"{self.patch!r}."
            )
        if not self.step:
            object.__setattr__(self, "step", self.hop)
        whole_multiple("step", self.step, self.hop, "hops")
        if self.step > self.patch:
            raise SettingError(
                f"step must be at most the patch of {self.patch:g} s, or what lies between two "
                f"patches would be lost. Got {self.step:g} s."
            )
        if type(self.n_features) is not int or not 1 <= self.n_features <= MAX_FEATURES:
            raise SettingError(
                f"n_features must be 1 or more, up to {MAX_FEATURES}. Got {self.n_features!r}."
            )

    @property
    def n_frames(self) -> int:
        """Frames that are used of each patch.

        >>> EncoderConfig("beats", patch=5.12, hop=0.08, step=2.56).n_frames
        32
        """
        return round(self.step / self.hop)


def whole_multiple(name: str, value: float, unit: float, units: str) -> int:
    """Return how many units a time has; raise if that is not a whole number from 1 on.

    >>> whole_multiple("patch", 0.96, 0.01, "log-mel frames")
    96
    """
    count = value / unit
    if round(count) < 1 or abs(count - round(count)) > 1e-6 * max(1.0, count):
        raise SettingError(
            f"{name} must be a whole number of {units} of {unit:g} s. Got {value:g} s."
        )
    return round(count)
