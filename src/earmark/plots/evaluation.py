"""An evaluation -> its pictures, in a folder."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from earmark.metrics.bootstrap import Interval
from earmark.metrics.confusion import segment_confusion
from earmark.metrics.evaluation import Evaluation, SystemOutput
from earmark.plots.figure import save
from earmark.plots.scores import (
    plot_class_scores,
    plot_confusion,
    plot_precision_recall,
    plot_psd_roc,
)


def draw_evaluation(
    folder: str | os.PathLike[str],
    truth: SystemOutput,
    systems: Sequence[SystemOutput],
    evaluation: Evaluation,
) -> Iterator[Path]:
    """Draw all that the answers allow for; yield the path of each picture.

    The F1 of every class goes into `segment_f1.png`, all systems side by side. Of each system,
    numbered from 1, go the confusion of segments into `confusion_1.png`, and of its score curves
    `precision_recall_1.png`, `psd_roc1_1.png` and `psd_roc2_1.png`.
    """
    out = Path(folder)
    for part in ("segment", "event", "clip"):
        bars = {
            system.name: {
                label: _bar(system.intervals[part].class_wise[label]["f_measure"]["f_measure"])
                if part in system.intervals
                else (scores["f_measure"]["f_measure"],) * 3
                for label, scores in system.scores[part]["class_wise"].items()
            }
            for system in evaluation.systems
            if "f_measure" in system.scores.get(part, {}).get("overall", {})
        }
        if bars:
            yield save(plot_class_scores(bars, f"{part} F1"), out / f"{part}_f1.png")
    for number, (answer, system) in enumerate(zip(systems, evaluation.systems, strict=True), 1):
        if "segment" in system.counts and truth.events is not None and answer.events is not None:
            found = segment_confusion(
                truth.events,
                answer.with_names_of(truth.events).events or {},
                resolution=evaluation.scoring.resolution,
            )
            unit = f"segments of {found.resolution:g} s"
            picture = plot_confusion(found.matrix, found.labels, unit)
            yield save(picture, out / f"confusion_{number}.png")
        if "best_segment" in system.counts:
            curves = system.counts["best_segment"].precision_recall()
            pairs = {label: (curve.recall, curve.precision) for label, curve in curves.items()}
            yield save(plot_precision_recall(pairs), out / f"precision_recall_{number}.png")
        for scenario in ("psds1", "psds2"):
            if scenario not in system.counts:
                continue
            counts = system.counts[scenario]
            scores = counts.scores()
            picture = plot_psd_roc(
                (scores.roc.efpr, scores.roc.tpr),
                {label: (roc.efpr, roc.tpr) for label, roc in scores.class_rocs.items()},
                counts.max_efpr,
            )
            yield save(picture, out / f"psd_roc{scenario[-1]}_{number}.png")


def _bar(interval: Interval) -> tuple[float, float, float]:
    return interval.value, interval.low, interval.high
