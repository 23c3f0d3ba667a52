"""Measure a small network on YAMNet's frame embeddings, on the scenes of the bundled model.

    python -m benchmarks.encoder --scenes SCENES --work WORK

The scenes and the split are those of `benchmarks.everyday`: trained on folds 1 and 2 with
negatives, operating point and calibration from the tags of fold 3, measured on fold 4 and on sounds
that nothing was trained or tuned on. results/encoder has the runs of encoder.toml,
results/encoder.json the figures at the operating point. YAMNet is found through yamnet_frames.toml.

Every step is skipped where its result exists, and an interrupted training resumes.
"""

import argparse
import json
import logging
from pathlib import Path

from benchmarks.everyday import SETS, measure, set_operating_point, write_scenes
from benchmarks.yamnet import register
from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.plan import Plan
from earmark.experiments.run import Workspace
from earmark.files import atomic_write
from earmark.inference.model_file import load_bundle

HERE = Path(__file__).parent
PLAN = HERE / "encoder.toml"
RESULTS = HERE / "results" / "encoder"
CARD = HERE / "results" / "encoder.json"
CONFIGURATION = "first generation"  # the second was no better on fold 3
OF_ALL_FOLDS = ("best_all", "known_all")  # sets of the bundled model alone


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    register()
    sets = {
        folder: {file: [x for x in names if x not in OF_ALL_FOLDS] for file, names in files.items()}
        for folder, files in SETS.items()
        if folder not in OF_ALL_FOLDS
    }
    write_scenes(options.scenes, options.processes, sets)
    plan = Plan.read(PLAN, options.scenes)
    # One process: another one would have to register the module as well.
    results = run_plan(plan, RESULTS, options.work, processes=1)
    write_tables(plan, results, RESULTS)
    run = next(run for run in plan.runs() if run.configuration == CONFIGURATION)
    model = Workspace(plan, options.work).model_path(run)
    measured = set_operating_point(options.scenes, load_bundle(model))
    figures = measure(options.scenes, measured)
    atomic_write(CARD, (json.dumps(figures, indent=1) + "\n").encode())
    print(json.dumps(figures["scores"], indent=1))


if __name__ == "__main__":
    main()
