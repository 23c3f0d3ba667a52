"""Train the bundled pretrained model: the best recipe of detector.toml, on all folds.

    earmark synth SCENES --config benchmarks/scenes.toml --processes 2
    earmark synth SCENES --config benchmarks/everyday.toml --processes 2
    earmark compare benchmarks/detector.toml --data SCENES --out RESULTS --work WORK
    python -m benchmarks.everyday --scenes SCENES --work WORK

The model is trained with the settings of one configuration on scenes from all folds, with teacher
models that are trained on all folds too. A model that exists in WORK is not trained again, and an
interrupted training resumes. With all folds used for training, none is left for tuning. So the
clip-level threshold is tuned on the configuration's own model, trained on folds 1 and 2, with the
tags of fold 3; the scores in the model card are also those of that model.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from earmark.experiments.plan import Plan, Run
from earmark.formats.tables import read_table
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle, save_bundle
from earmark.synth.scenes import SceneSets
from earmark.training.api import MODEL, train, tune
from earmark.training.settings import RunConfig

REPO = Path(__file__).parent.parent
CONFIGURATION = "8x epochs, wider, self-training"
N_TEACHERS = 2  # the configuration has three; each takes as long to train as the model itself
# These two are written into the model file.
TUNED_ON = "the recipe with three teachers, trained on folds 1 and 2 alone"
LICENCE = (
    "MIT, as Earmark itself. The network learned from recordings of ESC-50 (Piczak, 2015),"
    " collected on Freesound; those under CC0 need no mention, those under CC-BY are due to:"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=BUNDLED)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = Plan.read(REPO / "benchmarks" / "detector.toml", options.scenes)
    run = next(run for run in plan.runs() if run.configuration == CONFIGURATION)
    measured = tune_shared(options.scenes, load_bundle(options.work / run.folder / MODEL))
    teachers = [
        train_on_all(options.scenes, options.work, teacher) for teacher in run.teachers[:N_TEACHERS]
    ]
    bundle = load_bundle(train_on_all(options.scenes, options.work, run, teachers))
    tuning = {**measured.tuning, "of": TUNED_ON}
    bundle = bundle.with_decoding(measured.decoding, tuning, measured.calibration)
    scene_sets = SceneSets.read(REPO / "benchmarks" / "everyday.toml")
    bundle = replace(bundle, licence=LICENCE, attribution=attribution(scene_sets, "all"))
    half = bundle.halved()
    if count_differences(bundle, half, sorted((options.scenes / "test" / "audio").iterdir())) == 0:
        bundle = half
    path = save_bundle(bundle, options.out)
    print(f"{path}: {path.stat().st_size:,} bytes")


def train_on_all(scenes: Path, work: Path, run: Run, teachers: Sequence[Path] = ()) -> Path:
    """Train with the settings of a run on scenes from all folds; return the model file.

    The validation scenes share their sources with the training scenes: they select the epoch and
    nothing else.
    """
    path = work / f"everyday-{len(teachers)}-teachers-{run.folder}" / MODEL
    if path.exists():
        return path
    table, valid = scenes / "all" / "weak.tsv", scenes / "valid" / "weak.tsv"
    train(
        table,
        valid,
        out=path.parent,
        audio=table.parent / "audio",
        valid_audio=valid.parent / "audio",
        teachers=teachers,
        settings=run.settings,
        run=RunConfig(store=work / "everyday-features", resume=True, progress=True),
    )
    return path


def tune_shared(scenes: Path, bundle: Bundle) -> Bundle:
    """Return the bundle with one clip-level threshold, tuned on the tags of the valid scenes."""
    table = scenes / "valid" / "weak.tsv"
    detector, _ = tune(Detector(bundle), table, table.parent / "audio", shared=True)
    return detector.bundle


def attribution(scene_sets: SceneSets, name: str) -> tuple[str, ...]:
    """Return one line per CC-BY recording that the scenes of a set contain."""
    table = read_table(scene_sets.folder / scene_sets.bank.table)
    table.require("filename", "event_label", "fold", "licence", "author", "title", "source")
    rows = [row.named(table.columns) for row in table.rows]
    used = {*scene_sets.scenes.classes, *scene_sets.scenes.backgrounds}
    folds = {str(fold) for fold in scene_sets.sets[name].folds}
    lines = {
        f"{row['title']} by {row['author']} ({row['licence']}), {row['source']}"
        for row in rows
        if row["event_label"] in used and row["fold"] in folds and row["licence"] != "CC0"
    }
    return tuple(sorted(lines))


def count_differences(full: Bundle, half: Bundle, files: list[Path]) -> int:
    """Return how many detected events change with half-precision weights."""
    detectors = Detector(full), Detector(half)
    n_events, n_changed = 0, 0
    for file in files:
        before, after = (
            [(event.onset, event.offset, event.label) for event in detector.detect(file)]
            for detector in detectors
        )
        n_events += len(before)
        n_changed += len(set(before) ^ set(after))
    print(f"half precision: {n_changed} of {n_events} events in {len(files)} scenes change")
    return n_changed


if __name__ == "__main__":
    main()
