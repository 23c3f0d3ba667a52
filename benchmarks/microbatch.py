"""The effect of micro-batches on training: losses on synthetic scenes with known tags.

The only difference is that the statistics of batch norm are those of a micro-batch instead of those
of the batch; scenes, initial weights and order are the same. The network is small, so that several
seeds take little time.
"""

import tempfile
from pathlib import Path
from statistics import fmean, stdev

from earmark.synth.scenes import SceneConfig, write_scenes
from earmark.training.api import train
from earmark.training.checkpoint import Checkpoint
from earmark.training.config import RunConfig

SIZES = (0, 16, 4)
SEEDS = 3
N_TRAIN, N_VALID, N_EPOCHS = 256, 128, 12
SCENES = SceneConfig(
    sample_rate=8000, duration=2.0, event_duration=(0.3, 1.0), classes=("siren", "knock", "chirp")
)
OVERRIDES = [
    "features.sample_rate=8000",
    "features.n_mels=40",
    "features.f_max=4000",
    "model.channels=[8, 8, 16, 16]",
    "model.last_channels=32",
    "model.n_recurrent=16",
    "training.batch_size=128",
    "training.learning_rate=0.003",
    "training.threads=1",
    f"training.max_epochs={N_EPOCHS}",
    f"training.patience={N_EPOCHS}",
]


def run(shared: Path) -> str:
    """Train, and return the losses in Markdown."""
    rows = ["| micro-batch | training loss | validation loss |", "|---|---:|---:|"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_scenes(root / "train", N_TRAIN, SCENES, seed=1)
        write_scenes(root / "valid", N_VALID, SCENES, seed=2)
        for size in SIZES:
            last = [losses(root, size, seed) for seed in range(SEEDS)]
            texts = [f"{fmean(one):.3f} ± {stdev(one):.3f}" for one in zip(*last, strict=True)]
            rows.append(f"| {size or 'whole batch'} | {texts[0]} | {texts[1]} |")
            print(rows[-1], flush=True)
    text = (
        f"Losses after {N_EPOCHS * N_TRAIN // 128} steps of 128 clips, mean and standard deviation"
        f" over {SEEDS} seeds: {N_TRAIN} synthetic scenes of 2 s, {len(SCENES.classes)} classes, a"
        " small network. The training loss is that of the last epoch, the validation loss the"
        " lowest."
    )
    return text + "\n\n" + "\n".join(rows)


def losses(root: Path, size: int, seed: int) -> tuple[float, float]:
    """Train once; return the last training loss and the lowest validation loss."""
    out = root / f"run {size} {seed}"
    train(
        root / "train" / "weak.tsv",
        root / "valid" / "weak.tsv",
        root / "train" / "audio",
        out,
        valid_audio=root / "valid" / "audio",
        overrides=[*OVERRIDES, f"training.micro_batch={size}", f"training.seed={seed}"],
        run=RunConfig(store=root / "features"),
    )
    history = Checkpoint.read(out).state.history
    return history[-1].train_loss, min(epoch.valid_loss for epoch in history)


if __name__ == "__main__":
    print(run(Path("../shared")))
