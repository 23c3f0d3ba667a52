"""Train on DCASE 2017 task 4 and print the paper's tables, from the official lists and your audio.

Conventions: the lists are those of the organisers; `audio` is one folder of clips, with or without
the leading Y in their names and with any suffix. Clips without audio are counted, logged and left
out of training and of both test sets. Rows from 0 to 0, whose label was wrong, are not events, but
their clips count. A stratified part of the training clips is held out for validation, so that
both test sets stay unseen: thresholds are tuned on tags alone.

Training is a comparison (`earmark.experiments`) with one configuration per pooling and structure,
so it is resumable; the second test set is scored with the models of the first.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from earmark.data.manifest import Manifest
from earmark.errors import DataError, SettingError, choose
from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.configurations import Configuration
from earmark.experiments.plan import Plan
from earmark.experiments.table import Comparison
from earmark.formats.events import read_events, write_events
from earmark.formats.tags import write_tags
from earmark.metrics.report import TextTable
from earmark.training.settings import Settings

POOLINGS = ("linear", "exp", "attention")
STRUCTURES: dict[str, tuple[int, ...]] = {"single": (), "hierarchical": (5, 5, 5)}
CONFIGURATIONS = tuple(
    f"{pooling}, {structure}" for pooling in POOLINGS for structure in STRUCTURES
)
VALID_SHARE = 0.05
CLASSES = "sound_event_list_17_classes.txt"
TRAINING = "groundtruth_weak_label_training_set.csv"
TESTS = {
    "development": "groundtruth_strong_label_testing_set.csv",
    "evaluation": "groundtruth_strong_label_evaluation_set.csv",
}

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """A configuration in the paper's Table 2; rates as fractions.

    >>> PUBLISHED["evaluation"]["linear, hierarchical"].er
    0.69
    """

    s: float
    d: float
    i: float
    er: float
    p: float
    r: float
    f1: float


# Table 2 of the paper: one run per configuration.
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
    configurations: Iterable[str] | None = None,
    *,
    seeds: int = 1,
    preset: str = "paper",
    overrides: Iterable[str] = (),
    processes: int | None = 1,
    device: str = "auto",
) -> dict[str, Comparison]:
    """Train configurations of Table 2 and score them on both official test sets.

    Args:
        lists: folder of the official lists.
        audio: folder of the clips.
        out: folder for tables, results and models; called again, an interrupted recipe resumes.
        configurations: some of `CONFIGURATIONS`; all by default.
        seeds: runs per configuration.
        preset: of the settings.
        overrides: of the preset, such as "training.max_epochs=20".
        processes: runs at a time; if there are several, each has one thread.
        device: where networks are trained: "auto", "cpu", "cuda" or "cuda:1".

    Returns:
        Test set -> the statistics with clip-level and frame-level thresholds from tags.

    >>> run_dcase2017("lists", "audio", "out", ["liner, single"])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: There is no configuration 'liner, single'; did you mean ...
    """
    folder, tables = Path(lists), Path(out) / "tables"
    chosen = [choose("configuration", x, CONFIGURATIONS) for x in configurations or CONFIGURATIONS]
    base, own = Settings.load(preset, overrides=overrides), Settings.load(preset)
    for section, name in (("model", "pooling"), ("model", "stages"), ("training", "seed")):
        changed, default = (getattr(getattr(of, section), name) for of in (base, own))
        if changed != default:
            raise SettingError(
                f"The recipe sets {section}.{name} itself, per configuration and run; remove it "
                f"from overrides. Got {changed!r}."
            )
    labels = read_classes(folder / CLASSES)
    _write_tables(folder, Path(audio), tables, labels)
    comparisons = {}
    for name in TESTS:
        plan = _build_plan(tables, Path(audio), name, chosen, seeds, base, labels)
        results = run_plan(plan, Path(out) / name, Path(out) / "work", processes, device)
        comparisons[name] = write_tables(plan, results, Path(out) / name)[0]
    return comparisons


def paper_table(title: str, rows: Mapping[str, Comparison | Mapping[str, Row]]) -> TextTable:
    """Return Table 2 of the paper in its layout.

    Args:
        title: of the table.
        rows: name -> a comparison, or published rows; they are repeated for every pooling.

    >>> table = paper_table("Table 2", {"evaluation": PUBLISHED["evaluation"]})
    >>> table.rows[0][:5]
    ('linear, evaluation', '0.21', '0.36', '0.18', '0.76')
    """
    columns = ("", *(f"{part} {name}" for part in ("single", "hier.") for name in _COLUMNS))
    lines = []
    for pooling in POOLINGS:
        configurations = [f"{pooling}, {structure}" for structure in STRUCTURES]
        for name, scores in rows.items():
            values = [_value(scores, x, metric) for x in configurations
                      for metric in _COLUMNS.values()]  # fmt: skip
            lines.append(
                (f"{pooling}, {name}", *("-" if x is None else f"{x:.2f}" for x in values))
            )
    return TextTable(title, columns, tuple(lines))


def systems_table(comparisons: Mapping[str, Comparison]) -> TextTable:
    """Return Table 3 of the paper, which compares systems of the task, with ours below.

    >>> systems_table({}).rows[0]
    ('EMSI (ensemble)', '0.71', '0.471', '0.66', '0.555')
    """
    rows: dict[str, list[tuple[float, float] | None]] = {
        name: [scores[test] for test in TESTS] for name, scores in SYSTEMS.items()
    }
    ours = {test: comparison.summaries for test, comparison in comparisons.items()}
    for configuration in dict.fromkeys(x for summaries in ours.values() for x in summaries):
        metrics = [ours.get(test, {}).get(configuration) for test in TESTS]
        rows[f"ours, {configuration}"] = [
            (x["er"].mean, x["f1"].mean) if x else None for x in metrics
        ]
    columns = ("", *(f"{test} {name}" for test in TESTS for name in ("ER", "F1")))
    lines = [
        (name, *(text for x in row for text in (("-", "-") if x is None else _two(*x))))
        for name, row in rows.items()
    ]
    return TextTable("Table 3 of the paper", columns, tuple(lines))


def _two(error_rate: float, f_measure: float) -> tuple[str, str]:
    return f"{error_rate:.2f}", f"{f_measure:.3f}"


def _value(scores: Comparison | Mapping[str, Row], configuration: str, metric: str) -> float | None:
    if isinstance(scores, Comparison):
        summary = scores.summaries.get(configuration)
        return summary[metric].mean if summary else None
    return float(getattr(scores[configuration], metric))


_COLUMNS = {"Sub.": "s", "Del.": "d", "Ins.": "i", "ER": "er", "Pre.": "p", "Rec.": "r", "F1": "f1"}


def read_classes(path: Path) -> tuple[str, ...]:
    """Return the 17 labels of the official list of classes, in its order.

    >>> read_classes(Path("nowhere.txt"))
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: There is no nowhere.txt; `lists` must be the folder of ...
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()[1:]
    except FileNotFoundError:
        raise DataError(
            f"There is no {path}; `lists` must be the folder of the official lists."
        ) from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not in UTF-8; convert it.") from None
    labels = tuple(line.split("\t")[-1].strip() for line in lines if line.strip())
    if not labels:
        raise DataError(f"{path} contains no class.")
    return labels


