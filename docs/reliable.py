"""Generate what docs/results.md and the model card say about the best detector.

From benchmarks/results/best (runs of best.toml) and src/earmark/models/everyday.json, both by
`python -m benchmarks.everyday`, from runs of detector.toml, the best detector before, and from
benchmarks/results/encoder and encoder.json, both by `python -m benchmarks.encoder`.
"""

import json
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.decoding import BEFORE
from benchmarks.encoder import CARD as ENCODER_CARD
from benchmarks.encoder import CONFIGURATION as OF_ENCODER
from benchmarks.everyday import CONFIGURATION
from docs.results import load_results
from earmark.experiments.run import RunResult
from earmark.formats.events import Event
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.model_file import CARD, read_card
from earmark.inference.tuning import default_rule
from earmark.metrics.calibration import ReliabilityBin
from earmark.metrics.report import TextTable
from earmark.plots import plot_detections, plot_reliability, save

TUNING = "shared_clip"
OLD = "8x epochs, wider, self-training"  # of detector.toml


card = cache(read_card)  # on the test scenes and on unknown sounds


def _run(plan: str, configuration: str) -> RunResult:
    return next(x for x in load_results(plan) if x.configuration == configuration and not x.seed)


def steps() -> str:
    """Return the scores on the test scenes, before and after."""
    rows = []
    for title, plan, configuration in (
        ("before: three teacher models, thresholds of 0.5 and 0.1", "detector", OLD),
        ("first generation, with negatives, new default rule", "best", "first generation"),
        ("second generation, pseudo-labels from the events of the first", "best", CONFIGURATION),
    ):
        own = _run(plan, configuration).scores
        scores, free = own[TUNING], own["threshold_free"]
        rows.append(
            (
                title,
                f"{scores['f_measure']:.3f}",
                f"{scores['error_rate']:.3f}",
                f"{scores['event_f_measure']:.3f}",
                f"{free['mean_average_precision']:.3f}",
            )
        )
    columns = ("network", "F1", "ER", "event F1", "mAP")
    title = "1,000 test scenes (fold 4), one network, one clip-level threshold from tags of fold 3"
    return TextTable(title, columns, tuple(rows)).to_markdown() + "\n"


def false_events() -> str:
    """Return false events on unknown sounds and recall, over the sensitivity."""
    lines = []
    for name, title in (
        ("recordings", "as they were recorded"),
        ("scenes", "mixed into scenes over the backgrounds of the test scenes"),
    ):
        rows = tuple(
            (f"{point['setting']:g}", f"{point['per_minute']:.2f}", f"{point['recordings']:.2f}",
             f"{point['clip_recall']:.2f}", f"{point['event_recall']:.2f}")
            for point in card()["curves"][name]
        )  # fmt: skip
        columns = ("sensitivity", "false events per minute", "recordings with any",
                   "clip recall", "event recall")  # fmt: skip
        table = TextTable(f"Sounds that no network has met, {title}", columns, rows)
        lines += [table.to_markdown(), ""]
    return "\n".join(lines)


def sensitivities() -> str:
    """Return the same for the sensitivities that have names, and a lower one."""
    names = {-2: "-2", -1: "-1 (`low`)", 0: "0 (`normal`)", 1: "+1 (`high`)"}
    rows = tuple(
        (names[point["setting"]], f"{point['per_minute']:.1f}", f"{point['clip_recall']:.2f}",
         f"{point['event_recall']:.2f}")
        for point in card()["curves"]["recordings"]
        if point["setting"] in names
    )  # fmt: skip
    columns = ("sensitivity", "false events per minute", "clip recall", "event recall")
    return TextTable("False events and recall", columns, rows).to_markdown() + "\n"


def classes() -> str:
    """Return the scores of each class on the test scenes."""
    own = card()["classes"]
    rows = tuple(
        (
            label,
            *(f"{own['clip'][label]['f_measure'][key]:.2f}" for key in ("precision", "recall")),
            f"{own['segment'][label]['f_measure']['f_measure']:.2f}",
            f"{own['event'][label]['f_measure']['f_measure']:.2f}",
            f"{own['false_events'][label]['false_events']['per_minute']:.2f}",
        )
        for label in sorted(own["segment"])
    )
    columns = ("class", "clip precision", "clip recall", "segment F1", "event F1",
               "false events per minute")  # fmt: skip
    return TextTable("Per class", columns, rows).to_markdown() + "\n"


