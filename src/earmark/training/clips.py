"""The tables of a training -> its training and validation clips.

Conventions: a clip whose recording is missing is skipped with an `EarmarkWarning`. Without a
validation table, `VALID_SHARE` of the training clips are held out: whole groups, if the clips have
groups; otherwise a warning says so where names suggest groups.
"""

import logging
import os
import warnings
from collections.abc import Mapping

from earmark.data.groups import check_separate, suggest_groups
from earmark.data.manifest import Manifest, separate_names
from earmark.errors import DataError, EarmarkWarning, SettingError
from earmark.formats.events import read_events
from earmark.runtime.processes import is_first_process

logger = logging.getLogger(__name__)

PathLike = str | os.PathLike[str]
VALID_SHARE = 0.15  # of the training clips, where no validation table is given


def read_tables(
    train: PathLike | Manifest,
    valid: PathLike | Manifest | None,
    audio: PathLike | None,
    valid_audio: PathLike | None,
    strong: PathLike | None,
    seed: int,
    groups: Mapping[str, str | None],
) -> tuple[Manifest, Manifest]:
    """Return the training and the validation clips.

    Args:
        train: table of tags, folder of class folders, or manifest.
        valid: the same for validation, or None.
        audio: folder of the recordings.
        valid_audio: that of the validation recordings, if it is another one.
        strong: table of onsets and offsets of the training clips.
        seed: of the split.
        groups: `group` and `group_pattern` of `Manifest.read`.

    >>> from pathlib import Path
    >>> files = [f"{n}.wav" for n in range(20)]
    >>> clips = Manifest(files, [Path(x) for x in files], [("dog",), ()] * 10, ("dog",))
    >>> [len(part) for part in read_tables(clips, None, None, None, None, 0, {})]
    [16, 4]
    """
    train_clips = read_clips("training", train, audio, stacklevel=4, groups=groups)
    if not train_clips.labels:
        raise DataError("The training table has no labels; it needs one column of labels.")
    if strong is not None:
        train_clips = train_clips.with_events(read_events(strong))
    if valid is None:
        n_clips, n_groups = len(train_clips), len({*train_clips.groups})
        if is_first_process():
            _warn_about_groups(train_clips)
        train_clips, valid_clips = train_clips.split(VALID_SHARE, seed)
        if is_first_process():
            n_held = len({*valid_clips.groups})
            of_groups = f" ({n_held} of {n_groups} groups)" if n_groups else ""
            held_out = f"{len(valid_clips)} of {n_clips} clips{of_groups}"
            logger.info("%s are held out for validation.", held_out)
    else:
        folder = valid_audio or audio
        valid_clips = read_clips(
            "validation", valid, folder, train_clips.labels, stacklevel=4, groups=groups
        )
        check_separate(train_clips.groups, valid_clips.groups)
        (valid_clips,) = separate_names(train_clips, validation=valid_clips)
    return train_clips, valid_clips


def read_clips(
    kind: str,
    source: PathLike | Manifest,
    audio: PathLike | None,
    labels: tuple[str, ...] | None = None,
    stacklevel: int = 3,
    groups: Mapping[str, str | None] | None = None,
) -> Manifest:
    """Return the clips of a table; warn about missing ones, raise if there are none.

    Args:
        kind: "training" or "validation", for messages.
        source: table of tags, folder of class folders, or manifest.
        audio: folder of the recordings.
        labels: the known labels.
        stacklevel: of the warning.
        groups: `group` and `group_pattern` of `Manifest.read`.

    >>> read_clips("training", Manifest((), (), (), ()), None)
    Traceback (most recent call last):
        ...
    earmark.errors.DataError: There are no training clips: 0 recordings of the table are missing...
    """
    groups = {name: value for name, value in (groups or {}).items() if value is not None}
    if isinstance(source, Manifest):
        clips = source
        if groups:
            raise SettingError(
                f"A Manifest has its own groups; leave out {', '.join(groups)}, or read it with "
                "Manifest.read(table, audio, group=...)."
            )
    else:
        clips = Manifest.read(source, audio, labels, **groups)
    if not len(clips):
        raise DataError(
            f"There are no {kind} clips: {len(clips.missing)} recordings of the table are missing; "
            "`earmark doctor`, or in Python `earmark.data.doctor.examine`, reports which."
        )
    if labels is not None and clips.labels != labels:
        raise DataError(
            "Training and validation must have the same labels in the same order. Got "
            f"{', '.join(labels)} and {', '.join(clips.labels)}."
        )
    if clips.missing and is_first_process():
        warnings.warn(
            f"{len(clips.missing)} of {len(clips) + len(clips.missing)} {kind} clips are missing "
            f"and are skipped; the first is {clips.missing[0]}.",
            EarmarkWarning,
            stacklevel=stacklevel,
        )
    return clips


def _warn_about_groups(clips: Manifest) -> None:
    """Warn if names suggest groups, which a split at random divides."""
    if clips.groups:
        return
    found = suggest_groups(clips.files, clips.tags, clips.columns)
    if found is not None:
        logger.warning(
            "%s Validation is split at random and may share them with training, and then its "
            "scores are too high; add %s, or pass a validation table.",
            found.evidence, found.option,
        )  # fmt: skip
