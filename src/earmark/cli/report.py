"""The command `earmark report`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import DeviceOption, app, print_text
from earmark.cli.evaluate import durations_of


@app.command()
def report(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN|REFERENCE ESTIMATE...",
            help="Output folder of a training; or a table of reference events or tags, then a "
            "table of events or tags per system.",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="HTML file to write.")] = Path("report.html"),
    reference: Annotated[
        Path | None,
        typer.Option(help="Of a training: table of the events in its validation clips."),
    ] = None,
    scores: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of frame-level scores; once per system, in order."),
    ] = None,
    audio: Annotated[
        Path | None,
        typer.Option(help="Folder of the recordings; of a training, if they were moved."),
    ] = None,
    negatives: Annotated[
        Path | None,
        typer.Option(
            help="Recordings without any of the classes: a folder, or a table of filename and "
            "duration. The estimates have their false events."
        ),
    ] = None,
    weak: Annotated[bool, typer.Option("--weak", help="The tables hold tags, no times.")] = False,
    resolution: Annotated[float, typer.Option(help="Length of a segment in seconds.")] = 1.0,
    bootstrap: Annotated[
        int, typer.Option(min=0, help="Bootstrap samples of the intervals; 0: no intervals.")
    ] = 1000,
    clips: Annotated[
        int, typer.Option(min=0, help="How many of the best and of the worst clips to show.")
    ] = 3,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write a report of a training or of detected events: one HTML file that opens offline."""
    from earmark.metrics.evaluation import Scoring
    from earmark.reports import report as write_report

    source, *estimates = paths
    scoring = Scoring(
        resolution=resolution,
        n_bootstrap=bootstrap,
        negatives=None if negatives is None else durations_of(negatives),
    )
    target = write_report(
        source,
        *estimates,
        out=out,
        reference=reference,
        scores=scores or (),
        audio=audio,
        weak=weak,
        scoring=scoring,
        n_clips=clips,
        title=title,
        command=shlex.join(["earmark", *sys.argv[1:]]),
        device=device,
    )
    print_text(f"{target}: {target.stat().st_size / 1e6:.1f} MB")
