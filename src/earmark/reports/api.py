"""Write a report of a training or of an evaluation: one call.

Conventions: those of `earmark.reports`.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any

from earmark.errors import AudioError, SettingError
from earmark.files import atomic_write
from earmark.inference.model_file import installed_versions
from earmark.metrics.evaluation import Evaluation, Scoring, evaluate
from earmark.metrics.false_events import RecallPoint, absent_class_curve
from earmark.metrics.report import TextTable, score_tables
from earmark.plots import evaluation_figures, plot_false_events, plot_history
from earmark.plots.figure import new_figure
from earmark.reports.clips import rank_recordings, show_clip
from earmark.reports.page import (
    bullets,
    chart,
    document,
    folded,
    paragraph,
    settings_table,
    tables,
)
from earmark.reports.sources import Material, is_run, read_run, read_tables

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]

# Beginning of a figure's name in `evaluation_figures` -> its section and its alternative text.
FIGURES = {
    "segment_f1": ("Classes", "Segment-based F1 of each class with its confidence interval."),
    "event_f1": ("Classes", "Event-based F1 of each class with its confidence interval."),
    "clip_f1": ("Classes", "F1 of the clip tags of each class with its confidence interval."),
    "precision_recall": ("Classes", "Precision over recall of each class."),
    "psd_roc": ("Classes", "True positive rate over effective false positives per hour."),
    "confusion": ("Confusion", "Confusion matrix; the table of classes has its main figures."),
    "reliability": ("Calibration", "Share of right events over the mean score of events."),
    "false_events": ("False events", "Recall over false events per minute."),
}


ABBREVIATIONS = (
    "ER error rate, of S substitutions, D deletions and I insertions; P precision, R recall; "
    "AP average precision, AUC area under the ROC curve; PSDS polyphonic sound detection score."
)


def report(
    source: PathLike,
    *estimates: PathLike,
    out: PathLike = "report.html",
    reference: PathLike | None = None,
    scores: PathLike | Sequence[PathLike] = (),
    audio: PathLike | None = None,
    weak: bool = False,
    scoring: Scoring | None = None,
    n_clips: int = 3,
    title: str | None = None,
    command: str = "",
    device: str = "auto",
) -> Path:
    """Write a report as one HTML file that opens offline; return its path.

    Args:
        source: output folder of a training; or, with estimates, the table of reference events or
            tags.
        estimates: tables of events or tags, or folders of frame-level scores, one per system.
        out: file to write.
        reference: of a training, table of the events in its validation clips, in place of tags.
        scores: folders of frame-level scores, one per estimate.
        audio: folder of the recordings; of a training, if they were moved.
        weak: read tables as tags, whatever their columns.
        scoring: how to score; by default `Scoring()`.
        n_clips: so many of the best and of the worst recordings are shown.
        title: of the report.
        command: that made it, to show.
        device: where to predict the validation clips of a training.

    >>> report("nowhere.tsv")
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: nowhere.tsv is no output folder of a training (it has no ...
    """
    target = Path(out)
    if target.suffix.lower() not in (".html", ".htm"):
        raise SettingError(f"A report ends in .html. Got {os.fspath(out)!r}.")
    if n_clips < 0:
        raise SettingError(f"n_clips must be 0 or more. Got {n_clips}.")
    new_figure()  # raises now if there is no matplotlib
    if scoring is not None and scoring.negatives and not estimates and is_run(source):
        raise SettingError(
            "negatives are for tables: detect events in the validation clips and in the negatives, "
            "and report on these events."
        )
    material = _read(source, estimates, reference, scores, audio, weak, device)
    if title is not None:
        material = replace(material, title=title)
    evaluation = evaluate(material.reference, material.systems, scoring or Scoring())
    sections: dict[str, list[str]] = {}
    for heading, body in _parts(material, evaluation, n_clips, command):
        sections.setdefault(heading, []).append(body)
    page = {heading: "\n".join(filter(None, sections.get(heading, ()))) for heading in SECTIONS}
    target.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(target, document(material.title, page, _footer()).encode())
    return target


SECTIONS = (
    "Scores",
    "Training",
    "Classes",
    "Confusion",
    "False events",
    "Calibration",
    "Best clips",
    "Worst clips",
    "Settings",
)


def _read(
    source: PathLike,
    estimates: Sequence[PathLike],
    reference: PathLike | None,
    scores: PathLike | Sequence[PathLike],
    audio: PathLike | None,
    weak: bool,
    device: str,
) -> Material:
    folders = [scores] if isinstance(scores, str | os.PathLike) else list(scores)
    if not estimates and is_run(source):
        if folders or weak:
            raise SettingError("scores and weak are for tables; a training has its own.")
        return read_run(source, reference, audio, device)
    if reference is not None:
        raise SettingError("reference is for a training; of tables, the first is the reference.")
    return read_tables(source, estimates, folders, audio, weak)


def _parts(
    material: Material, evaluation: Evaluation, n_clips: int, command: str
) -> Iterator[tuple[str, str]]:
    """Yield the heading of a section and a part of it, in the order within each section."""
    headlines, *rest = score_tables(evaluation)
    yield "Classes", paragraph(ABBREVIATIONS, "soft")
    yield "Scores", tables([headlines])
    yield "Scores", bullets((*material.notes, *evaluation.warnings))
    if material.about:
        yield "Training", settings_table("The model", material.about)
    if material.history is not None:
        alt = "Loss of training and validation, and validation scores, over epochs."
        yield "Training", chart(plot_history(material.history), alt)
    for table in rest:
        yield _section_of(table), tables([table])
    for name, figure in evaluation_figures(material.reference, material.systems, evaluation):
        section, alt = next(own for start, own in FIGURES.items() if name.startswith(start))
        yield section, chart(figure, alt)
    yield "False events", _false_events(material, evaluation)
    ranked = rank_recordings(material, evaluation.scoring.resolution) if n_clips else []
    n_best = min(n_clips, (len(ranked) + 1) // 2)
    n_worst = min(n_clips, len(ranked) - n_best)
    for heading, clips in (
        ("Best clips", ranked[:n_best]),
        ("Worst clips", ranked[len(ranked) - n_worst :][::-1]),
    ):
        for clip in clips:
            try:
                yield heading, show_clip(material, clip)
            except AudioError as error:
                yield heading, paragraph(f"{error}")
    yield "Settings", _settings(material, evaluation.scoring, command)


def _section_of(table: TextTable) -> str:
    """Return the section of a table of `score_tables`, which its title begins with."""
    part = table.title.partition(":")[0]
    if part == "calibration":
        return "Calibration"
    if part in ("false_events", "false events and recall"):
        return "False events"
    return "Classes" if "class mean" in {row[0] for row in table.rows} else "Scores"


def _false_events(material: Material, evaluation: Evaluation) -> str:
    """Return the curve of clips as negatives of the classes that they do not have."""
    if any(system.curve for system in evaluation.systems):
        return ""  # there are negatives, which `evaluation_figures` draws
    durations, tags = material.durations(), material.tags
    curves: dict[str, tuple[RecallPoint, ...]] = {}
    for system in material.systems:
        events = system.with_names_of(tags).events
        if events is None or not durations:
            continue
        known = {name: tags[name] for name in durations}
        reference = material.reference.events
        curves[system.name] = absent_class_curve(
            events,
            durations,
            known,
            reference=None if reference is None else {name: reference[name] for name in known},
            **evaluation.scoring.collars,
        )
    if not curves:
        return paragraph(
            "Not known: it takes events, and the length of the recordings, from frame-level scores "
            "or from the recordings themselves."
        )
    minutes = sum(durations.values()) / 60
    text = (
        f"False events are those of classes that a clip does not have, over {minutes:.1f} minutes "
        "of clips. Recordings without any of the classes (negatives) say more about a new place."
    )
    alt = FIGURES["false_events"][1]
    return paragraph(text) + chart(plot_false_events(curves, "minimum score", "clips"), alt)


def _settings(material: Material, scoring: Scoring, command: str) -> str:
    shown = {
        own.name: getattr(scoring, own.name)
        for own in fields(scoring)
        if own.name not in ("durations", "negatives")
    }
    if scoring.negatives is not None:
        shown["negatives"] = f"{len(scoring.negatives)} recordings"
    parts = [f"<pre>{escape(command)}</pre>"] if command else []
    sections: Mapping[str, Mapping[str, Any]] = {**material.settings, "scoring": shown}
    parts += [folded(name, settings_table(name, own)) for name, own in sections.items()]
    return "\n".join(parts)


def _footer() -> str:
    versions = ", ".join(f"{name} {version}" for name, version in installed_versions().items())
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    return paragraph(f"Made {now} with {versions}.", "soft")
