"""The command `earmark doctor`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import (
    AudioOption,
    GroupOption,
    GroupPatternOption,
    JsonOption,
    ValidAudioOption,
    app,
    print_json,
)


@app.command()
def doctor(
    manifest: Annotated[
        Path, typer.Argument(metavar="TABLE", help="Table of tags, or folder of class folders.")
    ],
    valid: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Table for validation.")
    ] = None,
    audio: AudioOption = None,
    valid_audio: ValidAudioOption = None,
    group: GroupOption = None,
    group_pattern: GroupPatternOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check tables and recordings before training; exit with 1 if training cannot start."""
    from earmark.data.doctor import examine
    from earmark.data.findings import render
    from earmark.data.manifest import Manifest

    read = partial(Manifest.read, group=group, group_pattern=group_pattern)
    valid_clips = None if valid is None else read(valid, valid_audio or audio)
    report = examine(read(manifest, audio), valid_clips)
    if as_json:
        print_json(report.to_dict())
    else:
        from rich.console import Console

        Console().print(render(report))
    if report.stops:
        raise typer.Exit(1)
