"""The model that a service uses, and what it says about a recording that was analysed."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from earmark.data.features import FeatureConfig
from earmark.errors import choose
from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.inference.decoding import Decoding, Rule
from earmark.inference.detector import Detector, parse_sensitivity
from earmark.web.analysis import spectrogram_config

CHANGEABLE = ("threshold", "low_threshold", "max_gap", "min_duration", "median", "clip_threshold")


@dataclass(frozen=True)
class ServedModel:
    """A detector and the file that it comes from.

    Args:
        path: of the model file.
        detector: in it.
        encoder: where its encoder is, if it was moved.

    >>> from earmark.inference.model_file import BUNDLED
    >>> ServedModel.load(BUNDLED).name
    'everyday.earmark'
    """

    path: Path
    detector: Detector
    encoder: Path | None = None

    @classmethod
    def load(
        cls, path: Path, device: str = "cpu", threads: int = 0, encoder: Path | None = None
    ) -> "ServedModel":
        """Return the model in a file; arguments as of `Detector.load`."""
        return cls(path, Detector.load(path, device, threads, encoder), encoder)

    def load_other(self, path: Path) -> "ServedModel":
        """Return the model in another file, on the same device and with the same encoder."""
        ensemble = self.detector.ensemble
        return ServedModel.load(path, str(ensemble.device), ensemble.threads, self.encoder)

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name

    @cached_property
    def scores_digest(self) -> str:
        """What identifies the scores that it gives: features and weights, not the decoding."""
        digest = hashlib.blake2b(digest_size=8)
        for member in self.detector.bundle.members:
            digest.update(
                repr((member.feature_config, member.model_config, member.window)).encode()
            )
            for name, weights in sorted(member.weights.items()):
                digest.update(name.encode())
                digest.update(weights.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    @cached_property
    def spectrogram(self) -> FeatureConfig:
        """The log-mel that is shown."""
        return spectrogram_config(self.detector.bundle.feature_configs)

    def describe(self) -> dict[str, Any]:
        """Return what the page needs to know of the model."""
        bundle, ensemble = self.detector.bundle, self.detector.ensemble
        config = bundle.members[0].model_config
        shown = self.spectrogram
        return {
            "name": self.name,
            "labels": list(bundle.labels),
            "frame_rate": float(self.detector.grid.frame_rate),
            "window": ensemble.window,
            "pooling": config.pooling_name or None,
            "stages": list(getattr(config, "stages", ())),
            "sample_rate": self.detector.sample_rate,
            "f_min": shown.f_min,
            "f_max": shown.f_max,
            "n_mels": shown.n_mels,
            "mel_scale": shown.mel_scale,
            "decoding": {
                label: {name: getattr(bundle.decoding[label], name) for name in CHANGEABLE}
                for label in bundle.labels
            },
        }

    def decoding(
        self,
        sensitivity: str | float = "normal",
        rules: Mapping[str, float | None] | None = None,
        class_rules: Mapping[str, Mapping[str, float | None]] | None = None,
    ) -> Decoding:
        """Return the decoding with some settings changed, then shifted by a sensitivity.

        Args:
            sensitivity: as in `Detector.detect`.
            rules: settings of all classes, where they are not None.
            class_rules: the same for single classes.
        """
        own = self.detector.bundle.decoding
        for label in class_rules or {}:
            choose("class", label, own.labels)
        changed = tuple(
            change_rule(change_rule(own[label], rules), (class_rules or {}).get(label))
            for label in own.labels
        )
        return Decoding(own.labels, changed).shifted(parse_sensitivity(sensitivity))

    def events(
        self, scores: FrameScores, decoding: Decoding | None = None, min_score: float = 0.0
    ) -> list[Event]:
        """Return the events in the scores of a recording."""
        return self.detector.decode(scores, decoding, min_score=min_score)

    def uncertainty(self, scores: FrameScores) -> float:
        """Return how unsure the model is of the tags of a recording; see `uncertainty`."""
        return uncertainty(scores, self.detector.bundle.decoding)


def change_rule(rule: Rule, changes: Mapping[str, float | None] | None) -> Rule:
    """Return a rule with other settings; a low threshold is never above the threshold.

    >>> change_rule(Rule(0.5, 0.4), {"threshold": 0.3, "max_gap": None}).low_threshold
    0.3
    """
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    if not given:
        return rule
    if "threshold" in given and "low_threshold" not in given:
        has_hysteresis = rule.low_threshold != rule.threshold
        low = min(rule.low_threshold, given["threshold"])
        given["low_threshold"] = low if has_hysteresis else given["threshold"]
    if "low_threshold" in given:
        threshold = given.get("threshold", rule.threshold)
        given["low_threshold"] = min(given["low_threshold"], threshold)
    return replace(rule, **given)


def uncertainty(scores: FrameScores, decoding: Decoding) -> float:
    """Return how near the least certain class is to its thresholds, from 0 (certain) to 1.

    A class is there if its frame-level scores reach the threshold somewhere, and its clip-level
    scores the clip-level threshold. The distance of the score that decides from its threshold, in
    log-odds, is m; its uncertainty is 1 - |2 sigmoid(m) - 1|: 1 at the threshold, 0.24 at log-odds
    of 2 from it. That of the recording is the highest of its classes.

    >>> from earmark.frames import FrameGrid
    >>> near, far = (
    ...     FrameScores([[p]], ["dog"], FrameGrid(12.5), clip_scores=[0.9]) for p in (0.5, 0.01)
    ... )
    >>> rules = Decoding.uniform(["dog"], 0.5)
    >>> uncertainty(near, rules), round(uncertainty(far, rules), 2)
    (1.0, 0.02)
    """
    if not len(scores):
        return 0.0
    peaks = scores.scores.max(axis=0)
    clips = None if scores.clip_scores is None else scores.clip_scores.max(axis=0)
    highest = 0.0
    for column, rule in enumerate(decoding.rules):
        margin = _log_odds(peaks[column]) - _log_odds(rule.threshold)
        if rule.clip_threshold > 0 and clips is not None:
            margin = min(margin, _log_odds(clips[column]) - _log_odds(rule.clip_threshold))
        certain = abs(2 / (1 + math.exp(-min(max(margin, -700.0), 700.0))) - 1)
        highest = max(highest, 1 - certain)
    return highest


def _log_odds(probability: float | np.floating[Any]) -> float:
    p = min(max(float(probability), 1e-12), 1 - 1e-12)
    return math.log(p / (1 - p))
