"""The command `detect`."""

import sys
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import typer

from earmark.cli.app import (
    BundledOption,
    ClassesOption,
    DeviceOption,
    EncoderOption,
    MinScoreOption,
    SchedulerOption,
    SensitivityOption,
    TerminalBytes,
    ThreadsOption,
    app,
    logger,
)
from earmark.cli.live import print_events_of_pipe
from earmark.errors import SettingError


@app.command()
def detect(
    recordings: Annotated[
        list[Path],
        typer.Argument(
            metavar="RECORDING", help="Files, folders of them, or - for standard input."
        ),
    ],
    model: BundledOption = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="PATH",
            help="File to write, or a folder (ends with /) for one file per recording; else print.",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="{earmark.formats.registry:EVENT_FORMATS}; by default by the suffix of the file.",
        ),
    ] = None,
    score: Annotated[
        bool | None,
        typer.Option(
            "--score/--no-score",
            help="Write the score of each event; by default in formats with a field for it, which "
            "a table has not.",
        ),
    ] = None,
    classes: ClassesOption = None,
    sensitivity: SensitivityOption = "normal",
    min_score: MinScoreOption = 0.0,
    absolute_time: Annotated[
        bool,
        typer.Option(
            "--absolute-time",
            help="Add date and time of onset and offset, from names such as 20240517_043000.wav.",
        ),
    ] = False,
    skip_done: Annotated[
        bool,
        typer.Option("--skip-done", help="Keep what --out has, and detect in the rest."),
    ] = False,
    scores: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for the frame-level scores, one file per recording."
        ),
    ] = None,
    scores_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT", help="Format of --scores: {earmark.formats.scores:SCORE_FORMATS}."
        ),
    ] = "tsv",
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for a figure (PNG) of each recording: scores and events."
        ),
    ] = None,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
    threads: ThreadsOption = 0,
    raw_rate: Annotated[
        int | None,
        typer.Option(metavar="HZ", help="Sample rate of raw samples on standard input."),
    ] = None,
    raw_format: Annotated[
        str,
        typer.Option(
            metavar="FORMAT", help="Their format: u8, s16le, s24le, s32le, f32le or f64le."
        ),
    ] = "s16le",
    raw_channels: Annotated[int, typer.Option(metavar="N", help="Their number of channels.")] = 1,
    scheduler: SchedulerOption = None,
) -> None:
    """Detect which sound starts and ends when, in recordings of any length.

    With - in place of files, a wav or raw samples on standard input: events are printed as JSON
    lines as soon as they are final.

    Killed and started again, the same command continues where it was. A recording that cannot be
    used is reported at the end, and the exit code is then 1.
    """
    from functools import partial

    from earmark.inference.batch import BatchSettings, detect_batch, parse_classes
    from earmark.inference.cluster import detect_on_cluster
    from earmark.inference.detector import Detector
    from earmark.inference.model_file import BUNDLED

    is_pipe = Path("-") in recordings
    if is_pipe and len(recordings) > 1:
        raise SettingError("Standard input is one recording; detect files in another call.")
    if is_pipe:
        given = {
            "--out": out not in (None, "-"),
            "--format": format not in (None, "jsonl"),
            "--no-score": score is False,
            "--absolute-time": absolute_time,
            "--scores": scores is not None,
            "--skip-done": skip_done,
            "--plot": plot is not None,
            "--scheduler": scheduler is not None,
        }
        if wrong := [name for name, is_given in given.items() if is_given]:
            raise SettingError(
                "Events of standard input are printed as JSON lines, with their scores; leave out "
                f"{', '.join(wrong)}."
            )
    if scheduler is not None and threads:
        raise SettingError("With --scheduler every task has one thread; leave out --threads.")
    if raw_rate is not None and not is_pipe:
        raise SettingError("--raw-rate is of raw samples on standard input; leave it out.")
    detector = Detector.load(model or BUNDLED, device, threads, encoder)
    chosen = None if classes is None else parse_classes(classes, detector.labels)
    detect_each = detector.detect_each
    if scheduler is not None:
        detect_each = partial(
            detect_on_cluster,
            model or BUNDLED,
            scheduler=scheduler,
            device=device,
            encoder=encoder,
        )
    if is_pipe:
        raw = (raw_rate, raw_format, raw_channels)
        print_events_of_pipe(detector, sensitivity, min_score, chosen, *raw)
        return
    settings = BatchSettings(
        format=format,
        with_scores=score,
        classes=chosen,
        absolute_time=absolute_time,
        sensitivity=sensitivity,
        min_score=min_score,
        score_folder=scores,
        score_format=scores_format,
        skip_done=skip_done,
    )
    on_result = None
    if plot is not None:
        from earmark.plots import DetectionPlots

        draw = DetectionPlots(plot, settings.classes)

        def on_result(found: Any) -> None:
            draw(found.name, found.events, found.scores)

    target = cast("BinaryIO", TerminalBytes()) if out is None or out == "-" else out
    try:
        report = detect_batch(
            detector,
            recordings,
            target,
            settings,
            detect_each=detect_each,
            on_result=on_result,
            key=f"{plot}",
            show_progress=isinstance(target, str) or not sys.stdout.isatty(),
        )
    except KeyboardInterrupt:
        if isinstance(target, str):
            logger.warning("Stopped; the same command continues where it was.")
        raise typer.Exit(130) from None
    for error in report.failed.values():
        logger.error("%s", error)
    if report.failed:
        n_failed, n_all = len(report.failed), report.n_recordings
        logger.error(
            "%d of %d recordings could not be used%s.",
            n_failed,
            n_all,
            "; all others were" if n_failed < n_all else "",
        )
        raise typer.Exit(1)
