"""The command `detect`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.app import BundledOption, DeviceOption, EncoderOption, SchedulerOption, app
from earmark.errors import DataError, SettingError


@app.command()
def detect(
    recordings: Annotated[list[Path], typer.Argument(help="Files, or folders of them.")],
    model: BundledOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Table to write; else print.")] = None,
    score: Annotated[
        bool, typer.Option("--score", help="Add a column with the score of each event.")
    ] = False,
    sensitivity: Annotated[
        str,
        typer.Option(
            help="low, normal, high or a number: higher misses fewer events and makes more false "
            "ones."
        ),
    ] = "normal",
    min_score: Annotated[
        float, typer.Option(help="Leave out events with a lower score, from 0 to 1.")
    ] = 0.0,
    scores: Annotated[
        Path | None,
        typer.Option(help="Folder for the frame-level scores, one table per recording."),
    ] = None,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
    threads: Annotated[int, typer.Option(help="Threads to use; 0 is one per core.")] = 0,
    scheduler: SchedulerOption = None,
) -> None:
    """Detect which sound starts and ends when, in recordings of any length."""
    from dataclasses import replace

    from earmark.formats.events import write_events
    from earmark.inference.cluster import detect_files_on_cluster
    from earmark.inference.detector import Detector
    from earmark.inference.model_file import BUNDLED

    if out is not None and not out.absolute().parent.is_dir():
        raise DataError(f"There is no folder {out.parent} for {out.name}; make it first.")
    model = model or BUNDLED
    how: dict[str, Any] = {"sensitivity": sensitivity, "min_score": min_score}
    if scheduler is None:
        detector = Detector.load(model, device, threads, encoder)
        events = detector.detect_files(recordings, scores, **how)
    elif threads:
        raise SettingError(f"With a scheduler, every task has one thread. Got {threads} threads.")
    else:
        where = {"device": device, "encoder": encoder}
        events = detect_files_on_cluster(model, recordings, scheduler, scores, **how, **where)
    if not score:
        plain = {name: [replace(e, score=None) for e in own] for name, own in events.items()}
    write_events(out or sys.stdout, events if score else plain)
    if events.failed:
        raise typer.Exit(2)
