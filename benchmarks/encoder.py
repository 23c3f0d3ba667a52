"""Train on the embeddings of YAMNet, and score models on scenes, alone or averaged.

    python -m benchmarks.encoder train SCENES/train SCENES/valid --out RUN --store STORE
    python -m benchmarks.encoder score SCENES/valid SCENES/test RUN/model.earmark [OTHER ...]

A folder of scenes has audio/, weak.tsv and strong.tsv. Clip-level thresholds come from the tags of
the first folder, the scores from the events of the second one; several models are averaged, on the
finest of their frame grids. YAMNet is found through `benchmarks/yamnet_frames.toml`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.yamnet import register
from earmark.data.manifest import Manifest
from earmark.formats.events import read_events
from earmark.frames import FrameScores
from earmark.inference.decoding import decode_events
from earmark.inference.detector import Detector
from earmark.inference.predictor import mean_scores
from earmark.inference.tuning import tune_clip_thresholds
from earmark.metrics import clip_scores, event_scores, segment_scores
from earmark.training.api import train
from earmark.training.config import RunConfig

HERE = Path(__file__).parent
ENCODER = HERE / "yamnet_frames.toml"


def read_clips(folder: Path, labels: tuple[str, ...] | None = None) -> Manifest:
    """Return the clips of a folder of scenes."""
    return Manifest.read(folder / "weak.tsv", folder / "audio", labels)


def refine(scores: FrameScores, like: FrameScores) -> FrameScores:
    """Return scores on a grid that is as fine or finer, by repeating frames."""
    factor = like.grid.frame_rate / scores.grid.frame_rate
    if factor.denominator != 1:
        raise SystemExit(f"Frame rates must be multiples. Got a ratio of {factor}.")
    n_frames = len(like.scores)
    index = np.minimum(np.arange(n_frames) // int(factor), len(scores.scores) - 1)
    return FrameScores(
        scores.scores[index],
        scores.labels,
        like.grid,
        duration=like.duration,
        clip_scores=scores.clip_level(),
    )


def predict(detectors: Sequence[Detector], clips: Manifest) -> list[FrameScores]:
    """Return the mean scores of the detectors for each clip."""
    found = [[detector.frame_scores(path) for path in clips.paths] for detector in detectors]
    finest = max(found, key=lambda scores: scores[0].grid.frame_rate)
    return mean_scores(
        [refine(own, like) for own, like in zip(scores, finest, strict=True)] for scores in found
    )


def score(tuned_on: Path, scored_on: Path, models: Sequence[Path]) -> dict[str, float]:
    """Return mAP, segment F1 and error rate, and event F1 of the averaged models."""
    detectors = [Detector.load(model, threads=1) for model in models]
    labels = detectors[0].labels
    valid, test = read_clips(tuned_on, labels), read_clips(scored_on, labels)
    valid_scores = predict(detectors, valid)
    decoding = tune_clip_thresholds(valid_scores, valid.tags).decoding
    test_scores = valid_scores if scored_on == tuned_on else predict(detectors, test)
    events = read_events(scored_on / "strong.tsv")
    reference = {file: events[file] for file in test.files}
    estimate = {
        file: decode_events(own, decoding)
        for file, own in zip(test.files, test_scores, strict=True)
    }
    probs = {file: own.clip_level() for file, own in zip(test.files, test_scores, strict=True)}
    tags = dict(zip(test.files, test.tags, strict=True))
    found = {file: sorted({event.label for event in own}) for file, own in estimate.items()}
    segments = segment_scores(reference, estimate).overall
    return {
        "mAP": clip_scores(tags, found, probs, labels).mean_average_precision,
        "segment F1": segments["f_measure"]["f_measure"],
        "segment ER": segments["error_rate"]["error_rate"],
        "event F1": event_scores(reference, estimate).overall["f_measure"]["f_measure"],
    }


def main() -> None:
    """Read the command line; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    of_train = commands.add_parser("train")
    of_train.add_argument("train", type=Path)
    of_train.add_argument("valid", type=Path)
    of_train.add_argument("--out", type=Path, required=True)
    of_train.add_argument("--store", type=Path)
    of_train.add_argument("--encoder", default=ENCODER)
    of_train.add_argument("--set", action="append", default=[])
    of_score = commands.add_parser("score")
    of_score.add_argument("tuned_on", type=Path)
    of_score.add_argument("scored_on", type=Path)
    of_score.add_argument("models", type=Path, nargs="+")
    args = parser.parse_args()
    register()
    if args.command == "train":
        clips = read_clips(args.train)
        train(
            clips,
            read_clips(args.valid, clips.labels),
            out=args.out,
            encoder=args.encoder,
            overrides=["training.threads=1", *args.set],
            run=RunConfig(store=args.store, resume=True, device="cpu"),
        )
        return
    for name, value in score(args.tuned_on, args.scored_on, args.models).items():
        print(f"{name}\t{value:.3f}")


if __name__ == "__main__":
    main()
