"""PSDS of the DCASE 2017 evaluation set: earmark and sed_scores_eval in one run."""

import tempfile
import time
from pathlib import Path

import numpy as np

from earmark.formats.events import Event, read_events
from earmark.formats.names import stem_of
from earmark.formats.scores import ScoreTable
from earmark.metrics.psds import SCENARIOS, count_psds, psds_scores
from oracles import Oracles, plain

REPEATS = 3
N_BOOTSTRAP = 100
THEIRS = {"dtc": "dtc_threshold", "gtc": "gtc_threshold", "cttc": "cttc_threshold"}


def run(shared: Path) -> str:
    """Measure, and return the results in Markdown; needs the label tables and the oracles."""
    table = shared / "dcase2017" / "groundtruth_strong_label_evaluation_set.csv"
    if not (table.is_file() and Oracles.available()):
        return f"Not measured: it needs {table.name} and `make setup` for sed_scores_eval."
    reference = {name: merge_touching(events) for name, events in read_events(table).items()}
    frame_scores = simulate_scores(reference)
    rows = ["| setting | earmark | sed_scores_eval | ratio |", "|---|---:|---:|---:|"]
    largest = 0.0
    seconds = []
    with tempfile.TemporaryDirectory() as folder, Oracles() as oracles:
        path = Path(folder, "scores.npz")
        save(path, frame_scores)
        for name, scenario in SCENARIOS.items():
            theirs: list[float] = []
            ours: list[float] = []
            for _ in range(REPEATS):
                before = time.process_time()
                scores = psds_scores(reference, frame_scores, **scenario)
                ours.append(time.process_time() - before)
                answer = oracles.ask(
                    "psds",
                    reference={stem_of(file): own for file, own in plain(reference).items()},
                    scores=str(path),
                    durations={file: each.duration for file, each in frame_scores.items()},
                    **{THEIRS.get(key, key): value for key, value in scenario.items()},
                )
                theirs += answer["seconds"]
                largest = max(largest, abs(answer["value"] - scores.value))
            own, other = np.median(ours), np.median(theirs)
            setting = name.replace("psds", "scenario ")
            rows.append(f"| {setting} | {own:.2f} s | {other:.2f} s | {other / own:.1f} x |")
            counts = count_psds(reference, frame_scores, **scenario)
            weights = np.random.default_rng(0).multinomial(
                len(reference), np.full(len(reference), 1 / len(reference)), N_BOOTSTRAP
            )
            before = time.process_time()
            counts.weighted_scores(weights.astype(np.float64))
            seconds.append((time.process_time() - before) / N_BOOTSTRAP * 1000)
    text = (
        f"The {len(reference)} files and {len(frame_scores.labels)} classes of the DCASE 2017"
        " evaluation set, with simulated scores of 125 frames per file, at every threshold."
        f" Median CPU time of {REPEATS} rounds in which the tools take turns, from frame-level"
        " scores in memory to PSDS."
        f" The values differ by at most {largest:.0e}. A bootstrap of 1,000 samples takes"
        f" another {seconds[0]:.0f} s (scenario 1) and {seconds[1]:.0f} s (scenario 2), from the"
        f" {N_BOOTSTRAP} that were measured."
    )
    return text + "\n\n" + "\n".join(rows)


def merge_touching(events: list[Event]) -> list[Event]:
    """Merge events of one class that touch, as sed_scores_eval requires."""
    merged: list[Event] = []
    for event in sorted(events, key=lambda e: (e.label, e)):
        last = merged[-1] if merged else None
        if last and last.label == event.label and event.onset <= last.offset:
            merged[-1] = Event(last.onset, max(last.offset, event.offset), event.label)
        else:
            merged.append(event)
    return merged


def simulate_scores(reference: dict[str, list[Event]], smooth: int = 5) -> ScoreTable:
    """Smoothed noise, higher near the events."""
    rng = np.random.default_rng(0)
    labels = sorted({event.label for events in reference.values() for event in events})
    edges = np.arange(126) * 0.08
    frame_scores = {}
    for name, events in reference.items():
        noise = rng.standard_normal((125 + smooth - 1, len(labels)))
        logits = sum(noise[at : at + 125] for at in range(smooth)) / smooth**0.5 - 3
        for event in events:
            onset, offset = rng.normal([event.onset, event.offset], 0.2)
            inside = (edges[1:] > onset) & (edges[:-1] < offset)
            logits[inside, labels.index(event.label)] += 4
        frame_scores[name] = (edges, 1 / (1 + np.exp(-logits)))
    return ScoreTable(labels, frame_scores)


def save(path: Path, frame_scores: ScoreTable) -> None:
    np.savez(
        path,
        names=list(frame_scores),
        labels=frame_scores.labels,
        lengths=[len(each.scores) for each in frame_scores.values()],
        edges=np.concatenate([each.edges for each in frame_scores.values()]),
        scores=np.concatenate([each.scores for each in frame_scores.values()]),
    )
