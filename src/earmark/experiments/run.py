"""Execute one run of a comparison: train, tune, and score on the test clips.

Conventions: a result is one JSON file, written atomically at the end: if it exists, the run is
finished. An interrupted run resumes from its checkpoint. Test clips are scored at full length.

Thresholds are tuned on the validation clips in several ways, and each is scored:

    clip_and_frame  clip-level and frame-level thresholds per class, from tags
    clip            clip-level thresholds per class, from tags, and the default frame-level ones:
                    what `earmark train` does
    shared_clip     the same with one clip-level threshold for all classes
    strong          all thresholds from onsets and offsets, if the plan has `valid_events`
    published       the decision stage that the network was published with, if it has one
                    (`earmark.inference.tuning.DECISIONS`); also has "tag_f_measure"

Scores that need no threshold are under "threshold_free". An ensemble averages the predictions of
its members before tuning and scoring.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from earmark.config import build
from earmark.data.manifest import Manifest, clip_paths, separate_names
from earmark.data.negatives import join_negatives, read_both_negatives
from earmark.data.store import FeatureStore, build_store
from earmark.errors import UNUSABLE, DataError
from earmark.experiments.plan import Plan, Run
from earmark.experiments.scoring import score_clips
from earmark.files import atomic_write, make_folder
from earmark.formats.events import Event, read_events
from earmark.frames import FrameScores
from earmark.inference.combine import combine
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.model_file import installed_versions, load_bundle
from earmark.inference.tuning import (
    Decision,
    decide_as_published,
    has_decision,
    tune_clip_thresholds,
    tune_decoding,
)
from earmark.metrics.clip import clip_scores, tags_of
from earmark.runtime.device import resolve_device
from earmark.training.api import readable, train
from earmark.training.config import RunConfig
from earmark.training.finish import MODEL
from earmark.training.launch import resolve_precision

FEATURES = "features"
FROM_TAGS: Mapping[str, Mapping[str, Any]] = {  # tuning -> arguments of `tune_clip_thresholds`
    "clip_and_frame": {"threshold_from": "tags"},
    "clip": {},
    "shared_clip": {"shared": True},
}
# Results of format 1, written by version 0.1, have no "format" and use these names.
FIRST_NAMES: Mapping[str, str] = {
    "cell": "configuration",
    "shown": "example",
    "weak": "clip_and_frame",
    "gates": "clip",
    "shared": "shared_clip",
    "curves": "threshold_free",
    "open": "detected",
    "together": "ensemble_of",
}
FORMAT = 2


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Args:
        configuration: name in the plan.
        seed: of the training.
        fingerprint: of settings and tables; a result with another one belongs to another plan.
        scores: tuning -> name -> value, on the test clips; "threshold_free" has the scores that
            need no threshold, and "valid" those of the validation clips, for model selection.
        counts: tuning -> "tp", "fp", "fn" and "errors" of every test clip, in segments, for
            confidence intervals. Not every result has every tuning.
        example: the test clip with the most events (the first of them): its reference events, the
            frame probabilities of their classes, the thresholds per tuning, and whether the class
            was detected at clip level.
        training: epochs, losses, seconds.
        versions: of the packages that produced it.
        format: version of the file format.
        fold: of the tables, if the plan has folds; runs of one fold have the same test clips.
        valid_scores: as `scores`, on the validation clips, if the plan has their events. Thresholds
            were tuned on these clips, so that the scores are higher than on others.
        valid_counts: as `counts`, of the validation clips.

    >>> RunResult("linear, single", 0, "", {}, {}, {}, {}).format
    2
    """

    configuration: str
    seed: int
    fingerprint: str
    scores: Mapping[str, Mapping[str, float]]
    counts: Mapping[str, Mapping[str, Sequence[int]]]
    example: Mapping[str, Any]
    training: Mapping[str, Any]
    versions: Mapping[str, str] = field(default_factory=installed_versions)
    format: int = FORMAT
    fold: int = 0
    valid_scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    valid_counts: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)

    def on_validation(self) -> "RunResult":
        """Return the result with the scores of the validation clips in place of the test clips.

        >>> counts = {"clip": {"tp": [1]}}
        >>> scores = {"clip": {"f_measure": 0.5}}
        >>> result = RunResult("single", 0, "", {"valid": {}}, {}, {}, {})
        >>> result = replace(result, valid_scores=scores, valid_counts=counts)
        >>> result.on_validation().scores["clip"]
        {'f_measure': 0.5}
        """
        if not self.valid_scores:
            raise DataError(
                f"The result of {self.configuration!r} with seed {self.seed} has no scores of "
                "validation clips; the plan needs data.valid_events, and a result of an earlier "
                "version must be run again."
            )
        scores = {**self.valid_scores, "valid": self.scores["valid"]}
        return replace(self, scores=scores, counts=self.valid_counts)

    def write(self, path: Path) -> None:
        """Write the result as JSON, atomically."""
        make_folder(path.parent)
        atomic_write(path, (json.dumps(asdict(self)) + "\n").encode())

    @classmethod
    def read(cls, path: Path) -> "RunResult":
        """Read a result file of this format or of format 1."""
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(tree, dict) and "format" not in tree:
                tree = _migrate(tree)
            result = build(cls, path.stem, tree)
            scored = {*FROM_TAGS, "threshold_free", "valid"} <= {*result.scores}
            if scored and {*FROM_TAGS} <= {*result.counts} and result.format == FORMAT:
                return result
        except UNUSABLE:
            pass
        raise DataError(f"{path} is not a result of a comparison; remove it to run it again.")


