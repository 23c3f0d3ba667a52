"""The official lists of a task and the user's recordings -> the rows of the paper's table.

DCASE 2017 task 4: the lists as their organisers published them, and a folder of audio. Names are
found with and without the leading Y of the audio files and whatever their suffix; clips without
audio are counted, told and left out, of training and of both test sets. Rows from 0 to 0, whose
label was found wrong, are no events, but their clips count. A share of the training clips is set
apart for validation, alike in its classes, so that both test sets stay unheard: thresholds come
from tags alone.

Training is a comparison (`earmark.experiments`) with one cell for each pooling and structure, so it can
be stopped and goes on; the second test set is scored with the networks of the first.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from earmark.data.manifest import Manifest
from earmark.errors import DataError, SettingError, choose
from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.plan import CellConfig, Plan
from earmark.experiments.table import Comparison
from earmark.formats.events import read_events, write_events
from earmark.formats.tags import write_tags
from earmark.metrics.report import TextTable
from earmark.training.settings import Settings

POOLINGS = ("linear", "exp", "attention")
STRUCTURES: dict[str, tuple[int, ...]] = {"single": (), "hierarchical": (5, 5, 5)}
CELLS = tuple(f"{pooling}, {structure}" for pooling in POOLINGS for structure in STRUCTURES)
VALID_SHARE = 0.05
CLASSES = "sound_event_list_17_classes.txt"
TRAINING = "groundtruth_weak_label_training_set.csv"
TESTS = {
    "development": "groundtruth_strong_label_testing_set.csv",
    "evaluation": "groundtruth_strong_label_evaluation_set.csv",
}


class Row(NamedTuple):
    """A cell of the paper's Table 2; rates as fractions."""

    s: float
    d: float
    i: float
    er: float
    p: float
    r: float
    f1: float


# Table 2 of the paper: one run a cell.
PUBLISHED: dict[str, dict[str, Row]] = {
    "development": {
        "linear, single": Row(0.25, 0.18, 0.36, 0.79, 0.3900, 0.4701, 0.4263),
        "linear, hierarchical": Row(0.19, 0.40, 0.17, 0.76, 0.5307, 0.4131, 0.4646),
        "exp, single": Row(0.29, 0.35, 0.18, 0.82, 0.4467, 0.3724, 0.4062),
        "exp, hierarchical": Row(0.27, 0.26, 0.26, 0.79, 0.4590, 0.4572, 0.4581),
        "attention, single": Row(0.30, 0.34, 0.19, 0.83, 0.4468, 0.3697, 0.4046),
        "attention, hierarchical": Row(0.25, 0.33, 0.21, 0.79, 0.4817, 0.4251, 0.4516),
    },
    "evaluation": {
        "linear, single": Row(0.21, 0.36, 0.18, 0.76, 0.5340, 0.4319, 0.4776),
        "linear, hierarchical": Row(0.19, 0.30, 0.20, 0.69, 0.5639, 0.5078, 0.5344),
        "exp, single": Row(0.23, 0.35, 0.23, 0.81, 0.4835, 0.4378, 0.4595),
        "exp, hierarchical": Row(0.23, 0.28, 0.22, 0.73, 0.5340, 0.5138, 0.5237),
        "attention, single": Row(0.21, 0.31, 0.27, 0.79, 0.4612, 0.4443, 0.4526),
        "attention, hierarchical": Row(0.21, 0.28, 0.24, 0.73, 0.5227, 0.5058, 0.5141),
    },
}


# ER and F1 of Table 3, development and evaluation; None where nothing was published.
SYSTEMS: dict[str, dict[str, tuple[float, float] | None]] = {
    "EMSI (ensemble)": {"development": (0.71, 0.471), "evaluation": (0.66, 0.555)},
    "Surrey (ensemble)": {"development": (0.72, 0.497), "evaluation": (0.73, 0.518)},
    "MLMS8 (ensemble)": {"development": (0.84, 0.342), "evaluation": (0.75, 0.471)},
    "GCCaps": {"development": None, "evaluation": (0.76, 0.463)},
    "Wang, linear softmax": {"development": (0.79, 0.454), "evaluation": None},
    "He et al., linear, hierarchical": {"development": (0.76, 0.465), "evaluation": (0.69, 0.534)},
}


def run_dcase2017(
    lists: str | os.PathLike[str],
    audio: str | os.PathLike[str],
    out: str | os.PathLike[str],
    cells: Iterable[str] | None = None,
    *,
    seeds: int = 1,
    preset: str = "paper",
    settings: Iterable[str] = (),
    processes: int | None = 1,
    tell: Callable[[str], object] = lambda sentence: None,
) -> dict[str, Comparison]:
    """Train the cells of Table 2 and score them on both official test sets.

    Args:
        lists: folder of the official lists.
        audio: folder of the clips.
        out: folder for all that comes of it; run again, it goes on.
        cells: some of `CELLS`; all without it.
        seeds: runs of each cell.
        preset: of the settings.
        settings: words such as "training.max_epochs=20" that change it.
        processes: units at a time, of one thread each where there are several.
        tell: called with a sentence about what happens.
    """
    folder, tables = Path(lists), Path(out) / "tables"
    chosen = [choose("cell", cell, CELLS) for cell in cells or CELLS]
    base, own = Settings.load(preset, overrides=settings), Settings.load(preset)
    for section, name in (("model", "pooling"), ("model", "stages"), ("training", "seed")):
        changed, kept = (getattr(getattr(of, section), name) for of in (base, own))
        if changed != kept:
            raise SettingError(
                f"The recipe sets {section}.{name} itself, for each cell and run. Got {changed!r}."
            )
    labels = read_classes(folder / CLASSES)
    _write_tables(folder, Path(audio), tables, labels, tell)
    sets = {}
    for name in TESTS:
        plan = _plan(tables, Path(audio), name, chosen, seeds, base, labels)
        results = run_plan(plan, Path(out) / name, Path(out) / "work", processes, tell)
        sets[name] = write_tables(plan, results, Path(out) / name)[0]
    return sets


