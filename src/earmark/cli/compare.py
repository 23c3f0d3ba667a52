"""The commands `earmark compare` and `earmark recipe`: many training runs and their tables."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from earmark.cli.app import (
    DeviceOption,
    JsonOption,
    SchedulerOption,
    app,
    logger,
    print_json,
    print_text,
)
from earmark.errors import printable


@app.command()
def compare(
    plan: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN", help="TOML file with tables, settings, configurations and seeds."
        ),
    ],
    data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the tables; by default that of the plan."),
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for results and tables.")
    ] = Path("comparison"),
    work: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder for features and models; by default work/ below --out."
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Runs at a time; by default one per core."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override in all configurations, such as training.max_epochs=1.",
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Runs per configuration at most.")
    ] = None,
    device: DeviceOption = "auto",
    validation: Annotated[
        bool, typer.Option("--validation", help="Show scores of the validation clips only.")
    ] = False,
    read_test: Annotated[
        bool,
        typer.Option(
            "--read-test",
            help="Show the test scores that a plan with hold_test holds back, and record it.",
        ),
    ] = False,
    scheduler: SchedulerOption = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Train every configuration of a plan with every seed and compare the results."""
    from earmark.experiments import Plan, run_plan, write_tables
    from earmark.experiments.compare import choose_validation, record_test_read
    from earmark.experiments.table import comparison_tables, verdicts_text
    from earmark.files import check_folder

    comparison_plan = Plan.read(plan, data, overrides or (), seeds)
    validation = choose_validation(comparison_plan, validation, read_test)
    check_folder(out)
    try:
        results = run_plan(comparison_plan, out, work, processes, device, scheduler)
    except KeyboardInterrupt:
        logger.warning("Stopped; the same command resumes.")
        raise typer.Exit(130) from None
    if read_test:
        record_test_read(comparison_plan, results, out)
    comparisons = write_tables(comparison_plan, results, out, validation=validation)
    if as_json:
        print_json({comparison.tuning: comparison.to_dict() for comparison in comparisons})
        return
    tables = [table for comparison in comparisons for table in comparison_tables(comparison)]
    verdicts = verdicts_text(x for x in comparisons if x.tuning == comparison_plan.tuning)
    if markdown:
        print_text("\n\n".join([*(table.to_markdown() for table in tables), verdicts]))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    for table in tables:
        console.print(table.to_rich())
    console.print(Markdown(printable(verdicts)))


@app.command()
def recipe(
    task: Annotated[str, typer.Argument(metavar="TASK", help="Whose lists they are: dcase2017.")],
    lists: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the official lists.")],
    audio: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the clips.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", help="Folder for tables, results and models."),
    ] = None,
    table: Annotated[
        int,
        typer.Option(
            min=2, max=3, metavar="N", help="2: pooling functions; 3: the systems of others."
        ),
    ] = 2,
    configurations: Annotated[
        list[str] | None,
        typer.Option(
            "--configuration",
            metavar="NAME",
            help="Such as 'linear, hierarchical', or with --table 3 also "
            "{earmark.experiments.table3:PUBLISHED_SYSTEMS}; may be repeated; by default all.",
        ),
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="With --table 3: all systems in fast width.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --table 3: print what it costs, and stop.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, metavar="N", help="Runs per configuration.")] = 1,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --table 2: one of {earmark.training.settings:PRESETS} whose network has a "
            "pooling function; by default paper.",
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override, such as training.max_epochs=20; may be repeated.",
        ),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, metavar="N", help="Runs at a time.")] = 1,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train on the official lists of a task and your audio, and print the paper's tables."""
    from earmark.errors import SettingError, choose

    choose("recipe", task, ("dcase2017",))
    if table == 2 and (fast or dry_run):
        raise SettingError("--fast and --dry-run are for --table 3; leave them out.")
    if table == 3 and preset is not None:
        raise SettingError(
            "--preset is for --table 2; in Table 3 every system has its own. "
            f"Leave it out, or choose systems with --configuration. Got {preset!r}."
        )
    chosen: dict[str, Any] = {"seeds": seeds, "overrides": overrides or ()}
    where: dict[str, Any] = {"processes": processes, "device": device}
    if dry_run:
        _print_table3(lists, None, None, configurations, fast, as_json, chosen, where)
    elif audio is None or out is None:
        raise SettingError("The recipe needs --audio and --out; only --dry-run needs neither.")
    elif table == 3:
        _print_table3(lists, audio, out, configurations, fast, as_json, chosen, where)
    else:
        _print_table2(lists, audio, out, configurations, preset or "paper", as_json, chosen | where)


def _print_table2(
    lists: Path,
    audio: Path,
    out: Path,
    configurations: list[str] | None,
    preset: str,
    as_json: bool,
    choices: Mapping[str, Any],
) -> None:
    from earmark.experiments.dcase2017 import TABLE_2, paper_table, run_dcase2017
    from earmark.experiments.table3 import systems_table

    comparisons = run_dcase2017(lists, audio, out, configurations, preset=preset, **choices)
    if as_json:
        print_json({name: comparison.to_dict() for name, comparison in comparisons.items()})
        return
    rows: dict[str, Any] = {}
    for name, comparison in comparisons.items():
        rows |= {name: comparison, f"{name}, published": TABLE_2[name]}
    print_text(paper_table("Table 2 of the paper", rows).to_markdown())
    shared = {name: {comparison.tuning: comparison} for name, comparison in comparisons.items()}
    print_text("\n" + systems_table(shared).to_markdown())


def _print_table3(
    lists: Path,
    audio: Path | None,
    out: Path | None,
    systems: list[str] | None,
    fast: bool,
    as_json: bool,
    choices: Mapping[str, Any],
    where: Mapping[str, Any],
) -> None:
    """Print the costs first; without audio, nothing else."""
    from earmark.experiments.dcase2017 import count_clips, plan_table3, run_table3
    from earmark.experiments.table3 import cost_statement, estimate_plan, systems_table

    plan = plan_table3(systems, fast=fast, **choices)
    costs = estimate_plan(plan, **count_clips(lists))
    if audio is None or out is None:
        if as_json:
            print_json({name: cost._asdict() for name, cost in costs.items()})
        else:
            print_text(cost_statement(costs, where["processes"]))
        return
    if not as_json:
        print_text(cost_statement(costs, where["processes"]) + "\n", flush=True)
    measured = run_table3(lists, audio, out, plan, **where)
    if as_json:
        by_tuning = {test: {x: y.to_dict() for x, y in own.items()}
                     for test, own in measured.items()}  # fmt: skip
        print_json(by_tuning)
    else:
        print_text(systems_table(measured).to_markdown())
