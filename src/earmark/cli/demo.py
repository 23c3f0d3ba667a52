"""The command `earmark demo`."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import DeviceOption, app, print_text

NEXT = """
Next, with your own recordings: a folder of clips and a table tags.tsv with the
columns filename and event_labels, one row per clip, labels separated by commas:

  earmark doctor tags.tsv --audio FOLDER
  earmark train --train tags.tsv --audio FOLDER --out run
  earmark detect RECORDING --model run/{model}
"""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for all results.")] = Path(
        "demo"
    ),
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of the scenes and of the training.")
    ] = 0,
    device: DeviceOption = "auto",
) -> None:
    """Train on synthetic scenes, detect events in new ones, score and plot the result."""
    from earmark.experiments.demo import run_demo
    from earmark.training.finish import MODEL

    print_text(run_demo(out, seed, device).describe())
    print_text(NEXT.format(model=MODEL))
