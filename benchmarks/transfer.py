"""Few clips of one's own: from the bundled model, frozen or with a lower rate, and from scratch.

    python -m benchmarks.transfer --work WORK [--sizes 10 30 100] [--seeds 2] [--dry-run]

Classes are the twelve categories of ESC-50 that the bundled model has never met, neither as classes
nor as negatives or backgrounds (`benchmarks.unknown`). Scenes as in scenes.toml: training from
folds 1 and 2, validation from fold 3, test from fold 4. The smaller training sets are part of the
larger ones: scenes in their order, until every class is in as many clips as wanted. All starts have
the same features, network and recipe (preset "best"); validation clips are as many as training
clips, up to 200, since who has few clips has few of both.

Cost, estimated: a step of 32 clips takes 1.2 s on one core (0.35 s frozen; measured), the recipe
has 1,000 steps or more, and few clips mean many short epochs with a validation each: 40 minutes per
training, 25 if frozen. With three sizes, three starts and two seeds that is 18 trainings, 10 hours
on one core. `--dry-run` prints this for the options given. Results are written to
`benchmarks/results/transfer.json` as they come; finished ones are not run again.
"""

import argparse
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks.unknown import CATEGORIES, ESC50
from earmark.data.manifest import Manifest
from earmark.experiments.scoring import score_estimate
from earmark.files import atomic_write
from earmark.formats.events import read_events
from earmark.inference.model_file import BUNDLED, load_bundle
from earmark.metrics.clip import clip_scores, tags_of
from earmark.synth.scenes import SceneConfig, write_scenes
from earmark.synth.soundbank import Soundbank
from earmark.training.api import train
from earmark.training.config import RunConfig
from earmark.training.settings import Settings

RESULTS = Path(__file__).parent / "results" / "transfer.json"
CLASSES = tuple(sorted(CATEGORIES["unknown_valid"] + CATEGORIES["unknown_test"]))
BACKGROUNDS = ("wind", "rain", "sea_waves", "crackling_fire", "crickets", "insects",
               "washing_machine", "vacuum_cleaner")  # fmt: skip
SCENES = SceneConfig(classes=CLASSES, backgrounds=BACKGROUNDS)
SETS = {"train": (900, 61, (1, 2)), "valid": (200, 62, (3,)), "test": (400, 63, (4,))}
SIZES = (10, 30, 100)
# Name -> overrides of a training from the bundled model; None is from scratch.
STARTS: Mapping[str, Sequence[str] | None] = {
    "scratch": None,
    "frozen": ["training.kept_rate=0"],
    "lower rate": ["training.kept_rate=0.1"],
}
MINUTES = {"scratch": 40, "frozen": 25, "lower rate": 40}  # of a training on one core

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    hours = sum(MINUTES.values()) * len(options.sizes) * options.seeds / 60
    n_runs = len(STARTS) * len(options.sizes) * options.seeds
    print(f"{n_runs} trainings, about {hours:.1f} hours on one core")
    if options.dry_run:
        return
    for name, (n_scenes, seed, folds) in SETS.items():
        if not (options.work / name / "weak.tsv").exists():
            bank = Soundbank.from_table(ESC50 / "clips.tsv", ESC50 / "audio", folds)
            where = options.work / name
            write_scenes(where, n_scenes, SCENES, seed, bank=bank, prefix=f"{name}_")
    print(report(run(options.work, options.sizes, options.seeds, RESULTS)))


def run(
    work: Path, sizes: Iterable[int], n_seeds: int, results: Path, overrides: Sequence[str] = ()
) -> list[Row]:
    """Return a row per training, from scenes in `work`; those in `results` are not run again."""
    rows: list[Row] = json.loads(results.read_text()) if results.exists() else []
    known = {(row["n_clips"], row["start"], row["seed"]) for row in rows}
    for size in sizes:
        for start in STARTS:
            for seed in range(n_seeds):
                if (size, start, seed) not in known:
                    rows.append(run_one(work, size, start, seed, overrides))
                    results.parent.mkdir(parents=True, exist_ok=True)
                    atomic_write(results, (json.dumps(rows, indent=1) + "\n").encode())
    return rows


