"""Make the bundled pretrained model from nothing, and measure it on sources it has not met.

    python -m benchmarks.everyday --scenes SCENES --work WORK

1. Scenes of ESC-50: SCENES gets the sets of scenes.toml, best_scenes.toml, negatives.toml,
   speech.toml and unknown.toml.
2. The recipe on folds 1 and 2 (best.toml), in two generations, tested on fold 4: results/best.
3. Its operating point and the calibration of its scores, from the tags of fold 3, with false events
   in sounds that no network has met; then measured on fold 4 and on other such sounds:
   src/earmark/models/everyday.json, which `earmark info` and docs/model-card.md show.
4. The same recipe on all folds, with the same teacher model: the bundled model. With all folds used
   for training, none is left to tune on, so its operating point is that of step 3.

Every step is skipped where its result exists, and an interrupted training resumes.
"""

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.unknown import link_unknown
from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.plan import Plan, Run
from earmark.experiments.run import Workspace
from earmark.files import atomic_write
from earmark.formats.events import read_events
from earmark.formats.tables import read_table
from earmark.formats.tags import read_tags
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED, CARD, Bundle, load_bundle, save_bundle
from earmark.inference.tuning import calibrated, default_rule, sweep_sensitivity
from earmark.metrics.evaluation import Scoring, evaluate
from earmark.metrics.system_output import SystemOutput
from earmark.synth.scenes import SceneSets
from earmark.training.api import train, tune
from earmark.training.config import RunConfig
from earmark.training.finish import MODEL

HERE = Path(__file__).parent
PLAN = HERE / "best.toml"
RESULTS = HERE / "results" / "best"
CONFIGURATION = "second generation"
# No limit of false events decides the operating point: on sounds that were never met, one per
# minute costs more than half of the recall (docs/results.md). `--sensitivity` is there for that.
MAX_FALSE_PER_MINUTE: float | None = None
# Folder below SCENES -> sets of a file.
SETS: Mapping[str, Mapping[str, Sequence[str]]] = {
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
    if not CARD.exists():
        atomic_write(
            CARD, (json.dumps(measure(options.scenes, measured), indent=1) + "\n").encode()
        )
    teachers = [workspace.model_path(teacher) for teacher in run.teachers]
    bundle = load_bundle(train_on_all(options.scenes, options.work, run, teachers))
    record = {**measured.tuning, "of": TUNED_ON}
    bundle = bundle.with_decoding(measured.decoding, record, measured.calibration)
    bundle = replace(bundle, licence=LICENCE, attribution=attribution())
    half = bundle.halved()
    if count_differences(bundle, half, sorted((options.scenes / "test" / "audio").iterdir())) == 0:
        bundle = half
    path = save_bundle(bundle, options.out)
    print(f"{path}: {path.stat().st_size:,} bytes")


def write_scenes(
    scenes: Path, processes: int, sets: Mapping[str, Mapping[str, Sequence[str]]] = SETS
) -> None:
    """Write the sets of scenes that are not there."""
    for folder, files in sets.items():
        for file, names in files.items():
            wanted = [x for x in names if not (scenes / folder / x / "strong.tsv").exists()]
            if wanted:
                scene_sets = SceneSets.read(HERE / f"{file}.toml")
                scene_sets.write(scenes / folder, wanted, processes=processes, overwrite=True)
    link_unknown(scenes)


def train_on_all(scenes: Path, work: Path, run: Run, teachers: Sequence[Path]) -> Path:
    """Train with the settings of a run on scenes from all folds; return the model file.

    The teacher models place the events of the tags, so it does not matter that they have not met
    half of the sources. The validation scenes share their sources with the training scenes: they
    select the epoch and nothing else.
    """
    table, valid, out = (
        scenes / "best_all" / "weak.tsv",
        scenes / "valid" / "weak.tsv",
        work / "all",
    )
    if not (out / MODEL).exists():
        train(
            table,
            valid,
            out=out,
            audio=table.parent / "audio",
            valid_audio=valid.parent / "audio",
            negatives=[scenes / "known_all"],
            teachers=teachers,
            settings=run.settings,
            run=RunConfig(resume=True, progress=True),
        )
    return out / MODEL


def set_operating_point(scenes: Path, bundle: Bundle) -> Bundle:
    """Return the bundle with one clip-level threshold and calibrated scores.

    The calibration is that of scenes: unknown sounds would lower every score, by how many there
    are.
    """
    table = scenes / "valid" / "weak.tsv"
    detector, _ = tune(
        Detector(bundle),
        table,
        table.parent / "audio",
        shared=True,
        start=Decoding.uniform(bundle.labels, **default_rule(bundle.model_config.pooling)),
        negatives=[scenes / "unknown_valid", scenes / "unknown_valid_scenes" / "audio"],
        max_false_per_minute=MAX_FALSE_PER_MINUTE,
    )
    tags = read_tags(table)
    scores = [detector.frame_scores(table.parent / "audio" / file) for file in tags]
    return calibrated(detector.bundle, scores, tags=list(tags.values()))


def measure(scenes: Path, bundle: Bundle) -> dict[str, Any]:
    """Return the scores on the test scenes, and false events in sounds that nothing was tuned on.

    The curves go over the sensitivity: of the unknown sounds as they were recorded, and mixed into
    scenes with the backgrounds of the test scenes.
    """
    detector = Detector(bundle)
    reference = read_events(scenes / "test" / "strong.tsv")
    of_test = {file: detector.frame_scores(scenes / "test" / "audio" / file) for file in reference}
    negatives = {
        name: {str(path): detector.frame_scores(path) for path in sorted(folder.iterdir())}
        for name, folder in (
            ("recordings", scenes / "unknown_test"),
            ("scenes", scenes / "unknown_test_scenes" / "audio"),
        )
    }
    recordings = negatives["recordings"]
    output = SystemOutput(
        "it", {file: detector.decode(own) for file, own in (of_test | recordings).items()}
    )
    scoring = Scoring(negatives={file: own.duration for file, own in recordings.items()})
    (scored,) = evaluate(reference, [output], scoring).systems
    return {
        "n_scenes": len(reference),
        "n_recordings": len(recordings),
        "scores": {part: own["overall"] for part, own in scored.scores.items()},
        "classes": {part: own["class_wise"] for part, own in scored.scores.items()},
        "intervals": {part: own.to_dict()["overall"] for part, own in scored.intervals.items()},
        "reliability": [asdict(each) for each in scored.counts["calibration"].bins()],
        "curves": {
            name: [
                point.to_dict()
                for point in sweep_sensitivity(
                    list(of_test.values()),
                    list(own.values()),
                    bundle.decoding,
                    reference=list(reference.values()),
                )
            ]
            for name, own in negatives.items()
        },
    }


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
