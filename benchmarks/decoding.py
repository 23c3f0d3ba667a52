"""Choose the default decoding of each pooling function, on scenes of sounds outside the task.

    earmark synth SCENES --config benchmarks/other.toml --processes 2
    python -m benchmarks.decoding --scenes SCENES --work WORK

Tags cannot say where an event ends, so a default decides it: one rule for all classes. It is chosen
here on networks that were trained from tags on categories that no class of ours uses
(decoding.toml, other.toml), where onsets and offsets of the validation scenes are known: by the
mean of event-based F1 and segment-based F1, with clip-level thresholds from tags as
`earmark train` sets them. The search changes one setting at a time, over `CANDIDATES`, until none
helps. Gaps of more than a second are left out: these scenes seldom hold two events of a class, and
would reward filling any gap. Each network is a unit: one that is trained, or chosen for, is not
done again.

The result, benchmarks/results/decoding.json, is what `earmark.inference.tuning.DEFAULTS` holds.

    python -m benchmarks.decoding --scenes SCENES --work WORK --test

then scores networks of the classes of scenes.toml (the first run of the same configurations in
pooling.toml) on the test scenes, with the rule before and with the default of their pooling
function: benchmarks/results/decoding_test.json.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from earmark.experiments.plan import Plan, Run
from earmark.experiments.run import RunOutput, Workspace, train_run
from earmark.experiments.scoring import score_estimate
from earmark.files import atomic_write
from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.tuning import DEFAULTS, default_rule, tune_clip_thresholds

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "decoding.json"
TESTED = HERE / "results" / "decoding_test.json"
# The rule before, for all pooling functions alike: where the search starts.
BEFORE: Mapping[str, float] = {
    "threshold": 0.5,
    "low_threshold": 0.1,
    "median": 0.24,
    "min_duration": 0.24,
    "max_gap": 0.24,
}
CANDIDATES: Mapping[str, tuple[float, ...]] = {
    "low_threshold": (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    "max_gap": (0.0, 0.24, 0.4, 0.56, 0.8, 1.04),
    "threshold": (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "median": (0.0, 0.24, 0.4, 0.56, 0.72),
    "min_duration": (0.0, 0.16, 0.24, 0.32, 0.48, 0.64),
}
Scores = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--test", action="store_true")
    options = parser.parse_args()
    plan = Plan.read(HERE / ("pooling.toml" if options.test else "decoding.toml"), options.scenes)
    workspace = Workspace(plan, options.work)
    path = TESTED if options.test else RESULTS
    done = json.loads(path.read_text()) if path.exists() else {}
    chosen = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for run in plan.runs():
        name = run.configuration
        chosen_for = name in chosen and run.settings.model.pooling in DEFAULTS
        if name in done or run.seed or (options.test and not chosen_for):
            continue
        done[name] = (
            compare_rules(workspace, run) if options.test else choose(Clips.predict(workspace, run))
        )
        atomic_write(path, (json.dumps(done, indent=1) + "\n").encode())
        print(name, done[name], flush=True)


class Clips(NamedTuple):
    """The validation clips of a plan with their events, as one of its networks scores them."""

    files: Sequence[str]
    scores: Sequence[FrameScores]
    reference: Mapping[str, Sequence[Event]]
    clip_thresholds: Decoding  # from tags

    @classmethod
    def predict(cls, workspace: Workspace, run: Run) -> "Clips":
        """Return the clips, scored by a network that is trained if it is not yet."""
        detector = train_run(workspace, run)
        store = workspace.compute_features(run)
        scores = detector.ensemble.predict_clips(workspace.valid, [store])
        thresholds = tune_clip_thresholds(scores, workspace.valid.tags, BEFORE).decoding
        return cls(workspace.valid.files, scores, workspace.valid_events, thresholds)

    def score(self, rule: Scores) -> Scores:
        """Return the scores of a rule for all classes."""
        decoding = self.clip_thresholds
        for label in decoding.labels:
            decoding = decoding.replaced(label, **rule)
        return self.score_events([decode_events(own, decoding) for own in self.scores])

    def score_events(self, events: Sequence[Sequence[Event]]) -> Scores:
        """Return the scores of the events of each clip."""
        estimate = dict(zip(self.files, events, strict=True))
        return score_estimate(self.reference, estimate, self.clip_thresholds.labels)[0]


def choose(clips: Clips) -> dict[str, Scores]:
    """Return the best rule, and the scores of the rule before and of this one."""
    rule, best = search_rule(clips.score)
    return {"rule": rule, "before": _rounded(clips.score(BEFORE)), "after": _rounded(best)}


def compare_rules(workspace: Workspace, run: Run) -> dict[str, Scores]:
    """Return the scores on the test clips of the rule before and of the default rule."""
    detector = train_run(workspace, run)
    output = RunOutput.predict(detector, workspace, workspace.compute_features(run))
    scores = {}
    for name, rule in (("before", BEFORE), ("after", default_rule(run.settings.model.pooling))):
        decoding = tune_clip_thresholds(output.valid, workspace.valid.tags, rule).decoding
        estimate = {
            file: decode_events(own, decoding)
            for file, own in zip(workspace.test.files, output.test, strict=True)
        }
        scores[name] = _rounded(score_estimate(workspace.reference, estimate, output.labels)[0])
    return scores


def _rounded(scores: Scores) -> Scores:
    """Return the scores that are reported."""
    return {key: round(scores[key], 4) for key in ("f_measure", "error_rate", "event_f_measure")}


def search_rule(score: Callable[[Scores], Scores]) -> tuple[dict[str, float], Scores]:
    """Return the best rule that changing one setting at a time finds, and its scores."""
    rule = dict(BEFORE)
    best = score(rule)
    moved = True
    while moved:
        moved = False
        for name, values in CANDIDATES.items():
            for number in values:
                candidate = rule | {name: number}
                if candidate["low_threshold"] > candidate["threshold"]:
                    continue
                scores = score(candidate)
                if value(scores) > value(best) + 1e-9:
                    rule, best, moved = candidate, scores, True
    return rule, best


def value(scores: Scores) -> float:
    """Return what is maximised."""
    return (scores["event_f_measure"] + scores["f_measure"]) / 2


if __name__ == "__main__":
    main()
