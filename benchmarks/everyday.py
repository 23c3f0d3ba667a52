"""The best recipe and all folds -> the model in the box: `python -m benchmarks.everyday`.

    earmark synth SCENES --config benchmarks/scenes.toml --processes 2
    earmark synth SCENES --config benchmarks/everyday.toml --processes 2
    earmark compare benchmarks/detector.toml --data SCENES --out RESULTS --work WORK
    python -m benchmarks.everyday --scenes SCENES --work WORK

The network is trained with the settings of one cell of detector.toml on the scenes of all folds.
Nothing is left to tune on then, so its thresholds are those that the same cell got from the tags
of fold 3 while it had heard folds 1 and 2 alone; so are the scores that the card tells.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from earmark.bundle import BOXED, Bundle, load_bundle, save_bundle
from earmark.compare.plan import Plan, Unit
from earmark.detector import Detector
from earmark.learning import MODEL, train
from earmark.scenery import Scenery
from earmark.tables import read_table

REPO = Path(__file__).parent.parent
CELL = "eight times as long, wider"
LICENCE = (
    "MIT, as Earmark itself. The network learned from recordings of ESC-50 (Piczak, 2015),"
    " collected on Freesound; those under CC0 need no mention, those under CC-BY are due to:"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=BOXED)
    words = parser.parse_args()
    plan = Plan.read(REPO / "benchmarks" / "detector.toml", words.scenes)
    unit = next(unit for unit in plan.units() if unit.cell == CELL)
    bundle = train_on_all(words.scenes, words.work / "everyday", unit)
    measured = load_bundle(words.work / unit.folder / MODEL)
    tuning = {**measured.tuning, "of": "the same recipe, trained on folds 1 and 2 alone"}
    bundle = bundle.with_decoding(measured.decoding, tuning)
    scenery = Scenery.read(REPO / "benchmarks" / "everyday.toml")
    bundle = replace(bundle, licence=LICENCE, attribution=attribution(scenery, "all"))
    half = bundle.halved()
    if count_differences(bundle, half, sorted((words.scenes / "test" / "audio").iterdir())) == 0:
        bundle = half
    path = save_bundle(bundle, words.out)
    print(f"{path}: {path.stat().st_size:,} bytes")


def train_on_all(scenes: Path, work: Path, unit: Unit) -> Bundle:
    """Train with the settings of a unit on the scenes of all folds.

    Validation scenes are of sounds that it learns from; they choose the epoch and nothing else.
    """
    table, valid = scenes / "all" / "weak.tsv", scenes / "valid" / "weak.tsv"
    return train(
        table,
        valid,
        out=work,
        audio=table.parent / "audio",
        valid_audio=valid.parent / "audio",
        settings=unit.settings,
        resume=True,
        progress=True,
    ).bundle


def attribution(scenery: Scenery, name: str) -> tuple[str, ...]:
    """Return a line for each CC-BY recording that the scenes of a set were made from."""
    table = read_table(scenery.folder / scenery.bank.table)
    table.require("filename", "event_label", "fold", "licence", "author", "title", "source")
    rows = [row.named(table.columns) for row in table.rows]
    used = {*scenery.scenes.classes, *scenery.scenes.backgrounds}
    folds = {str(fold) for fold in scenery.sets[name].folds}
    lines = {
        f"{row['title']} by {row['author']} ({row['licence']}), {row['source']}"
        for row in rows
        if row["event_label"] in used and row["fold"] in folds and row["licence"] != "CC0"
    }
    return tuple(sorted(lines))


def count_differences(whole: Bundle, half: Bundle, files: list[Path]) -> int:
    """Return how many events of the recordings half precision finds elsewhere or not at all."""
    detectors = Detector(whole), Detector(half)
    n_events, n_other = 0, 0
    for file in files:
        found, again = (
            [(event.onset, event.offset, event.label) for event in detector.detect(file)]
            for detector in detectors
        )
        n_events += len(found)
        n_other += len(set(found) ^ set(again))
    print(f"half precision: of {n_events} events in {len(files)} scenes, {n_other} differ")
    return n_other


if __name__ == "__main__":
    main()
