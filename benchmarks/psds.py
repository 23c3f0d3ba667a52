"""PSDS of the DCASE 2017 evaluation set: earmark beside sed_scores_eval, in one run."""

import tempfile
import time
from pathlib import Path

import numpy as np

from earmark.formats.events import Event, read_events
from earmark.formats.names import stem_of
from earmark.formats.scores import ScoreCurve, ScoreCurves
from earmark.metrics.psds import SCENARIOS, count_psds, psds_scores
from oracles import Oracles, plain

REPEATS = 3
N_DRAWS = 100
THEIRS = {"dtc": "dtc_threshold", "gtc": "gtc_threshold", "cttc": "cttc_threshold"}


def run(shared: Path) -> str:
    """Measure, and return the figures in Markdown; needs the label tables and the oracles."""
    table = shared / "dcase2017" / "groundtruth_strong_label_evaluation_set.csv"
    if not (table.is_file() and Oracles.at_hand()):
        return f"Not measured: it needs {table.name} and `make setup` for sed_scores_eval."
    reference = {name: apart(events) for name, events in read_events(table).items()}
    curves = made_curves(reference)
    rows = ["| setting | earmark | sed_scores_eval | ratio |", "|---|---:|---:|---:|"]
    largest = 0.0
    draws = []
    with tempfile.TemporaryDirectory() as folder, Oracles() as oracles:
        path = Path(folder, "curves.npz")
        save(path, curves)
        for name, scenario in SCENARIOS.items():
            theirs: list[float] = []
            ours: list[float] = []
            for _ in range(REPEATS):
                before = time.process_time()
                scores = psds_scores(reference, curves, **scenario)
                ours.append(time.process_time() - before)
                answer = oracles.ask(
                    "psds",
                    reference={stem_of(file): own for file, own in plain(reference).items()},
                    curves=str(path),
                    durations={file: curve.duration for file, curve in curves.items()},
                    **{THEIRS.get(key, key): value for key, value in scenario.items()},
                )
                theirs += answer["seconds"]
                largest = max(largest, abs(answer["value"] - scores.value))
            own, other = np.median(ours), np.median(theirs)
            rows.append(
                f"| {name.replace('_', ' ')} | {own:.2f} s | {other:.2f} s | {other / own:.1f} x |"
            )
            counts = count_psds(reference, curves, **scenario)
            weights = np.random.default_rng(0).multinomial(
                len(reference), np.full(len(reference), 1 / len(reference)), N_DRAWS
            )
            before = time.process_time()
            counts.measure(weights.astype(np.float64))
            draws.append((time.process_time() - before) / N_DRAWS * 1000)
    text = (
        f"The {len(reference)} files and {len(curves.labels)} classes of the DCASE 2017 evaluation"
        " set, with made curves of 125 frames a file, every threshold of which is tried. The median"
        f" CPU time of {REPEATS} rounds in which the tools take turns, from curves in memory to the"
        f" score. The scores differ by {largest:.0e} at most. A bootstrap of 1,000 draws of files"
        f" takes another {draws[0]:.0f} s (scenario 1) and {draws[1]:.0f} s (scenario 2), by"
        f" {N_DRAWS} that were measured."
    )
    return text + "\n\n" + "\n".join(rows)


def apart(events: list[Event]) -> list[Event]:
    """Make one of events that touch, as sed_scores_eval wants them."""
    found: list[Event] = []
    for event in sorted(events, key=lambda e: (e.label, e)):
        last = found[-1] if found else None
        if last and last.label == event.label and event.onset <= last.offset:
            found[-1] = Event(last.onset, max(last.offset, event.offset), event.label)
        else:
            found.append(event)
    return found


def made_curves(reference: dict[str, list[Event]], smooth: int = 5) -> ScoreCurves:
    """Noise over a few frames, and bumps about where the events are."""
    rng = np.random.default_rng(0)
    labels = sorted({event.label for events in reference.values() for event in events})
    edges = np.arange(126) * 0.08
    curves = {}
    for name, events in reference.items():
        noise = rng.standard_normal((125 + smooth - 1, len(labels)))
        logits = sum(noise[at : at + 125] for at in range(smooth)) / smooth**0.5 - 3
        for event in events:
            onset, offset = rng.normal([event.onset, event.offset], 0.2)
            inside = (edges[1:] > onset) & (edges[:-1] < offset)
            logits[inside, labels.index(event.label)] += 4
        curves[name] = ScoreCurve(edges, 1 / (1 + np.exp(-logits)))
    return ScoreCurves(labels, curves)


def save(path: Path, curves: ScoreCurves) -> None:
    np.savez(
        path,
        names=list(curves),
        labels=curves.labels,
        lengths=[len(curve.scores) for curve in curves.values()],
        edges=np.concatenate([curve.edges for curve in curves.values()]),
        scores=np.concatenate([curve.scores for curve in curves.values()]),
    )
