"""Several models -> one, whose networks detect together: an ensemble.

Conventions: models have the same classes; another order is aligned. Every network counts the same,
so a model that is an ensemble itself counts as often as it has members.

No clip has been seen by the ensemble yet, so its decoding is a guess until it is tuned
(`earmark.tune`): each threshold is the mean of the models' own, in log-odds, since the scores are
a mean as well. A class has a clip-level threshold only if it has one in every model. Lengths, such
as the median filter, are those of the first model. The models' calibrations hold for their own
scores only and are dropped.
"""

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from earmark.errors import SettingError
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.detector import Detector
from earmark.inference.model_file import Bundle, load_bundle

logger = logging.getLogger(__name__)

_EPSILON = 1e-6  # probabilities are clipped to this before their log-odds are taken
_LENGTHS = ("median", "min_duration", "max_gap", "segment")


def ensemble(
    models: Sequence[str | os.PathLike[str] | Detector],
    device: str = "cpu",
    threads: int = 0,
    encoder: str | os.PathLike[str] | None = None,
) -> Detector:
    """Return several models as one detector, whose scores are the mean of their scores.

    Its thresholds are the mean of theirs until `earmark.tune` fits them to validation clips, and
    its scores are not calibrated; see `earmark.inference.combine`.

    Args:
        models: model files or detectors with the same classes.
        device: where the networks run: "auto", "cpu", "cuda" or "cuda:1".
        threads: how many to use; 0 is one per core.
        encoder: where the encoder of the models is now, if it is not where it was in training.

    >>> from earmark.inference.model_file import BUNDLED
    >>> len(ensemble([BUNDLED, BUNDLED]).bundle.members)
    2
    """
    if isinstance(models, str | os.PathLike | Detector):
        raise SettingError("An ensemble is made of a list of models. Got one model.")
    names = [f"model {at}" if isinstance(x, Detector) else str(x) for at, x in enumerate(models)]
    bundle = combine(
        [x.bundle if isinstance(x, Detector) else load_bundle(x) for x in models], names
    )
    return Detector(bundle if encoder is None else bundle.with_encoder(encoder), device, threads)


def combine(bundles: Sequence[Bundle], names: Sequence[str] = ()) -> Bundle:
    """Return one bundle with the networks of all; one alone stays as it is.

    Args:
        bundles: with the same classes.
        names: of each, for errors.

    >>> from earmark.inference.model_file import BUNDLED
    >>> one = load_bundle(BUNDLED)
    >>> combine([one, one.select(one.labels[::-1])]).labels == one.labels
    True
    """
    if not bundles:
        raise SettingError("An ensemble is made of one model or more. Got none.")
    first = bundles[0]
    if len(bundles) == 1:
        return first
    names = names or [f"model {at}" for at in range(len(bundles))]
    aligned = [
        _aligned(bundle, first, name, names[0]) for bundle, name in zip(bundles, names, strict=True)
    ]
    if any(_lengths(bundle.decoding) != _lengths(first.decoding) for bundle in aligned):
        logger.warning(
            "The models differ in the lengths of their decoding, such as the median filter; the "
            "ensemble has those of %s until it is tuned.",
            names[0],
        )
    summaries: list[Mapping[str, Any]] = []
    for bundle in bundles:
        plain = {name: value for name, value in bundle.training.items() if name != "classes"}
        summaries += bundle.training.get("models", [plain])
    return Bundle(
        labels=first.labels,
        members=tuple(member for bundle in aligned for member in bundle.members),
        decoding=mean_decoding([bundle.decoding for bundle in aligned for _ in bundle.members]),
        tuning={"supervision": "none", "decoding": f"mean of {len(bundles)} models"},
        training={"models": summaries},
        licence=" and ".join(dict.fromkeys(x.licence for x in bundles if x.licence)),
        attribution=tuple(dict.fromkeys(line for x in bundles for line in x.attribution)),
    )


def mean_decoding(decodings: Sequence[Decoding]) -> Decoding:
    """Return the decoding whose thresholds are the mean of several, in log-odds.

    Args:
        decodings: with the same labels; lengths are those of the first.

    >>> one, other = (Decoding.uniform(["dog"], p, median=0.4) for p in (0.5, 0.1))
    >>> rule = mean_decoding([one, other])["dog"]
    >>> round(rule.threshold, 3), rule.median
    (0.25, 0.4)
    """
    labels = decodings[0].labels
    return Decoding(labels, tuple(_mean_rule([x[label] for x in decodings]) for label in labels))


def _mean_rule(rules: Sequence[Rule]) -> Rule:
    clip_thresholds = [rule.clip_threshold for rule in rules]
    return replace(
        rules[0],
        threshold=_mean_threshold([rule.threshold for rule in rules]),
        low_threshold=_mean_threshold([rule.low_threshold for rule in rules]),
        clip_threshold=_mean_threshold(clip_thresholds) if all(clip_thresholds) else 0.0,
    )


def _mean_threshold(thresholds: Sequence[float]) -> float:
    if len(set(thresholds)) == 1:
        return thresholds[0]
    clipped = [min(max(threshold, _EPSILON), 1 - _EPSILON) for threshold in thresholds]
    log_odds = math.fsum(math.log(p) - math.log1p(-p) for p in clipped) / len(clipped)
    return 1 / (1 + math.exp(-log_odds))


def _lengths(decoding: Decoding) -> list[tuple[float, ...]]:
    return [tuple(getattr(rule, name) for name in _LENGTHS) for rule in decoding.rules]


def _aligned(bundle: Bundle, first: Bundle, name: str, first_name: str) -> Bundle:
    """Return a model with its classes in the order of the first model's."""
    if bundle.labels == first.labels:
        return bundle
    other = sorted({*bundle.labels} ^ {*first.labels})
    if other:
        raise SettingError(
            f"The models of an ensemble have the same classes; {name} and {first_name} differ in "
            f"{', '.join(map(repr, other[:3]))}{' and others' if len(other) > 3 else ''}."
        )
    try:
        return bundle.select(first.labels)
    except SettingError as error:
        raise SettingError(
            f"{name} has the classes of {first_name} in another order, and they cannot be "
            f"reordered: {error} Pass the models with the order to keep first."
        ) from None
