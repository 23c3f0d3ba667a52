"""The best recipe and all folds -> the model in the box: `python -m benchmarks.everyday`.

    earmark synth SCENES --config benchmarks/scenes.toml --processes 2
    earmark synth SCENES --config benchmarks/everyday.toml --processes 2
    earmark compare benchmarks/detector.toml --data SCENES --out RESULTS --work WORK
    python -m benchmarks.everyday --scenes SCENES --work WORK

The network is trained with the settings of one cell of detector.toml on the scenes of all folds,
taught by runs of the cell's teachers that have heard all folds too. A network that is in WORK is
not trained again, and a training that was stopped goes on. Nothing is left to tune on then, so the
gate is the one that suits the network of the cell itself, which has heard folds 1 and 2 alone, by
the tags of fold 3; of that network are the scores that the card tells.
"""

import argparse
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from earmark.experiments.plan import Plan, Unit
from earmark.formats.tables import read_table
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED, Bundle, load_bundle, save_bundle
from earmark.synth.scenes import Scenery
from earmark.training.api import MODEL, train, tune
from earmark.training.settings import RunConfig

REPO = Path(__file__).parent.parent
CELL = "long, taught by the three"
N_TEACHERS = 2  # the cell has three; each costs as long as the network itself
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
    words = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    plan = Plan.read(REPO / "benchmarks" / "detector.toml", words.scenes)
    unit = next(unit for unit in plan.units() if unit.cell == CELL)
    measured = share_gates(words.scenes, load_bundle(words.work / unit.folder / MODEL))
    teachers = [
        train_on_all(words.scenes, words.work, teacher) for teacher in unit.teachers[:N_TEACHERS]
    ]
    bundle = load_bundle(train_on_all(words.scenes, words.work, unit, teachers))
    bundle = bundle.with_decoding(measured.decoding, {**measured.tuning, "of": TUNED_ON})
    scenery = Scenery.read(REPO / "benchmarks" / "everyday.toml")
    bundle = replace(bundle, licence=LICENCE, attribution=attribution(scenery, "all"))
    half = bundle.halved()
    if count_differences(bundle, half, sorted((words.scenes / "test" / "audio").iterdir())) == 0:
        bundle = half
    path = save_bundle(bundle, words.out)
    print(f"{path}: {path.stat().st_size:,} bytes")


def train_on_all(scenes: Path, work: Path, unit: Unit, teachers: Sequence[Path] = ()) -> Path:
    """Train with the settings of a unit on the scenes of all folds; return the model file.

    Validation scenes are of sounds that it learns from; they choose the epoch and nothing else.
    """
    path = work / f"everyday-{len(teachers)}-teachers-{unit.folder}" / MODEL
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
        settings=unit.settings,
        run=RunConfig(store=work / "everyday-features", resume=True, progress=True),
    )
    return path


def share_gates(scenes: Path, bundle: Bundle) -> Bundle:
    """Return it with one gate for all classes, from the tags of the validation scenes."""
    table = scenes / "valid" / "weak.tsv"
    detector, _ = tune(Detector(bundle), table, table.parent / "audio", shared=True)
    return detector.bundle


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
