"""The commands `earmark compare` and `earmark recipe`: many training runs and their tables."""

from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.app import DeviceOption, JsonOption, RegistryCommand, app, logger, print_json


@app.command()
def compare(
    plan: Annotated[
        Path, typer.Argument(help="TOML file with tables, settings, configurations and seeds.")
    ],
    data: Annotated[
        Path | None, typer.Option(help="Folder of the tables; by default that of the plan.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for results and tables.")] = Path(
        "comparison"
    ),
    work: Annotated[
        Path | None, typer.Option(help="Folder for features and models; by default OUT/work.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Runs at a time; by default one per core.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Override in all configurations, such as training.max_epochs=1."
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs per configuration at most.")
    ] = None,
    device: DeviceOption = "auto",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train every configuration of a plan with every seed and compare the results."""
    from earmark.experiments import Plan, run_plan, write_tables
    from earmark.experiments.table import comparison_tables

    comparison_plan = Plan.read(plan, data, overrides or (), seeds)
    out.mkdir(parents=True, exist_ok=True)
    try:
        results = run_plan(comparison_plan, out, work, processes, device)
    except KeyboardInterrupt:
        logger.warning("Stopped; the same command resumes.")
        raise typer.Exit(130) from None
    comparisons = write_tables(comparison_plan, results, out)
    if as_json:
        print_json({comparison.tuning: comparison.to_dict() for comparison in comparisons})
        return
    tables = [table for comparison in comparisons for table in comparison_tables(comparison)]
    if markdown:
        print("\n\n".join(table.to_markdown() for table in tables))
        return
    from rich.console import Console

    for table in tables:
        Console().print(table.to_rich())


@app.command(cls=RegistryCommand)
def recipe(
    task: Annotated[str, typer.Argument(help="dcase2017")],
    lists: Annotated[Path, typer.Option(help="Folder of the official lists.")],
    audio: Annotated[Path, typer.Option(help="Folder of the clips.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for tables, results and models.")],
    configurations: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            help="Such as 'linear, hierarchical'; may be repeated; by default all six.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs per configuration.")] = 1,
    preset: Annotated[
        str, typer.Option(help="One of {earmark.training.settings:PRESETS}.")
    ] = "paper",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override, such as training.max_epochs=20; may be repeated."),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 1,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train on the official lists of a task and your audio, and print the paper's tables."""
    from earmark.errors import choose
    from earmark.experiments.dcase2017 import PUBLISHED, paper_table, run_dcase2017, systems_table

    choose("recipe", task, ("dcase2017",))
    comparisons = run_dcase2017(
        lists,
        audio,
        out,
        configurations,
        seeds=seeds,
        preset=preset,
        overrides=overrides or (),
        processes=processes,
        device=device,
    )
    if as_json:
        print_json({name: comparison.to_dict() for name, comparison in comparisons.items()})
        return
    rows: dict[str, Any] = {}
    for name, comparison in comparisons.items():
        rows |= {name: comparison, f"{name}, published": PUBLISHED[name]}
    print(paper_table("Table 2 of the paper", rows).to_markdown())
    print("\n" + systems_table(comparisons).to_markdown())
