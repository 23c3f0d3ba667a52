"""Other ways from frame-level scores to events, beside the one that Earmark has.

    python -m benchmarks.decoding --scenes SCENES --work WORK
    python -m benchmarks.alternatives --scenes SCENES --work WORK

Each has parameters for all classes together. They are chosen, as those of the default decoding
are, on scenes of sounds outside the task (decoding.toml, linear single-level pooling), and then
scored on the validation scenes of the classes of scenes.toml, which had no part in the choice
(pooling.toml, the same network). A class without a clip-level score above its threshold has no
event in any of them.

- two thresholds, median, gaps: `earmark.inference.decoding.Rule`.
- share of the peak: a frame is active from a share of the highest score of its class in the clip.
- distance from the peak: the same in log-odds.
- HMM: the best path through two states per class, where a frame gains its log-odds over those of a
  threshold when it is active, and every change of state costs the same.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.decoding import BEFORE, HERE, Clips, search_rule, value
from earmark.experiments.plan import Plan
from earmark.experiments.run import Workspace
from earmark.formats.events import Event
from earmark.inference.runs import find_runs

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
CONFIGURATION = "linear, single"
GAPS = (0.4, 0.8, 1.04)  # seconds
MIN_DURATION = 0.24


class Curves(NamedTuple):
    """Clips of one length, with what a decoding needs.

    Shape: `probs` (clips, frames, classes), `allowed` (clips, classes).
    """

    clips: Clips
    probs: Floats
    allowed: Mask

    @classmethod
    def read(cls, plan: Path, scenes: Path, work: Path) -> "Curves":
        """Return the validation clips of a plan, as its first run scores them."""
        workspace = Workspace(Plan.read(plan, scenes), work)
        run = next(x for x in workspace.plan.runs() if x.configuration == CONFIGURATION)
        clips = Clips.predict(workspace, run)
        least = np.array([rule.clip_threshold for rule in clips.clip_thresholds.rules])
        probs = np.stack([own.scores for own in clips.scores]).clip(1e-6, 1 - 1e-6)
        allowed = np.stack([own.clip_level() for own in clips.scores]) >= least
        return cls(clips, probs.astype(np.float64), allowed)

    def score(self, active: Mask, gap: float = 0.0) -> Mapping[str, float]:
        """Return the scores of the events in active frames, (clips, frames, classes)."""
        events = []
        for own, frames in zip(self.clips.scores, active & self.allowed[:, None], strict=True):
            assert own.grid is not None
            n_gap, n_least = own.grid.index(gap), own.grid.count(MIN_DURATION)
            found = []
            for column in np.flatnonzero(frames.any(axis=0)):
                mask = frames[:, column]
                for start, stop in zip(*find_runs(mask, mask, n_gap, n_least), strict=True):
                    offset = min(own.grid.offset(int(stop) - 1), own.duration)
                    found.append(Event(own.grid.onset(int(start)), offset, own.labels[column]))
            events.append(sorted(found))
        return self.clips.score_events(events)


def log_odds(probs: Floats) -> Floats:
    """Return the logarithm of the odds."""
    odds: Floats = np.log(probs) - np.log1p(-probs)
    return odds


def share_of_peak(curves: Curves, share: float, gap: float) -> Mapping[str, float]:
    """Score frames from a share of the peak up."""
    peak = curves.probs.max(axis=1, keepdims=True)
    return curves.score(curves.probs >= share * peak, gap)


def distance_from_peak(curves: Curves, distance: float, gap: float) -> Mapping[str, float]:
    """Score frames from a distance below the peak up, in log-odds."""
    odds = log_odds(curves.probs)
    near = odds >= odds.max(axis=1, keepdims=True) - distance
    return curves.score(near, gap)


def hidden_markov(curves: Curves, threshold: float, cost: float) -> Mapping[str, float]:
    """Score the frames of the best path through two states, silent and active."""
    gains = log_odds(curves.probs) - np.log(threshold / (1 - threshold))
    gains = gains.clip(-4, 4)  # so that no single frame decides
    silent, active = np.zeros_like(gains[:, 0]), gains[:, 0] - cost
    changed = np.zeros((gains.shape[1], 2, *silent.shape), bool)
    for frame in range(1, gains.shape[1]):
        changed[frame] = active - cost > silent, silent - cost > active
        silent, active = (
            np.maximum(silent, active - cost),
            np.maximum(active, silent - cost) + gains[:, frame],
        )
    state = active > silent
    path = np.zeros(gains.shape, bool)
    for frame in reversed(range(gains.shape[1])):
        path[:, frame] = state
        state = state ^ np.where(state, changed[frame, 1], changed[frame, 0])
    return curves.score(path)


def two_thresholds(curves: Curves, **rule: float) -> Mapping[str, float]:
    """Score what Earmark does."""
    return curves.clips.score(rule)


ALTERNATIVES: Mapping[str, tuple[Callable[..., Mapping[str, float]], Mapping[str, Sequence[float]]]]
ALTERNATIVES = {
    "share of the peak": (
        share_of_peak,
        {"share": (0.03, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5), "gap": GAPS},
    ),
    "distance from the peak": (
        distance_from_peak,
        {"distance": (2.0, 3.0, 4.0, 5.0, 6.0), "gap": GAPS},
    ),
    "HMM": (
        hidden_markov,
        {"threshold": (0.02, 0.03, 0.05, 0.1, 0.2), "cost": (1.0, 2.5, 4.0, 5.0, 7.5, 10.0)},
    ),
}


def grid_of(parameters: Mapping[str, Sequence[float]]) -> Iterator[dict[str, float]]:
    """Yield every combination."""
    for values in product(*parameters.values()):
        yield dict(zip(parameters, values, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()
    other, own = (
        Curves.read(HERE / plan, options.scenes, options.work)
        for plan in ("decoding.toml", "pooling.toml")
    )
    print("| decoding | parameters | F1 | ER | event F1 | other F1 | other event F1 |")
    print("|---|---|---:|---:|---:|---:|---:|")
    show("before", BEFORE, two_thresholds, other, own)
    rule, _ = search_rule(lambda rule: two_thresholds(other, **rule))
    show("two thresholds, median, gaps", rule, two_thresholds, other, own)
    for name, (score, parameters) in ALTERNATIVES.items():
        best = max(grid_of(parameters), key=lambda given, f=score: value(f(other, **given)))
        show(name, best, score, other, own)


def show(
    name: str,
    parameters: Mapping[str, float],
    score: Callable[..., Mapping[str, float]],
    other: Curves,
    own: Curves,
) -> None:
    """Print a row: scores on our classes, and on the others, where the parameters were chosen."""
    here: Any = score(own, **parameters)
    there: Any = score(other, **parameters)
    text = ", ".join(f"{key} {number:g}" for key, number in parameters.items())
    print(
        f"| {name} | {text} | {here['f_measure']:.3f} | {here['error_rate']:.3f} | "
        f"{here['event_f_measure']:.3f} | {there['f_measure']:.3f} | "
        f"{there['event_f_measure']:.3f} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
