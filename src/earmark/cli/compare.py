"""Words -> compare and recipe: many trainings of one plan."""

from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.app import JsonOption, app, print_json, tell


@app.command()
def compare(
    plan: Annotated[Path, typer.Argument(help="TOML file: tables, settings, cells, seeds.")],
    data: Annotated[
        Path | None, typer.Option(help="Folder of its tables; else the plan's.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for results and tables.")] = Path(
        "comparison"
    ),
    work: Annotated[
        Path | None, typer.Option(help="Folder for features and models; else OUT/work.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Units at a time; else one a core.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train every cell of a plan with every seed, and tell which differences are real."""
    from earmark.experiments import Plan, run_plan, write_tables
    from earmark.experiments.table import comparison_tables

    read = Plan.read(plan, data)
    out.mkdir(parents=True, exist_ok=True)
    try:
        results = run_plan(read, out, work or out / "work", processes, tell)
    except KeyboardInterrupt:
        tell("stopped; go on with the same command.")
        raise typer.Exit(130) from None
    comparisons = write_tables(read, results, out)
    if as_json:
        print_json({comparison.tuning: comparison.to_dict() for comparison in comparisons})
        return
    tables = [grid for comparison in comparisons for grid in comparison_tables(comparison)]
    if markdown:
        print("\n\n".join(grid.to_markdown() for grid in tables))
        return
    from rich.console import Console

    for grid in tables:
        Console().print(grid.to_rich())


@app.command()
def recipe(
    task: Annotated[str, typer.Argument(help="dcase2017")],
    lists: Annotated[Path, typer.Option(help="Folder of the official lists.")],
    audio: Annotated[Path, typer.Option(help="Folder of the clips.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for all that comes of it.")],
    cells: Annotated[
        list[str] | None,
        typer.Option("--cell", help="Such as 'linear, hierarchical'; may be repeated; else all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each cell.")] = 1,
    preset: Annotated[str, typer.Option(help="paper or fast.")] = "paper",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting, as in training.max_epochs=20.")
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Units at a time.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """From the official lists of a task and your audio to the table of the paper."""
    from earmark.errors import choose
    from earmark.experiments.dcase2017 import PUBLISHED, paper_table, run_dcase2017, systems_table

    choose("recipe", task, ("dcase2017",))
    sets = run_dcase2017(
        lists,
        audio,
        out,
        cells,
        seeds=seeds,
        preset=preset,
        settings=settings or (),
        processes=processes,
        tell=tell,
    )
    if as_json:
        print_json({name: found.to_dict() for name, found in sets.items()})
        return
    rows: dict[str, Any] = {}
    for name, found in sets.items():
        rows |= {name: found, f"{name}, published": PUBLISHED[name]}
    print(paper_table("Table 2 of the paper", rows).to_markdown())
    print("\n" + systems_table(sets).to_markdown())
