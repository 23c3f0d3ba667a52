"""The command `earmark doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import AudioOption, JsonOption, ValidAudioOption, app, print_json


@app.command()
def doctor(
    manifest: Annotated[Path, typer.Argument(help="Table of tags, or folder of class folders.")],
    valid: Annotated[Path | None, typer.Option(help="Table for validation.")] = None,
    audio: AudioOption = None,
    valid_audio: ValidAudioOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check tables and recordings before training; exit with 1 if training cannot start."""
    from earmark.data.doctor import examine, render
    from earmark.data.manifest import Manifest

    train = Manifest.read(manifest, audio)
    report = examine(train, None if valid is None else Manifest.read(valid, valid_audio or audio))
    if as_json:
        print_json(report.to_dict())
    else:
        from rich.console import Console

        Console().print(render(report))
    if report.stops:
        raise typer.Exit(1)
