"""Kinds of data on which defaults and poolings are judged: folders with train, valid and test.

    python -m benchmarks.kinds DATA --processes 2
    python -m benchmarks.kinds DATA --only procedural-length3 lungs-folds

`esc50` has few sources per class, `digits` many, `procedural` endlessly many; they are scenes
(kind_*.toml). `lungs` are real recordings with onsets and offsets by experts: folds 1 to 3 are for
training, 4 for validation, 5 for the test, and no patient is in two. Each folder has `weak.tsv`,
`strong.tsv` and `audio` per set, so that one plan runs on any of them:

    earmark compare benchmarks/defaults.toml --data DATA/digits --out ... --work ...

The training sets of scenes also have tables with noisy tags, `weak-missing10.tsv` (of every ten
tags, one is missing) and `weak-wrong10.tsv` (one is another class), with 5, 10 and 20 %; validation
and test tables are never noisy.

Made only by name: variations of the scenes, such as `digits-backgrounds`, digits over recordings
of wind, rain and others besides noise, or `digits-clip30` (kind_variations.toml), and
`lungs-folds`, five-fold: folders fold0 to fold4, in each of which another fifth of the patients is
the test, the next one the validation, and the others the training.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from earmark.config import build, read_toml
from earmark.formats.events import read_events, write_events
from earmark.formats.tables import read_table
from earmark.formats.tags import read_tags, write_tags
from earmark.synth.scenes import BankConfig, SceneConfig, SceneSets

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared"
SCENES = ("esc50", "digits", "procedural")
LUNG_CLASSES = ("crackle", "wheeze")  # rhonchi and stridor are in 18 and 4 clips
LUNG_FOLDS: Mapping[str, Sequence[str]] = {
    "train": ("1", "2", "3"),
    "valid": ("4",),
    "test": ("5",),
}
N_FOLDS = 5
KINDS = (*SCENES, "lungs")
WITH_NOISE = (*SCENES, "digits-backgrounds")  # whose tags also come with noise
NOISE = {f"{how}{percent}": (how, percent) for how in ("missing", "wrong")
         for percent in (5, 10, 20)}  # fmt: skip
VARIATIONS: Mapping[str, Mapping[str, object]] = {  # kind and variation -> how it is made
    f"{kind}-{name}": {"kind": kind, **variation}
    for name, variation in read_toml(HERE / "kind_variations.toml").items()
    for kind in variation["kinds"]
}
ALL = (*KINDS, *VARIATIONS, "lungs-folds")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=ALL, nargs="*", default=KINDS, metavar="KIND")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    for kind in options.only:
        write_kind(kind, options.out / kind, options.processes)
        print(options.out / kind, flush=True)


def write_kind(kind: str, folder: Path, processes: int = 1) -> None:
    """Write a kind of data, unless its folder has it already."""
    if kind == "lungs-folds":
        write_lung_folds(SHARED / "lungs", folder)
    elif kind == "lungs":
        write_lungs(SHARED / "lungs", folder)
    else:
        if not (folder / "test" / "strong.tsv").exists():  # written last
            scene_sets(kind).write(folder, processes=processes, overwrite=True)
        if kind in WITH_NOISE:
            write_noisy_tags(folder / "train")


def scene_sets(kind: str) -> SceneSets:
    """Return the sets of scenes of a kind, or of a variation of it."""
    variation = VARIATIONS.get(kind, {"kind": kind})
    sets = SceneSets.read(HERE / f"kind_{variation['kind']}.toml")
    changes, counts = variation.get("scenes", {}), variation.get("n", {})
    folds = variation.get("background_folds", {})
    scenes = build(SceneConfig, "scenes", {**asdict(sets.scenes), **changes})
    own = {
        name: replace(of, n=counts.get(name, of.n), background_folds=tuple(folds.get(name, ())))
        for name, of in sets.sets.items()
    }
    behind = build(BankConfig, "background_bank", variation.get("background_bank", {}))
    return replace(sets, scenes=scenes, sets=own, background_bank=behind)


def write_noisy_tags(folder: Path, seed: int = 0) -> None:
    """Write the noisy variants of the tags of a set next to them; the same seed gives the same."""
    tags = {file: sorted(own) for file, own in read_tags(folder / "weak.tsv").items()}
    for name, (how, percent) in NOISE.items():
        path = folder / f"weak-{name}.tsv"
        if not path.exists():
            write_tags(path, add_noise(tags, how, percent / 100, seed))


def add_noise(
    tags: Mapping[str, Sequence[str]], how: str, share: float, seed: int
) -> dict[str, list[str]]:
    """Return tags of which a share is "missing", or "wrong": a class that the clip does not have.

    More noise of the same kind and seed hits the same tags and further ones.
    """
    rng = np.random.default_rng(seed)
    places = [(file, tag) for file, own in tags.items() for tag in own]
    order = rng.permutation(len(places))
    hit = {places[at] for at in order[: round(share * len(places))]}
    labels = sorted({tag for _, tag in places})
    draws = dict(zip(places, rng.random(len(places)), strict=True))
    noisy: dict[str, list[str]] = {}
    for file, own in tags.items():
        kept = [tag for tag in own if (file, tag) not in hit]
        if how == "wrong":
            for tag in own:
                absent = [label for label in labels if label not in {*own, *kept}]
                if (file, tag) in hit and absent:
                    kept.append(absent[int(draws[file, tag] * len(absent))])
        noisy[file] = sorted(kept)
    return noisy


def write_lungs(source: Path, out: Path, folds: Mapping[str, Sequence[str]] = LUNG_FOLDS) -> None:
    """Write tables of the lung sounds per set; `audio` is a link to the recordings."""
    if (out / "test" / "strong.tsv").exists():  # written last
        return
    table = read_table(source / "clips.tsv")
    table.require("filename", "fold")
    rows = [row.named(table.columns) for row in table.rows]
    fold_of = {row["filename"]: row["fold"] for row in rows}
    tags, events = read_tags(source / "clips.tsv"), read_events(source / "strong.tsv")
    for name, wanted in folds.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "audio").exists():
            (folder / "audio").symlink_to(source / "audio")
        files = [file for file in tags if fold_of[file] in wanted]
        write_tags(folder / "weak.tsv", {f: set(tags[f]) & set(LUNG_CLASSES) for f in files})
        own = {f: [e for e in events.get(f, ()) if e.label in LUNG_CLASSES] for f in files}
        write_events(folder / "strong.tsv", own)


def write_lung_folds(source: Path, out: Path) -> None:
    """Write the lung sounds five-fold, and one link to the recordings for all folds."""
    numbers = [str(number) for number in range(1, N_FOLDS + 1)]
    for fold in range(N_FOLDS):
        test, valid, *train = numbers[fold:] + numbers[:fold]
        write_lungs(source, out / f"fold{fold}", {"train": train, "valid": [valid], "test": [test]})
    if not (out / "audio").exists():
        (out / "audio").symlink_to(source / "audio")


if __name__ == "__main__":
    main()
