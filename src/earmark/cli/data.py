"""Words -> demo, doctor and synth."""

from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import AudioOption, JsonOption, ValidAudioOption, app, print_json
from earmark.errors import SettingError


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for all that is made.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other sounds.")] = 0,
) -> None:
    """Train on sounds made on the spot, detect in new ones, and draw it."""
    from earmark.experiments.demo import run_demo

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
    from earmark.data.doctor import examine, render
    from earmark.data.manifest import Manifest

    train = Manifest.read(manifest, audio)
    checked = None if valid is None else Manifest.read(valid, valid_audio or audio)
    report = examine(train, checked)
    if as_json:
        print_json(report.to_dict())
    else:
        from rich.console import Console

        Console().print(render(report))
    if report.stops:
        raise typer.Exit(1)


def _given(context: typer.Context) -> set[str]:
    """Return the options that the user wrote, by name."""
    by_default = ("DEFAULT", "DEFAULT_MAP")
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return {name for name, source in sources if source and source.name not in by_default}


@app.command()
def synth(
    context: typer.Context,
    out: Annotated[Path, typer.Argument(help="Folder for audio/, weak.tsv and strong.tsv.")],
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of a soundbank, scenes and sets; in place of what follows."),
    ] = None,
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
    sample_rate: Annotated[int, typer.Option(help="Samples a second.")] = 32000,
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
    from earmark.synth.scenes import SceneConfig, write_scenes
    from earmark.synth.soundbank import Soundbank
    from earmark.synth.sounds import NOISES

    if config is not None:
        from earmark.synth.scenes import Scenery

        front = {"out", "config", "suffix", "processes", "overwrite"}
        given = _given(context) - front
        if given:
            raise SettingError(
                f"--{min(given).replace('_', '-')} is for scenes without --config; write it into "
                f"{config}."
            )
        sets = Scenery.read(config).write(
            out, suffix=suffix, processes=processes, overwrite=overwrite
        )
        for name, of_set in sets.items():
            n_events = sum(map(len, of_set.values()))
            print(f"{out / name}: {len(of_set)} scenes with {n_events} events")
        return
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
    scenes = SceneConfig(
        sample_rate=sample_rate,
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
        scenes,
        seed,
        bank=sounds,
        prefix=prefix,
        suffix=suffix,
        processes=processes,
        overwrite=overwrite,
    )
    n_events = sum(len(found) for found in made.values())
    print(f"{out}: {len(made)} scenes with {n_events} events; weak.tsv, strong.tsv and audio/")
