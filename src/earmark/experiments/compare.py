"""Execute all runs of a plan, in parallel and resumable, and write the tables of their results.

Conventions: `out` holds one JSON file per run, the tables as Markdown, JSON and CSV, and a figure:
"table" of the test clips, "validation" of the validation clips, by which models are to be selected.
Where a plan holds its test scores back, each time that they are read is recorded in `out`;
`work` holds features, checkpoints and models, and can be deleted. Runs are executed in parallel
processes with one thread each: on a CPU that is faster than one after the other with all threads.
On a cluster, workers execute the runs, one per thread of a worker, and need `out`, `work` and the
data under the same paths; a run whose worker ends is resumed by another.
A finished run is never executed again, except to restore a model that another run needs and `work`
no longer has; an interrupted run resumes from its checkpoint. Progress is logged.
"""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from earmark.errors import DataError, SettingError, refusing
from earmark.experiments.configurations import Configuration
from earmark.experiments.csv_tables import difference_csv, summary_csv
from earmark.experiments.plan import Plan, Run
from earmark.experiments.plan_file import read_plan_file
from earmark.experiments.run import RunResult, Workspace, execute_run, train_run
from earmark.experiments.table import (
    METRICS,
    Comparison,
    compare_results,
    comparison_tables,
    list_tunings,
    verdicts_text,
)
from earmark.files import atomic_write, locked, make_folder
from earmark.metrics.report import finite
from earmark.plots import plot_runs, save
from earmark.runtime.cluster import Cluster, running
from earmark.runtime.cores import n_cores
from earmark.runtime.processes import map_as_done
from earmark.runtime.progress import format_duration

TABLE, DIFFERENCES, FIGURE = "table", "table-differences", "runs.png"
VALIDATION = "validation"  # in place of "table" and in front of "runs.png"
TEST_READ = "test-read.json"

logger = logging.getLogger(__name__)


def run_plan(
    plan: Plan,
    out: Path,
    work: Path | None = None,
    processes: int | None = None,
    device: str = "auto",
    scheduler: str | None = None,
) -> list[RunResult]:
    """Execute the runs that are not finished; return all results, in the order of the plan.

    Args:
        plan: of the comparison.
        out: folder for the results.
        work: folder for features, checkpoints and models; `out`/work by default.
        processes: runs at a time; one per core by default.
        device: where networks are trained: "auto", "cpu", "cuda" or "cuda:1".
        scheduler: of a Dask cluster that computes features and executes runs, in place of
            processes: "local:4" or an address, as in `earmark.runtime.cluster`.

    >>> import tempfile
    >>> from earmark.synth.scenes import SceneConfig, write_scenes
    >>> folder = Path(tempfile.mkdtemp())
    >>> scenes = SceneConfig(sample_rate=8000, duration=5.0, classes=("bell", "siren"))
    >>> for seed, name in enumerate(("train", "valid", "test")):
    ...     _ = write_scenes(folder / name, 8, scenes, seed, prefix=name)
    >>> _ = (folder / "plan.toml").write_text('''
    ... [data]
    ... train = "train/weak.tsv"
    ... valid = "valid/weak.tsv"
    ... test = "test/strong.tsv"
    ... [settings]
    ... features = {sample_rate = 8000, n_mels = 16, f_max = 4000}
    ... model = {channels = [4, 4, 4, 4], last_channels = 4, n_recurrent = 0}
    ... training = {max_epochs = 1, threads = 1}
    ... [grid]
    ... seeds = 1
    ... structure = {single = {model.stages = []}, hierarchical = {model.stages = [5]}}
    ... ''')
    >>> plan = Plan.read(folder / "plan.toml")
    >>> results = run_plan(plan, folder / "results", processes=1)
    >>> [result.configuration for result in results]
    ['single', 'hierarchical']
    >>> [comparison.tuning for comparison in write_tables(plan, results, folder / "results")]
    ['clip_and_frame', 'clip', 'shared_clip']
    """
    work = work or out / "work"
    if scheduler is not None:  # a worker has another working folder
        plan, out, work = plan.absolute(), out.absolute(), work.absolute()
    runs = plan.runs()
    todo = [run for run in runs if read_result(out, run) is None]
    logger.info("%d of %d runs are done.", len(runs) - len(todo), len(runs))
    if todo and scheduler is not None:
        if processes is not None:
            raise SettingError(f"Pass processes or scheduler, not both. Got processes={processes}.")
        with running(scheduler) as address:
            _run_all(todo, Workspace(plan, work, device), out, scheduler=address)
    elif todo:
        _run_all(todo, Workspace(plan, work, device), out, processes or n_cores())
    return [result for run in runs if (result := read_result(out, run)) is not None]


