"""The commands train, export-best and tune."""

import logging
import signal
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.cli.app import (
    AudioOption,
    DeviceOption,
    EncoderOption,
    GroupOption,
    GroupPatternOption,
    JsonOption,
    ModelOption,
    SchedulerOption,
    ValidAudioOption,
    app,
    logger,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    from earmark.inference.model_file import Bundle


@app.command()
def train(
    train: Annotated[
        Path,
        typer.Option("--train", metavar="TABLE", help="Table of tags, or folder of class folders."),
    ],
    valid: Annotated[
        Path | None,
        typer.Option(
            "--valid",
            metavar="TABLE",
            help="The same for validation; by default 15 % are held out.",
        ),
    ] = None,
    audio: AudioOption = None,
    valid_audio: ValidAudioOption = None,
    group: GroupOption = None,
    group_pattern: GroupPatternOption = None,
    negatives: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of recordings without any of the classes; may be repeated.",
        ),
    ] = None,
    valid_negatives: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER", help="The same for validation; by default 15 % of the negatives."
        ),
    ] = None,
    strong: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE", help="Table of onsets and offsets to learn from, in place of the tags."
        ),
    ] = None,
    teachers: Annotated[
        list[Path] | None,
        typer.Option(
            "--teacher", metavar="MODEL", help="Teacher model for self-training; may be repeated."
        ),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Pretrained encoder: its TOML file, or a file with one beside it."
        ),
    ] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Start from a trained model with other classes, such as everyday, the bundled "
            "one: its network, with a new head.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Output folder.")] = Path(
        "run"
    ),
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="One of {earmark.training.settings:PRESETS}; by default fast, or encoder with "
            "--encoder.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file of settings.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override, such as model.pooling=attention; may be repeated.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of features, to share between trainings."),
    ] = None,
    scheduler: SchedulerOption = None,
    device: DeviceOption = "auto",
    devices: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes on this machine.")
    ] = 1,
    nodes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Machines, under torchrun or SLURM.")
    ] = 1,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint in --out.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs.")
    ] = False,
    licence: Annotated[
        str, typer.Option(metavar="TEXT", help="Licence of the weights, for the model file.")
    ] = "",
    attribution: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="Credit for recordings; may be repeated."),
    ] = None,
) -> None:
    """Train a detector from tags alone.

    Ctrl-C or SIGTERM stops it and writes the model of the best epoch so far.
    """
    from earmark.runtime.processes import is_first_process
    from earmark.training import api
    from earmark.training.config import RunConfig
    from earmark.training.finish import MODEL

    run = RunConfig(
        store=store,
        scheduler=scheduler,
        resume=resume,
        device=device,
        devices=devices,
        nodes=nodes,
        progress=logger.isEnabledFor(logging.INFO),
        tensorboard=tensorboard,
        licence=licence,
        attribution=tuple(attribution or ()),
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    try:
        detector = api.train(
            train,
            valid,
            audio,
            out,
            valid_audio=valid_audio,
            group=group,
            group_pattern=group_pattern,
            negatives=negatives or (),
            valid_negatives=valid_negatives or (),
            strong=strong,
            teachers=teachers or (),
            encoder=encoder,
            start_from=start_from,
            preset=preset,
            config=config,
            overrides=overrides or (),
            run=run,
        )
    except KeyboardInterrupt:
        _stop(out, device)
        raise typer.Exit(130) from None
    if is_first_process():
        print_summary(out / MODEL, detector.bundle)


@app.command()
def export_best(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Output folder of a training.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Model file; by default RUN/model.earmark."),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write the model of the best epoch so far, of a training that was stopped or killed."""
    from earmark.training.finish import MODEL, export_best

    detector = export_best(run, out, device)
    print_summary(out or run / MODEL, detector.bundle)


def _stop(out: Path, device: str) -> None:
    """Write the model of a training that was interrupted, if it has completed an epoch."""
    from earmark.errors import EarmarkError
    from earmark.runtime.processes import is_first_process
    from earmark.training.finish import MODEL, export_best

    if not is_first_process():
        return
    resume = "Resume with the same command and --resume."
    try:
        logger.warning("Stopped; writing the model of the epochs so far.")
        detector = export_best(out, device=device)
    except KeyboardInterrupt:
        logger.warning("Stopped without a model; earmark export-best %s writes it. %s", out, resume)
    except EarmarkError as error:
        logger.warning("Stopped without a model: %s %s", error, resume)
    else:
        print_summary(out / MODEL, detector.bundle)
        logger.warning("The training is not finished. %s", resume)


def print_summary(path: Path, bundle: "Bundle") -> None:
    """Print what a training made, and what to type next."""
    from earmark.training.finish import name_epochs

    summary = bundle.training
    other = summary["member_epochs"] != [summary["best_epoch"]]  # several, or the last
    print_text(
        f"{path}: after {summary['n_epochs']} epochs, the best is epoch "
        f"{summary['best_epoch']} with validation loss {summary['best_valid_loss']:.4f}, "
        f"mAP {summary['best_valid_map']:.3f}, F1 {summary['best_valid_f1']:.3f}"
        + (f"; the model is {name_epochs(summary)}" if other else "")
    )
    module, _, own = bundle.members[0].model_config.network.partition(":")
    command = f"earmark --import {module} detect" if own else "earmark detect"
    print_text(f"next: {command} RECORDING --model {path}")


@app.command()
def tune(
    model: ModelOption,
    valid: Annotated[
        Path, typer.Option("--valid", metavar="TABLE", help="Table of tags, or of events.")
    ],
    audio: Annotated[
        Path, typer.Option("--audio", metavar="FOLDER", help="Folder of its recordings.")
    ],
    strong: Annotated[
        bool, typer.Option("--strong", help="The table has onsets and offsets.")
    ] = False,
    objective: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="One of {earmark.inference.tuning.objectives:OBJECTIVES}."
        ),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Tune one clip-level threshold for all classes, on tags."),
    ] = False,
    decision: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="tuned, or published: the decision stage of the network's authors "
            "(docs/systems.md).",
        ),
    ] = "tuned",
    negatives: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of recordings without any of the classes, to count false events.",
        ),
    ] = None,
    max_false_per_minute: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="NUMBER",
            help="Limit of false events per minute there: sets the sensitivity.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Model file to write; by default in place."),
    ] = None,
    encoder: EncoderOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Search thresholds and post-processing per class on validation recordings."""
    from earmark.inference.detector import Detector
    from earmark.inference.model_file import check_target, find_model
    from earmark.inference.tuning import describe_tuning
    from earmark.training import api

    path = out or find_model(model)
    check_target(path)
    choices: dict[str, Any] = {"objective": objective} if objective else {}
    untuned = Detector.load(model, device=device, encoder=encoder)
    detector, tuned = api.tune(
        untuned,
        valid,
        audio,
        strong=strong,
        shared=shared,
        decision=decision,
        negatives=negatives,
        max_false_per_minute=max_false_per_minute,
        **choices,
    )
    if out is not None or detector is not untuned:
        detector.save(path)
    record = detector.bundle.tuning
    if as_json:
        print_json(tuned.to_dict() | {"tuning": record})
        return
    print_text(
        "label\tthreshold\tlow\tmedian\tmin_duration\tmax_gap\tclip\tsegment\tf_before\tf_after"
    )
    for label, of_class in tuned.classes.items():
        rule = astuple(detector.bundle.decoding[label])
        numbers = [*rule, of_class.start_f_measure, of_class.f_measure]
        print_text("\t".join([label, *(f"{number:.3g}" for number in numbers)]))
    if detector is not untuned:
        if "false_events" in record:
            _print_false_events(record["false_events"])
        calibration = record["calibration"]
        if calibration["n_events"]:
            errors = f"{calibration['start_ece']:.3f} -> {calibration['ece']:.3f}"
            print_text(
                f"calibration error of the scores of {calibration['n_events']} events: {errors}"
            )
    print_text(f"{path}: {describe_tuning(tuned, calibrated=detector is not untuned)}")


def _print_false_events(record: Mapping[str, Any]) -> None:
    names = ("setting", "per_minute", "recordings", "clip_recall", "clip_f_measure", "event_recall")
    print_text("\nsensitivity\tfalse_per_minute\twith_any\tclip_recall\tclip_f1\tevent_recall")
    for point in record["curve"]:
        print_text("\t".join(f"{point[name]:.3g}" if name in point else "-" for name in names))
    interval = f" [{record['low']:.2f}, {record['high']:.2f}]" if "low" in record else ""
    print_text(
        f"{record['per_minute']:.2f}{interval} false events per minute in {record['minutes']:.1f} "
        f"minutes of negatives, all thresholds shifted by {record['sensitivity']:g}"
    )
    if record["max_per_minute"] is None:
        return
    before = record["before"]
    now = next(point for point in record["curve"] if point["setting"] == 0)
    cost = f"clip recall {before['clip_recall']:.2f} -> {now['clip_recall']:.2f}"
    print_text(f"the limit of {record['max_per_minute']:g} costs: {cost}")
    if now["clip_recall"] < before["clip_recall"] / 2:
        logger.warning(
            "The limit of false events costs more than half of the recall; a higher limit, or a "
            "training with --negatives, may serve better."
        )
    if record["max_per_minute"] * record["minutes"] < 3:
        logger.warning(
            "The negatives last %.1f minutes, too short to tell %g false events per minute from "
            "twice as many; add more.",
            record["minutes"],
            record["max_per_minute"],
        )
