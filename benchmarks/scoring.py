"""Segment- and event-based scores: earmark and sed_eval in one run, and a million events."""

import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from earmark.formats.events import Event, read_events
from earmark.metrics.event import count_events, event_scores
from earmark.metrics.segment import count_segments, segment_scores
from oracles import Oracles, plain

REPEATS = 5
FEW_FILES, MANY_FILES, EVENTS_PER_FILE = 10_000, 100_000, 10

Table = Mapping[str, Sequence[Event]]


def run(shared: Path) -> str:
    """Measure, and return the results in Markdown."""
    table = shared / "dcase2017" / "groundtruth_strong_label_evaluation_set.csv"
    if not (table.exists() and Oracles.available()):
        comparison = "Not compared with sed_eval: DCASE 2017 or `.venv-oracles` is missing."
    else:
        comparison = compare_with_sed_eval(table)
    return f"{comparison}\n\n{growth()}"


def compare_with_sed_eval(table: Path) -> str:
    reference = read_events(table)
    labels = sorted({event.label for events in reference.values() for event in events})
    estimate = disturbed(reference, labels, np.random.default_rng(0))
    lists = {"reference": plain(reference), "estimate": plain(estimate), "labels": labels}
    kinds: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
        "segment": ({"resolution": 1.0}, lambda: segment_scores(reference, estimate, labels)),
        "event": (
            {"collar": 0.2, "rate": 0.5},
            lambda: event_scores(reference, estimate, labels),
        ),
    }
    rows = [
        "| scores | earmark | sed_eval | ratio | error rate (earmark, sed_eval) |",
        "|---|---:|---:|---:|---|",
    ]
    with Oracles() as oracles:
        for kind, (settings, score) in kinds.items():
            ours, theirs = [], []
            score()
            for _ in range(REPEATS):
                answer = oracles.ask(kind, **lists, **settings)
                theirs.append(answer["seconds"])
                begin = time.thread_time()
                scores = score()
                ours.append(time.thread_time() - begin)
            one, other = statistics.median(ours), statistics.median(theirs)
            rates = scores.error_rate, answer["overall"]["error_rate"]["error_rate"]
            rows.append(
                f"| {kind}-based | {one * 1e3:.1f} ms | {other * 1e3:.0f} ms |"
                f" {other / one:.0f} x | {rates[0]:.9f}, {rates[1]:.9f} |"
            )
    n_events = sum(map(len, reference.values()))
    text = (
        f"The DCASE 2017 evaluation set ({len(reference)} clips, {n_events} events,"
        f" {len(labels)} classes) against a disturbed copy of it: from lists of events to scores,"
        f" median CPU time of {REPEATS} rounds in which the tools take turns."
    )
    return text + "\n\n" + "\n".join(rows)


def growth() -> str:
    rows = ["| function | files | events | time | memory |", "|---|---:|---:|---:|---:|"]
    costs: dict[str, list[tuple[float, int]]] = {"count_segments": [], "count_events": []}
    for n_files in (FEW_FILES, MANY_FILES):
        reference, estimate = many(n_files)
        scorers: dict[str, Callable[[], Any]] = {
            "count_segments": partial(count_segments, reference, estimate),
            "count_events": partial(count_events, reference, estimate),
        }
        for name, count in scorers.items():
            seconds, peak = cost(count)
            costs[name].append((seconds, peak))
            rows.append(
                f"| `{name}` | {n_files:,} | {n_files * EVENTS_PER_FILE:,} | {seconds:.2f} s |"
                f" {peak / 2**20:.0f} MiB |"
            )
    grown = " and ".join(
        f"`{name}` takes {full[0] / few[0]:.1f} times the CPU time and {full[1] / few[1]:.1f} times"
        " the memory"
        for name, (few, full) in costs.items()
    )
    text = (
        f"{MANY_FILES * EVENTS_PER_FILE:,} events in {MANY_FILES:,} files, and a tenth of them, of"
        " 17 classes, with as many in the estimate; memory is the peak beyond the lists of events."
        f" For ten times the events, {grown}."
    )
    return text + "\n\n" + "\n".join(rows)


def cost(count: Callable[[], Any]) -> tuple[float, int]:
    """Return the fewest seconds of three runs and the peak memory in bytes of one more."""
    times = []
    for _ in range(3):
        begin = time.thread_time()
        count()
        times.append(time.thread_time() - begin)
    tracemalloc.start()
    count()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(times), peak


def disturbed(reference: Table, labels: Sequence[str], rng: np.random.Generator) -> Table:
    """Return a copy with events moved, stretched, deleted, substituted and inserted."""

    def copy(event: Event) -> Event:
        onset = max(0.0, event.onset + rng.normal(0, 0.3))
        label = labels[rng.integers(len(labels))] if rng.random() < 0.2 else event.label
        return Event(onset, onset + event.duration * rng.uniform(0.6, 1.4), label)

    def copies(events: Sequence[Event]) -> list[Event]:
        kept = [copy(event) for event in events if rng.random() < 0.85]
        return kept + [copy(event) for event in events if rng.random() < 0.15]

    return {name: copies(events) for name, events in reference.items()}


def many(n_files: int) -> tuple[Table, Table]:
    rng = np.random.default_rng(0)
    labels = [f"class {number:02}" for number in range(17)]

    def table(onsets: np.ndarray, lengths: np.ndarray, classes: np.ndarray) -> Table:
        rows = zip(onsets.tolist(), (onsets + lengths).tolist(), classes.tolist(), strict=True)
        return {
            f"{number}.wav": [Event(o, f, labels[c]) for o, f, c in zip(*row, strict=True)]
            for number, row in enumerate(rows)
        }

    shape = n_files, EVENTS_PER_FILE
    onsets, lengths = rng.uniform(0, 8, shape), rng.exponential(1.5, shape)
    classes = rng.integers(0, len(labels), shape)
    reference = table(onsets, lengths, classes)
    estimate = table(
        np.maximum(0, onsets + rng.normal(0, 0.2, shape)),
        lengths * rng.uniform(0.6, 1.4, shape),
        np.where(rng.random(shape) < 0.2, rng.integers(0, len(labels), shape), classes),
    )
    return reference, estimate
