"""The command `earmark synth`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.app import AudioOption, app, print_text
from earmark.errors import SettingError

WITH_CONFIG = {"out", "config", "suffix", "processes", "overwrite"}


@app.command()
def synth(
    context: typer.Context,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder for audio/, weak.tsv and strong.tsv.")
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="TOML file of a soundbank, scenes and sets; replaces most options."
        ),
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, metavar="N", help="Number of scenes.")] = 100,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of all random choices.")] = 0,
    bank: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Soundbank: folder of category folders.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(metavar="TABLE", help="Soundbank: table of filename, category, fold."),
    ] = None,
    audio: AudioOption = None,
    folds: Annotated[
        str | None, typer.Option(metavar="FOLDS", help="Folds of the table, as in 1,2.")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="CLASSES", help="Classes of events, as in siren,dog.")
    ] = None,
    backgrounds: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Backgrounds: categories, or types of noise."),
    ] = None,
    sample_rate: Annotated[
        int, typer.Option(metavar="HZ", help="Sample rate of the scenes.")
    ] = 32000,
    duration: Annotated[float, typer.Option(metavar="SECONDS", help="Length of a scene.")] = 10.0,
    events: Annotated[
        tuple[int, int],
        typer.Option(metavar="MIN MAX", help="Events per scene."),
    ] = (1, 3),
    event_duration: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="MIN MAX", help="Length of events in seconds; by default 0.5 to 4."),
    ] = None,
    snr: Annotated[
        tuple[float, float],
        typer.Option(metavar="MIN MAX", help="Signal-to-noise ratio of events in dB."),
    ] = (
        0.0,
        20.0,
    ),
    max_overlap: Annotated[
        int, typer.Option(metavar="N", help="Maximum number of simultaneous events.")
    ] = 2,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="Prefix of the file names.")
    ] = "scene_",
    suffix: Annotated[
        str, typer.Option(metavar="SUFFIX", help="Format of the recordings: .wav, .flac or .ogg.")
    ] = ".wav",
    processes: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes that write scenes.")
    ] = 1,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files of the same name in OUT.")
    ] = False,
) -> None:
    """Make soundscapes with known events, from a soundbank or from procedural sounds."""
    from earmark.synth.scenes import SceneConfig, SceneSets, write_scenes
    from earmark.synth.soundbank import open_bank
    from earmark.synth.sounds import NOISES

    how: dict[str, Any] = {"suffix": suffix, "processes": processes, "overwrite": overwrite}
    if config is not None:
        _refuse_options(context, config)
        for name, written in SceneSets.read(config).write(out, **how).items():
            _print_counts(out / name, written)
        return
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
    sounds = open_bank(bank, table, audio, folds.split(",") if folds else None)
    _print_counts(out, write_scenes(out, n, scenes, seed, bank=sounds, prefix=prefix, **how))


def _refuse_options(context: typer.Context, config: Path) -> None:
    """Raise if the user passed an option that belongs into the TOML file."""
    defaults = ("DEFAULT", "DEFAULT_MAP")
    sources = {name: context.get_parameter_source(name) for name in context.params}
    passed = {name for name, source in sources.items() if source and source.name not in defaults}
    if passed - WITH_CONFIG:
        option = min(passed - WITH_CONFIG).replace("_", "-")
        raise SettingError(f"--{option} cannot be combined with --config; set it in {config}.")


def _print_counts(folder: Path, written: Mapping[str, Sequence[object]]) -> None:
    n_events = sum(map(len, written.values()))
    print_text(f"{folder}: {len(written)} scenes with {n_events} events")
