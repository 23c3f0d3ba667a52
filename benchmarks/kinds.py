"""Four kinds of data on which defaults are judged, each a folder with train, valid and test.

    python -m benchmarks.kinds DATA --processes 2

`esc50` has few sources per class, `digits` many, `procedural` endlessly many; they are scenes
(kind_*.toml). `lungs` are real recordings with onsets and offsets by experts: folds 1 to 3 are for
training, 4 for validation, 5 for the test, and no patient is in two. Each folder has `weak.tsv`,
`strong.tsv` and `audio` per set, so that one plan runs on any of them:

    earmark compare benchmarks/defaults.toml --data DATA/digits --out ... --work ...
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from earmark.formats.events import read_events, write_events
from earmark.formats.tables import read_table
from earmark.formats.tags import read_tags, write_tags
from earmark.synth.scenes import SceneSets

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared"
SCENES = ("esc50", "digits", "procedural")
LUNG_CLASSES = ("crackle", "wheeze")  # rhonchi and stridor are in 18 and 4 clips
LUNG_FOLDS: Mapping[str, Sequence[str]] = {
    "train": ("1", "2", "3"),
    "valid": ("4",),
    "test": ("5",),
}
KINDS = (*SCENES, "lungs")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=KINDS, nargs="*", default=KINDS)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    for kind in options.only:
        folder = options.out / kind
        if (folder / "test" / "strong.tsv").exists():  # written last
            continue
        if kind == "lungs":
            write_lungs(SHARED / "lungs", folder)
        else:
            SceneSets.read(HERE / f"kind_{kind}.toml").write(
                folder, processes=options.processes, overwrite=True
            )
        print(folder, flush=True)


def write_lungs(source: Path, out: Path) -> None:
    """Write tables of the lung sounds per set; `audio` is a link to the recordings."""
    table = read_table(source / "clips.tsv")
    table.require("filename", "fold")
    rows = [row.named(table.columns) for row in table.rows]
    folds = {row["filename"]: row["fold"] for row in rows}
    tags, events = read_tags(source / "clips.tsv"), read_events(source / "strong.tsv")
    for name, wanted in LUNG_FOLDS.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "audio").exists():
            (folder / "audio").symlink_to(source / "audio")
        files = [file for file in tags if folds[file] in wanted]
        write_tags(folder / "weak.tsv", {f: set(tags[f]) & set(LUNG_CLASSES) for f in files})
        own = {f: [e for e in events.get(f, ()) if e.label in LUNG_CLASSES] for f in files}
        write_events(folder / "strong.tsv", own)


if __name__ == "__main__":
    main()
