"""Tuning on few clips with known events: does it hold on other clips?

    python -m benchmarks.tuning SCENES --model run/model.earmark

SCENES is a folder with `strong.tsv` and `audio`, of clips that the model was not trained on. Some
of them are drawn at random to tune on, several times, and the rest are scored: with the decoding of
the model file, with what the search alone finds (neither drawn towards the start nor
cross-validated), and with what `earmark tune --strong` gives. The table goes into docs/events.md.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from earmark.formats.events import Event, read_events
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED
from earmark.inference.tuning import tune_decoding
from earmark.metrics import event_scores, segment_scores

SIZES = (12, 25, 50, 100)
OBJECTIVES = ("f_measure", "event_f_measure")
SEARCH_ALONE = {"shrinkage": 0.0, "n_folds": 0}


class Outcome(NamedTuple):
    """Segment-based F1 and event-based F1 of one decoding on the clips not tuned on."""

    segment_f1: float
    event_f1: float
    is_adopted: bool


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenes", type=Path)
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--objectives", nargs="+", default=OBJECTIVES)
    options = parser.parse_args()
    detector = Detector.load(options.model)
    events = read_events(options.scenes / "strong.tsv")
    paths = sorted((options.scenes / "audio").iterdir())
    scores = [detector.frame_scores(path) for path in paths]
    reference = [events.get(path.name, []) for path in paths]
    print("| tuned for | clips | changed | segment F1 | search alone | tuned | event F1 | ", end="")
    print("search alone | tuned |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for objective in options.objectives:
        for size in options.sizes:
            draws = range(options.draws)
            start = detector.bundle.decoding
            outcomes = [measure(scores, reference, start, objective, size, d) for d in draws]
            print(row_of(objective, size, outcomes), flush=True)


def measure(
    scores: Sequence[FrameScores],
    reference: Sequence[Sequence[Event]],
    start: Decoding,
    objective: str,
    n_clips: int,
    draw: int,
) -> dict[str, Outcome]:
    """Return the outcome of each way to tune on some clips, on all others."""
    order = np.random.default_rng(draw).permutation(len(scores)).tolist()
    own, others = order[:n_clips], order[n_clips:]
    decodings = {"model file": (start, False)}
    for name, choices in (("search alone", SEARCH_ALONE), ("tuned", {})):
        tuned = tune_decoding(
            [scores[row] for row in own],
            reference=[reference[row] for row in own],
            start=start,
            objective=objective,
            **choices,
        )
        decodings[name] = tuned.decoding, tuned.is_adopted
    by_file = {str(row): reference[row] for row in others}
    outcomes = {}
    for name, (decoding, is_adopted) in decodings.items():
        found = {str(row): decode_events(scores[row], decoding) for row in others}
        segment, event = (
            score(by_file, found, start.labels, empty_as_zero=True).f_measure
            for score in (segment_scores, event_scores)
        )
        outcomes[name] = Outcome(segment, event, is_adopted)
    return outcomes


def row_of(objective: str, n_clips: int, outcomes: Sequence[dict[str, Outcome]]) -> str:
    """Return the scores of the model file, and the gains: mean and deviation over draws."""
    n_adopted = sum(outcome["tuned"].is_adopted for outcome in outcomes)
    cells = [objective, str(n_clips), f"{n_adopted} of {len(outcomes)}"]
    for metric in ("segment_f1", "event_f1"):
        start, *others = (
            np.array([getattr(outcome[name], metric) for outcome in outcomes])
            for name in ("model file", "search alone", "tuned")
        )
        cells.append(f"{start.mean():.3f}")
        cells += [f"{(own - start).mean():+.3f} ± {(own - start).std():.3f}" for own in others]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