def paper_table(title: str, rows: Mapping[str, Comparison | Mapping[str, Row]]) -> TextTable:
    """Return Table 2 of the paper in its own layout.

    Args:
        title: of the table.
        rows: name -> a comparison of the cells, or published rows of them; pooling after pooling,
            these stand below each other.

    >>> grid = paper_table("Table 2", {"evaluation": PUBLISHED["evaluation"]})
    >>> grid.rows[0][:5]
    ('linear, evaluation', '0.21', '0.36', '0.18', '0.76')
    """
    columns = ("", *(f"{part} {name}" for part in ("single", "hier.") for name in _COLUMNS))
    lines = []
    for pooling in POOLINGS:
        cells = [f"{pooling}, {structure}" for structure in STRUCTURES]
        for name, found in rows.items():
            values = [_value(found, cell, at) for cell in cells for at in _COLUMNS.values()]
            lines.append(
                (f"{pooling}, {name}", *("-" if x is None else f"{x:.2f}" for x in values))
            )
    return TextTable(title, columns, tuple(lines))


def systems_table(sets: Mapping[str, Comparison]) -> TextTable:
    """Return Table 3 of the paper, other systems and its own, and below them ours.

    >>> systems_table({}).rows[0]
    ('EMSI (ensemble)', '0.71', '0.471', '0.66', '0.555')
    """
    rows: dict[str, list[tuple[float, float] | None]] = {
        name: [of_system[test] for test in TESTS] for name, of_system in SYSTEMS.items()
    }
    for cell in dict.fromkeys(cell for found in sets.values() for cell in found.cells):
        rows[f"ours, {cell}"] = [
            (sets[test].cells[cell]["er"].mean, sets[test].cells[cell]["f1"].mean)
            if test in sets and cell in sets[test].cells
            else None
            for test in TESTS
        ]
    columns = ("", *(f"{test} {name}" for test in TESTS for name in ("ER", "F1")))
    lines = [
        (name, *(text for x in row for text in (("-", "-") if x is None else _two(*x))))
        for name, row in rows.items()
    ]
    return TextTable("Table 3 of the paper", columns, tuple(lines))


def _two(error_rate: float, f_measure: float) -> tuple[str, str]:
    return f"{error_rate:.2f}", f"{f_measure:.3f}"


def _value(found: Comparison | Mapping[str, Row], cell: str, at: str) -> float | None:
    if isinstance(found, Comparison):
        return found.cells[cell][at].mean if cell in found.cells else None
    return float(getattr(found[cell], at))


_COLUMNS = {"Sub.": "s", "Del.": "d", "Ins.": "i", "ER": "er", "Pre.": "p", "Rec.": "r", "F1": "f1"}


def read_classes(path: Path) -> tuple[str, ...]:
    """Return the 17 labels of the official list of classes, in its order."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
    except FileNotFoundError:
        raise DataError(f"There is no {path}; give the folder of the official lists.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not in UTF-8; save it so.") from None
    labels = tuple(line.split("\t")[-1].strip() for line in lines if line.strip())
    if not labels:
        raise DataError(f"{path} names no class.")
    return labels


def _write_tables(
    lists: Path, audio: Path, out: Path, labels: tuple[str, ...], tell: Callable[[str], object]
) -> None:
    """Write the tables of what was found: training, validation, and both test sets."""
    clips = _found(lists / TRAINING, audio, labels, tell)
    train, valid = clips.split(VALID_SHARE)
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", train), ("valid", valid)):
        write_tags(out / f"{name}.tsv", dict(zip(part.files, part.tags, strict=True)))
    tell(f"{len(train)} clips to learn from, {len(valid)} set apart for validation.")
    for name, file in TESTS.items():
        found = _found(lists / file, audio, labels, tell)
        events = read_events(lists / file)
        write_events(out / f"{name}.tsv", {clip: events[clip] for clip in found.files})


def _found(
    table: Path, audio: Path, labels: tuple[str, ...], tell: Callable[[str], object]
) -> Manifest:
    clips = Manifest.read(table, audio, labels)
    total = len(clips) + len(clips.missing)
    if not len(clips):
        raise DataError(f"Not one of the {total} clips of {table} is in {audio}.")
    told = f"{table.name}: {len(clips)} of {total} clips found"
    tell(f"{told}, {len(clips.missing)} missing, as {clips.missing[0]}." if clips.missing
         else f"{told}.")  # fmt: skip
    return clips


def _plan(
    tables: Path,
    audio: Path,
    test: str,
    cells: list[str],
    seeds: int,
    base: Settings,
    labels: tuple[str, ...],
) -> Plan:
    """Return the comparison whose test set is one of the two official ones."""
    configs = {}
    for cell in cells:
        pooling, structure = cell.split(", ")
        against = f"{pooling}, single" if structure != "single" else ""
        model = {"pooling": pooling, "stages": list(STRUCTURES[structure])}
        configs[cell] = CellConfig(seeds, against if against in cells else "", {"model": model})
    data = {name: tables / f"{name}.tsv" for name in ("train", "valid")}
    data["test"] = tables / f"{test}.tsv"
    return Plan(tables, tables, data, configs, base, audio, labels)
