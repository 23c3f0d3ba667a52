"""The command `earmark report`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import DeviceOption, app, print_text
from earmark.cli.evaluate import (
    BootstrapOption,
    NegativesOption,
    ResolutionOption,
    ScoresOption,
    WeakOption,
    durations_of,
)


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
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="HTML file to write.")] = Path(
        "report.html"
    ),
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE", help="Of a training: table of the events in its validation clips."
        ),
    ] = None,
    scores: ScoresOption = None,
    audio: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder of the recordings; of a training, if they were moved."
        ),
    ] = None,
    negatives: NegativesOption = None,
    weak: WeakOption = False,
    resolution: ResolutionOption = 1.0,
    bootstrap: BootstrapOption = 1000,
    clips: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="How many of the best and of the worst clips to show."
        ),
    ] = 3,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the report.")] = None,
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
