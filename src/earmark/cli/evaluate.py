"""Words -> evaluate."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from earmark.cli.app import JsonOption, app, print_json, tell
from earmark.errors import SettingError


@app.command()
def evaluate(
    tables: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="REFERENCE ESTIMATE...",
            help="Table of true events; then, for each system, a table of events or tags found, "
            "or a folder of score curves.",
        ),
    ] = None,
    reference: Annotated[Path | None, typer.Option(help="Table of true events.")] = None,
    estimate: Annotated[
        list[Path] | None, typer.Option(help="Table of events found; once for each system.")
    ] = None,
    curves: Annotated[
        list[Path] | None,
        typer.Option(help="Folder of score curves of each system, in their order; for PSDS."),
    ] = None,
    durations: Annotated[
        Path | None, typer.Option(help="Table of filename and duration; else the curves' ends.")
    ] = None,
    psds: Annotated[
        str | None, typer.Option(help="A PSDS of one's own, as 'dtc=0.5 gtc=0.5 max_efpr=50'.")
    ] = None,
    weak: Annotated[bool, typer.Option("--weak", help="The tables hold tags, no times.")] = False,
    resolution: Annotated[float, typer.Option(help="Seconds of a segment.")] = 1.0,
    onset_collar: Annotated[float, typer.Option(help="Seconds, of event-based scores.")] = 0.2,
    offset_collar: Annotated[float, typer.Option(help="Seconds, at least.")] = 0.2,
    percentage_of_length: Annotated[float, typer.Option(help="Part of the true length.")] = 0.5,
    empty_as_zero: Annotated[
        bool, typer.Option("--empty-as-zero", help="F1 of a class never found is 0, not nan.")
    ] = False,
    as_sed_eval: Annotated[
        bool, typer.Option("--as-sed-eval", help="Divide by 2e-16 where there is no reference.")
    ] = False,
    as_sed_scores_eval: Annotated[
        bool, typer.Option("--as-sed-scores-eval", help="Best thresholds with times rounded.")
    ] = False,
    draws: Annotated[
        int, typer.Option(min=0, help="Draws for intervals and p-values; 0 is none.")
    ] = 1000,
    curve_draws: Annotated[
        int, typer.Option(min=0, help="At most so many for scores of curves: they take longer.")
    ] = 200,
    level: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    classes: Annotated[bool, typer.Option(help="Tables of every class.")] = True,
    plots: Annotated[Path | None, typer.Option(help="Folder for pictures.")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Tables for papers.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Score what was found against the truth, with error bars; compare systems."""
    from earmark.metrics.evaluation import (
        Scoring,
        evaluate,
        parse_psds,
        read_durations,
        read_system_output,
    )
    from earmark.metrics.report import score_tables

    paths = [*([reference] if reference else []), *(tables or []), *(estimate or [])]
    if len(paths) < 2:
        raise SettingError(
            "evaluate takes the table of true events and one or more of events found, as in: "
            "earmark evaluate true.tsv found.tsv"
        )
    truth, *found = paths
    beside: list[Path | None] = list(curves or [])
    if beside and len(beside) != len(found):
        raise SettingError(
            f"--curves goes once with each system. Got {len(beside)} for {len(found)} systems."
        )
    if plots is not None and plots.exists() and not plots.is_dir():
        raise SettingError(f"--plots is a folder, but {plots} is a file.")
    if as_json and as_markdown:
        raise SettingError("--json and --markdown are one or the other.")
    systems = [
        read_system_output(path, own, weak=weak)
        for path, own in zip(found, beside or [None] * len(found), strict=True)
    ]
    scoring = Scoring(
        resolution=resolution,
        onset_collar=onset_collar,
        offset_collar=offset_collar,
        percentage_of_length=percentage_of_length,
        empty_as_zero=empty_as_zero,
        as_sed_eval=as_sed_eval,
        as_sed_scores_eval=as_sed_scores_eval,
        n_draws=draws,
        n_curve_draws=curve_draws,
        level=level,
        seed=seed,
        durations=None if durations is None else read_durations(durations),
        psds=None if psds is None else parse_psds(psds),
    )
    answer = read_system_output(truth, weak=weak)
    evaluation = evaluate(answer, systems, scoring)
    for sentence in evaluation.remarks:
        tell(sentence)
    if plots is not None:
        from earmark.plots import draw_evaluation

        for path in draw_evaluation(plots, answer, systems, evaluation):
            tell(f"wrote {path}")
    if as_json:
        print_json(evaluation.to_dict())
        return
    text_tables = score_tables(evaluation, classes=classes)
    if as_markdown:
        print("\n\n".join(grid.to_markdown() for grid in text_tables))
        return
    from rich.console import Console

    # In a file or a pipe nothing is narrow.
    console = Console() if sys.stdout.isatty() else Console(width=200)
    for grid in text_tables:
        console.print(grid.to_rich())
