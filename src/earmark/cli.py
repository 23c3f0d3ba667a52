"""Words on the command line -> the right room.

Bad input prints one sentence on standard error and exits with 2. Rooms are imported inside the
commands, so that `earmark --help` need not wait for torch.
"""

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.errors import DataError, EarmarkError, SettingError

app = typer.Typer(
    name="earmark",
    help="Learn from clip tags alone when each sound happens.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AudioOption = Annotated[
    Path | None, typer.Option("--audio", help="Folder of the recordings that the table names.")
]
ValidAudioOption = Annotated[
    Path | None, typer.Option(help="Folder of the validation recordings, if it is another.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]
ModelOption = Annotated[Path, typer.Option("--model", "-m", help="Model file, from earmark train.")]


def _tell(sentence: str) -> None:
    print(f"earmark: {sentence}", file=sys.stderr)


def _print_json(values: Any) -> None:
    def plain(value: Any) -> Any:  # JSON knows no nan
        if isinstance(value, dict):
            return {str(name): plain(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    print(json.dumps(plain(values), indent=2, ensure_ascii=False))


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("earmark"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for all that is made.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other sounds.")] = 0,
) -> None:
    """Train on sounds made on the spot, detect in new ones, and draw it."""
    from earmark.demo import run_demo

    run_demo(out, seed)


@app.command()
def doctor(
    manifest: Annotated[Path, typer.Argument(help="Table of tags, or folder of class folders.")],
    valid: Annotated[Path | None, typer.Option(help="Table for validation.")] = None,
    audio: AudioOption = None,
    valid_audio: ValidAudioOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what is wrong with tables and recordings before training; exit 1 if it would stop."""
    from earmark.data import Manifest
    from earmark.doctor import examine, render

    train = Manifest.read(manifest, audio)
    checked = None if valid is None else Manifest.read(valid, valid_audio or audio)
    report = examine(train, checked)
    if as_json:
        _print_json(report.to_dict())
    else:
        from rich.console import Console

        Console().print(render(report))
    if report.stops:
        raise typer.Exit(1)


@app.command()
def synth(
    out: Annotated[Path, typer.Argument(help="Folder for audio/, weak.tsv and strong.tsv.")],
    n: Annotated[int, typer.Option("--n", min=1, help="Number of scenes.")] = 100,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    bank: Annotated[
        Path | None, typer.Option(help="Soundbank: folder of category folders.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Soundbank: table of filename, category, fold.")
    ] = None,
    audio: AudioOption = None,
    folds: Annotated[str | None, typer.Option(help="Folds of the table to use, as in 1,2.")] = None,
    classes: Annotated[str | None, typer.Option(help="Classes of events, as in siren,dog.")] = None,
    backgrounds: Annotated[str | None, typer.Option(help="Categories, or kinds of noise.")] = None,
    rate: Annotated[int, typer.Option(help="Samples a second.")] = 32000,
    duration: Annotated[float, typer.Option(help="Seconds of a scene.")] = 10.0,
    events: Annotated[tuple[int, int], typer.Option(help="Events in a scene, from to.")] = (1, 3),
    event_duration: Annotated[
        tuple[float, float] | None, typer.Option(help="Seconds, from to; else 0.5 to 4.")
    ] = None,
    snr: Annotated[tuple[float, float], typer.Option(help="Decibels, from to.")] = (0.0, 20.0),
    max_overlap: Annotated[int, typer.Option(help="Events at once, at most.")] = 2,
    prefix: Annotated[str, typer.Option(help="First part of the file names.")] = "scene_",
    suffix: Annotated[str, typer.Option(help=".wav, .flac or .ogg")] = ".wav",
    processes: Annotated[int, typer.Option(min=1)] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Make soundscapes with known events, from a soundbank or from built-in sounds."""
    from earmark.soundbank import Soundbank
    from earmark.sounds import NOISES
    from earmark.synth import SceneConfig, write_scenes

    if bank is not None and table is not None:
        raise SettingError("A soundbank is --bank FOLDER or --table TABLE, not both.")
    if table is None and (audio is not None or folds is not None):
        raise SettingError("--audio and --folds go with --table, a table of a soundbank.")
    sounds = None
    if bank is not None:
        sounds = Soundbank.from_folder(bank)
    elif table is not None:
        wanted = folds.split(",") if folds else None
        sounds = Soundbank.from_table(table, audio or table.parent, wanted)
    config = SceneConfig(
        rate=rate,
        duration=duration,
        n_events=events,
        event_duration=event_duration or (min(0.5, duration), min(4.0, duration)),
        snr_db=snr,
        max_overlap=max_overlap,
        classes=tuple(classes.split(",")) if classes else (),
        backgrounds=tuple(backgrounds.split(",")) if backgrounds else tuple(NOISES),
    )
    made = write_scenes(
        out,
        n,
        config,
        seed,
        bank=sounds,
        prefix=prefix,
        suffix=suffix,
        processes=processes,
        overwrite=overwrite,
    )
    n_events = sum(len(found) for found in made.values())
    print(f"{out}: {len(made)} scenes with {n_events} events; weak.tsv, strong.tsv and audio/")


@app.command()
def train(
    train: Annotated[Path, typer.Option("--train", help="Table of tags, or folder of classes.")],
    valid: Annotated[
        Path | None, typer.Option("--valid", help="The same for validation; else a share is taken.")
    ] = None,
    audio: AudioOption = None,
    valid_audio: ValidAudioOption = None,
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
    from earmark import learning

    try:
        detector = learning.train(
            train,
            valid,
            audio,
            out,
            valid_audio=valid_audio,
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
            tell=_tell,
        )
    except KeyboardInterrupt:
        _tell("stopped; go on with the same command and --resume.")
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
        str | None, typer.Option(help="With --strong: class_f_measure, f_measure or error_rate.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Model file; else in place.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Search thresholds and post-processing, for each class, on validation recordings."""
    from earmark import learning
    from earmark.detector import Detector

    if objective and not strong:
        raise SettingError("--objective goes with --strong; tags have one only, F1 over clips.")
    choices: dict[str, Any] = {"objective": objective} if objective else {}
    detector = Detector.load(model)
    tuned, found = learning.tune(detector, valid, audio, strong=strong, tell=_tell, **choices)
    path = tuned.save(out or model)
    if as_json:
        _print_json(found.to_dict())
        return
    print("label\tthreshold\tlow\tmedian\tmin_duration\tmax_gap\ttag\tf_before\tf_after")
    for label, about in found.classes.items():
        rule = found.decoding.rule(label)
        numbers = [*rule, about.start_f_measure, about.f_measure]
        print("\t".join([label, *(f"{number:.3g}" for number in numbers)]))
    print(f"{path}: tuned from {found.supervision} labels, {found.objective} {found.score:.3f}")


@app.command()
def detect(
    recordings: Annotated[list[Path], typer.Argument(help="Files, or folders of them.")],
    model: ModelOption,
    out: Annotated[Path | None, typer.Option("--out", help="Table to write; else print.")] = None,
    score: Annotated[
        bool, typer.Option("--score", help="A column with each event's score.")
    ] = False,
) -> None:
    """Say which sound starts and ends when, in recordings of any length."""
    from dataclasses import replace

    from earmark.audio import find_audio
    from earmark.detector import Detector
    from earmark.events import write_events

    if out is not None and not out.absolute().parent.is_dir():
        raise DataError(f"There is no folder {out.parent} for {out.name}; make it first.")
    detector = Detector.load(model)
    # Names are those a table of the folder would have: relative to it, or the file's own.
    files: dict[str, Path] = {}
    for path in recordings:
        inside = find_audio(path) if path.is_dir() else [path]
        for file in inside:
            name = file.relative_to(path).as_posix() if path.is_dir() else file.name
            if files.setdefault(name, file) != file:
                raise DataError(f"{files[name]} and {file} have one name; detect them apart.")
    if not files:
        raise DataError(f"There is no recording in {', '.join(map(str, recordings))}.")
    found, failed = {}, 0
    for name, file in files.items():
        try:
            events = detector.detect(file)
        except EarmarkError as error:
            _tell(str(error))
            failed += 1
            continue
        found[name] = events if score else [replace(e, score=None) for e in events]
    write_events(out or sys.stdout, found)
    if failed:
        raise typer.Exit(2)


@app.command()
def evaluate(
    reference: Annotated[Path, typer.Option("--reference", help="Table of true events.")],
    estimate: Annotated[Path, typer.Option("--estimate", help="Table of events found.")],
    resolution: Annotated[float, typer.Option(help="Seconds of a segment.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Score events found against true ones: segment-based error rate and F1."""
    from earmark.events import read_events
    from earmark.metrics.segment import segment_scores

    true, found = read_events(reference), read_events(estimate)
    if not any(true.values()):
        raise DataError(f"{reference} holds no event to compare with.")
    if true and found and not set(true) & set(found):
        raise DataError(
            f"No file of {reference} is in {estimate}: {next(iter(true))!r} there, "
            f"{next(iter(found))!r} here; the names must be the same."
        )
    scores = segment_scores(true, found, resolution=resolution)
    if scores.missing_files:
        _tell(f"{len(scores.missing_files)} files of {reference} are not in {estimate}: no events.")
    if scores.unknown_files:
        _tell(f"{len(scores.unknown_files)} files of {estimate} are not in {reference}: left out.")
    if as_json:
        _print_json({"segment": scores.to_dict()})
        return
    from rich.console import Console

    from earmark.report import score_table

    Console().print(score_table(scores))


@app.command()
def info(
    model: Annotated[Path, typer.Argument(help="Model file.")], as_json: JsonOption = False
) -> None:
    """Print all that a model file says about itself."""
    from earmark.bundle import load_bundle

    about = load_bundle(model).describe()
    if as_json:
        _print_json(about)
        return
    from earmark.report import describe

    print(f"{model}: {describe(about)}")


def main() -> None:
    """Run the command line; the entry point `earmark`."""
    # Threads that wait for each other by spinning stand still when something else wants the cores:
    # training beside two busy processes fell from 50 to under 3 clips a second. Spinning briefly,
    # it falls to 20, and alone it loses 6 to 9 %. Read when torch is loaded; yours goes first.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        app()
    except EarmarkError as error:
        _tell(str(error))
        sys.exit(2)
    except OSError as error:  # a folder that is a file, a disk that is full
        where = f" {error.filename}" if error.filename else ""
        _tell(f"{error.strerror or error}:{where or ' while writing'}.")
        sys.exit(2)
