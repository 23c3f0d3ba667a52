"""The systems that the paper's Table 3 compares with: front end, network and training of each.

Every system has three presets: `wang` in full width on the log-mels of all networks here,
`wang-fast` in a width of about 0.25 G multiply-adds, and `wang-native` with its own log-mels. MLMS8
takes the waveform, and what EMSI takes is not known: these two have no third one.

Conventions: an epoch is a pass over the training clips. The originals count epochs in batches; the
comments below say how many passes over the 51,172 clips of DCASE 2017 task 4 these are. The first
three do not stop early. Surrey and GCCaps average the probabilities of several checkpoints of a run
(`training.members`); of the others it is one: that of the best F1 of the validation tags of Wang,
and of the lowest validation loss of EMSI-like and MLMS8.
"""

from dataclasses import replace
from typing import NamedTuple

from earmark.data.features import FeatureConfig
from earmark.nn.emsi import EmsiConfig
from earmark.nn.gccaps import GCCapsConfig
from earmark.nn.mlms import MlmsConfig
from earmark.nn.network import NetworkConfig
from earmark.nn.surrey import SurreyConfig
from earmark.nn.wang import WangConfig
from earmark.training.config import TrainingConfig


class Recipe(NamedTuple):
    """The first three sections of the settings of a system.

    >>> SYSTEMS["wang-native"].features.grid.frame_rate
    Fraction(40, 1)
    """

    features: FeatureConfig
    model: NetworkConfig
    training: TrainingConfig


NEVER = 1000  # epochs of patience: no early stopping

# Wang: 50 checkpoints of 500 batches, each nearly a pass. One queue of clips per class, which are
# visited in random order. The learning rate is halved where the validation loss has not fallen for
# more than 3 checkpoints. Which one is used is not stated; the specification has the best F1 of the
# validation tags.
_WANG = TrainingConfig(
    batch_size=100,
    learning_rate=3e-4,
    max_epochs=50,
    patience=NEVER,
    monitor="f1",
    balanced=True,
    schedule="plateau",
    plateau=4,
    plateau_monitor="loss",
)
# Surrey: an epoch of 100 batches is a twelfth of a pass; the checkpoints of epochs 20 to 29 (steps
# 2,000 to 3,000) are averaged. Ours are the last ten of 20 passes.
_SURREY = TrainingConfig(
    batch_size=44,
    max_epochs=20,
    patience=NEVER,
    checkpoint="last",
    members=10,
    balanced=True,
    class_ratio=1000,
)
# GCCaps: an epoch of 1,163 batches is a pass. The learning rate of 0.001 is multiplied by 0.9
# before the first epoch already, and then before every second one. The five epochs with the best
# micro F1 of the validation tags are averaged.
_GCCAPS = TrainingConfig(
    batch_size=44,
    learning_rate=9e-4,
    max_epochs=30,
    patience=NEVER,
    monitor="f1",
    members=5,
    balanced=True,
    class_ratio=1000,
    class_order="random",
    schedule="exponential",
)
# EMSI-like is trained as the network of the paper, with classes drawn alike. A step of 32 clips of
# 10 s has 32, 64, 160 and 320 windows for its members, where the specification has 128 for each.
_EMSI = TrainingConfig(batch_size=32, balanced=True)
# MLMS8: a batch has 23 clips, where the original has 23 windows. The learning rate is divided by 5
# where the validation loss has not fallen for 3 epochs, as that of the original, which then starts
# again from its best weights; so 15 epochs without a lower loss take all of its five rates. Nets
# and classifier are trained at once here, both by SGD; the specification freezes the nets, and then
# trains the classifier by Adam.
_MLMS = TrainingConfig(
    batch_size=23,
    optimizer="sgd",
    learning_rate=0.01,
    schedule="plateau",
    plateau=3,
    plateau_factor=0.2,
    patience=15,
)
# Own front ends. Decibels differ from our natural logarithm by a factor, which standardisation
# removes. What remains: our window is Hann's, and Surrey's is Hamming's, as that of GCCaps' first
# version; its second has Hann's, and levels below the clip's maximum. Our frames are centred on
# their hop as everywhere here, and a last, incomplete frame counts: 10 s are 241 frames of 664
# samples, where the originals have 240. Wang's logarithm has no offset, and ours has the usual one.
_WANG_FEATURES = FeatureConfig(
    sample_rate=16000,
    window=0.064,
    hop=0.025,
    n_mels=64,
    f_min=0.0,
    f_max=8000.0,
    n_fft=4096,
    spectrum="magnitude",
)
_SURREY_FEATURES = replace(_WANG_FEATURES, hop=0.0415, n_fft=0, log_offset=1e-8)


def sizes(
    name: str, kind: type[NetworkConfig], native: FeatureConfig, training: TrainingConfig
) -> dict[str, Recipe]:
    """Return the presets of a system, by name: in full width, fast, and with its own front end.

    >>> sizes("wang", WangConfig, _WANG_FEATURES, _WANG).keys()
    dict_keys(['wang', 'wang-fast', 'wang-native'])
    """
    full, fast, own = (kind.preset(size, n_classes=1) for size in ("full", "fast", "native"))
    in_parts = replace(training, micro_batch=16)  # a whole batch would take gigabytes
    return {
        name: Recipe(FeatureConfig(), full, in_parts),
        f"{name}-fast": Recipe(FeatureConfig(), fast, training),
        f"{name}-native": Recipe(native, own, in_parts),
    }


SYSTEMS: dict[str, Recipe] = {
    **sizes("wang", WangConfig, _WANG_FEATURES, _WANG),
    **sizes("surrey", SurreyConfig, _SURREY_FEATURES, _SURREY),
    **sizes("gccaps", GCCapsConfig, _SURREY_FEATURES, _GCCAPS),
    "emsi-like": Recipe(
        FeatureConfig(), EmsiConfig.preset("full", n_classes=1), replace(_EMSI, micro_batch=8)
    ),
    "emsi-like-fast": Recipe(FeatureConfig(), EmsiConfig.preset("fast", n_classes=1), _EMSI),
    "mlms8": Recipe(
        FeatureConfig(sample_rate=44100, kind="waveform"),
        MlmsConfig.preset("full", n_classes=1),
        replace(_MLMS, micro_batch=4),
    ),
    "mlms8-fast": Recipe(
        FeatureConfig(sample_rate=22050, kind="waveform"),
        MlmsConfig.preset("fast", n_classes=1),
        replace(_MLMS, micro_batch=8),
    ),
}
