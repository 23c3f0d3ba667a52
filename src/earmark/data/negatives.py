"""Folders of recordings without any of the classes -> more clips to train and validate on.

Conventions: negatives are untagged clips. Their recordings need no table and may have any length:
one longer than the training clips is cut into clips of their median length, after its features are
computed. Every negative is an excerpt (`Manifest.excerpts`), also one that is a whole recording.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from earmark.audio.decode import find_audio
from earmark.data.batches import median_length
from earmark.data.manifest import Manifest
from earmark.data.store import Excerpt, FeatureStore
from earmark.errors import DataError, SettingError

PathLike = str | os.PathLike[str]
VALID_SHARE = 0.15  # of the negatives, where no folder for validation is given


def read_negatives(
    folders: PathLike | Iterable[PathLike],
    labels: Sequence[str],
    *known: Manifest,
    kind: str = "negative",
) -> Manifest:
    """Return the recordings of folders, including their subfolders, as clips without tags.

    Args:
        folders: one folder or several; each must have a recording.
        labels: the classes, of which the recordings hold none.
        known: clips that must not be among the recordings.
        kind: prefix of the names, which keeps them apart from those of other clips.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Path(folder, "rain.wav").touch()
    ...     read_negatives(folder, ["dog"]).files
    ('negative: rain.wav',)
    >>> read_negatives([], ["dog"]).files
    ()
    """
    folders = [folders] if isinstance(folders, str | os.PathLike) else list(folders)
    taken = {path.resolve(): file for clips in known
             for file, path in zip(clips.files, clips.paths, strict=True)}  # fmt: skip
    paths: dict[str, Path] = {}
    for number, folder in enumerate(map(Path, folders), start=1):
        prefix = kind if number == 1 else f"{kind} {number}"
        found = find_audio(folder)
        if not found:
            raise DataError(
                f"There is no recording in {folder}, the folder of {kind} recordings; check it."
            )
        for path in found:
            if path.resolve() in taken:
                raise DataError(
                    f"{path} is a {kind} recording and also the clip {taken[path.resolve()]!r}; "
                    f"remove it from {folder}, or from where the clip is listed."
                )
            name = f"{prefix}: {path.relative_to(folder).as_posix()}"
            paths[name] = path
            taken[path.resolve()] = name
    return Manifest(tuple(paths), tuple(paths.values()), ((),) * len(paths), tuple(labels))


def read_both_negatives(
    negatives: PathLike | Iterable[PathLike],
    valid_negatives: PathLike | Iterable[PathLike],
    train: Manifest,
    valid: Manifest,
) -> tuple[Manifest, Manifest]:
    """Return the recordings of the negatives for training and for validation; both may be empty.

    >>> clips = Manifest((), (), (), ("dog",))
    >>> read_both_negatives((), (), clips, clips)[1].labels
    ('dog',)
    """
    own = read_negatives(negatives, train.labels, train, valid)
    held_out = read_negatives(
        valid_negatives, train.labels, train, valid, own, kind="validation negative"
    )
    if len(held_out) and not len(own):
        raise SettingError("valid_negatives needs negatives, the folders to train on.")
    return own, held_out


def cut_recordings(recordings: Manifest, store: FeatureStore, n_frames: int) -> Manifest:
    """Return the recordings in clips of `n_frames`; those that cannot be read are left out.

    A last clip that would be shorter than half of that is left out, unless it is the only one.

    >>> import tempfile
    >>> import numpy as np
    >>> from earmark.audio.encode import write_audio
    >>> from earmark.data.manifest import clip_paths
    >>> from earmark.data.store import build_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_audio(f"{folder}/rain.wav", np.zeros(4 * 32000), 32000)
    ...     rain = read_negatives(folder, ["dog"])
    ...     store = build_store(f"{folder}/features", clip_paths(rain))
    ...     [excerpt[1:] for excerpt in cut_recordings(rain, store, 80).excerpts.values()]
    [(0, 80), (80, 80), (160, 40)]
    """
    parts: dict[Excerpt, Path] = {}
    for file, path in zip(recordings.files, recordings.paths, strict=True):
        length = len(store[file]) if file in store else 0
        for start in range(0, length, n_frames):
            part = Excerpt(file, start, min(n_frames, length - start))
            if start == 0 or 2 * part.n_frames >= n_frames:
                parts[part] = path
    excerpts = {part.name: part for part in parts}
    tags = ((),) * len(parts)
    return Manifest(
        tuple(excerpts), tuple(parts.values()), tags, recordings.labels, excerpts=excerpts
    )


def join_negatives(
    train: Manifest,
    valid: Manifest,
    negatives: Manifest,
    valid_negatives: Manifest,
    store: FeatureStore,
) -> tuple[Manifest, Manifest]:
    """Return the training and validation clips with the negatives cut and added.

    Args:
        train: training clips, whose median length the negatives get.
        valid: validation clips.
        negatives: recordings for training, from `read_negatives`.
        valid_negatives: the same for validation; if it is empty, 15 % of `negatives`.
        store: of the features of all recordings.
    """
    if not len(negatives):
        return train, valid
    n_frames = median_length(store, train)
    clips = cut_recordings(negatives, store, n_frames)
    if len(valid_negatives):
        held_out = cut_recordings(valid_negatives, store, n_frames)
    else:
        clips, held_out = split_negatives(clips, VALID_SHARE)
    return train.joined(clips), valid.joined(held_out)


def split_negatives(clips: Manifest, fraction: float) -> tuple[Manifest, Manifest]:
    """Return the clips in two parts, the second with about `fraction` of them.

    Clips of one recording stay together, and each subfolder contributes to both parts. If there is
    no recording that is short enough, the end of the longest one is taken.

    >>> parts = [Excerpt(file, start, 9) for file in ("a", "b") for start in (0, 9, 18, 27)]
    >>> names, paths = [part.name for part in parts], [Path(part.file) for part in parts]
    >>> excerpts = dict(zip(names, parts))
    >>> clips = Manifest(names, paths, [()] * 8, ["dog"], excerpts=excerpts)
    >>> [len(part) for part in split_negatives(clips, 0.5)], split_negatives(clips, 0.1)[1].files
    ([4, 4], ('b [27:36]',))
    """
    rows_of: dict[str, list[int]] = {}
    for row, name in enumerate(clips.files):
        rows_of.setdefault(clips.excerpts[name].file, []).append(row)
    second: list[int] = []
    due = 0.0  # clips that the second part still lacks
    for rows in rows_of.values():
        due += fraction * len(rows)
        if due >= len(rows):
            second += rows
            due -= len(rows)
    if not second and len(clips) > 1:
        longest = max(reversed(rows_of.values()), key=len)
        second = longest[-max(1, round(fraction * len(longest))) :]
    first = sorted({*range(len(clips))} - {*second})
    return clips.take(first), clips.take(second)
