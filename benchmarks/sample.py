"""Run a plan from nothing on a small sample: a try before hours of training, and a test.

    python -m benchmarks.sample benchmarks/systems.toml --out FOLDER

Writes a few short procedural scenes for every table and folder that the plan names, and runs every
configuration on them with one seed for one epoch. The figures mean nothing; that there are some
means that the plan can be read, trained, tuned, scored and put into tables.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.yamnet import register
from earmark.config import read_toml
from earmark.experiments import Plan, RunResult, run_plan, write_tables
from earmark.experiments.compare import TABLE
from earmark.experiments.configurations import NEGATIVES, read_configurations
from earmark.synth.scenes import SceneConfig, write_scenes

N_SCENES = 6
SCENES = SceneConfig(
    sample_rate=8000, duration=3.0, event_duration=(0.5, 1.5), classes=("bell", "siren")
)
OVERRIDES = (
    "training.max_epochs=1",
    "training.min_steps=0",
    "training.batch_size=3",
    "training.threads=1",
)


def write_sample(plan: Path, folder: Path) -> None:
    """Write scenes in place of the tables and the folders of recordings of a plan."""
    own = [configuration.data for configuration in read_configurations(plan).values()]
    paths = {(name, x) for data in (read_toml(plan)["data"], *own) for name, x in data.items() if x}
    tables = {Path(x).parent for name, x in paths if name not in NEGATIVES}
    for seed, where in enumerate(sorted(tables)):
        write_scenes(folder / where, N_SCENES, SCENES, seed, prefix=f"{where}_")
    nothing = replace(SCENES, n_events=(0, 0))
    for seed, where in enumerate(sorted({x for name, x in paths if name in NEGATIVES})):
        write_scenes(folder / where, N_SCENES, nothing, 100 + seed, prefix=f"{where}_")


def run_sample(plan: Path, folder: Path) -> list[RunResult]:
    """Return a result of every configuration of a plan, from nothing."""
    if "encoder" in read_toml(plan):
        register()  # the module of yamnet_frames.toml
    write_sample(plan, folder / "data")
    sample = Plan.read(plan, folder / "data", OVERRIDES, seeds=1)
    results = run_plan(sample, folder / "results", folder / "work", processes=1)
    write_tables(sample, results, folder / "results")
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("earmark").setLevel(logging.INFO)
    run_sample(options.plan, options.out)
    print((options.out / "results" / f"{TABLE}.md").read_text())


if __name__ == "__main__":
    main()
