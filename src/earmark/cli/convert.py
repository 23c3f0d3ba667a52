"""The command `convert`."""

import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import app, logger, print_text


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="File of events, or a folder of such files.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT",
            help="File to write; a folder (ends with /) for one file per recording; - prints.",
        ),
    ],
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="Format of OUT: {earmark.formats.registry:EVENT_FORMATS}; by default by its "
            "suffix.",
        ),
    ] = None,
    source_format: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help="Format of IN, if its suffix does not say."),
    ] = None,
    decimals: Annotated[
        int,
        typer.Option(
            min=1, max=9, metavar="N", help="Decimals of onsets and offsets, from 1 to 9."
        ),
    ] = 6,
    absolute_time: Annotated[
        bool,
        typer.Option("--absolute-time", help="Add date and time, from the names of recordings."),
    ] = False,
) -> None:
    """Convert events from one format to another."""
    from earmark.files import check_writable
    from earmark.formats.events import is_folder, read_events, write_events
    from earmark.formats.registry import losses
    from earmark.formats.start_times import with_start_times

    if target == "-":
        format = format or "tsv"
    elif not is_folder(target):
        check_writable(Path(target))
    events = read_events(source, source_format)
    if absolute_time:
        events = with_start_times(events, target, format)
    for loss in losses(events, target, format):
        logger.warning("%s", loss)
    on_terminal = target == "-" and sys.stdout.isatty()
    shown = io.StringIO()
    out = shown if on_terminal else sys.stdout if target == "-" else target
    write_events(out, events, decimals=decimals, format=format)
    if on_terminal:
        print_text(shown.getvalue().removesuffix("\n"))
    logger.info("%d recordings, %d events", len(events), sum(map(len, events.values())))
