"""Figures of an evaluation, written to a folder."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from earmark.formats.events import Event
from earmark.metrics.bootstrap import Interval
from earmark.metrics.confusion import segment_confusion
from earmark.metrics.evaluation import Evaluation
from earmark.metrics.system_output import SystemOutput
from earmark.plots.figure import save
from earmark.plots.scores import (
    plot_class_scores,
    plot_confusion,
    plot_false_events,
    plot_precision_recall,
    plot_psd_roc,
    plot_reliability,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_evaluation(
    folder: str | os.PathLike[str],
    reference: SystemOutput,
    systems: Sequence[SystemOutput],
    evaluation: Evaluation,
) -> Iterator[Path]:
    """Draw every figure that the outputs allow for; yield the path of each.

    Figures of all systems are the F1 per class: `segment_f1.png`, `event_f1.png`, `clip_f1.png`;
    with scores of events `reliability.png`, and with negatives `false_events.png`.
    Figures per system, numbered from 1, are the confusion matrix of segments, or of clips where
    the reference has tags only, `confusion_1.png`,
    and with frame-level scores `precision_recall_1.png`, `psd_roc1_1.png` and `psd_roc2_1.png`.

    Args:
        folder: where to write.
        reference: the reference.
        systems: the output of each system.
        evaluation: `evaluate(reference, systems)`.

    >>> import tempfile
    >>> from earmark.formats.events import Event
    >>> from earmark.metrics.evaluation import Scoring, evaluate
    >>> output = SystemOutput("mine", {"a.wav": [Event(0, 1, "dog")]})
    >>> evaluation = evaluate(output, [output], Scoring(n_bootstrap=0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = draw_evaluation(folder, output, [output], evaluation)
    ...     [path.name for path in paths]
    ['segment_f1.png', 'event_f1.png', 'clip_f1.png', 'confusion_1.png']
    """
    for name, figure in evaluation_figures(reference, systems, evaluation):
        yield save(figure, Path(folder) / f"{name}.png")


def evaluation_figures(
    reference: SystemOutput, systems: Sequence[SystemOutput], evaluation: Evaluation
) -> Iterator[tuple[str, "Figure"]]:
    """Yield the name of every figure that `draw_evaluation` writes, and the figure.

    >>> from earmark.formats.events import Event
    >>> from earmark.metrics.evaluation import Scoring, evaluate
    >>> output = SystemOutput("mine", {"a.wav": [Event(0, 1, "dog")]})
    >>> evaluation = evaluate(output, [output], Scoring(n_bootstrap=0))
    >>> [name for name, _ in evaluation_figures(output, [output], evaluation)][-1]
    'confusion_1'
    """
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
            yield f"{part}_f1", plot_class_scores(bars, f"{part} F1")
    judged = [system for system in evaluation.systems if "calibration" in system.counts]
    if judged:
        bins = {system.name: system.counts["calibration"].bins() for system in judged}
        yield "reliability", plot_reliability(bins)
    curves = {system.name: system.curve for system in evaluation.systems if system.curve}
    if curves:
        yield "false_events", plot_false_events(curves, "minimum score")
    for number, (output, system) in enumerate(zip(systems, evaluation.systems, strict=True), 1):
        both = _confused(reference, output)
        if both is not None:
            resolution = evaluation.scoring.resolution if reference.events is not None else 1.0
            confusion = segment_confusion(*both, resolution=resolution)
            unit = f"segments of {resolution:g} s" if reference.events is not None else "clips"
            yield f"confusion_{number}", plot_confusion(confusion.matrix, confusion.labels, unit)
        if "best_segment" in system.counts:
            by_class = system.counts["best_segment"].precision_recall()
            pairs = {label: (own.recall, own.precision) for label, own in by_class.items()}
            yield f"precision_recall_{number}", plot_precision_recall(pairs)
        for scenario in ("psds1", "psds2"):
            if scenario not in system.counts:
                continue
            counts = system.counts[scenario]
            scores = counts.scores()
            figure = plot_psd_roc(
                (scores.roc.efpr, scores.roc.tpr),
                {label: (roc.efpr, roc.tpr) for label, roc in scores.class_rocs.items()},
                counts.max_efpr,
            )
            yield f"psd_roc{scenario[-1]}_{number}", figure


def _confused(
    reference: SystemOutput, output: SystemOutput
) -> tuple[Mapping[str, Sequence[Event]], Mapping[str, Sequence[Event]]] | None:
    """Return events of both to compare; a tag is an event that takes all of its clip."""
    tags, estimated = reference.clip_tags, None
    if reference.events is not None:
        output = output.with_names_of(reference.events)
        return None if output.events is None else (reference.events, output.events)
    if tags is not None:
        estimated = output.with_names_of(tags).clip_tags
    if tags is None or estimated is None:
        return None
    whole = [{name: [Event(0, 1, label) for label in own] for name, own in each.items()}
             for each in (tags, estimated)]  # fmt: skip
    return whole[0], whole[1]


def _bar(interval: Interval) -> tuple[float, float, float]:
    return interval.value, interval.low, interval.high
