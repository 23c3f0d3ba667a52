"""A plan -> the results of all its units, one finished unit at a time, and the table of them.

Conventions: `out` holds one JSON file a unit, the table as Markdown and JSON, and the picture;
`work` holds features, checkpoints and models, and may be thrown away. Units run side by side in
processes of one thread each, which on a CPU is faster than one after the other with all threads.
What is done is never done again, but for models that others need and that `work` has lost; a unit
that was stopped goes on from its checkpoint.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from earmark.errors import SettingError
from earmark.experiments.plan import Plan, Unit
from earmark.experiments.run import Bench, Result, run_unit, train_unit
from earmark.experiments.table import METRICS, Comparison, compare_results, comparison_tables
from earmark.files import atomic_write, locked
from earmark.metrics.report import finite
from earmark.plots import plot_runs, save
from earmark.runtime.cores import n_cores
from earmark.runtime.processes import map_as_done

TABLE, PICTURE = "table", "runs.png"


def run_plan(
    plan: Plan,
    out: Path,
    work: Path,
    processes: int | None = None,
    tell: Callable[[str], object] = lambda sentence: None,
) -> list[Result]:
    """Run what is not done yet; return all results, in the order of the plan."""
    units = plan.units()
    todo = [unit for unit in units if read_result(out, unit) is None]
    tell(f"{len(units)} units, {len(units) - len(todo)} of them done already.")
    if todo:
        processes = processes or n_cores()
        bench = Bench(plan, work)
        for reason in bench.compute_features(todo[0]).failed.values():
            tell(f"Set aside: {reason}")
        started = time.monotonic()
        work_on = partial(_run, bench, out, 1 if processes > 1 else 0)
        lost = _lost(todo, bench)
        for done, unit in enumerate(_in_turns(work_on, [*lost, *todo], processes), 1):
            n_left = len(lost) + len(todo) - done
            left = (time.monotonic() - started) / done * n_left
            tell(f"{unit.key} is done; {n_left} to go, about {_hours(left)}.")
    return [result for unit in units if (result := read_result(out, unit)) is not None]


def read_result(out: Path, unit: Unit) -> Result | None:
    """Return the result of a unit, if it is there; raise if it is that of another plan."""
    path = out / f"{unit.key}.json"
    if not path.exists():
        return None
    result = Result.read(path)
    if result.fingerprint != unit.fingerprint:
        raise SettingError(
            f"{path} was made with other settings, tables or runs to build on than the plan has "
            "now, or scored in another way; choose another --out, or remove it."
        )
    return result


def read_results(folder: Path, cells: Iterable[str]) -> list[Result]:
    """Return all results in a folder, in the order of the cells, whatever plan they are of."""
    order = {cell: number for number, cell in enumerate(cells)}
    results = [Result.read(path) for path in sorted(folder.glob("*-seed*.json"))]
    known = [result for result in results if result.cell in order]
    return sorted(known, key=lambda result: (order[result.cell], result.seed))


def write_tables(plan: Plan, results: list[Result], out: Path) -> list[Comparison]:
    """Write the tables of all results and the picture; return the statistics."""
    names = [name for name in results[0].scores if name in results[0].counts]
    comparisons = [compare_results(results, plan.pairs(), name) for name in names]
    tables = [grid for comparison in comparisons for grid in comparison_tables(comparison)]
    text = "\n\n".join(grid.to_markdown() for grid in tables) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    atomic_write(out / f"{TABLE}.md", text.encode())
    plain = finite({comparison.tuning: comparison.to_dict() for comparison in comparisons})
    atomic_write(out / f"{TABLE}.json", (json.dumps(plain, indent=1) + "\n").encode())
    if find_spec("matplotlib") is not None:
        draw_runs(comparisons[0], out / PICTURE)
    return comparisons


def draw_runs(comparison: Comparison, path: Path) -> None:
    """Draw every run as a dot."""
    values = {
        METRICS[name].title: {cell: of[name].values for cell, of in comparison.cells.items()}
        for name in ("er", "f1", "event", "map")
    }
    save(plot_runs(values), path)


def _lost(todo: list[Unit], bench: Bench) -> list[Unit]:
    """Return the units that are done, and needed by others, but whose models are gone."""
    known = {unit.key for unit in todo}
    lost, asked = [], list(todo)
    while asked:
        unit = asked.pop()
        for need in (*unit.teachers, *unit.members):
            if need.key not in known and not bench.model_of(need).exists():
                known.add(need.key)
                lost.append(need)
                asked.append(need)
    return lost


def _in_turns(work_on: Callable[[Unit], Unit], units: list[Unit], processes: int) -> Iterator[Unit]:
    """Yield each unit as it is done; those that need others come after them."""
    for turn in sorted({unit.turn for unit in units}):
        ready = [unit for unit in units if unit.turn == turn]
        yield from map_as_done(work_on, ready, min(processes, len(ready)))


def _run(bench: Bench, out: Path, threads: int, unit: Unit) -> Unit:
    folder = bench.work / unit.folder
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, doing="training in"):
        # Another command may have come first; a model that others need may be gone.
        if read_result(out, unit) is None:
            run_unit(bench, unit.with_threads(threads)).write(out / f"{unit.key}.json")
        elif not unit.members and not bench.model_of(unit).exists():
            train_unit(bench, unit.with_threads(threads))
    return unit


def _hours(seconds: float) -> str:
    """Return a duration for people.

    >>> _hours(5400), _hours(40)
    ('1 h 30 min', '1 min')
    """
    minutes = max(1, round(seconds / 60))
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
