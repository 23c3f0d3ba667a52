"""Which recordings a system does best and worst on, with their pictures and sounds.

Conventions: with a reference of events, a recording is as good as its segment-based F-measure; with
tags, as the F-measure of its tags. A recording with neither events nor estimates is as good as can
be. Among equals, and where the system has scores alone, those are worse whose clip-level scores are
further from the tags. A recording that is longer than `LONGEST` is shown where most happens.
"""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import numpy as np

from earmark.audio.decode import audio_duration, audio_format, read_audio
from earmark.audio.encode import encode_audio
from earmark.data.features import FeatureConfig
from earmark.data.spectrogram import Spectrogram, drawn_features, spectrogram
from earmark.formats.events import Event
from earmark.metrics.segment import segment_scores
from earmark.plots import plot_detection, plot_events
from earmark.plots.recording import drawn_classes
from earmark.reports.page import paragraph, picture, sound
from earmark.reports.sources import Material, Recording, events_of

LONGEST = 20.0  # seconds of a recording that are shown
SOUND_RATE = 32_000  # Hz; an mp3 has no more than 48,000
MOST_CLASSES = 6


class Ranked(NamedTuple):
    """A recording and how well it was done; `f_measure` is nan without events or tags to compare.

    >>> Ranked("a.wav", 0.5, 0.1).name
    'a.wav'
    """

    name: str
    f_measure: float
    distance: float


def rank_recordings(material: Material, resolution: float = 1.0) -> list[Ranked]:
    """Return every recording that can be shown, the best first.

    Args:
        material: with recordings.
        resolution: of segments, in seconds.

    >>> from pathlib import Path
    >>> from earmark.metrics.system_output import SystemOutput
    >>> reference = SystemOutput("reference", {"a.wav": [Event(0, 1, "dog")], "b.wav": []})
    >>> estimate = SystemOutput("mine", {"a.wav": [], "b.wav": []})
    >>> recordings = {name: Recording(Path(name)) for name in ("a.wav", "b.wav")}
    >>> [own.name for own in rank_recordings(Material("", reference, [estimate], recordings))]
    ['b.wav', 'a.wav']
    """
    tags, system, estimated = material.tags, material.first, material.first_tags
    labels = system.scores.labels if system.scores is not None else ()
    clip_scores = system.clip_scores(tags, labels) or {}
    ranked = []
    for name in material.recordings:
        if name not in tags:
            continue
        wanted = {label: 1.0 if label in tags[name] else 0.0 for label in labels}
        distance = 0.0
        if name in clip_scores:
            distance = float(np.abs(clip_scores[name] - [*wanted.values()]).mean())
        reference, estimate = events_of(material, name)
        if estimated is None:
            f_measure = np.nan
        elif material.reference.events is None:
            f_measure = _f_measure(set(tags[name]), set(estimated.get(name, ())))
        elif reference:
            one = segment_scores({name: reference}, {name: estimate}, resolution=resolution)
            f_measure = float(np.nan_to_num(one.f_measure))
        else:
            f_measure = 0.0 if estimate else 1.0
        ranked.append(Ranked(name, f_measure, distance))
    return sorted(ranked, key=lambda x: (-np.nan_to_num(x.f_measure), x.distance, x.name))


def _f_measure(reference: set[str], estimate: set[str]) -> float:
    n_all = len(reference) + len(estimate)
    return 2 * len(reference & estimate) / n_all if n_all else 1.0


def show_clip(material: Material, clip: Ranked) -> str:
    """Return the picture, the sound and the labels of a recording as HTML."""
    own, name = material.recordings[clip.name], clip.name
    reference, estimate = events_of(material, name)
    scores = material.frame_scores.get(name)
    shown = scores.duration if scores is not None else own.duration or audio_duration(own.path)
    start, end = _busiest([*reference, *estimate], shown)
    rate = min(SOUND_RATE, audio_format(own.path)[0])
    wave, rate = read_audio(own.path, _mp3_rate(rate), own.start + start, end - start)
    end = min(end, start + len(wave) / rate)
    seen = _spectrogram(own, start, end - start)
    title = name if not start else f"{name}, {start:g} to {end:g} s"
    if scores is None:
        figure = plot_events(seen, reference, estimate, title, (start, end))
    else:
        every = drawn_classes(scores, [*reference, *estimate], material.tags[name], (start, end))
        labels = every[:MOST_CLASSES]
        thresholds = material.thresholds
        figure = plot_detection(
            scores.select(labels),
            reference,
            estimate,
            spectrogram=seen,
            thresholds=None if thresholds is None else {x: thresholds[x] for x in labels},
            title=title,
            span=(start, end),
        )
    says = f"Reference: {', '.join(material.tags[name]) or 'none'}."
    if material.first_tags is not None:
        detected = ", ".join(material.first_tags.get(name, ())) or "none"
        says += f" Detected: {detected}. F1 {clip.f_measure:.2f}."
    alt = f"Spectrogram, scores and events of {name}. {says}"
    player = sound(*encode_audio(wave, rate), name)
    return f"<h3>{escape(name)}</h3>{paragraph(says)}{picture(figure, alt)}{player}"


def _busiest(events: Sequence[Event], duration: float) -> tuple[float, float]:
    """Return the part of a recording to show: all of a short one, else where most events start."""
    if duration <= LONGEST or not events:
        return 0.0, min(duration, LONGEST)
    starts = np.array([event.onset for event in events])
    n_inside = [int(((starts >= at) & (starts < at + LONGEST)).sum()) for at in starts]
    start = min(max(0.0, float(starts[int(np.argmax(n_inside))]) - 1.0), duration - LONGEST)
    return start, start + LONGEST


def _spectrogram(own: Recording, start: float, duration: float) -> Spectrogram:
    rate = min(SOUND_RATE, audio_format(own.path)[0])
    features = drawn_features(FeatureConfig(sample_rate=rate, hop=_hop(rate), kind="waveform"))
    wave, _ = read_audio(own.path, rate, own.start + start, duration)
    seen = spectrogram([wave], features)
    return Spectrogram(seen.log_mel, seen.frequencies, start, seen.column)


def _hop(rate: int) -> float:
    return max(1, round(0.02 * rate)) / rate


def _mp3_rate(rate: int) -> int:
    """Return the highest sample rate of an mp3 that is not above, or the lowest one."""
    known = (8000, 11025, 12000, 16000, 22050, 24000, 32000)
    return max((each for each in known if each <= rate), default=known[0])