def _write_tables(lists: Path, audio: Path, out: Path, labels: tuple[str, ...]) -> None:
    """Write the tables of the clips that exist: training, validation, and both test sets."""
    clips = _existing(lists / TRAINING, audio, labels)
    train, valid = clips.split(VALID_SHARE)
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", train), ("valid", valid)):
        write_tags(out / f"{name}.tsv", dict(zip(part.files, part.tags, strict=True)))
    logger.info("%d training clips, %d validation clips.", len(train), len(valid))
    for name, file in TESTS.items():
        existing = _existing(lists / file, audio, labels)
        events = read_events(lists / file)
        write_events(out / f"{name}.tsv", {clip: events[clip] for clip in existing.files})


def _existing(table: Path, audio: Path, labels: tuple[str, ...]) -> Manifest:
    """Return the clips of a table that have audio; log how many have none."""
    clips = Manifest.read(table, audio, labels)
    total = len(clips) + len(clips.missing)
    if not len(clips):
        raise DataError(f"None of the {total} clips of {table} is in {audio}.")
    if clips.missing:
        logger.warning(
            "%s: %d of %d clips exist, %d missing, such as %s.",
            table.name, len(clips), total, len(clips.missing), clips.missing[0],
        )  # fmt: skip
    else:
        logger.info("%s: all %d clips exist.", table.name, total)
    return clips


def _build_plan(
    tables: Path,
    audio: Path,
    test: str,
    names: list[str],
    seeds: int,
    base: Settings,
    labels: tuple[str, ...],
) -> Plan:
    """Return the comparison on one of the two official test sets."""
    configurations = {}
    for name in names:
        pooling, structure = name.split(", ")
        baseline = f"{pooling}, single"
        compare_with = baseline if name != baseline and baseline in names else ""
        model = {"pooling": pooling, "stages": list(STRUCTURES[structure])}
        configurations[name] = Configuration(seeds, compare_with, {"model": model})
    data = {name: tables / f"{name}.tsv" for name in ("train", "valid")}
    data["test"] = tables / f"{test}.tsv"
    return Plan(tables, tables, data, configurations, base, audio, labels)