def _migrate(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of a result of format 1 with the names of today."""

    def rename(values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {FIRST_NAMES.get(name, name): value for name, value in values.items()}

    tree = rename(tree) | {"format": FORMAT}
    for part in ("scores", "counts", "example", "training"):
        tree[part] = rename(tree.get(part))
    if isinstance(tree["example"], dict):
        for part in {"thresholds", "detected"} & tree["example"].keys():
            tree["example"][part] = rename(tree["example"][part])
    return tree


class Workspace:
    """The tables of a plan, each read once, and the folders of features and models.

    `earmark.experiments.run_plan` has an example that uses it.

    Args:
        plan: of the comparison.
        folder: for features, checkpoints and models; it can be deleted and is then recomputed.
        device: where networks run: "auto", "cpu", "cuda" or "cuda:1".
    """

    def __init__(self, plan: Plan, folder: Path, device: str = "auto") -> None:
        self.plan, self.folder, self.device = plan, folder, device
        self._manifests: dict[Path, Manifest] = {}
        self._events: dict[Path, dict[str, list[Event]]] = {}
        self.labels: tuple[str, ...] | None = plan.labels or None
        self.labels = self.clips(plan.tables(0)["train"]).labels
        for fold in reversed(range(plan.n_folds)):  # all are checked, and the first one remains
            self._open_fold(fold)

    def _open_fold(self, fold: int) -> None:
        """Take the validation and test clips of a fold."""
        tables = self.plan.tables(fold)
        self.valid, self.test = self.clips(tables["valid"]), self.clips(tables["test"])
        self.tagged = self.valid  # the validation clips without negatives
        self.reference: Mapping[str, Sequence[Event]] = self._read_events(tables["test"])
        self.valid_events: Mapping[str, Sequence[Event]] = {}
        if "valid_events" in tables:
            valid = self.valid.with_events(self._read_events(tables["valid_events"]))
            self.valid_events = dict(zip(valid.files, valid.events, strict=True))

    def _read_events(self, table: Path) -> dict[str, list[Event]]:
        if table not in self._events:
            self._events[table] = read_events(table)
        return self._events[table]

    def clips(self, table: Path) -> Manifest:
        """Return the clips of a table; raise if a recording is missing."""
        if table not in self._manifests:
            audio = self.plan.audio_folder(table)
            clips = Manifest.read(table, audio, self.labels)
            if clips.missing:
                raise DataError(
                    f"{table}: {len(clips.missing)} recordings are missing in {audio}, the first "
                    f"is {clips.missing[0]!r}."
                )
            self._manifests[table] = clips
        return self._manifests[table]

    def store_path(self, run: Run) -> Path:
        """Return the folder of a run's features.

        There is one per training table and folder of negatives, since two of them may use the same
        file names; or one for all tables, if the plan has one folder of recordings.
        """
        place = run.train if self.plan.audio is None else self.plan.audio
        content = [str(place.resolve()), run.settings.features.raw.to_dict(places=False)]
        content += [str(x.resolve()) for x in (run.negatives, run.valid_negatives) if x]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
        return self.folder / f"{FEATURES}-{digest}"

    def model_path(self, run: Run) -> Path:
        """Return the model file of a run, which exists once it is trained."""
        return self.folder / run.folder / MODEL

    def compute_features(self, run: Run, scheduler: str | None = None) -> FeatureStore:
        """Return the feature store of a run, after computing what it lacks, perhaps on a cluster.

        Clips that cannot be read are removed from the validation and test clips from here on.
        """
        self._open_fold(run.fold)
        train, valid, test = self.clips(run.train), self.valid, self.test
        reference, events = self.reference, self.valid_events
        separated = separate_names(train, validation=valid, test=test)
        negatives, valid_negatives = read_both_negatives(
            run.negatives or (), run.valid_negatives or (), train, separated[0]
        )
        paths = clip_paths(train, *separated, negatives, valid_negatives)
        store = build_store(
            self.store_path(run), paths, run.settings.features, scheduler=scheduler, wait=True
        )
        self.tagged, self.test = (readable(clips, store) for clips in separated)
        # Thresholds are tuned on the clips that the training validates on.
        _, self.valid = join_negatives(
            readable(train, store), self.tagged, negatives, valid_negatives, store
        )
        store = store.with_excerpts(self.valid.excerpts)
        # Name in the store -> name in the table of events.
        in_table = {new: old for a, b in zip(separated, (valid, test), strict=True)
                    for new, old in zip(a.files, b.files, strict=True)}  # fmt: skip
        self.reference = {file: reference[in_table[file]] for file in self.test.files}
        if events:
            tagged = {file: events[in_table[file]] for file in self.tagged.files}
            self.valid_events = dict.fromkeys(self.valid.files, ()) | tagged
        return store


@dataclass(frozen=True)
class RunOutput:
    """The predictions of a run for the validation and test clips."""

    valid: list[FrameScores]
    test: list[FrameScores]

    @classmethod
    def predict(
        cls, detector: Detector, workspace: Workspace, *stores: FeatureStore
    ) -> "RunOutput":
        """Return the predictions of a detector, which may be an ensemble."""
        clips = (workspace.valid, workspace.test)
        return cls(*(detector.ensemble.predict_clips(own, stores) for own in clips))

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes."""
        return self.valid[0].labels


def execute_run(workspace: Workspace, run: Run) -> RunResult:
    """Train, tune and score one run; its teachers or members must be trained already."""
    if run.members:
        stores = [workspace.compute_features(member) for member in run.members]
        bundle = combine([load_bundle(workspace.model_path(member)) for member in run.members])
        if run.first_member:
            bundle = replace(bundle, members=bundle.members[:1])
        output = RunOutput.predict(Detector(bundle, workspace.device), workspace, *stores)
        how = "first_member_of" if run.first_member else "ensemble_of"
        training: dict[str, Any] = {how: [member.key for member in run.members]}
    else:
        detector = train_run(workspace, run)
        output = RunOutput.predict(detector, workspace, workspace.compute_features(run))
        kept = ("n_epochs", "best_epoch", "best_valid_loss", "seconds", "supervision")
        training = {name: detector.bundle.training[name] for name in kept}
        precision, device = run.settings.training.precision, resolve_device(workspace.device)
        training["precision"] = resolve_precision(precision, device)
    decodings = {
        name: tune_clip_thresholds(output.valid, workspace.valid.tags, run.rule, **choices).decoding
        for name, choices in FROM_TAGS.items()
    }
    if workspace.valid_events:
        decodings["strong"] = _tune_on_strong(output, workspace, decodings["clip"])
    decision = _decide_as_published(output, workspace, run)
    if decision is not None:
        decodings["published"] = decision.decoding
    by_file = dict(zip(workspace.test.files, output.test, strict=True))
    scores, counts = score_clips(workspace.reference, by_file, decodings)
    by_file = dict(zip(workspace.valid.files, output.valid, strict=True))
    tags = dict(zip(workspace.valid.files, workspace.valid.tags, strict=True))
    of_valid, counts_of_valid = score_clips(workspace.valid_events, by_file, decodings, tags)
    of_tags = "mean_average_precision"
    scores["valid"] = {of_tags: of_valid["threshold_free"][of_tags]}
    if decision is not None:
        scores["published"]["tag_f_measure"] = _score_decided_tags(output, workspace, decision)
    example = _choose_example(output, workspace, decodings)
    return RunResult(
        run.stored_as or run.configuration,
        run.seed,
        run.fingerprint,
        scores,
        counts,
        example,
        training,
        fold=run.fold,
        valid_scores=of_valid if workspace.valid_events else {},
        valid_counts=counts_of_valid,
    )


def train_run(workspace: Workspace, run: Run) -> Detector:
    """Train a run in its folder; its teachers must be trained already.

    A finished model stays as it is, to the byte: others may have learned from it.
    """
    store = workspace.compute_features(run)
    path = workspace.model_path(run)
    if path.exists() and load_bundle(path).training.get("finished"):
        return Detector.load(path, workspace.device)
    return train(
        readable(workspace.clips(run.train), store),
        workspace.tagged,
        out=workspace.folder / run.folder,
        negatives=run.negatives or (),
        valid_negatives=run.valid_negatives or (),
        strong=run.train_events,
        teachers=[workspace.model_path(teacher) for teacher in run.teachers],
        settings=run.settings,
        run=RunConfig(
            store=workspace.store_path(run), resume=True, device=workspace.device, report=False
        ),
    )


def _tune_on_strong(output: RunOutput, workspace: Workspace, start: Decoding) -> Decoding:
    """Return the decoding with the best F1 on the events of the validation clips."""
    tuned = tune_decoding(
        output.valid,
        reference=[workspace.valid_events[file] for file in workspace.valid.files],
        start=start,
        objective="f_measure",
        shrinkage=0.0,  # hundreds of clips, and what their events could give at best
        n_folds=0,
    )
    return tuned.decoding


def _decide_as_published(output: RunOutput, workspace: Workspace, run: Run) -> Decision | None:
    """Return the network's own decision stage, made on the validation clips; None without one."""
    if not has_decision(run.settings.model):
        return None
    events = [workspace.valid_events[file] for file in workspace.valid.files
              if workspace.valid_events]  # fmt: skip
    return decide_as_published(
        run.settings.model, output.valid, workspace.valid.tags, events or None
    )


def _score_decided_tags(output: RunOutput, workspace: Workspace, decision: Decision) -> float:
    """Return the micro F1 of the tags of the test clips."""
    pairs = zip(workspace.test.files, output.test, strict=True)
    tags = {file: decision.tags(own) for file, own in pairs}
    reference = tags_of(workspace.reference)
    return clip_scores(reference, tags, labels=output.labels, empty_as_zero=True).f_measure


def _choose_example(
    output: RunOutput, workspace: Workspace, decodings: Mapping[str, Decoding]
) -> dict[str, Any]:
    """Return the test clip with the most events, for `earmark.plots.plot_predictions`."""
    number, file = max(
        enumerate(workspace.test.files),
        key=lambda item: (len(workspace.reference[item[1]]), -item[0]),
    )
    events = workspace.reference[file]
    columns = {label: output.labels.index(label) for label in sorted({x.label for x in events})}
    scores = output.test[number]
    clip_level = scores.clip_level()
    assert scores.grid is not None
    return {
        "file": file,
        "hop": scores.grid.hop,
        "events": [[event.onset, event.offset, event.label] for event in events],
        "frame_probs": {x: np.round(scores.scores[:, at], 4).tolist() for x, at in columns.items()},
        "thresholds": {
            name: {
                label: (decoding[label].threshold, decoding[label].low_threshold)
                for label in columns
            }
            for name, decoding in decodings.items()
        },
        "detected": {
            name: {
                label: bool(clip_level[at] >= decoding[label].clip_threshold)
                for label, at in columns.items()
            }
            for name, decoding in decodings.items()
        },
    }
