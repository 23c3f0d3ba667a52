"""Train on DCASE 2017 task 4 and print the paper's tables, from the official lists and your audio.

Conventions: the lists are those of the organisers; `audio` is one folder of clips, with or without
the leading Y in their names and with any suffix. Clips without audio are counted, logged and left
out of training and of both test sets. Rows from 0 to 0, whose label was wrong, are not events, but
their clips count. A stratified part of the training clips is held out for validation, so that
both test sets stay unseen: thresholds are tuned on tags alone.

Training is a comparison (`earmark.experiments`), so it is resumable; the second test set is scored
with the models of the first. Table 2 has one configuration per pooling and structure, Table 3 one
per system (`earmark.experiments.table3`) and two of ours, each with its own preset.
"""

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from earmark.data.manifest import Manifest
from earmark.errors import DataError, SettingError, choose
from earmark.experiments.compare import run_plan, write_tables
from earmark.experiments.configurations import Configuration
from earmark.experiments.plan import Plan
from earmark.experiments.table import Comparison
from earmark.experiments.table3 import DECISION_TUNINGS, ONE_CHECKPOINT, PAPER, PUBLISHED_SYSTEMS
from earmark.files import check_folder
from earmark.formats.events import read_events, write_events
from earmark.formats.tags import read_tags, write_tags
from earmark.inference.tuning import default_rule
from earmark.metrics.report import TextTable
from earmark.training.settings import Settings

POOLINGS = ("linear", "exp", "attention")
STRUCTURES: dict[str, tuple[int, ...]] = {"single": (), "hierarchical": (5, 5, 5)}
CONFIGURATIONS = tuple(
    f"{pooling}, {structure}" for pooling in POOLINGS for structure in STRUCTURES
)
VALID_SHARE = 0.05
SHARED = DECISION_TUNINGS["shared"]
OWN = ("model.pooling", "model.stages", "training.seed")  # settings that the recipe sets itself
CLASSES = "sound_event_list_17_classes.txt"
TRAINING = "groundtruth_weak_label_training_set.csv"
TESTS = {
    "development": "groundtruth_strong_label_testing_set.csv",
    "evaluation": "groundtruth_strong_label_evaluation_set.csv",
}

logger = logging.getLogger(__name__)


