"""A small task that a small network learns in seconds: high and low tones in noise."""

import numpy as np

from earmark.audio.encode import write_audio
from earmark.formats.events import Event, write_events
from earmark.formats.tags import write_tags

RATE = 8000
TONES = {"low": 440.0, "high": 2200.0}

# Settings of a network small enough for tests.
SMALL = [
    f"features.sample_rate={RATE}",
    "features.n_mels=16",
    "features.f_max=4000",
    "model.channels=[8, 8, 8, 8]",
    "model.last_channels=16",
    "model.n_recurrent=8",
    "model.dropout=0.0",
    "training.batch_size=8",
    "training.learning_rate=0.005",
]


def make_tone_clip(rng, events, seconds=4.0):
    """Return noise with a tone of each event's label between its onset and offset."""
    time = np.arange(round(seconds * RATE)) / RATE
    wave = 0.01 * rng.standard_normal(len(time))
    for event in events:
        inside = (time >= event.onset) & (time < event.offset)
        wave[inside] += 0.1 * np.sin(2 * np.pi * TONES[event.label] * time[inside])
    return wave.astype(np.float32)


def random_events(rng, seconds):
    """Return random events: each tone in half of the clips, for 0.5 to 1.5 s."""
    events = []
    for label in TONES:
        if rng.random() < 0.5:
            length = rng.uniform(0.5, min(1.5, seconds))
            onset = round(rng.uniform(0, seconds - length), 2)
            events.append(Event(onset, round(onset + length, 2), label))
    return events


def write_tones(folder, n_clips, seed=0, prefix="clip", ragged=False):
    """Write `n_clips` wavs into folder/audio, with folder/{prefix}_weak.tsv and _strong.tsv."""
    rng = np.random.default_rng(seed)
    (folder / "audio").mkdir(parents=True, exist_ok=True)
    reference = {}
    for n in range(n_clips):
        seconds = float(rng.choice([2.0, 3.0, 4.0])) if ragged else 4.0
        name = f"{prefix}_{n:03d}.wav"
        reference[name] = random_events(rng, seconds)
        write_audio(folder / "audio" / name, make_tone_clip(rng, reference[name], seconds), RATE)
    write_events(folder / f"{prefix}_strong.tsv", reference)
    tags = {name: tuple(sorted({e.label for e in events})) for name, events in reference.items()}
    write_tags(folder / f"{prefix}_weak.tsv", tags)
    return reference
