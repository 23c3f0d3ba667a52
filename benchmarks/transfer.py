"""Few clips of one's own: from the bundled model, frozen or with a lower rate, and from scratch.

    python -m benchmarks.transfer --work WORK [--seeds 3] [--processes 2] [--dry-run]

Classes are ten categories of ESC-50 that the bundled model has never met, neither as classes nor as
negatives or backgrounds: those of `benchmarks.unknown` with recordings of three sources or more to
test on. Backgrounds are generated noise, since the bundled model has met the recorded ones of all
folds. Training clips are from folds 1 and 2, validation from fold 3, test from fold 4; folds share
no source. (One hen for training, 2-134049-A, is of the same source as a rooster that the bundled
model has met.)

A seed decides which clips there are, besides the order and the initial weights. Of one seed, the
smaller training sets are part of the larger ones: scenes in its order, until every class is in as
many clips as wanted. All starts have the same features, network and recipe: the preset "best" with
`RECIPE`, thus `N_STEPS` steps whatever the size. Validation clips are as many as training clips, up
to 200, since who has few clips has few of both.

Each run is a file in benchmarks/results/transfer, written when it is done, which is not run again.
An interrupted training resumes. `docs/transfer.py` makes the table of docs/networks.md from the
files that are there: `make docs`.
"""

import argparse
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.unknown import CATEGORIES, ESC50
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import build_store
from earmark.experiments.scoring import score_estimate
from earmark.files import atomic_write
from earmark.formats.events import read_events
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED, load_bundle
from earmark.metrics.clip import clip_scores, tags_of
from earmark.runtime.processes import map_as_done
from earmark.synth.scenes import SceneConfig, write_scenes
from earmark.synth.soundbank import Soundbank
from earmark.training.api import train
from earmark.training.config import RunConfig
from earmark.training.settings import Settings
from earmark.training.transfer import Origin

RESULTS = Path(__file__).parent / "results" / "transfer"
FEW_SOURCES = ("airplane", "fireworks")  # of fold 4
CLASSES = tuple(
    sorted({*CATEGORIES["unknown_valid"], *CATEGORIES["unknown_test"]} - {*FEW_SOURCES})
)
SCENES = SceneConfig(classes=CLASSES)
SETS = {"train": (800, 61, (1, 2)), "valid": (200, 62, (3,)), "test": (300, 63, (4,))}
STORE = "features"  # folder in WORK, besides the sets
SIZES = (10, 30, 100)
SEEDS = 3
N_STEPS = 400
RECIPE = (
    "training.batch_size=16",
    "training.max_epochs=1",  # as many as the steps take
    f"training.min_steps={N_STEPS}",
    "training.monitor=map",
    "training.precision=auto",
    "training.threads=1",
)
# Name -> overrides of a training from the bundled model; None is from scratch.
STARTS: Mapping[str, Sequence[str] | None] = {
    "scratch": None,
    "frozen": ["training.kept_rate=0"],
    "lower rate": ["training.kept_rate=0.1"],
}
METRICS = {
    "mean_average_precision": "tag mAP",
    "event_f_measure": "event F1",
    "f_measure": "segment F1",
}
# Core-seconds of a run, from measured steps; results have what it took.
CORE_SECONDS = {"scratch": 320, "frozen": 160, "lower rate": 320}


class Run(NamedTuple):
    """One training: how many clips per class, from where, and the seed."""

    n_clips: int
    start: str
    seed: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.n_clips}-{self.start.replace(' ', '-')}-{self.seed}"


Row = dict[str, Any]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="Scenes, features, trainings.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--processes", type=int, default=2, help="Trainings at a time.")
    parser.add_argument("--dry-run", action="store_true", help="Print what is left, and its cost.")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    todo = missing(RESULTS, options.sizes, options.seeds)
    hours = sum(CORE_SECONDS[run.start] for run in todo) / 3600
    print(f"{len(todo)} trainings are left, about {hours:.1f} core-hours")
    if options.dry_run:
        return
    for name, (n_scenes, seed, folds) in SETS.items():
        if not (options.work / name / "weak.tsv").exists():
            bank = Soundbank.from_table(ESC50 / "clips.tsv", ESC50 / "audio", folds)
            where = options.work / name
            write_scenes(where, n_scenes, SCENES, seed, bank=bank, prefix=f"{name}_")
    run_all(options.work, todo, RESULTS, options.processes)


def missing(results: Path, sizes: Iterable[int], n_seeds: int) -> list[Run]:
    """Return the runs without a result, seed by seed, so that a part of them is a whole table."""
    known = {Run(row["n_clips"], row["start"], row["seed"]) for row in read_results(results)}
    runs = [Run(size, start, seed) for seed in range(n_seeds) for size in sizes for start in STARTS]
    return [run for run in runs if run not in known]