class Row(NamedTuple):
    """A configuration in the paper's Table 2; rates as fractions.

    >>> TABLE_2["evaluation"]["linear, hierarchical"].er
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
TABLE_2: dict[str, dict[str, Row]] = {
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
        preset: of the settings, one whose network has a pooling function.
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
    chosen = [choose("configuration", x, CONFIGURATIONS) for x in configurations or CONFIGURATIONS]
    base, own = Settings.load(preset, overrides=overrides), Settings.load(preset)
    if not base.model.pooling_name:
        raise SettingError(
            f"Table 2 compares pooling functions, and the network {base.model.network!r} of the "
            f"preset {preset!r} has none; choose a preset whose network has one, such as 'paper'."
        )
    for section, name in (setting.split(".") for setting in OWN):
        changed, default = (getattr(getattr(of, section), name) for of in (base, own))
        if changed != default:
            raise SettingError(
                f"The recipe sets {section}.{name} itself, per configuration and run; remove it "
                f"from overrides. Got {changed!r}."
            )
    plan = Plan(Path(), Path(), {}, _list_table2(chosen, seeds), base)
    comparisons = _run_both(plan, Path(lists), Path(audio), Path(out), processes, device)
    return {name: own[SHARED] for name, own in comparisons.items()}


def plan_table3(
    systems: Iterable[str] | None = None,
    *,
    seeds: int = 1,
    fast: bool = False,
    overrides: Iterable[str] = (),
) -> Plan:
    """Return the comparison of Table 3, without its tables: the systems and ours.

    Args:
        systems: some of `PUBLISHED_SYSTEMS` and `PAPER` of `earmark.experiments.table3`; all by
            default.
        seeds: runs per system.
        fast: all in fast width; else in full width, and ours with the preset `paper`.
        overrides: of the settings of all, such as "training.max_epochs=20".

    >>> plan_table3(["linear, single", "linear, hierarchical"], fast=True).configurations.keys()
    dict_keys(['linear, single', 'linear, hierarchical'])
    """
    known, overrides = [*PAPER, *PUBLISHED_SYSTEMS], tuple(overrides)
    chosen = [choose("system", name, known) for name in systems or known]
    for override in overrides:
        if override.partition("=")[0].strip() in OWN:
            raise SettingError(
                f"The recipe sets {', '.join(OWN)} itself, per system and run; remove {override!r} "
                "from overrides."
            )
    configurations = _list_table2([name for name in chosen if name in PAPER], seeds)
    for name in (name for name in chosen if name in PUBLISHED_SYSTEMS):
        configurations[name] = Configuration(seeds, preset=name + "-fast" * fast)
    for name, system in ONE_CHECKPOINT.items():
        if system in chosen:
            configurations[name] = Configuration(seeds, first_member_of=system)
    base = Settings.load("paper-fast" if fast else "paper")
    # One start of the search for all, whatever their pooling: the stage that is shared.
    shared = dict(default_rule("linear"))
    return Plan(Path(), Path(), {}, configurations, base, decoding=shared, overrides=overrides)


def run_table3(
    lists: str | os.PathLike[str],
    audio: str | os.PathLike[str],
    out: str | os.PathLike[str],
    plan: Plan,
    *,
    processes: int | None = 1,
    device: str = "auto",
) -> dict[str, dict[str, Comparison]]:
    """Train the systems of Table 3 and score them on both official test sets.

    Args:
        lists: folder of the official lists.
        audio: folder of the clips.
        out: folder for tables, results and models; called again, an interrupted recipe resumes.
        plan: from `plan_table3`.
        processes: runs at a time; if there are several, each has one thread.
        device: where networks are trained: "auto", "cpu", "cuda" or "cuda:1".

    Returns:
        Test set -> tuning -> the statistics, as `systems_table` takes them.

    >>> plan = plan_table3(["linear, single"], fast=True)
    >>> run_table3("nowhere", "audio", "out", plan)
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: There is no nowhere/sound_event_list_17_classes.txt; `lists` ...
    """
    return _run_both(plan, Path(lists), Path(audio), Path(out), processes, device)


def count_clips(lists: str | os.PathLike[str]) -> dict[str, int]:
    """Return the numbers of classes and clips in the official lists, as `estimate_plan` takes them.

    >>> count_clips("nowhere")
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: There is no nowhere/sound_event_list_17_classes.txt; `lists` ...
    """
    folder = Path(lists)
    n_classes = len(read_classes(folder / CLASSES))
    n_clips = len(read_tags(folder / TRAINING))
    n_valid = round(VALID_SHARE * n_clips)
    n_test = sum(len(read_events(folder / file)) for file in TESTS.values())
    counts = {"n_train": n_clips - n_valid, "n_valid": n_valid, "n_test": n_test}
    return {"n_classes": n_classes, **counts}


def paper_table(title: str, rows: Mapping[str, Comparison | Mapping[str, Row]]) -> TextTable:
    """Return Table 2 of the paper in its layout.

    Args:
        title: of the table.
        rows: name -> a comparison, or published rows; they are repeated for every pooling.

    >>> table = paper_table("Table 2", {"evaluation": TABLE_2["evaluation"]})
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
    check_folder(out)
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


def _run_both(
    plan: Plan, lists: Path, audio: Path, out: Path, processes: int | None, device: str
) -> dict[str, dict[str, Comparison]]:
    """Run a plan without tables on those of the official lists; return test set -> tuning -> it."""
    tables, labels = out / "tables", read_classes(lists / CLASSES)
    _write_tables(lists, audio, tables, labels)
    comparisons = {}
    for name in TESTS:
        files = {"train": "train", "valid": "valid", "test": name}
        data = {table: tables / f"{file}.tsv" for table, file in files.items()}
        own = replace(plan, source=tables, folder=tables, data=data, audio=audio, labels=labels)
        results = run_plan(own, out / name, out / "work", processes, device)
        comparisons[name] = {x.tuning: x for x in write_tables(own, results, out / name)}
    return comparisons


def _list_table2(names: Iterable[str], seeds: int) -> dict[str, Configuration]:
    """Return configurations of Table 2."""
    names, configurations = list(names), {}
    for name in names:
        pooling, structure = name.split(", ")
        baseline = f"{pooling}, single"
        compare_with = baseline if name != baseline and baseline in names else ""
        model = {"pooling": pooling, "stages": list(STRUCTURES[structure])}
        configurations[name] = Configuration(seeds, compare_with, {"model": model})
    return configurations
