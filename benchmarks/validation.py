"""Score the runs of defaults.toml on the validation clips, with their onsets and offsets.

    python -m benchmarks.validation DATA WORK

DATA is what `benchmarks.kinds` wrote, and WORK/KIND the folder of `earmark compare --work`, which
has the models. The result, benchmarks/results/defaults/validation.json, is what the defaults of
`earmark train` are chosen by: the results of `earmark compare` have scores of test clips. Runs
without a model in WORK keep the scores that they had.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.kinds import HERE, KINDS
from earmark.experiments.plan import Plan, Run
from earmark.experiments.run import Workspace
from earmark.experiments.scoring import score_estimate
from earmark.files import atomic_write
from earmark.formats.events import read_events
from earmark.inference.decoding import decode_events
from earmark.inference.detector import Detector
from earmark.inference.model_file import load_bundle
from earmark.inference.tuning import tune_clip_thresholds
from earmark.metrics.clip import clip_scores

OUT = HERE / "results" / "defaults" / "validation.json"
KEPT = ("f_measure", "error_rate", "event_f_measure")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", choices=KINDS, nargs="*", default=KINDS, metavar="KIND")
    options = parser.parse_args()
    known: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for kind in options.only:
        plan = Plan.read(HERE / "defaults.toml", options.data / kind)
        workspace = Workspace(plan, options.work / kind)
        scored = known.setdefault(kind, {})
        for run in plan.runs():
            own, seed = scored.setdefault(run.configuration, {}), str(run.seed)
            if seed not in own and _is_finished(workspace.model_path(run)):
                own[seed] = score(workspace, run, options.data / kind)
                print(kind, run.key, own[seed], flush=True)
                atomic_write(OUT, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())


def _is_finished(model: Path) -> bool:
    return model.exists() and bool(load_bundle(model).training.get("finished"))


def score(workspace: Workspace, run: Run, data: Path) -> dict[str, float]:
    """Return the scores of one run's model on the validation clips, decoded as `train` decodes."""
    store = workspace.compute_features(run)
    detector = Detector.load(workspace.model_path(run))
    clips = workspace.valid
    scores = detector.ensemble.predict_clips(clips, [store])
    decoding = tune_clip_thresholds(scores, clips.tags, run.rule).decoding
    pairs = list(zip(clips.files, scores, strict=True))
    events = read_events(data / "valid" / "strong.tsv")
    reference = {Path(file).name: events[Path(file).name] for file in clips.files}
    estimate = {Path(file).name: decode_events(own, decoding) for file, own in pairs}
    measured, _ = score_estimate(reference, estimate, detector.labels)
    tags = dict(zip(clips.files, clips.tags, strict=True))
    by_tag = clip_scores(
        tags, probs={file: own.clip_level() for file, own in pairs}, labels=detector.labels
    )
    result = {name: measured[name] for name in KEPT}
    result["mean_average_precision"] = by_tag.mean_average_precision
    return {name: round(float(value), 6) for name, value in result.items()}


if __name__ == "__main__":
    main()
