"""The command `earmark plot`."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import (
    BundledOption,
    DeviceOption,
    EncoderOption,
    MinScoreOption,
    SensitivityOption,
    app,
    print_text,
)
from earmark.errors import DataError


@app.command()
def plot(
    audio: Annotated[Path, typer.Argument(metavar="AUDIO", help="Recording to draw.")],
    model: BundledOption = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Figure to write: .png, .svg or .pdf; by default AUDIO.png, here.",
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Table of the events that are there, to draw as well."),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASSES",
            help="Classes to draw, separated by commas; may be repeated. By default those with "
            "events, or the three with the highest scores.",
        ),
    ] = None,
    start: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Where the figure starts.")
    ] = 0.0,
    end: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Where it ends; by default with the recording."
        ),
    ] = None,
    sensitivity: SensitivityOption = "normal",
    min_score: MinScoreOption = 0.0,
    title: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Title of the figure; by default the name of the file."),
    ] = None,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Draw a recording: spectrogram in Hz, frame-level scores and events."""
    from earmark.formats.events import read_events
    from earmark.formats.names import rename_files
    from earmark.inference.batch import parse_classes
    from earmark.inference.detector import Detector
    from earmark.inference.model_file import BUNDLED
    from earmark.plots import check_format, save

    target = check_format(out or Path(f"{audio.name}.png"))
    known = {} if reference is None else rename_files(read_events(reference), [audio.name])
    if reference is not None and audio.name not in known:
        raise DataError(f"{reference} has no file {audio.name}; check the names of its files.")
    detector = Detector.load(model or BUNDLED, device, encoder=encoder)
    figure = detector.plot(
        audio,
        reference=known.get(audio.name, ()),
        classes=None if classes is None else parse_classes(classes, detector.labels),
        sensitivity=sensitivity,
        min_score=min_score,
        span=None if start == 0 and end is None else (start, float("inf") if end is None else end),
        title=title,
    )
    print_text(str(save(figure, target)))
