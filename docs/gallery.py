"""Make the pictures of docs/gallery.md by the commands that the page shows, from nothing."""

import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from earmark.files import atomic_write

# Synthesize, train, detect, evaluate.
COMMANDS = (
    "earmark synth clips --n 150 --seed 1 --sample-rate 8000 --duration 5 "
    "--classes bell,chirp,siren",
    "earmark synth new --n 40 --seed 2 --sample-rate 8000 --duration 5 --classes bell,chirp,siren",
    "earmark train --train clips/weak.tsv --audio clips/audio --out run "
    "--set features.sample_rate=8000 --set model.channels=[8,8,16,16] --set training.batch_size=8 "
    "--set training.max_epochs=15 --set training.learning_rate=0.004 --set training.threads=1",
    "earmark detect new/audio --model run/model.earmark --out estimate.csv --score --scores scores "
    "--plot pictures",
    "earmark evaluate new/strong.tsv estimate.csv --scores scores --plots figures",
    "earmark plot new/audio/scene_00007.wav --model run/model.earmark --reference new/strong.tsv "
    "--out plot.png",
)
# Picture -> the file that the commands make.
PICTURES = {
    "docs/images/history.png": "run/history.png",
    "docs/images/scene.png": "pictures/scene_00007.wav.png",
    "docs/images/plot.png": "plot.png",
    "docs/images/segment-f1.png": "figures/segment_f1.png",
    "docs/images/confusion.png": "figures/confusion_1.png",
    "docs/images/precision-recall.png": "figures/precision_recall_1.png",
    "docs/images/psd-roc.png": "figures/psd_roc1_1.png",
}


@cache
def _run_commands() -> Path:
    """Run the commands once, in a temporary folder that is kept."""
    folder = Path(tempfile.mkdtemp())
    for command in COMMANDS:
        _, *words = shlex.split(command)
        subprocess.run([sys.executable, "-m", "earmark", *words], cwd=folder, check=True)
    return folder


def picture(path: Path) -> None:
    """Copy a picture that the commands made."""
    made = PICTURES[f"docs/images/{path.name}"]
    atomic_write(path, (_run_commands() / made).read_bytes())