def run_one(work: Path, size: int, start: str, seed: int, overrides: Sequence[str]) -> Row:
    """Train on `size` clips per class, and score the test scenes."""
    clips = Manifest.read(work / "train" / "weak.tsv", work / "train" / "audio")
    few = clips.take(first_clips(clips, size))
    valid = Manifest.read(work / "valid" / "weak.tsv", work / "valid" / "audio", clips.labels)
    valid = valid.take(range(min(len(few), len(valid))))
    own = [f"training.seed={seed}", *overrides]
    source = load_bundle(BUNDLED)
    # The same features and network for all; from scratch with a normalisation of its own.
    settings = Settings.load(
        "best", None, [*own, *(STARTS[start] or [])], source.feature_config, source.model_config
    )
    detector = train(
        few,
        valid,
        out=work / "runs" / f"{size}-{start}-{seed}".replace(" ", "-"),
        start_from=None if STARTS[start] is None else BUNDLED,
        settings=settings,
        run=RunConfig(store=work / "features", resume=True, report=False),
    )
    scores = score_test(detector, work / "test")
    return {"n_clips": size, "n_scenes": len(few), "start": start, "seed": seed, **scores}


def first_clips(clips: Manifest, size: int) -> list[int]:
    """Return rows in order, such that every class is in `size` clips or in all there are."""
    counts = dict.fromkeys(clips.labels, 0)
    rows = []
    for row, tags in enumerate(clips.tags):
        if any(counts[tag] < size for tag in tags):
            rows.append(row)
            for tag in tags:
                counts[tag] += 1
    return rows


def score_test(detector: Any, folder: Path) -> dict[str, float]:
    reference = read_events(folder / "strong.tsv")
    scored = {file: detector.frame_scores(folder / "audio" / file) for file in reference}
    estimate = {file: detector.decode(scores) for file, scores in scored.items()}
    probs = {file: scores.clip_level() for file, scores in scored.items()}
    tags = clip_scores(tags_of(reference), probs=probs, labels=detector.labels)
    found, _ = score_estimate(reference, estimate, detector.labels)
    kept = {name: found[name] for name in ("event_f_measure", "f_measure")}
    return {"mean_average_precision": tags.mean_average_precision, **kept}


def report(rows: Sequence[Row]) -> str:
    """Return the means over seeds as Markdown."""
    lines = [
        "| clips per class | start | tag mAP | event F1 | segment F1 |",
        "|---:|---|---:|---:|---:|",
    ]
    for size in sorted({row["n_clips"] for row in rows}):
        for start in STARTS:
            own = [row for row in rows if (row["n_clips"], row["start"]) == (size, start)]
            names = ("mean_average_precision", "event_f_measure", "f_measure")
            if own:
                cells = " | ".join(f"{mean(row[name] for row in own):.3f}" for name in names)
                lines.append(f"| {size} | {start} | {cells} |")
    return "\n".join(lines)


def run_sample(folder: Path) -> list[Row]:
    """Run it on a few short procedural scenes for one epoch; the figures mean nothing."""
    small = SceneConfig(
        duration=1.0, n_events=(1, 1), event_duration=(0.3, 0.8), classes=("bell", "horn")
    )
    for seed, (name, n_scenes) in enumerate({"train": 6, "valid": 3, "test": 2}.items()):
        write_scenes(folder / name, n_scenes, small, seed, prefix=f"{name}_")
    overrides = ["training.max_epochs=1", "training.min_steps=0", "training.threads=1"]
    return run(folder, [2], 1, folder / "transfer.json", overrides)


if __name__ == "__main__":
    main()
