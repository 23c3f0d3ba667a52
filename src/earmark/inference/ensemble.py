"""Several networks that predict as one: the mean of their probabilities.

Conventions: frame-level and clip-level scores are averaged, and every network counts the same. The
mean is on the finest frame grid of the members; each of its frames has, of a member with longer
frames, the scores of the frame at its centre. One network alone is an ensemble of one, whose scores
are its own, bit for bit.

A recording of any length goes through all members side by side, in constant memory: of each, only
the frames are held that others have not reached yet.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import add

import numpy as np
import torch
from torch import Tensor

from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore
from earmark.errors import SettingError
from earmark.frames import Floats, FrameGrid, FrameScores
from earmark.inference.member import Member
from earmark.inference.predictor import Floats32, Predictor, Scores, predict_clips
from earmark.runtime.device import resolve_device
from earmark.runtime.threads import share_items


class Ensemble:
    """The networks of a model file, ready to predict as one.

    Args:
        members: one network or more, with the same classes.
        device: where the networks run, such as "cpu" or "cuda:1".
        threads: how many parts of a recording to process at a time; 0 is one per core.

    >>> from earmark.inference.model_file import BUNDLED, load_bundle
    >>> member = load_bundle(BUNDLED).members[0]
    >>> silence = torch.zeros(50, 80)
    >>> ((scores, _),) = Ensemble([member, member]).stream([[silence], [silence]])
    >>> scores.shape
    (13, 17)
    """

    def __init__(
        self, members: Sequence[Member], device: str | torch.device = "cpu", threads: int = 0
    ) -> None:
        self.members, self.threads = tuple(members), threads
        self.device = resolve_device(device)
        self.grid = max((member.grid for member in members), key=lambda grid: grid.frame_rate)
        self.models = [member.build_model().to(self.device) for member in members]
        self.predictors = [
            Predictor(model, own.feature_config.grid.count(own.window), self.device, threads)
            for own, model in zip(members, self.models, strict=True)
        ]

    def __repr__(self) -> str:
        networks = "1 network" if len(self.members) == 1 else f"{len(self.members)} networks"
        rate = float(self.grid.frame_rate)
        return f"Ensemble({networks}, {rate:g} frames per second, on {self.device})"

    def stream(
        self, features: Sequence[Iterable[Tensor]], step: float | None = None
    ) -> Iterator[Scores]:
        """Yield pieces of both scores of one recording, as soon as they are final.

        Args:
            features: of each member, pieces (frames, features) of any length, normalised, in order.
            step: of a live recording, how many seconds to process at a time; see
                `Predictor.stream`.
        """
        streams = [
            predictor.stream(own, None if step is None else member.feature_config.grid.index(step))
            for member, predictor, own in zip(self.members, self.predictors, features, strict=True)
        ]
        if len(streams) == 1:
            return streams[0]
        return _mean_of(streams, [member.grid for member in self.members], self.grid)

    @property
    def feature_configs(self) -> list[FeatureConfig]:
        """The different features of the members, in the order of the first that has them."""
        return list(dict.fromkeys(member.feature_config for member in self.members))

    @property
    def sample_rate(self) -> int:
        """That of the first member with the finest frame grid, in Hz."""
        finest = next(member for member in self.members if member.grid == self.grid)
        return finest.feature_config.sample_rate

    @property
    def sample_rates(self) -> list[int]:
        """The different sample rates of the features, in Hz."""
        return list(dict.fromkeys(config.sample_rate for config in self.feature_configs))

    def stream_shared(
        self, features: Sequence[Iterable[Tensor]], step: float | None = None
    ) -> Iterator[Scores]:
        """As `stream`, given one stream of each of `feature_configs`, which members share."""
        configs = self.feature_configs
        wanted = [configs.index(member.feature_config) for member in self.members]
        if len(wanted) == 1:
            return self.stream(features, step)
        shared = [iter(share_items(own, wanted.count(at))) for at, own in enumerate(features)]
        return self.stream([next(shared[at]) for at in wanted], step)

    @property
    def window(self) -> float:
        """Seconds that all members process at a time."""
        return min(member.window for member in self.members)

    def predict_short(self, recordings: Sequence[Sequence[Tensor]]) -> list[Scores]:
        """Return both scores of recordings that fit into `window`, processed in batches.

        Args:
            recordings: of each, its features (frames, features) for each of `feature_configs`.

        >>> from earmark.inference.model_file import BUNDLED, load_bundle
        >>> ensemble = Ensemble(load_bundle(BUNDLED).members)
        >>> [scores.shape for scores, _ in ensemble.predict_short([[torch.zeros(50, 80)]])]
        [(13, 17)]
        """
        configs = self.feature_configs
        by_member = [
            predictor.predict_short(
                [own[configs.index(member.feature_config)] for own in recordings]
            )
            for member, predictor in zip(self.members, self.predictors, strict=True)
        ]
        if len(by_member) == 1:
            return by_member[0]
        grids = [member.grid for member in self.members]
        found = []
        for scores in zip(*by_member, strict=True):
            pieces = _mean_of([iter([own]) for own in scores], grids, self.grid)
            frame_scores, clip_scores = zip(*pieces, strict=True)
            found.append((np.concatenate(frame_scores), np.concatenate(clip_scores)))
        return found

    def predict_clips(self, clips: Manifest, stores: Iterable[FeatureStore]) -> list[FrameScores]:
        """Return the scores of clips whose raw features are in feature stores.

        Args:
            clips: which clips; their labels are those of the networks.
            stores: one per kind of features that the members have; others do no harm.
        """
        by_features = {store.config.raw: store for store in stores}
        lacking = [x for x in self.members if x.feature_config.raw not in by_features]
        if lacking:
            raise SettingError(
                "No feature store has the features of a network. Got stores with "
                f"{[config.to_dict() for config in by_features]}, and the network takes "
                f"{lacking[0].feature_config.raw.to_dict()}."
            )
        return mean_scores(
            predict_clips(
                predictor, by_features[member.feature_config.raw], clips, member.feature_config
            )
            for member, predictor in zip(self.members, self.predictors, strict=True)
        )


class _MemberScores:
    """The scores of one member, those that are still needed, for frames of the finest grid.

    Shape: both that are held are (frames, classes), the member's own frames from `first` on.
    """

    def __init__(self, scores: Iterator[Scores], own: FrameGrid, finest: FrameGrid) -> None:
        self._scores, self._own, self._finest = scores, own, finest
        self.is_finest, self.is_done = own == finest, False
        self._first, self._held = 0, next(scores)
        self._count()

    def _count(self) -> None:
        n_own = self._first + len(self._held[0])
        self.n_known = self._finest.count_within(self._own, n_own)

    def read(self) -> None:
        """Add the next piece, or note that there is none."""
        piece = next(self._scores, None)
        if piece is None:
            self.is_done = True
            return
        frames, clips = (np.concatenate(pair) for pair in zip(self._held, piece, strict=True))
        self._held = (frames, clips)
        self._count()

    def take(self, first: int, stop: int) -> Scores:
        """Return the scores of frames of the finest grid; the last frame goes on for ever."""
        frames, clips = self._held
        index = self._own.frames_at(self._finest, first, stop) - self._first
        index = np.minimum(index, len(frames) - 1)
        taken = frames[index], clips[index]
        done = int(index[-1])  # a later frame may need this one, and none before it
        self._held, self._first = (frames[done:], clips[done:]), self._first + done
        return taken


def _mean_of(
    streams: Sequence[Iterator[Scores]], grids: Sequence[FrameGrid], grid: FrameGrid
) -> Iterator[Scores]:
    """Yield the mean of what the members of an ensemble yield, on their finest grid."""
    pairs = zip(streams, grids, strict=True)
    members = [_MemberScores(scores, own, grid) for scores, own in pairs]
    n_done = 0
    finest = next(member for member in members if member.is_finest)
    while True:
        # One of the finest has every frame; others may end within the last one.
        waiting = [member for member in members if not member.is_done]
        ready = min(member.n_known for member in [*waiting, finest])
        if ready > n_done:
            pieces = [member.take(n_done, ready) for member in members]
            frames, clips = zip(*pieces, strict=True)
            yield _mean(frames), _mean(clips)
            n_done = ready
        if not waiting:
            return
        min(waiting, key=lambda member: member.n_known).read()


def _mean(pieces: Sequence[Floats32]) -> Floats32:
    return reduce(add, pieces) / np.float32(len(pieces))


def mean_scores(networks: Iterable[Sequence[FrameScores]]) -> list[FrameScores]:
    """Return the mean of what several networks, an ensemble, predict for the same recordings.

    It is on the finest of their frame grids.

    >>> one, other = (
    ...     [FrameScores([[p]], ["dog"], FrameGrid(12.5), clip_scores=[p])] for p in (0.25, 0.75)
    ... )
    >>> mean_scores([one, other])[0].scores
    array([[0.5]])
    """
    # Networks on the grid of the first one are added up as they come: the scores of all are much
    # to hold. Others wait until the finest grid is known. They are added in the order of the
    # networks, as in `Ensemble.stream`, so that both give the same bits.
    parts: list[Sequence[FrameScores]] = []
    n_networks = 0
    for scores in networks:
        n_networks += 1
        if len(parts) == 1 and all(map(_are_alike, parts[0], scores)):
            parts = [[_added(pair) for pair in zip(parts[0], scores, strict=True)]]
        else:
            parts.append(scores)
    if not parts:
        raise SettingError("An ensemble needs the scores of one network or more.")
    sums = [_added(own) for own in zip(*parts, strict=True)]
    return [_with_scores(own, *(x / n_networks for x in _both(own))) for own in sums]


def _are_alike(one: FrameScores, other: FrameScores) -> bool:
    return one.grid == other.grid and len(one) == len(other)


def _added(parts: Sequence[FrameScores]) -> FrameScores:
    """Return the sum of scores of one recording, each brought once to the finest of their grids."""
    if len(parts) == 1:
        return parts[0]
    like = max(parts, key=lambda own: 0 if own.grid is None else own.grid.frame_rate)
    frames, clips = zip(*(_both(own.on_grid_of(like)) for own in parts), strict=True)
    return _with_scores(like, reduce(add, frames), reduce(add, clips))


def _with_scores(like: FrameScores, frames: Floats, clips: Floats) -> FrameScores:
    return FrameScores(frames, like.labels, like.grid, duration=like.duration, clip_scores=clips)


def _both(scores: FrameScores) -> tuple[Floats, Floats]:
    if scores.clip_scores is None:
        raise SettingError("The scores of an ensemble need clip-level scores.")
    return scores.scores, scores.clip_scores
