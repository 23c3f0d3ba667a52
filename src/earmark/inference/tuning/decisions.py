"""The decision stages of the published systems that Earmark has networks of (docs/systems.md).

A decision stage turns the scores of a network into events and tags: thresholds, gaps, minimum
lengths. Each system was published with its own, and a comparison with one decision stage for all
says nothing about what it reached with that one. Here each is built of the parts of this package,
so that the result is a plain `Decoding`, which a model file can carry.

Conventions: the authors' development set is our validation clips. Thresholds that they searched on
onsets and offsets are searched on those of the validation clips if they are known (`reference`),
and on their tags otherwise. Lengths that they counted in frames of their own are in seconds, so
that they last as long on any frame grid; "n frames or fewer are dropped" becomes a minimum length
just above n frames.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from earmark.errors import SettingError
from earmark.formats.events import Event
from earmark.frames import Floats, FrameScores
from earmark.inference.decoding import Decoding, decode_events
from earmark.inference.model_file import Bundle
from earmark.inference.segments import pool_segments
from earmark.inference.tuning.event_search import SearchGrid
from earmark.inference.tuning.tune import PUBLISHED, ClassReport, TuningResult, tune_decoding
from earmark.metrics.clip import clip_scores
from earmark.nn.network import NetworkConfig
from earmark.nn.wang import WangConfig

VERSION = 3  # of all stages, in fingerprints of results; raise it when a stage changes
ANY = 1e-9  # a threshold that every score but 0 reaches
HIGHEST = 1.0  # one that hardly any score reaches
JUST_ABOVE = 1e-3  # seconds: far less than a frame
SURREY_FRAME = 664 / 16000  # seconds
GCCAPS_FRAME = 8 * SURREY_FRAME

Tags = Sequence[Collection[str]]
Reference = Sequence[Sequence[Event]]


@dataclass(frozen=True)
class Decision:
    """What a decision stage decided on the validation clips: how to find events, and how tags.

    Args:
        decoding: for the events.
        tag_thresholds: what the clip-level score of a class must reach for its tag, per class.
        best_if_none: whether the best class is a tag where no class reaches its threshold.
        supervision: "none" (nothing was searched), "weak" (tags) or "strong" (events).

    >>> from earmark.frames import FrameGrid
    >>> decision = Decision(Decoding.uniform(["dog", "cat"]), (0.3, 0.3), best_if_none=True)
    >>> clip = FrameScores([[0.9, 0.9]], ["dog", "cat"], FrameGrid(1), clip_scores=[0.1, 0.2])
    >>> decision.tags(clip)
    ['cat']
    """

    decoding: Decoding
    tag_thresholds: tuple[float, ...]
    best_if_none: bool = False
    supervision: str = "none"

    def tags(self, scores: FrameScores) -> list[str]:
        """Return the tags of a clip."""
        clip_level, labels = scores.clip_level(), self.decoding.labels
        rows = zip(labels, clip_level, self.tag_thresholds, strict=True)
        detected = [label for label, p, threshold in rows if p >= threshold]
        return detected or [labels[int(np.argmax(clip_level))]] * self.best_if_none


def decide_wang(scores: Sequence[FrameScores], tags: Tags, reference: Reference | None) -> Decision:
    """Return Wang's: thresholds of clips serve segments of 1 s, pooled as the clip is.

    No median filter, no minimum length.
    """
    thresholds = search_tag_thresholds(scores, tags)
    labels = scores[0].labels
    rules = (
        Decoding.uniform([label], threshold, segment=1.0).rules[0]
        for label, threshold in zip(labels, thresholds, strict=True)
    )
    return Decision(Decoding(labels, tuple(rules)), thresholds, supervision="weak")


def decide_surrey(
    scores: Sequence[FrameScores], tags: Tags, reference: Reference | None
) -> Decision:
    """Return Surrey's: 0.3 for all; gaps of 9 frames are filled, runs of 10 or fewer dropped."""
    decoding = Decoding.uniform(
        scores[0].labels,
        0.3,
        max_gap=9 * SURREY_FRAME,
        min_duration=10 * SURREY_FRAME + JUST_ABOVE,
    )
    return Decision(decoding, (0.3,) * len(decoding.labels), best_if_none=True)


