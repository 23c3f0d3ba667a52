"""The command `earmark evaluate`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import JsonOption, app, logger, print_json, print_text
from earmark.errors import SettingError

# Those that earmark report has as well.
ScoresOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--scores",
        metavar="FOLDER",
        help="Folder of frame-level scores, for PSDS; once per system, in order.",
    ),
]
NegativesOption = Annotated[
    Path | None,
    typer.Option(
        "--negatives",
        metavar="PATH",
        help="Recordings without any of the classes: a folder, or a table of filename and "
        "duration. The estimates have their false events.",
    ),
]
WeakOption = Annotated[bool, typer.Option("--weak", help="The tables hold tags, no times.")]
ResolutionOption = Annotated[
    float, typer.Option("--resolution", metavar="SECONDS", help="Length of a segment.")
]
BootstrapOption = Annotated[
    int,
    typer.Option(
        "--bootstrap",
        min=0,
        metavar="N",
        help="Bootstrap samples, and permutations where systems are compared; 0: no intervals.",
    ),
]


@app.command()
def evaluate(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="REFERENCE ESTIMATE...",
            help="Table of reference events; then, per system, a table of estimated events or "
            "tags, or a folder of frame-level scores.",
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(metavar="TABLE", help="Table of reference events.")
    ] = None,
    estimate: Annotated[
        list[Path] | None,
        typer.Option(metavar="TABLE", help="Table of estimated events; once per system."),
    ] = None,
    scores: ScoresOption = None,
    durations: Annotated[
        Path | None,
        typer.Option(
            metavar="TABLE", help="Table of filename and duration; default: the end of the scores."
        ),
    ] = None,
    negatives: NegativesOption = None,
    psds: Annotated[
        str | None,
        typer.Option(
            metavar="SETTINGS",
            help="A PSDS with custom settings, as 'dtc=0.5 gtc=0.5 max_efpr=50'.",
        ),
    ] = None,
    weak: WeakOption = False,
    resolution: ResolutionOption = 1.0,
    onset_collar: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Onset tolerance of event-based scores."),
    ] = 0.2,
    offset_collar: Annotated[
        float,
        typer.Option(metavar="SECONDS", help="Offset tolerance of event-based scores."),
    ] = 0.2,
    percentage_of_length: Annotated[
        float,
        typer.Option(
            metavar="FRACTION",
            help="Offset tolerance as a fraction of the reference length, if larger.",
        ),
    ] = 0.5,
    empty_as_zero: Annotated[
        bool, typer.Option("--empty-as-zero", help="F1 of a class never detected is 0, not nan.")
    ] = False,
    as_sed_eval: Annotated[
        bool, typer.Option("--as-sed-eval", help="Divide by 2e-16 if the reference is empty.")
    ] = False,
    as_sed_scores_eval: Annotated[
        bool, typer.Option("--as-sed-scores-eval", help="Round times for the best thresholds.")
    ] = False,
    bootstrap: BootstrapOption = 1000,
    score_bootstrap: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="At most so many for frame-level scores, which are slower."
        ),
    ] = 200,
    level: Annotated[
        float, typer.Option(metavar="FRACTION", help="Confidence level of the intervals.")
    ] = 0.95,
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of bootstrap samples and permutations.")
    ] = 0,
    classes: Annotated[bool, typer.Option(help="Print class-wise tables.")] = True,
    plots: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for figures.")
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Score estimated events against a reference, with confidence intervals; compare systems."""
    from earmark.files import check_folder
    from earmark.metrics.evaluation import Scoring, parse_psds
    from earmark.metrics.evaluation import evaluate as evaluate_systems
    from earmark.metrics.report import score_tables
    from earmark.metrics.system_output import read_durations, read_system_output

    paths = [*([reference] if reference else []), *(tables or []), *(estimate or [])]
    if len(paths) < 2:
        raise SettingError(
            "evaluate needs a reference table and at least one estimate, as in: "
            "earmark evaluate reference.tsv estimate.tsv"
        )
    reference_path, *system_paths = paths
    if scores and len(scores) != len(system_paths):
        raise SettingError(
            f"--scores must be given once per system. Got {len(scores)} for "
            f"{len(system_paths)} systems."
        )
    if plots is not None and plots.exists() and not plots.is_dir():
        raise SettingError(f"--plots must be a folder, but {plots} is a file.")
    if plots is not None:
        check_folder(plots)
    if as_json and as_markdown:
        raise SettingError("--json and --markdown exclude each other; pass one of them.")
    scoring = Scoring(
        resolution=resolution,
        onset_collar=onset_collar,
        offset_collar=offset_collar,
        percentage_of_length=percentage_of_length,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
        as_sed_scores_eval=as_sed_scores_eval,
        n_bootstrap=bootstrap,
        n_score_bootstrap=score_bootstrap,
        level=level,
        seed=seed,
        durations=None if durations is None else read_durations(durations),
        psds=None if psds is None else parse_psds(psds),
        negatives=None if negatives is None else durations_of(negatives),
    )
    reference_output = read_system_output(reference_path, weak=weak)
    folders: list[Path | None] = [*scores] if scores else [None] * len(system_paths)
    systems = [
        read_system_output(path, folder, weak=weak)
        for path, folder in zip(system_paths, folders, strict=True)
    ]
    evaluation = evaluate_systems(reference_output, systems, scoring)
    for warning in evaluation.warnings:
        logger.warning("%s", warning)
    if plots is not None:
        from earmark.plots import draw_evaluation

        for path in draw_evaluation(plots, reference_output, systems, evaluation):
            logger.info("wrote %s", path)
    if as_json:
        print_json(evaluation.to_dict())
        return
    text_tables = score_tables(evaluation, classes=classes)
    if as_markdown:
        print_text("\n\n".join(table.to_markdown() for table in text_tables))
        return
    from rich.console import Console

    # A file or a pipe has no width to wrap at.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    for table in text_tables:
        console.print(table.to_rich())


def durations_of(negatives: Path) -> dict[str, float]:
    """Return file -> seconds, from a folder of recordings or a table."""
    if negatives.is_dir():
        from earmark.inference.detector import recording_durations

        return recording_durations(negatives)
    from earmark.metrics.system_output import read_durations

    return read_durations(negatives)