def encoder_table() -> str:
    """Return the scores of a network on YAMNet's embeddings beside ours, on the test scenes."""
    rows = []
    for title, plan, configuration, tuning, measured in (
        ("ours, from scratch, two generations", "best", CONFIGURATION, TUNING, CARD),
        ("on YAMNet's frames, frozen", "encoder", OF_ENCODER, "clip", ENCODER_CARD),
    ):
        own, at_point = _run(plan, configuration).scores, json.loads(measured.read_text())["scores"]
        scores, free = own[tuning], own["threshold_free"]
        names = ("f_measure", "error_rate", "event_f_measure")
        false = at_point["false_events"]["false_events"]["per_minute"]
        recall = at_point["clip"]["f_measure"]["recall"]
        texts = [f"{scores[name]:.3f}" for name in names]
        texts.append(f"{free['mean_average_precision']:.3f}")
        rows.append((title, tuning, *texts, f"{false:.1f} ({recall:.2f})"))
    columns = (
        "network",
        "tuning",
        "F1",
        "ER",
        "event F1",
        "mAP",
        "false events per minute (recall)",
    )
    title = "1,000 test scenes (fold 4), and 207 recordings of unknown sounds"
    return TextTable(title, columns, tuple(rows)).to_markdown()


def summary() -> str:
    """Return the figures of the operating point in a few lines."""
    scores, intervals = card()["scores"], card()["intervals"]
    false = intervals["false_events"]["false_events"]["per_minute"]
    calibration = intervals["calibration"]["calibration"]["ece"]
    return "\n".join(
        [
            f"- {card()['n_scenes']:,} scenes of unseen sources: segment F1 "
            f"{scores['segment']['f_measure']['f_measure']:.3f}, error rate "
            f"{scores['segment']['error_rate']['error_rate']:.3f}, event F1 "
            f"{scores['event']['f_measure']['f_measure']:.3f}; clip recall "
            f"{scores['clip']['f_measure']['recall']:.3f} at a precision of "
            f"{scores['clip']['f_measure']['precision']:.3f}.",
            f"- {card()['n_recordings']} recordings of eight kinds of sound that it has never met: "
            f"{false['value']:.1f} false events per minute (95 % confidence interval "
            f"{false['low']:.1f} to {false['high']:.1f}), in "
            f"{scores['false_events']['false_events']['recordings']:.0%} of the recordings.",
            f"- Calibration error of the scores of its events in these scenes: "
            f"{calibration['value']:.3f} ({calibration['low']:.3f} to {calibration['high']:.3f}).",
            "",
        ]
    )


def plot_before_and_after(path: Path) -> None:
    """Draw the test scene with the most events, with the detector before and after."""
    systems = {}
    after = _run("best", CONFIGURATION)
    pooling = "linear"
    for title, run, rule in (
        ("before", _run("detector", OLD), BEFORE),
        ("now", after, default_rule(pooling)),
    ):
        example = run.example
        labels = list(example["frame_probs"])
        scores = FrameScores(
            np.array([example["frame_probs"][label] for label in labels]).T,
            labels,
            FrameGrid(1 / example["hop"]),
        )
        decoding = Decoding.uniform(labels, **rule)
        detected = example["detected"][TUNING]
        events = [x for x in decode_events(scores, decoding) if detected[x.label]]
        systems[title] = (scores, events)
    reference = [Event(*event) for event in after.example["events"]]
    title = "A scene of real recordings, before and after self-training and new rules"
    save(plot_detections(systems, reference, title=title), path)


def plot_calibration(path: Path) -> None:
    """Draw how often events of similar scores are right, on the test scenes."""
    bins = [ReliabilityBin(**each) for each in card()["reliability"]]
    save(plot_reliability({"second generation": bins}), path)