def read_results(folder: Path) -> list[Row]:
    """Return the results in a folder that are of this recipe and of this bundled model."""
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return [row for row in rows if row["made_by"] == made_by()]


def made_by() -> Row:
    """Return what a result depends on, besides its own size, start and seed."""
    return {"recipe": list(RECIPE), "classes": list(CLASSES), "model": Origin.read(BUNDLED).sha256}


def run_all(
    work: Path,
    runs: Sequence[Run],
    results: Path,
    processes: int = 1,
    overrides: Sequence[str] = (),
) -> None:
    """Train and score, from scenes in `work`; write a file per run to `results`."""
    results.mkdir(parents=True, exist_ok=True)
    # All features first: runs at the same time then only read them.
    build_store(work / STORE, clip_paths(*read_clips(work)), load_bundle(BUNDLED).feature_config)
    for row in map_as_done(partial(run_one, work, overrides=overrides), runs, processes):
        name = Run(row["n_clips"], row["start"], row["seed"]).name
        atomic_write(results / f"{name}.json", (json.dumps(row, indent=1) + "\n").encode())
        scores = ", ".join(f"{title} {row[metric]:.3f}" for metric, title in METRICS.items())
        print(f"{name}: {scores}; {row['core_seconds']:.0f} core-seconds", flush=True)


def run_one(work: Path, run: Run, overrides: Sequence[str] = ()) -> Row:
    """Train on so many clips per class, and score the test scenes."""
    begin = time.process_time()
    clips, valid = read_clips(work)
    few = first_clips(clips, run.n_clips, run.seed)
    valid = valid.take(range(min(len(few), len(valid))))
    source, own = load_bundle(BUNDLED), STARTS[run.start]
    # The same features and network for all; from scratch with a normalisation of its own.
    settings = Settings.load(
        "best",
        None,
        [*RECIPE, f"training.seed={run.seed}", *(own or []), *overrides],
        source.feature_config,
        source.model_config,
    )
    detector = train(
        few,
        valid,
        out=work / "runs" / run.name,
        start_from=None if own is None else BUNDLED,
        settings=settings,
        run=RunConfig(store=work / STORE, resume=True, report=False, progress=False),
    )
    scores = score_test(detector, work / "test")
    seconds = round(time.process_time() - begin)
    about = {"n_scenes": len(few), "core_seconds": seconds, "made_by": made_by()}
    return {**run._asdict(), **scores, **about}


def read_clips(work: Path) -> tuple[Manifest, Manifest]:
    """Return all clips for training, and all for validation."""
    clips = Manifest.read(work / "train" / "weak.tsv", work / "train" / "audio")
    return clips, Manifest.read(work / "valid" / "weak.tsv", work / "valid" / "audio", clips.labels)


def first_clips(clips: Manifest, size: int, seed: int) -> Manifest:
    """Return clips in the order of a seed, until every class is in `size` or in all there are."""
    counts = dict.fromkeys(clips.labels, 0)
    rows = []
    for row in np.random.default_rng(seed).permutation(len(clips)):
        if any(counts[tag] < size for tag in clips.tags[row]):
            rows.append(int(row))
            for tag in clips.tags[row]:
                counts[tag] += 1
    return clips.take(rows)


def score_test(detector: Detector, folder: Path) -> dict[str, float]:
    """Return the scores on the test scenes, with the decoding that the training tuned."""
    reference = read_events(folder / "strong.tsv")
    files = {file: folder / "audio" / file for file in reference}
    found = {result.name: result for result in detector.detect_each(files, keep_scores=True)}
    probs = {file: result.scores.clip_level() for file, result in found.items() if result.scores}
    tags = clip_scores(tags_of(reference), probs=probs, labels=detector.labels)
    estimate = {file: result.events for file, result in found.items()}
    scores, _ = score_estimate(reference, estimate, detector.labels)
    own = {"mean_average_precision": tags.mean_average_precision, **scores}
    return {metric: own[metric] for metric in METRICS}


def run_sample(folder: Path, processes: int = 1) -> list[Row]:
    """Run it on a few short procedural scenes for one step; the figures mean nothing."""
    small = SceneConfig(
        duration=1.0, n_events=(1, 1), event_duration=(0.3, 0.8), classes=("bell", "horn")
    )
    for seed, (name, n_scenes) in enumerate({"train": 6, "valid": 3, "test": 2}.items()):
        write_scenes(folder / name, n_scenes, small, seed, prefix=f"{name}_")
    results = folder / "results"
    one_step = ["training.min_steps=1"]
    run_all(folder, missing(results, [2], 1), results, processes, one_step)
    return read_results(results)


if __name__ == "__main__":
    from benchmarks.transfer import main as imported  # whose functions other processes can import

    imported()
