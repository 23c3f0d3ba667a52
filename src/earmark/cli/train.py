"""Words -> train, tune, and what a model file says."""

from dataclasses import astuple
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.app import (
    AudioOption,
    JsonOption,
    ModelOption,
    ValidAudioOption,
    app,
    print_json,
    tell,
)


@app.command()
def train(
    train: Annotated[Path, typer.Option("--train", help="Table of tags, or folder of classes.")],
    valid: Annotated[
        Path | None, typer.Option("--valid", help="The same for validation; else a share is taken.")
    ] = None,
    audio: AudioOption = None,
    valid_audio: ValidAudioOption = None,
    strong: Annotated[
        Path | None,
        typer.Option(help="Table of onsets and offsets to learn from, in place of the tags."),
    ] = None,
    teachers: Annotated[
        list[Path] | None,
        typer.Option("--teacher", help="Model file to learn frames from; may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for all that comes of it.")] = Path(
        "run"
    ),
    preset: Annotated[str, typer.Option(help="fast or paper.")] = "fast",
    config: Annotated[Path | None, typer.Option(help="TOML file of settings.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as in model.pooling=attention.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="Folder of features to share.")] = None,
    devices: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 1,
    nodes: Annotated[int, typer.Option(min=1, help="Machines, under torchrun or SLURM.")] = 1,
    accelerator: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it stopped.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write its curves.")] = False,
    licence: Annotated[str, typer.Option(help="Of the weights, for the model file.")] = "",
    attribution: Annotated[
        list[str] | None, typer.Option(help="Whom recordings are due to; may be repeated.")
    ] = None,
) -> None:
    """Train a detector from tags alone."""
    from earmark.training import api as learning

    try:
        detector = learning.train(
            train,
            valid,
            audio,
            out,
            valid_audio=valid_audio,
            strong=strong,
            teachers=teachers or (),
            preset=preset,
            config=config,
            settings=settings or (),
            store=store,
            devices=devices,
            nodes=nodes,
            accelerator=accelerator,
            resume=resume,
            tensorboard=tensorboard,
            progress=True,
            licence=licence,
            attribution=attribution or (),
            tell=tell,
        )
    except KeyboardInterrupt:
        tell("stopped; go on with the same command and --resume.")
        raise typer.Exit(130) from None
    if not learning.is_first_process():
        return  # of several under torchrun or SLURM, one speaks
    about = detector.bundle.training
    print(
        f"{out / learning.MODEL}: after {about['n_epochs']} epochs, the best validation loss "
        f"{about['best_valid_loss']:.4f} is that of epoch {about['best_epoch']}"
    )
    print(f"next: earmark detect RECORDING --model {out / learning.MODEL}")


@app.command()
def tune(
    model: ModelOption,
    valid: Annotated[Path, typer.Option("--valid", help="Table of tags, or of events.")],
    audio: Annotated[Path, typer.Option("--audio", help="Folder of its recordings.")],
    strong: Annotated[
        bool, typer.Option("--strong", help="The table has onsets, offsets.")
    ] = False,
    objective: Annotated[
        str | None, typer.Option(help="f_measure (of all classes), class_f_measure or error_rate.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="From tags: one gate for all classes, nothing else.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Model file; else in place.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Search thresholds and post-processing, for each class, on validation recordings."""
    from earmark.inference.detector import Detector
    from earmark.training import api as learning

    choices: dict[str, Any] = {"objective": objective} if objective else {}
    detector = Detector.load(model)
    tuned, found = learning.tune(
        detector, valid, audio, strong=strong, shared=shared, tell=tell, **choices
    )
    path = tuned.save(out or model)
    if as_json:
        print_json(found.to_dict())
        return
    print("label\tthreshold\tlow\tmedian\tmin_duration\tmax_gap\ttag\tf_before\tf_after")
    for label, about in found.classes.items():
        numbers = [*astuple(found.decoding[label]), about.start_f_measure, about.f_measure]
        print("\t".join([label, *(f"{number:.3g}" for number in numbers)]))
    print(f"{path}: tuned from {found.supervision} labels, {found.objective} {found.score:.3f}")


@app.command()
def info(
    model: Annotated[
        Path | None, typer.Argument(help="Model file; without it, the one in the box.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print all that a model file says about itself."""
    from earmark.inference.model_file import BUNDLED, load_bundle

    model = model or BUNDLED
    about = load_bundle(model).describe()
    if as_json:
        print_json(about)
        return
    from earmark.inference.model_file import describe_bundle

    print(f"{model}: {describe_bundle(about)}")