def _run_all(
    todo: list[Run],
    workspace: Workspace,
    out: Path,
    processes: int | None = None,
    scheduler: str | None = None,
) -> None:
    """Execute runs, in processes or on a cluster, and log the progress."""
    # On a cluster all features are computed before the runs, so that all workers share the work.
    stores = {workspace.store_path(run): run for run in reversed(todo)} if scheduler else {}
    failed: dict[str, str] = {}
    for run in (*stores.values(), todo[0]):
        failed |= workspace.compute_features(run, scheduler).failed
    for reason in failed.values():
        logger.warning("Left out: %s", reason)
    started = time.monotonic()
    execute = partial(_execute, workspace, out, 0 if processes == 1 else 1, scheduler is not None)
    lost = _find_lost(todo, workspace)
    cluster = None if scheduler is None else _on_cluster(workspace, out, scheduler)
    executed = _execute_in_order(execute, [*lost, *todo], processes, cluster)
    for done, (run, result) in enumerate(executed, 1):
        if result is not None and read_result(out, run) is None:
            result.write(out / f"{run.key}.json")  # a shared folder may show files late
        n_left = len(lost) + len(todo) - done
        left = (time.monotonic() - started) / done * n_left
        logger.info("%s is done; %d left, about %s.", run.key, n_left, format_duration(left))


def _on_cluster(workspace: Workspace, out: Path, scheduler: str) -> Cluster[Run]:
    """Return how runs are executed on a cluster."""
    shared = [out, workspace.folder, *workspace.plan.data.values()]
    return Cluster(
        scheduler,
        name=lambda run: run.key,
        files=lambda run: (*shared, run.train, workspace.store_path(run)),
        alone=True,
    )


def read_result(out: Path, run: Run) -> RunResult | None:
    """Return the result of a run, or None; raise if the file belongs to another plan."""
    path = out / f"{run.key}.json"
    if not path.exists():
        return None
    result = RunResult.read(path)
    if result.fingerprint != run.fingerprint:
        raise SettingError(
            f"{path} is the result of other settings, tables, teacher models or ensemble members "
            "than the plan has now, or of another version of the scoring. Choose another folder "
            "for the results, or remove the file."
        )
    return replace(result, configuration=run.configuration)


def read_results(folder: Path, configurations: Mapping[str, Configuration]) -> list[RunResult]:
    """Return the results of some configurations in a folder, in their order, without any check.

    >>> read_results(Path("nowhere"), {"single": Configuration()})
    []
    """
    names = {x.stored_as or name: name for name, x in configurations.items()}
    results = [RunResult.read(path) for path in sorted(folder.glob("*-seed*.json"))]
    known = [replace(x, configuration=names[x.configuration]) for x in results
             if x.configuration in names]  # fmt: skip
    order = list(configurations)
    return sorted(known, key=lambda result: (order.index(result.configuration), result.seed))


def choose_validation(plan: Plan, validation: bool = False, read_test: bool = False) -> bool:
    """Return whether to show the scores of validation clips in place of those of test clips.

    Args:
        plan: of the comparison; one with `hold_test` shows them unless `read_test` is given.
        validation: show them with any plan.
        read_test: show the scores of test clips.

    >>> from earmark.training.settings import Settings
    >>> data = {"valid_events": Path("valid.tsv")}
    >>> plan = Plan(Path("plan.toml"), Path(), data, {}, Settings(), hold_test=True)
    >>> choose_validation(plan), choose_validation(plan, read_test=True)
    (True, False)
    """
    if validation and read_test:
        raise SettingError("validation and read_test exclude each other; choose one of them.")
    shown = validation or (plan.hold_test and not read_test)
    if shown and "valid_events" not in plan.data:
        raise SettingError(
            f"{plan.source} has no data.valid_events, which the scores of validation clips need; "
            "add a table with their onsets and offsets."
        )
    return shown


