"""The command `detect`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import BundledOption, DeviceOption, EncoderOption, app
from earmark.cli.live import print_events_of_pipe
from earmark.errors import DataError


@app.command()
def detect(
    recordings: Annotated[
        list[Path], typer.Argument(help="Files, folders of them, or - for standard input.")
    ],
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
    raw_rate: Annotated[
        int | None, typer.Option(help="Sample rate of raw samples on standard input, in Hz.")
    ] = None,
    raw_format: Annotated[
        str, typer.Option(help="Their format: u8, s16le, s24le, s32le, f32le or f64le.")
    ] = "s16le",
    raw_channels: Annotated[int, typer.Option(help="Their number of channels.")] = 1,
) -> None:
    """Detect which sound starts and ends when, in recordings of any length.

    With - in place of files, a wav or raw samples on standard input: events are printed as JSON
    lines as soon as they are final.
    """
    from dataclasses import replace

    from earmark.formats.events import write_events
    from earmark.inference.detector import Detector
    from earmark.inference.model_file import BUNDLED

    if out is not None and not out.absolute().parent.is_dir():
        raise DataError(f"There is no folder {out.parent} for {out.name}; make it first.")
    is_pipe = Path("-") in recordings
    if is_pipe and (len(recordings) > 1 or out is not None or scores is not None):
        raise DataError(
            "Standard input is one recording, whose events are printed; detect files separately."
        )
    detector = Detector.load(model or BUNDLED, device, threads, encoder)
    if is_pipe:
        raw = (raw_rate, raw_format, raw_channels)
        print_events_of_pipe(detector, sensitivity, min_score, *raw)
        return
    events = detector.detect_files(recordings, scores, sensitivity=sensitivity, min_score=min_score)
    if not score:
        plain = {name: [replace(e, score=None) for e in own] for name, own in events.items()}
    write_events(out or sys.stdout, events if score else plain)
    if events.failed:
        raise typer.Exit(2)
