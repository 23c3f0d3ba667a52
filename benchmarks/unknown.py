r"""Folders of sounds that no network here has met: to choose an operating point, and to test it.

    python -m benchmarks.unknown SCENES

links the recordings of twelve categories of ESC-50, drawn at random (`random.Random(16)`) from the
25 that are neither classes nor backgrounds of scenes.toml: SCENES/unknown_valid and
SCENES/unknown_test. The other 13 are negatives to learn from (negatives.toml). An unknown sound is
one of a category that training never met, not a new recording of a known negative.

    earmark tune --model MODEL --valid SCENES/valid/weak.tsv --audio SCENES/valid/audio \
        --negatives SCENES/unknown_valid --max-false-per-minute 1
    earmark detect SCENES/test/audio SCENES/unknown_test --model MODEL --score --out estimate.tsv
    earmark evaluate SCENES/test/strong.tsv estimate.tsv --negatives SCENES/unknown_test
"""

import argparse
from pathlib import Path

from earmark.formats.tables import read_table

ESC50 = Path(__file__).parents[2] / "shared" / "esc50"
CATEGORIES = {
    "unknown_valid": ("can_opening", "cow", "drinking_sipping", "sneezing"),
    "unknown_test": (
        "airplane", "coughing", "door_wood_creaks", "fireworks", "hand_saw", "hen",
        "keyboard_typing", "toilet_flush",
    ),
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    link_unknown(parser.parse_args().out)


def link_unknown(out: Path) -> None:
    """Make the two folders, with a link to each recording."""
    table = read_table(ESC50 / "clips.tsv")
    table.require("filename", "event_label")
    rows = [row.named(table.columns) for row in table.rows]
    for name, categories in CATEGORIES.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        files = [row["filename"] for row in rows if row["event_label"] in categories]
        for file in files:
            if not (folder / file).exists():
                (folder / file).symlink_to(ESC50 / "audio" / file)
        print(f"{folder}: {len(files)} recordings of {', '.join(categories)}")


if __name__ == "__main__":
    main()
