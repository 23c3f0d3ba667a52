"""Choose the default decoding of each pooling function, on scenes of sounds outside the task.

    earmark synth SCENES --config benchmarks/other.toml --processes 2
    python -m benchmarks.decoding --scenes SCENES --work WORK

Tags cannot say where an event ends, so a default decides it: one rule for all classes. It is chosen
here on networks that were trained from tags on categories that no class of ours uses
(decoding.toml, other.toml), where onsets and offsets of the validation scenes are known: by the
mean of event-based F1 and segment-based F1, with clip-level thresholds from tags as
`earmark train` sets them. The search changes one setting at a time, over `CANDIDATES`, until none
helps. Each network is a unit: one that is trained, or chosen for, is not done again.

The result, benchmarks/results/decoding.json, is what `earmark.inference.tuning.DEFAULTS` holds.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from earmark.experiments.plan import Plan, Run
from earmark.experiments.run import RunOutput, Workspace, score_events, train_run
from earmark.files import atomic_write
from earmark.inference.detector import Detector
from earmark.inference.tuning import tune_clip_thresholds

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "decoding.json"
# The rule of version 0.2, for all pooling functions alike: where the search starts.
BEFORE: Mapping[str, float] = {
    "threshold": 0.5,
    "low_threshold": 0.1,
    "median": 0.24,
    "min_duration": 0.24,
    "max_gap": 0.24,
}
CANDIDATES: Mapping[str, tuple[float, ...]] = {
    "low_threshold": (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5),
    "max_gap": (0.0, 0.24, 0.4, 0.56, 0.8, 1.04, 1.28, 1.6),
    "threshold": (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
    "median": (0.0, 0.24, 0.4, 0.56, 0.72),
    "min_duration": (0.0, 0.16, 0.24, 0.32, 0.48, 0.64),
}
Scores = Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    plan = Plan.read(HERE / "decoding.toml", options.scenes)
    workspace = Workspace(plan, options.work)
    chosen = json.loads(options.out.read_text()) if options.out.exists() else {}
    for run in plan.runs():
        if run.configuration in chosen:
            continue
        chosen[run.configuration] = choose(workspace, run)
        atomic_write(options.out, (json.dumps(chosen, indent=1) + "\n").encode())
        print(run.configuration, chosen[run.configuration], flush=True)


def choose(workspace: Workspace, run: Run) -> dict[str, Mapping[str, float]]:
    """Return the best rule for a network, and the scores of the first rule and of this one."""
    path = workspace.model_path(run)
    detector = Detector.load(path) if path.exists() else train_run(workspace, run)
    output = RunOutput.predict(detector, workspace, workspace.compute_features(run))
    clip_thresholds = tune_clip_thresholds(output.valid, workspace.valid.tags, BEFORE).decoding

    def score(rule: Scores) -> Scores:
        decoding = clip_thresholds
        for label in decoding.labels:
            decoding = decoding.replaced(label, **rule)
        return score_events(output, workspace, decoding)[0]

    rule = dict(BEFORE)
    before = best = score(rule)
    moved = True
    while moved:
        moved = False
        for name, values in CANDIDATES.items():
            for value in values:
                candidate = rule | {name: value}
                if candidate["low_threshold"] > candidate["threshold"]:
                    continue
                scores = score(candidate)
                if _value(scores) > _value(best) + 1e-9:
                    rule, best, moved = candidate, scores, True
    kept = ("f_measure", "error_rate", "event_f_measure")
    return {"rule": rule, **{
        name: {key: round(scores[key], 4) for key in kept}
        for name, scores in (("before", before), ("after", best))
    }}  # fmt: skip


def _value(scores: Scores) -> float:
    return (scores["event_f_measure"] + scores["f_measure"]) / 2


if __name__ == "__main__":
    main()
