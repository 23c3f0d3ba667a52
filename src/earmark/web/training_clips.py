"""Corrected recordings -> the clips of a training.

Conventions: a short recording is a clip. Of one that is longer than `LONG` windows of the network,
clips of one window are cut, whose tags are those of the corrected events in them: all clips with
tags, and about as many without, spread over the recording.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from earmark.audio.decode import audio_format, read_blocks
from earmark.audio.encode import write_audio
from earmark.audio.waveform import Waveform
from earmark.formats.events import Event
from earmark.web.corrections import Correction

LONG = 2.0  # windows
SHORTEST_PART = 0.25  # seconds of an event that tag a clip, or half of a shorter event
FEWEST_EMPTY = 4


def training_rows(
    weak: Mapping[str, tuple[str, ...]],
    recordings: Mapping[str, tuple[Path, float, Correction]],
    window: float,
    folder: Path,
    check: Callable[[], None] = lambda: None,
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """Return a weak table with clips in place of long recordings, and sentences about these.

    Args:
        weak: name of a recording -> its tags.
        recordings: name -> path, duration in seconds, and correction.
        window: of the network, in seconds.
        folder: that clips of long recordings are written to; these are named by their paths.
        check: called between clips; what it raises ends the work.
    """
    rows: dict[str, tuple[str, ...]] = {}
    notes = []
    for name, labels in weak.items():
        path, duration, correction = recordings[name]
        if duration <= LONG * window:
            rows[name] = labels
            continue
        if not correction.has_all_events(labels):
            notes.append(
                f"{name} is left out: it is long, and its events were not all marked and checked, "
                "so that nobody knows which part has which tag."
            )
            continue
        tags = clip_tags(correction.accepted([]), duration, window)
        wanted = chosen_clips(tags)
        stem = f"{len(rows):06d}_{Path(name).stem}"
        notes.append(f"{len(wanted)} clips of {window:g} s are cut from {name}, which is long.")
        for index, clip in _cut(path, window):
            check()
            if index in wanted:
                target = folder / f"{stem}_{index}.wav"
                write_audio(target, clip, audio_format(path)[0])
                rows[str(target)] = tags[index]
    return rows, notes


def clip_tags(events: Sequence[Event], duration: float, window: float) -> list[tuple[str, ...]]:
    """Return the tags of the clips of one window that a recording is cut into, the rest dropped.

    >>> clip_tags([Event(1.0, 2.1, "dog"), Event(3.9, 6.0, "cat")], 7.0, 2.0)
    [('dog',), (), ('cat',)]
    """
    tags: list[set[str]] = [set() for _ in range(int(duration // window))]
    for event in events:
        needed = min(SHORTEST_PART, event.duration / 2)
        for index in range(
            int(event.onset // window), min(len(tags), int(event.offset // window) + 1)
        ):
            part = min(event.offset, (index + 1) * window) - max(event.onset, index * window)
            if part >= needed:
                tags[index].add(event.label)
    return [tuple(sorted(own)) for own in tags]


def chosen_clips(tags: Sequence[tuple[str, ...]]) -> set[int]:
    """Return the clips to train with: all that have tags, and as many others, evenly spaced.

    >>> sorted(chosen_clips([(), (), ("dog",), (), (), (), (), (), (), ()]))
    [0, 2, 4, 6, 9]
    """
    tagged = [index for index, own in enumerate(tags) if own]
    empty = [index for index, own in enumerate(tags) if not own]
    n_empty = min(len(empty), max(FEWEST_EMPTY, len(tagged)))
    spread = np.linspace(0, max(0, len(empty) - 1), n_empty).round()
    return {*tagged, *(empty[int(at)] for at in spread)}


def _cut(path: Path, window: float) -> Iterator[tuple[int, Waveform]]:
    """Yield the number and the samples of each whole clip of a recording."""
    n_samples = round(window * audio_format(path)[0])
    held, index = np.zeros(0, np.float32), 0
    for block in read_blocks(path):
        held = np.concatenate([held, block])
        while len(held) >= n_samples:
            yield index, held[:n_samples]
            held, index = held[n_samples:], index + 1
