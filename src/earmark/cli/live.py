"""The command `listen`, and `detect -`: events of live recordings as JSON lines."""

import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.app import (
    BundledOption,
    ClassesOption,
    DeviceOption,
    EncoderOption,
    MinScoreOption,
    SensitivityOption,
    ThreadsOption,
    app,
    print_json_text,
)

if TYPE_CHECKING:
    from earmark.inference.detector import Detector
    from earmark.inference.listen import LiveSource

INTERRUPTED = 130  # exit code, as of a command that Ctrl-C ended


@app.command()
def listen(
    model: BundledOption = None,
    sample_rate: Annotated[
        int, typer.Option(metavar="HZ", help="Sample rate of the microphone.")
    ] = 16000,
    microphone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name or number of the microphone; python -m sounddevice lists them.",
        ),
    ] = None,
    classes: ClassesOption = None,
    sensitivity: SensitivityOption = "normal",
    min_score: MinScoreOption = 0.0,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
) -> None:
    """Print the events that a microphone records, one JSON line each, until Ctrl-C."""
    from earmark.inference.batch import parse_classes
    from earmark.inference.detector import Detector
    from earmark.inference.listen import open_microphone
    from earmark.inference.model_file import BUNDLED

    detector = Detector.load(model or BUNDLED, device, threads, encoder)
    print_events(
        detector,
        lambda: open_microphone(sample_rate, microphone),
        "microphone",
        sensitivity,
        min_score,
        None if classes is None else parse_classes(classes, detector.labels),
    )


def print_events(
    detector: "Detector",
    open_source: "Callable[[], LiveSource]",
    name: str,
    sensitivity: str | float,
    min_score: float,
    classes: Collection[str] | None,
) -> None:
    """Print each event in the format `jsonl` as soon as it is final; exit with 130 if interrupted.

    Args:
        detector: what detects.
        open_source: opens the live recording.
        name: of the recording, in the output.
        sensitivity: as in `Detector.detect`.
        min_score: as in `Detector.detect`.
        classes: only events of these; all by default.
    """
    from earmark.formats.event_table import Layout
    from earmark.formats.json_events import json_lines_text
    from earmark.inference.listen import listen
    from earmark.runtime.interrupts import Interrupts

    settings: dict[str, Any] = {"sensitivity": sensitivity, "min_score": min_score}
    layout = Layout(scores=True)
    with Interrupts() as interrupts:
        for event in listen(detector, open_source, interrupts, **settings):
            if classes is None or event.label in classes:
                table = layout.rounded({name: [event]})
                print_json_text(json_lines_text(table, layout).removesuffix("\n"))
        was_interrupted = interrupts.were_requested
    if was_interrupted:
        raise typer.Exit(INTERRUPTED)


def print_events_of_pipe(
    detector: "Detector",
    sensitivity: str | float,
    min_score: float,
    classes: Collection[str] | None,
    raw_rate: int | None,
    raw_format: str,
    raw_channels: int,
) -> None:
    """`print_events` of standard input."""
    from earmark.inference.listen import open_pipe

    print_events(
        detector,
        lambda: open_pipe(sys.stdin.buffer, raw_rate, raw_format, raw_channels),
        "-",
        sensitivity,
        min_score,
        classes,
    )
