"""The command `listen`, and `detect -`: events of live recordings as JSON lines."""

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.app import BundledOption, DeviceOption, EncoderOption, app

if TYPE_CHECKING:
    from earmark.formats.events import Event
    from earmark.inference.detector import Detector
    from earmark.inference.listen import LiveSource

INTERRUPTED = 130  # exit code, as of a command that Ctrl-C ended


@app.command()
def listen(
    model: BundledOption = None,
    sample_rate: Annotated[int, typer.Option(help="Of the microphone, in Hz.")] = 16000,
    microphone: Annotated[
        str | None, typer.Option(help="Name or number; python -m sounddevice lists them.")
    ] = None,
    sensitivity: Annotated[str, typer.Option(help="As of detect.")] = "normal",
    min_score: Annotated[float, typer.Option(help="As of detect.")] = 0.0,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
    threads: Annotated[int, typer.Option(help="Threads to use; 0 is one per core.")] = 0,
) -> None:
    """Print the events that a microphone records, one JSON line each, until Ctrl-C."""
    from earmark.inference.detector import Detector
    from earmark.inference.listen import open_microphone
    from earmark.inference.model_file import BUNDLED

    detector = Detector.load(model or BUNDLED, device, threads, encoder)
    print_events(detector, lambda: open_microphone(sample_rate, microphone), sensitivity, min_score)


def print_events(
    detector: "Detector",
    open_source: "Callable[[], LiveSource]",
    sensitivity: str | float,
    min_score: float,
) -> None:
    """Print each event as a line of JSON as soon as it is final; exit with 130 if interrupted."""
    from earmark.inference.listen import listen
    from earmark.runtime.interrupts import Interrupts

    settings: dict[str, Any] = {"sensitivity": sensitivity, "min_score": min_score}
    with Interrupts() as interrupts:
        for event in listen(detector, open_source, interrupts, **settings):
            print(json.dumps(as_json(event), ensure_ascii=False), flush=True)
        was_interrupted = interrupts.were_requested
    if was_interrupted:
        raise typer.Exit(INTERRUPTED)


def print_events_of_pipe(
    detector: "Detector",
    sensitivity: str | float,
    min_score: float,
    raw_rate: int | None,
    raw_format: str,
    raw_channels: int,
) -> None:
    """`print_events` of standard input."""
    from earmark.inference.listen import open_pipe

    print_events(
        detector,
        lambda: open_pipe(sys.stdin.buffer, raw_rate, raw_format, raw_channels),
        sensitivity,
        min_score,
    )


def as_json(event: "Event") -> dict[str, Any]:
    """Return an event as plain values, rounded as in tables."""
    score = None if event.score is None else float(f"{event.score:.6g}")
    times = {"onset": round(event.onset, 3), "offset": round(event.offset, 3)}
    return {**times, "label": event.label, "score": score}
