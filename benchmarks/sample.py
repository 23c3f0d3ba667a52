"""Run a plan from nothing on a small sample: a try before hours of training, and a test.

    python -m benchmarks.sample benchmarks/systems.toml --out FOLDER
    python -m benchmarks.sample benchmarks/map.toml --out FOLDER --distinct 5

Writes a few short procedural scenes for every table and folder that the plan names, and runs every
configuration on them with one seed for one epoch; or a few, of which no two change the same
settings. The figures mean nothing; that there are some
means that the plan can be read, trained, tuned, scored and put into tables.
"""

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.kinds import NOISE
from benchmarks.yamnet import register
from earmark.experiments import Plan, RunResult, run_plan, write_tables
from earmark.experiments.compare import TABLE
from earmark.experiments.configurations import Configuration, read_configurations
from earmark.experiments.plan_file import NEGATIVES, fold_path, read_data, read_plan_file
from earmark.synth.scenes import SceneConfig, write_scenes

N_SCENES = 6
NOISY_TABLES = [f"weak-{name}.tsv" for name in NOISE]
CLASSES = ("bell", "siren")
SCENES = SceneConfig(sample_rate=8000, duration=3.0, event_duration=(0.5, 1.5), classes=CLASSES)
OVERRIDES = (
    "training.max_epochs=1",
    "training.min_steps=0",
    "training.batch_size=3",
    "training.threads=1",
)


def write_sample(plan: Path, folder: Path) -> None:
    """Write scenes in place of the tables and the folders of recordings of a plan."""
    tree = read_plan_file(plan)
    data = read_data(tree, plan)
    own = [configuration.data for configuration in read_configurations(plan).values()]
    paths = {(name, str(fold_path(Path(x), fold))) for given in (data.paths, *own)
             for name, x in given.items() if x for fold in range(data.folds)}  # fmt: skip
    tables = {Path(x).parent for name, x in paths if name not in (*NEGATIVES, "audio")}
    for seed, where in enumerate(sorted(tables)):
        prefix = f"{str(where).replace('/', '_')}_"
        write_scenes(folder / where, N_SCENES, SCENES, seed, prefix=prefix)
        if data.labels:  # under the names that the plan has for its classes
            _rename(folder / where, dict(zip(CLASSES, data.labels, strict=False)))
    for where in {folder / x for name, x in paths if name == "audio"}:
        where.mkdir()
        for audio in folder.glob("**/audio/*"):
            audio.rename(where / audio.name)
    for name, x in sorted(paths):
        if name == "train" and Path(x).name in NOISY_TABLES:
            (folder / x).write_text((folder / x).with_name("weak.tsv").read_text())
    nothing = replace(SCENES, n_events=(0, 0))
    for seed, where in enumerate(sorted({x for name, x in paths if name in NEGATIVES})):
        write_scenes(folder / where, N_SCENES, nothing, 100 + seed, prefix=f"{where}_")


def _rename(folder: Path, names: Mapping[str, str]) -> None:
    for table in folder.glob("*.tsv"):
        text = table.read_text()
        for old, new in names.items():
            text = text.replace(old, new)
        table.write_text(text)


def distinct(configurations: Mapping[str, Configuration]) -> dict[str, Configuration]:
    """Return the first of the configurations that change the same settings, to whatever values."""
    first: dict[object, str] = {}
    for name, x in configurations.items():
        keys = frozenset((part, key) for part, own in x.settings.items() for key in own)
        others = (x.strong, frozenset(x.data), x.preset, x.teachers, x.models_of)
        first.setdefault((keys, others), name)
    return {name: configurations[name] for name in first.values()}


def run_sample(plan: Path, folder: Path, n_distinct: int | None = None) -> list[RunResult]:
    """Return a result of every configuration of a plan, from nothing."""
    if "encoder" in read_plan_file(plan):
        register()  # the module of yamnet_frames.toml
    write_sample(plan, folder / "data")
    sample = Plan.read(plan, folder / "data", OVERRIDES, seeds=1)
    if n_distinct is not None:
        chosen = dict(list(distinct(sample.configurations).items())[:n_distinct])
        sample = replace(sample, configurations=chosen)
    results = run_plan(sample, folder / "results", folder / "work", processes=1)
    write_tables(sample, results, folder / "results")
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--distinct", type=int, help="so many configurations at most")
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("earmark").setLevel(logging.INFO)
    run_sample(options.plan, options.out, options.distinct)
    print((options.out / "results" / f"{TABLE}.md").read_text())


if __name__ == "__main__":
    main()
