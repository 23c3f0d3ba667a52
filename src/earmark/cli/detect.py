"""Words -> detect."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import BundledOption, app, tell
from earmark.errors import DataError, EarmarkError


@app.command()
def detect(
    recordings: Annotated[list[Path], typer.Argument(help="Files, or folders of them.")],
    model: BundledOption = None,
    out: Annotated[Path | None, typer.Option("--out", help="Table to write; else print.")] = None,
    score: Annotated[
        bool, typer.Option("--score", help="A column with each event's score.")
    ] = False,
    curves: Annotated[
        Path | None,
        typer.Option(help="Folder for the probabilities over time, one table a recording."),
    ] = None,
    threads: Annotated[int, typer.Option(help="Cores to use; 0 is all of them.")] = 0,
) -> None:
    """Say which sound starts and ends when, in recordings of any length."""
    from dataclasses import replace

    from earmark.audio.decode import find_audio
    from earmark.formats.events import write_events
    from earmark.formats.names import stems_of
    from earmark.formats.scores import ScoreCurve, ScoreCurves, write_curves
    from earmark.inference.detector import Detector
    from earmark.inference.model_file import BUNDLED

    if out is not None and not out.absolute().parent.is_dir():
        raise DataError(f"There is no folder {out.parent} for {out.name}; make it first.")
    detector = Detector.load(model or BUNDLED, threads=threads)
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
    if curves is not None:
        stems_of(files)  # two that would write one curve are told before any work
    found, failed = {}, 0
    for name, file in files.items():
        try:
            curve = detector.frame_probs(file)
        except EarmarkError as error:
            tell(str(error))
            failed += 1
            continue
        events = detector.decode(curve)
        if curves is not None:
            one = ScoreCurve.from_frames(curve.probs, curve.grid, curve.duration)
            write_curves(curves, ScoreCurves(curve.labels, {name: one}))
        found[name] = events if score else [replace(e, score=None) for e in events]
    write_events(out or sys.stdout, found)
    if failed:
        raise typer.Exit(2)
