"""The command `earmark demo`."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import DeviceOption, app


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for all results.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Of the scenes and of the training.")] = 0,
    device: DeviceOption = "auto",
) -> None:
    """Train on synthetic scenes, detect events in new ones, score and plot the result."""
    from earmark.experiments.demo import run_demo

    print(run_demo(out, seed, device).describe())
