"""Make the bundled pretrained model from nothing, and measure it on sources it has not met.

    python -m benchmarks.everyday --scenes SCENES --work WORK

1. Scenes of ESC-50: SCENES gets the sets of scenes.toml, best_scenes.toml, negatives.toml,
   speech.toml and unknown.toml.
2. The recipe on folds 1 and 2 (best.toml), in two generations, tested on fold 4: results/best.
3. The same recipe on all folds: the bundled model.
4. Its operating point and the calibration of its scores. With all folds used for training, none is
   left to tune on; so they come from the model of step 2: one clip-level threshold from the tags of
   fold 3, then at most one false event per minute in sounds that no network has met.

Every step is skipped where its result exists, and an interrupted training resumes.
"""

import argparse
import logging
from dataclasses import replace
from pathlib import Path

from benchmarks.unknown import link_unknown
from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.plan import Plan, Run
from earmark.experiments.run import Workspace
from earmark.formats.tables import read_table
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle, save_bundle
from earmark.synth.scenes import SceneSets
from earmark.training.api import train, tune
from earmark.training.finish import MODEL
from earmark.training.settings import RunConfig

HERE = Path(__file__).parent
PLAN = HERE / "best.toml"
RESULTS = HERE / "results" / "best"
CONFIGURATION = "second generation"
MAX_FALSE_PER_MINUTE = 1.0
# Folder below SCENES -> sets of a file.
SETS = {
    "": {
        "scenes": ("valid", "test"),
        "best_scenes": ("best_half", "best_all"),
        "unknown": ("unknown_valid_scenes", "unknown_test_scenes"),
    },
    "known_half": {"negatives": ("negatives_half",), "speech": ("speech",)},
    "known_all": {"negatives": ("negatives_all",), "speech": ("speech",)},
}
# These two are written into the model file.
TUNED_ON = "the same recipe, trained on folds 1 and 2 alone"
LICENCE = (
    "MIT, as Earmark itself. The network learned from recordings of ESC-50 (Piczak, 2015),"
    " collected on Freesound, and of AudioMNIST (Becker et al., 2023; MIT licence); those of ESC-50"
    " under CC0 need no mention, those under CC-BY are due to:"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=BUNDLED)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    write_scenes(options.scenes, options.processes)
    plan = Plan.read(PLAN, options.scenes)
    results = run_plan(plan, RESULTS, options.work, options.processes)
    write_tables(plan, results, RESULTS)
    run = next(run for run in plan.runs() if run.configuration == CONFIGURATION)
    workspace = Workspace(plan, options.work)
    measured = set_operating_point(options.scenes, load_bundle(workspace.model_path(run)))
    bundle = load_bundle(train_on_all(options.scenes, options.work, run))
    record = {**measured.tuning, "of": TUNED_ON}
    bundle = bundle.with_decoding(measured.decoding, record, measured.calibration)
    bundle = replace(bundle, licence=LICENCE, attribution=attribution())
    half = bundle.halved()
    if count_differences(bundle, half, sorted((options.scenes / "test" / "audio").iterdir())) == 0:
        bundle = half
    path = save_bundle(bundle, options.out)
    print(f"{path}: {path.stat().st_size:,} bytes")


def write_scenes(scenes: Path, processes: int) -> None:
    """Write the sets of scenes that are not there."""
    for folder, files in SETS.items():
        for file, names in files.items():
            wanted = [x for x in names if not (scenes / folder / x / "strong.tsv").exists()]
            if wanted:
                sets = SceneSets.read(HERE / f"{file}.toml")
                sets.write(scenes / folder, wanted, processes=processes, overwrite=True)
    link_unknown(scenes)


def train_on_all(scenes: Path, work: Path, run: Run) -> Path:
    """Train with the settings of a run on scenes from all folds; return the model file.

    The validation scenes share their sources with the training scenes: they select the epoch and
    nothing else.
    """
    table, valid, out = (
        scenes / "best_all" / "weak.tsv",
        scenes / "valid" / "weak.tsv",
        work / "all",
    )
    if not (out / MODEL).exists():
        settings = run.settings
        train(
            table,
            valid,
            out=out,
            audio=table.parent / "audio",
            valid_audio=valid.parent / "audio",
            negatives=[scenes / "known_all"],
            settings=replace(settings, training=replace(settings.training, generations=2)),
            run=RunConfig(resume=True, progress=True),
        )
    return out / MODEL


def set_operating_point(scenes: Path, bundle: Bundle) -> Bundle:
    """Return the bundle with one clip-level threshold, few false events and calibrated scores."""
    table = scenes / "valid" / "weak.tsv"
    detector, _ = tune(
        Detector(bundle),
        table,
        table.parent / "audio",
        shared=True,
        negatives=[scenes / "unknown_valid", scenes / "unknown_valid_scenes"],
        max_false_per_minute=MAX_FALSE_PER_MINUTE,
    )
    return detector.bundle


def attribution() -> tuple[str, ...]:
    """Return one line per CC-BY recording that the training scenes of the bundled model contain."""
    lines = set()
    for file, name in (("best_scenes", "best_all"), ("negatives", "negatives_all")):
        sets = SceneSets.read(HERE / f"{file}.toml")
        table = read_table(sets.folder / sets.bank.table)
        table.require("filename", "event_label", "fold", "licence", "author", "title", "source")
        used = {*sets.scenes.classes, *sets.scenes.backgrounds}
        folds = {str(fold) for fold in sets.sets[name].folds}
        for row in (row.named(table.columns) for row in table.rows):
            known = row["event_label"] in used and row["fold"] in folds
            if known and row["licence"] != "CC0":
                credit = f"{row['title']} by {row['author']} ({row['licence']}), {row['source']}"
                lines.add(credit)
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
