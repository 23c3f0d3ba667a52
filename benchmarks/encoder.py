"""Train on the embeddings of YAMNet, and score models on scenes, alone or averaged.

    python -m benchmarks.encoder train SCENES/train SCENES/valid --out RUN --store STORE
    python -m benchmarks.encoder score SCENES/valid SCENES/test RUN/model.earmark [OTHER ...]

A folder of scenes has audio/, weak.tsv and strong.tsv. Clip-level thresholds come from the tags of
the first folder, the scores from the events of the second one; several models are averaged, as by
`earmark ensemble`. YAMNet is found through `benchmarks/yamnet_frames.toml`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.yamnet import register
from earmark.data.manifest import Manifest
from earmark.formats.events import read_events
from earmark.frames import FrameScores
from earmark.inference.combine import ensemble
from earmark.inference.decoding import decode_events
from earmark.inference.detector import Detector
from earmark.inference.tuning import tune_clip_thresholds
from earmark.metrics import clip_scores, event_scores, segment_scores
from earmark.training.api import train
from earmark.training.config import RunConfig

HERE = Path(__file__).parent
ENCODER = HERE / "yamnet_frames.toml"


def read_clips(folder: Path, labels: tuple[str, ...] | None = None) -> Manifest:
    """Return the clips of a folder of scenes."""
    return Manifest.read(folder / "weak.tsv", folder / "audio", labels)


def predict(detector: Detector, clips: Manifest) -> list[FrameScores]:
    """Return the scores of the detector for each clip."""
    return [detector.frame_scores(path) for path in clips.paths]


def score(tuned_on: Path, scored_on: Path, models: Sequence[Path]) -> dict[str, float]:
    """Return mAP, segment F1 and error rate, and event F1 of the averaged models."""
    detector = ensemble(models, threads=1)
    labels = detector.labels
    valid, test = read_clips(tuned_on, labels), read_clips(scored_on, labels)
    valid_scores = predict(detector, valid)
    decoding = tune_clip_thresholds(valid_scores, valid.tags).decoding
    test_scores = valid_scores if scored_on == tuned_on else predict(detector, test)
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