def list_test_reads(out: Path) -> list[dict[str, Any]]:
    """Return when, and by which plans and runs, the test scores of a folder were read.

    >>> list_test_reads(Path("nowhere"))
    []
    """
    path = out / TEST_READ
    if not path.exists():
        return []
    with refusing(f"{path} is damaged", DataError, "Move it to another place."):
        return [dict(entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def record_test_read(plan: Plan, results: list[RunResult], out: Path) -> None:
    """Append to a file in `out` that the test scores were read now, with which plan and runs.

    >>> import tempfile
    >>> from earmark.training.settings import Settings
    >>> out = Path(tempfile.mkdtemp())
    >>> _ = (out / "plan.toml").write_text("")
    >>> record_test_read(Plan(out / "plan.toml", out, {}, {}, Settings()), [], out)
    >>> json.loads((out / TEST_READ).read_text())[0]["runs"]
    0
    """
    path, reads = out / TEST_READ, list_test_reads(out)
    entry = {
        "read": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": plan.source.name,
        "plan_sha256": hashlib.sha256(json.dumps(read_plan_file(plan.source)).encode()).hexdigest(),
        "runs": len(results),
        "fingerprints": sorted(result.fingerprint for result in results),
    }
    atomic_write(path, (json.dumps([*reads, entry], indent=1) + "\n").encode())
    logger.info("Test scores were read %d time(s); see %s.", len(reads) + 1, path)


def write_tables(
    plan: Plan, results: list[RunResult], out: Path, *, validation: bool = False
) -> list[Comparison]:
    """Write the tables and the figure of all results; return the statistics, one per tuning.

    Args:
        plan: of the comparison.
        results: of its runs.
        out: folder for the tables.
        validation: take the scores of the validation clips in place of the test clips.

    >>> import tempfile
    >>> from earmark.training.settings import Settings
    >>> counts = {"clip": {"tp": [1], "fp": [0], "fn": [1], "errors": [1]}}
    >>> values = {metric.name: 0.5 for metric in METRICS.values()}
    >>> scores = dict.fromkeys(("clip", "threshold_free", "valid"), values)
    >>> result = RunResult("single", 0, "", scores, counts, {}, {})
    >>> plan = Plan(Path("plan.toml"), Path(), {}, {"single": Configuration()}, Settings())
    >>> out = Path(tempfile.mkdtemp())
    >>> write_tables(plan, [result], out)[0].summaries["single"]["er"].mean
    0.5
    >>> sorted(path.suffix for path in out.glob("table.*"))
    ['.csv', '.json', '.md']
    """
    table, differences, figure = TABLE, DIFFERENCES, FIGURE
    if validation:
        results = [result.on_validation() for result in results]
        table, differences = VALIDATION, DIFFERENCES.replace(TABLE, VALIDATION)
        figure = f"{VALIDATION}-{FIGURE}"
    comparisons = [
        compare_results(results, plan.pairs(), tuning, least_auc=plan.least_auc)
        for tuning in list_tunings(results)
    ]
    tables = [own for comparison in comparisons for own in comparison_tables(comparison)]
    verdicts = [text for text in [verdicts_text(comparisons)] if text]
    plain = finite({comparison.tuning: comparison.to_dict() for comparison in comparisons})
    make_folder(out)
    for name, text in {
        f"{table}.md": "\n\n".join([*(x.to_markdown() for x in tables), *verdicts]) + "\n",
        f"{table}.json": json.dumps(plain, indent=1) + "\n",
        f"{table}.csv": summary_csv(comparisons),
        f"{differences}.csv": difference_csv(comparisons),
    }.items():
        atomic_write(out / name, text.encode())
    if find_spec("matplotlib") is not None:
        save_run_figure(comparisons[0], out / figure)
    return comparisons


def save_run_figure(comparison: Comparison, path: Path) -> None:
    """Save a figure with one dot per run."""
    values = {
        METRICS[name].title: {
            configuration: metrics[name].values
            for configuration, metrics in comparison.summaries.items()
        }
        for name in ("er", "f1", "event_f1", "map")
    }
    save(plot_runs(values), path)


def _find_lost(todo: list[Run], workspace: Workspace) -> list[Run]:
    """Return the finished runs whose models others need but `work` no longer has."""
    known = {run.key for run in todo}
    lost, pending = [], list(todo)
    while pending:
        run = pending.pop()
        for need in (*run.teachers, *run.members):
            if need.key not in known and not workspace.model_path(need).exists():
                known.add(need.key)
                lost.append(need)
                pending.append(need)
    return lost


def _execute_in_order(
    execute: Callable[[Run], tuple[Run, RunResult | None]],
    runs: list[Run],
    processes: int | None,
    cluster: Cluster[Run] | None,
) -> Iterator[tuple[Run, RunResult | None]]:
    """Yield each run as it is done; those that need others come after them."""
    for depth in sorted({run.depth for run in runs}):
        ready = [run for run in runs if run.depth == depth]
        n_processes = processes and min(processes, len(ready))
        yield from map_as_done(execute, ready, n_processes, cluster)


def _execute(
    workspace: Workspace, out: Path, threads: int, wait: bool, run: Run
) -> tuple[Run, RunResult | None]:
    """Execute a run and return its result, too.

    On a cluster it waits for a worker that was given up but still trains, and takes its result.
    """
    folder = workspace.folder / run.folder
    make_folder(folder)
    with locked(folder, wait, doing="training in"):
        # Another command may have finished it; a model that others need may be gone.
        if read_result(out, run) is None:
            execute_run(workspace, run.with_threads(threads)).write(out / f"{run.key}.json")
        elif not run.members and not workspace.model_path(run).exists():
            train_run(workspace, run.with_threads(threads))
        return run, read_result(out, run)