def decide_gccaps(
    scores: Sequence[FrameScores], tags: Tags, reference: Reference | None
) -> Decision:
    """Return that of GCCaps: 0.6 for frames, 0.35 for tags; gaps of 10, runs of 5 or fewer."""
    decoding = Decoding.uniform(
        scores[0].labels,
        0.6,
        max_gap=10 * GCCAPS_FRAME,
        min_duration=5 * GCCAPS_FRAME + JUST_ABOVE,
    )
    return Decision(decoding, (0.35,) * len(decoding.labels), best_if_none=True)


def decide_emsi(scores: Sequence[FrameScores], tags: Tags, reference: Reference | None) -> Decision:
    """Return ours for EMSI-like: thresholds of clips and of frames per class, 0.5 s at least.

    A class is reported only where the clip-level score reaches its clip-level threshold, the one of
    its tags; given these, the thresholds of frames are searched for the least error rate of
    segments, or, on tags, for the best micro F1 of clips. Its shortest windows are whole seconds,
    and so is what it decides: on a finer frame grid, a frame that two of them share would make an
    event begin in the second before.
    """
    clip_thresholds = search_tag_thresholds(scores, tags)
    start = Decoding.uniform(scores[0].labels, min_duration=0.5, segment=1.0)
    found = _search(scores, tags, reference, start, clip_thresholds, "f_measure")
    return Decision(found, clip_thresholds, supervision=_source(reference))


def decide_mlms(scores: Sequence[FrameScores], tags: Tags, reference: Reference | None) -> Decision:
    """Return ours for MLMS8: one threshold per class for segments of 1 s, none for clips.

    Searched for the least error rate of segments, or, on tags, of clips.
    """
    start = Decoding.uniform(scores[0].labels, segment=1.0)
    without = (0.0,) * len(start.labels)
    found = _search(scores, tags, reference, start, without, "error_rate")
    thresholds = search_tag_thresholds(scores, tags)
    return Decision(found, thresholds, supervision=_source(reference))


def search_tag_thresholds(scores: Sequence[FrameScores], tags: Tags) -> tuple[float, ...]:
    """Return the clip-level threshold of each class for the best micro F1 of tags; exact.

    Classes are searched one after another, the others fixed, until none gets better. A class that
    no clip has is never a tag.

    >>> from earmark.frames import FrameGrid
    >>> clips = [FrameScores([[p]], ["dog"], FrameGrid(1), clip_scores=[p]) for p in (0.02, 0.04)]
    >>> search_tag_thresholds(clips, [[], ["dog"]])
    (0.03,)
    """
    labels = scores[0].labels
    start = Decoding.uniform(labels, ANY)
    found = tune_decoding(
        scores, tags=tags, start=start, threshold_from="start", objective="f_measure",
        bounds=(ANY, HIGHEST),
    )  # fmt: skip
    known = {label for of_clip in tags for label in of_clip}
    return tuple(
        max(ANY, found.decoding[label].clip_threshold) if label in known else HIGHEST
        for label in labels
    )


def _search(
    scores: Sequence[FrameScores],
    tags: Tags,
    reference: Reference | None,
    start: Decoding,
    clip_thresholds: Sequence[float],
    objective_of_tags: str,
) -> Decoding:
    """Return thresholds per class, given those of clips: from events for ER, or else from tags."""
    segments = [pool_segments(own, start.segment) for own in scores]
    # Where a clip-level threshold is not reached, the frames have nothing to decide: 0 is below
    # every threshold of the search. Elsewhere no clip-level score is left that could.
    given = [
        FrameScores(
            np.where(_clip_scores(own) >= clip_thresholds, own.scores, 0.0),
            own.labels,
            own.grid,
            duration=own.duration,
            clip_scores=np.ones(len(own.labels)),
        )
        for own in segments
    ]
    plain = start.with_segment(0.0)
    if reference is None:
        found = tune_decoding(given, tags=tags, start=plain, objective=objective_of_tags).decoding
    else:
        found = tune_decoding(
            given,
            reference=reference,
            start=plain,
            objective="error_rate",
            search_grid=SearchGrid((0.0,), (1.0,), (0.0,), (start.rules[0].min_duration,)),
            shrinkage=0.0,
            n_folds=0,
        ).decoding
    pairs = zip(found.rules, clip_thresholds, strict=True)
    rules = tuple(replace(rule, clip_threshold=threshold) for rule, threshold in pairs)
    return Decoding(found.labels, rules).with_segment(start.segment)


def _clip_scores(scores: FrameScores) -> Floats:
    """Return the clip-level scores of each frame, (frames, classes)."""
    # `clip_level` raises where there are none.
    return scores.clip_level() if scores.clip_scores is None else scores.clip_scores


