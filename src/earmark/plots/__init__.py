"""Predictions and scores -> pictures, by matplotlib (the extra `plot`).

Conventions: every function returns a matplotlib Figure and shows nothing; `save` writes it. The
horizontal axis is seconds unless a title states otherwise.

    figure      an empty figure, and how it is written
    recording   one recording: spectrogram, frame-level scores, events
    network     the hierarchy, its gradients, the course of a training
    scores      scores of classes with intervals, confusion, precision-recall, PSD-ROC, false
                events over recall, reliability
    runs        every run of a comparison as a dot; differences with their intervals; one clip as
                several networks see it
    detections  a picture of what was detected in each of many recordings
    evaluation  all pictures of an evaluation, in a folder
"""

from earmark.plots.detections import DetectionPlots
from earmark.plots.evaluation import draw_evaluation, evaluation_figures
from earmark.plots.figure import check_format, save
from earmark.plots.network import plot_gradients, plot_hierarchy, plot_history
from earmark.plots.recording import plot_detection, plot_detections, plot_events
from earmark.plots.runs import plot_effects, plot_predictions, plot_runs
from earmark.plots.scores import (
    plot_class_scores,
    plot_confusion,
    plot_false_events,
    plot_precision_recall,
    plot_psd_roc,
    plot_reliability,
)

__all__ = [
    "DetectionPlots",
    "check_format",
    "draw_evaluation",
    "evaluation_figures",
    "plot_class_scores",
    "plot_confusion",
    "plot_detection",
    "plot_detections",
    "plot_effects",
    "plot_events",
    "plot_false_events",
    "plot_gradients",
    "plot_hierarchy",
    "plot_history",
    "plot_precision_recall",
    "plot_predictions",
    "plot_psd_roc",
    "plot_reliability",
    "plot_runs",
    "save",
]