def _source(reference: Reference | None) -> str:
    return "weak" if reference is None else "strong"


# Network -> its decision stage: scores, tags and, if known, events of validation clips -> Decision.
DECISIONS: dict[str, Callable[[Sequence[FrameScores], Tags, Reference | None], Decision]] = {
    "wang": decide_wang,
    "surrey": decide_surrey,
    "gccaps": decide_gccaps,
    "emsi": decide_emsi,
    "mlms": decide_mlms,
}


def has_decision(config: NetworkConfig) -> bool:
    """Return whether a network was published with a decision stage that Earmark has.

    That of Wang's pools segments by linear softmax as the network pools clips: with another pooling
    function, or with hierarchical pooling, it would be another stage.

    >>> from earmark.nn.model import ModelConfig
    >>> has_decision(ModelConfig(n_classes=17))
    False
    """
    if isinstance(config, WangConfig):
        return config.pooling == "linear" and not config.stages
    return config.network in DECISIONS


def network_of(bundle: Bundle) -> NetworkConfig:
    """Return the configuration of a model's network; of an ensemble, that of its first member.

    A member without a decision stage comes before others, so that the ensemble has none either.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> network_of(load_bundle(BUNDLED)).network
    'crnn'
    """
    configs = [member.model_config for member in bundle.members]
    names = dict.fromkeys(config.network for config in configs)
    if len(names) > 1:
        raise SettingError(
            "An ensemble of different networks was not published as one, and has no decision stage "
            f"of its own. Got {', '.join(names)}."
        )
    return min(configs, key=has_decision)


def decide_as_published(
    config: NetworkConfig,
    scores: Sequence[FrameScores],
    tags: Tags,
    reference: Reference | None = None,
) -> Decision:
    """Return the decision stage that a network was published with, made on validation clips.

    Args:
        config: of the network.
        scores: of each clip, with clip-level scores.
        tags: the labels of each clip.
        reference: the events of each clip, if they are known.

    >>> from earmark.nn.model import ModelConfig
    >>> decide_as_published(ModelConfig(n_classes=17), [], [])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: The network 'crnn' has no decision stage of its own; ...
    """
    if not has_decision(config):
        raise SettingError(
            f"The network {config.network!r} has no decision stage of its own; there is one for "
            f"{', '.join(DECISIONS)} (wang with single-level linear pooling)."
        )
    if not scores:
        raise SettingError("A decision stage needs the scores of one clip or more.")
    return DECISIONS[config.network](scores, tags, reference)


def tune_as_published(
    config: NetworkConfig,
    scores: Sequence[FrameScores],
    tags: Tags,
    reference: Reference | None = None,
    start: Decoding | None = None,
) -> TuningResult:
    """Return the same as the result of a tuning, with the F1 of tags before and after.

    Tags are those of the decision stage, which need not be the labels of the events that it finds;
    before, with `start`, they are these labels.

    Args:
        config: of the network.
        scores: of each clip, with clip-level scores.
        tags: the labels of each clip.
        reference: the events of each clip, if they are known.
        start: the decoding before; a threshold of 0.5 for all classes without it.

    >>> from earmark.nn.model import ModelConfig
    >>> tune_as_published(ModelConfig(n_classes=17), [], [])
    Traceback (most recent call last):
        ...
    earmark.errors.SettingError: The network 'crnn' has no decision stage of its own; ...
    """
    decision = decide_as_published(config, scores, tags, reference)
    labels = decision.decoding.labels
    wanted = {str(at): own for at, own in enumerate(tags)}

    def scored(found: Iterable[Collection[str]]) -> tuple[float, dict[str, float]]:
        estimate = {str(at): own for at, own in enumerate(found)}
        result = clip_scores(wanted, estimate, labels=labels, empty_as_zero=True)
        by_class = {x: own["f_measure"]["f_measure"] for x, own in result.class_wise.items()}
        return result.overall["f_measure"]["f_measure"], by_class

    first = start or Decoding.uniform(labels)
    before = scored({event.label for event in decode_events(own, first)} for own in scores)
    after = scored(decision.tags(own) for own in scores)
    counts = {label: sum(label in own for own in tags) for label in labels}
    classes = {
        x: ClassReport(counts[x], len(tags) - counts[x], before[1][x], after[1][x]) for x in labels
    }
    return TuningResult(
        decision.decoding, decision.supervision, PUBLISHED, after[0], before[0], classes
    )
