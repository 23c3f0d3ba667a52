"""A seed -> soundscapes with known events, from procedural sounds or from a soundbank.

Conventions: scene `index` of a seed has its own random generator, so it does not depend on the
other scenes or on the number of processes; another version of NumPy may give other scenes. Onsets
and offsets are whole milliseconds, as in the strong table. Two events of one class never overlap
and are never closer than `gap`. The SNR of an event is its mean power, fades included, over the
mean power of the background in the same interval (or over 1 % of the background's mean power in the
whole scene, if that is more). A scene that would clip is scaled as a whole, which changes no SNR.

Several sets of scenes, each from other folds of a soundbank, are described by a TOML file with
paths relative to it (`SceneSets`; benchmarks/scenes.toml is an example):

    [bank]           table and audio: the soundbank; without it, sounds are procedural
    [background_bank]  the same, of backgrounds that [bank] does not have
    [scenes]         fields of `SceneConfig`
    [sets.NAME]      n, seed and, with a bank, folds of one set; NAME is its folder and prefix;
                     background_folds; classes, in place of those of [scenes]
"""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import soxr

from earmark.audio.encode import WRITERS, write_audio
from earmark.audio.waveform import Waveform
from earmark.config import build, read_toml, repr_of_changes
from earmark.errors import DataError, SettingError, choose, listed
from earmark.files import check_folder
from earmark.formats.events import Event, write_events
from earmark.formats.tags import write_tags
from earmark.runtime.processes import map_in_order
from earmark.synth.soundbank import Bank, ProceduralBank, Soundbank
from earmark.synth.sounds import NOISES, Rng

MAX_SAMPLES = 2**28  # of a scene, which is made in memory: 2.3 hours at 32 kHz
MAX_RATE = 10_000_000  # Hz
_FADE = 0.005  # seconds at both ends of an event, against clicks
_PEAK = 0.99  # of full scale; what 16 bits round up must still fit
_CLEAN_DB = 40.0  # by which the background of a clean scene is lower
_TRIES = 50  # onsets to try for one event, and sets of events for one scene


@dataclass(frozen=True)
class SceneConfig:
    """How scenes are made; pairs are (minimum, maximum) of a uniform distribution.

    Args:
        sample_rate: in Hz.
        duration: of a scene, in seconds.
        n_events: number of events per scene.
        event_duration: in seconds; a short recording gives a shorter event.
        snr_db: signal-to-noise ratio of each event against the background.
        speed: playback speed of sounds, which also changes their pitch; uniform on a log scale. It
            augments a soundbank of few recordings.
        max_overlap: maximum number of simultaneous events; 1 means no overlap.
        gap: minimum time between two events of one class, in seconds.
        classes: the categories of events; by default all of the bank except the backgrounds.
        backgrounds: categories of the bank, or names of `earmark.synth.sounds.NOISES`.
        level_db: root mean square of the background, relative to full scale.
        clean: share of scenes whose background is 40 dB lower than drawn, and its events not.

    >>> SceneConfig(duration=5.0).n_events
    (1, 3)
    """

    sample_rate: int = 32000
    duration: float = 10.0
    n_events: tuple[int, int] = (1, 3)
    event_duration: tuple[float, float] = (0.5, 4.0)
    snr_db: tuple[float, float] = (0.0, 20.0)
    speed: tuple[float, float] = (1.0, 1.0)
    max_overlap: int = 2
    gap: float = 0.25
    classes: tuple[str, ...] = ()
    backgrounds: tuple[str, ...] = tuple(NOISES)
    level_db: tuple[float, float] = (-45.0, -25.0)
    clean: float = 0.0

    __repr__ = repr_of_changes

    def __post_init__(self) -> None:
        for name in ("n_events", "event_duration", "snr_db", "speed", "level_db"):
            low, high = getattr(self, name)
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise SettingError(f"{name} must be (minimum, maximum). Got {(low, high)!r}.")
        checks = {
            "sample_rate": (
                8000 <= self.sample_rate <= MAX_RATE,
                f"8000 Hz or more, up to {MAX_RATE}",
            ),
            "duration": (
                0 < self.duration * self.sample_rate <= MAX_SAMPLES,
                f"above 0 s, and {MAX_SAMPLES / max(self.sample_rate, 1):.0f} s at most at "
                f"{self.sample_rate} Hz",
            ),
            "max_overlap": (self.max_overlap >= 1, "1 or more"),
            "n_events": (
                self.n_events[0] >= 0
                and self.n_events[1] * self.event_duration[0] <= self.max_overlap * self.duration,
                "0 or more, and fit into the scene at their minimum duration",
            ),
            "event_duration": (
                self.event_duration[0] >= 0.01 and self.event_duration[1] <= self.duration,
                f"within 0.01 s and the scene's duration, {self.duration} s",
            ),
            "level_db": (self.level_db[1] <= 0, "0 dB (full scale) or less"),
            "speed": (self.speed[0] >= 0.25 and self.speed[1] <= 4, "within 0.25 and 4"),
            "gap": (0.001 <= self.gap < math.inf, "0.001 s or more"),
            "backgrounds": (len(self.backgrounds) > 0, "one name or more"),
            "clean": (0 <= self.clean <= 1, "a share from 0 to 1"),
        }
        for name, (holds, wanted) in checks.items():
            if not holds:
                raise SettingError(f"{name} must be {wanted}. Got {getattr(self, name)!r}.")


@dataclass(frozen=True, eq=False)
class Scene:
    """A mixed scene and its components.

    Shape:
        waveform and background (samples,); layers: one array per event, as long as the event.
        waveform = background + layers, each layer starting at the onset of its event.

    >>> make_scene(SceneConfig(duration=4.0, n_events=(1, 1)), seed=0).sample_rate
    32000
    """

    waveform: Waveform
    sample_rate: int
    events: tuple[Event, ...]
    background: Waveform
    layers: tuple[Waveform, ...]

    def __repr__(self) -> str:
        labels = [event.label for event in self.events]
        seconds = len(self.waveform) / self.sample_rate
        return (
            f"Scene({seconds:g} s at {self.sample_rate} Hz, {len(labels)} events: {listed(labels)})"
        )


def make_scene(config: SceneConfig, seed: int, index: int = 0, bank: Bank | None = None) -> Scene:
    """Return scene number `index` of a seed; by default with procedural sounds.

    >>> scene = make_scene(SceneConfig(duration=4.0, n_events=(2, 2)), seed=0, index=17)
    >>> scene.waveform.shape, len(scene.events)
    ((128000,), 2)
    """
    if seed < 0 or index < 0:
        raise SettingError(f"seed and index must be 0 or more. Got {seed!r} and {index!r}.")
    bank = ProceduralBank() if bank is None else bank
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(index,)))
    classes = _classes(config, bank)
    background = _background(config, rng, bank)
    sounds, onsets = _place_events(config, rng, bank, classes)
    mixed = background.astype(np.float64)
    mean_power = float(np.mean(np.square(mixed)))
    layers, events = [], []
    for (label, sound), onset_ms in zip(sounds, onsets, strict=True):
        offset_ms = onset_ms + _milliseconds(sound, config.sample_rate)
        first, last = (round(ms * config.sample_rate / 1000) for ms in (onset_ms, offset_ms))
        layer = _faded(sound[: last - first], config.sample_rate)
        behind = np.square(background[first : first + len(layer)], dtype=np.float64)
        power = max(float(behind.mean()), 0.01 * mean_power)
        power *= 10 ** (rng.uniform(*config.snr_db) / 10)
        layer *= np.sqrt(power / np.mean(np.square(layer, dtype=np.float64)))
        mixed[first : first + len(layer)] += layer
        layers.append(layer)
        events.append(Event(onset_ms / 1000, offset_ms / 1000, label))
    # Drawn last, and only if it is wanted: other scenes stay as they are.
    if config.clean and rng.random() < config.clean:
        quiet = background * np.float32(10 ** (-_CLEAN_DB / 20))
        mixed += quiet - background
        background = quiet
    scale = min(1.0, _PEAK / max(float(np.abs(mixed).max()), 1e-12))
    order = sorted(range(len(events)), key=events.__getitem__)
    return Scene(
        (mixed * scale).astype(np.float32),
        config.sample_rate,
        tuple(events[i] for i in order),
        (background * scale).astype(np.float32),
        tuple((layers[i] * scale).astype(np.float32) for i in order),
    )


def write_scenes(
    out_dir: str | os.PathLike[str],
    n_scenes: int,
    config: SceneConfig | None = None,
    seed: int = 0,
    *,
    bank: Bank | None = None,
    prefix: str = "scene_",
    suffix: str = ".wav",
    processes: int = 1,
    overwrite: bool = False,
) -> dict[str, list[Event]]:
    """Write scenes 0 to `n_scenes` - 1 of a seed, and return the events of each file.

    The folder gets `audio/scene_00000.wav` and so on, `weak.tsv` (filename, event_labels) and
    `strong.tsv` (filename, onset, offset, event_label). The tables are written last: if they
    exist, all audio does. The same seed gives the same bytes.

    Args:
        out_dir: the folder; created if it does not exist.
        n_scenes: number of scenes.
        config: how scenes are made.
        seed: of the random generators.
        bank: the source of sounds; procedural by default.
        prefix: of the file names.
        suffix: .wav or .flac (16 bits), or .ogg.
        processes: number of processes, which does not change the result.
        overwrite: replace files of the same name instead of raising; other files are kept.

    >>> import tempfile
    >>> config = SceneConfig(sample_rate=8000, duration=2.0, event_duration=(0.5, 1.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(list(write_scenes(folder, 2, config)))
    ['scene_00000.wav', 'scene_00001.wav']
    """
    out, config = Path(out_dir), SceneConfig() if config is None else config
    bank = ProceduralBank() if bank is None else bank
    if n_scenes < 1 or processes < 1:
        raise SettingError(
            f"n_scenes and processes must be 1 or more. Got {n_scenes!r} and {processes!r}."
        )
    _classes(config, bank)  # raises before anything is written if a name is wrong
    choose("audio format to write", suffix, WRITERS)
    if prefix and Path(prefix).name != prefix:
        raise SettingError(f"prefix must be the first part of a file name. Got {prefix!r}.")
    audio, weak, strong = out / "audio", out / "weak.tsv", out / "strong.tsv"
    if not overwrite and (
        weak.exists() or strong.exists() or (audio.exists() and any(audio.iterdir()))
    ):
        raise DataError(
            f"{out} already contains scenes. Choose another folder, or pass overwrite=True."
        )
    check_folder(audio)
    weak.unlink(missing_ok=True)
    strong.unlink(missing_ok=True)
    write = partial(_write_scene, audio, config, seed, bank, prefix, suffix)
    written = dict(map_in_order(write, range(n_scenes), processes))
    write_tags(weak, {name: {event.label for event in written[name]} for name in written})
    write_events(strong, written)
    return written


def _write_scene(
    audio: Path, config: SceneConfig, seed: int, bank: Bank, prefix: str, suffix: str, index: int
) -> tuple[str, list[Event]]:
    scene = make_scene(config, seed, index, bank)
    name = f"{prefix}{index:05d}{suffix}"
    write_audio(audio / name, scene.waveform, scene.sample_rate)
    return name, list(scene.events)


def _classes(config: SceneConfig, bank: Bank) -> tuple[str, ...]:
    """Return the classes of events, after a check of every name in the config."""
    for name in config.backgrounds:
        choose("background", name, bank.backgrounds)
    if not config.classes:
        classes = tuple(name for name in bank.categories if name not in config.backgrounds)
        if not classes:
            raise SettingError(
                "Every category of the bank is a background; none is left for events."
            )
        return classes
    return tuple(choose("class", name, bank.categories) for name in config.classes)


def _background(config: SceneConfig, rng: Rng, bank: Bank) -> Waveform:
    """Return the background of a whole scene at its level."""
    name = config.backgrounds[rng.integers(len(config.backgrounds))]
    speed = _speed(config, rng)
    # A little more, since resampling may end one sample early.
    duration = config.duration if speed == 1 else config.duration * speed + 0.01
    background = bank.sample_background(name, rng, duration, config.sample_rate)
    background = _change_speed(background, speed, config.duration, config.sample_rate)
    rms = float(np.sqrt(np.mean(np.square(background, dtype=np.float64))))
    if rms == 0:
        raise DataError(f"The background {name!r} is silent. Remove it from the soundbank.")
    return background * np.float32(10 ** (rng.uniform(*config.level_db) / 20) / rms)


def _place_events(
    config: SceneConfig, rng: Rng, bank: Bank, classes: tuple[str, ...]
) -> tuple[list[tuple[str, Waveform]], list[int]]:
    """Return the events of a scene as (class, sound), and the onset of each in milliseconds."""
    n_events = int(rng.integers(config.n_events[0], config.n_events[1] + 1))
    high_ms = math.floor(1000 * config.event_duration[1])
    low_ms = min(math.ceil(1000 * config.event_duration[0]), high_ms)
    for attempt in range(_TRIES):
        # A crowded scene gets shorter events, not fewer.
        longest = high_ms - attempt * (high_ms - low_ms) // _TRIES
        sounds = []
        for _ in range(n_events):
            label = classes[rng.integers(len(classes))]
            wanted = int(rng.integers(low_ms, longest + 1)) / 1000
            speed = _speed(config, rng)
            sound = bank.sample(label, rng, wanted * speed, config.sample_rate)
            sounds.append((label, _change_speed(sound, speed, wanted, config.sample_rate)))
        onsets = _place(config, rng, sounds)
        if onsets is not None:
            return sounds, onsets
    raise SettingError(
        f"{n_events} events of {low_ms / 1000} s or more, of {len(classes)} classes, do not fit "
        f"into {config.duration} s with max_overlap={config.max_overlap} and gap={config.gap}. Set "
        "fewer n_events, a shorter event_duration, or a larger max_overlap."
    )


def _speed(config: SceneConfig, rng: Rng) -> float:
    """Return a random speed; a constant one leaves the generator unchanged."""
    low, high = config.speed
    return low if low == high else float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _change_speed(sound: Waveform, speed: float, max_duration: float, sample_rate: int) -> Waveform:
    """Return a sound at another speed, at most `max_duration` seconds long."""
    if speed == 1:
        return sound
    played = soxr.resample(sound, round(sample_rate * speed), sample_rate)
    return np.asarray(played[: max(1, round(max_duration * sample_rate))], dtype=np.float32)


def _place(config: SceneConfig, rng: Rng, sounds: list[tuple[str, Waveform]]) -> list[int] | None:
    """Return valid onsets of all sounds in milliseconds, or None if none were found."""
    scene_ms, gap_ms = math.floor(config.duration * 1000), math.ceil(config.gap * 1000)
    placed: list[tuple[int, int, str]] = []
    for label, sound in sounds:
        length = _milliseconds(sound, config.sample_rate)
        for _ in range(_TRIES):
            onset = int(rng.integers(max(0, scene_ms - length) + 1))
            span = (onset, onset + length, label)
            apart = all(
                other != label or onset >= last + gap_ms or first >= span[1] + gap_ms
                for first, last, other in placed
            )
            if apart and _polyphony([*placed, span]) <= config.max_overlap:
                placed.append(span)
                break
        else:
            return None
    return [onset for onset, _, _ in placed]


def _polyphony(spans: list[tuple[int, int, str]]) -> int:
    """Return the maximum number of simultaneous spans, which is reached at some onset."""
    return max(sum(first <= at < last for first, last, _ in spans) for at, _, _ in spans)


def _milliseconds(sound: Waveform, sample_rate: int) -> int:
    return max(1, len(sound) * 1000 // sample_rate)


def _faded(sound: Waveform, sample_rate: int) -> Waveform:
    """Return a copy with short fades at both ends; no factor is exactly zero."""
    n_fade = max(1, min(round(_FADE * sample_rate), len(sound) // 2))
    ramp = (np.arange(1, n_fade + 1, dtype=np.float32)) / (n_fade + 1)
    faded = sound.copy()
    faded[:n_fade] *= ramp
    faded[-n_fade:] *= ramp[::-1]
    return faded


@dataclass(frozen=True)
class BankConfig:
    """The soundbank of several sets, procedural if empty; paths are relative to the TOML file.

    >>> BankConfig(table="clips.tsv", audio="audio").table
    'clips.tsv'
    """

    table: str = ""
    audio: str = ""

    def open(self, folder: Path, folds: Iterable[int | str]) -> Bank:
        """Return the sounds of some folds."""
        if not self.table:
            return ProceduralBank()
        return Soundbank.from_table(folder / self.table, folder / self.audio, folds)


@dataclass(frozen=True)
class SetConfig:
    """Number of scenes, seed, folds of the banks, and classes if they are its own, of one set.

    >>> SetConfig(n=100, seed=1, folds=(1, 2)).n
    100
    """

    n: int
    seed: int
    folds: tuple[int | str, ...] = ()
    background_folds: tuple[int | str, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class SceneSets:
    """Sets of scenes from one soundbank, as described by a TOML file.

    >>> sets = {"test": SetConfig(n=2, seed=1, folds=(3,))}
    >>> list(SceneSets(BankConfig("clips.tsv", "audio"), SceneConfig(), sets, Path()).sets)
    ['test']
    """

    bank: BankConfig
    scenes: SceneConfig
    sets: dict[str, SetConfig]
    folder: Path
    background_bank: BankConfig = BankConfig()

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "SceneSets":
        """Read a TOML file; see the docstring of this module."""
        source = Path(path)
        tree = read_toml(source)
        for name in tree:
            choose(f"table in {source}", name, ("bank", "background_bank", "scenes", "sets"))
        if not (tree.get("sets") and isinstance(tree["sets"], Mapping)):
            raise SettingError(f"{source} needs a table [sets]; see benchmarks/scenes.toml.")
        bank, background_bank = (
            build(BankConfig, name, tree.get(name, {})) for name in ("bank", "background_bank")
        )
        if background_bank.table and not bank.table:
            raise SettingError(f"{source}: [background_bank] needs a table [bank] beside it.")
        sets = {name: build(SetConfig, f"sets.{name}", of) for name, of in tree["sets"].items()}
        for name, of in sets.items():
            if of.n < 1 or of.seed < 0 or bool(of.folds) != bool(bank.table):
                folds = "and a fold" if bank.table else "and no folds, since there is no bank"
                raise SettingError(
                    f"sets.{name} needs n of 1 or more, a seed of 0 or more, {folds}. Got {of}."
                )
            if bool(of.background_folds) != bool(background_bank.table):
                raise SettingError(
                    f"sets.{name}: background_folds belong to [background_bank], and it needs "
                    f"them. Got {of}."
                )
        scenes = build(SceneConfig, "scenes", tree.get("scenes", {}))
        return cls(bank, scenes, sets, source.parent, background_bank)

    def open_bank(self, name: str) -> Bank:
        """Return the sounds of a set: those of its folds, and of its background folds."""
        own = self.sets[name]
        bank = self.bank.open(self.folder, own.folds)
        if not self.background_bank.table:
            return bank
        behind = self.background_bank.open(self.folder, own.background_folds)
        assert isinstance(bank, Soundbank)
        assert isinstance(behind, Soundbank)
        return bank.with_backgrounds(behind, self.scenes.backgrounds)

    def write(
        self,
        out: str | os.PathLike[str],
        names: Iterable[str] | None = None,
        *,
        suffix: str = ".wav",
        processes: int = 1,
        overwrite: bool = False,
    ) -> dict[str, dict[str, list[Event]]]:
        """Write sets, by default all; return set -> file -> its events.

        Each set is written by `write_scenes` to the folder of its name in `out`. Its name is also
        the prefix of its files, so that names are unique over all sets.
        """
        chosen = [choose("set of scenes", name, self.sets) for name in names or self.sets]
        # Checked before anything is written.
        banks = {name: self.open_bank(name) for name in chosen}
        written = {}
        for name in chosen:
            config = self.sets[name]
            written[name] = write_scenes(
                Path(out) / name,
                config.n,
                replace(self.scenes, classes=config.classes or self.scenes.classes),
                config.seed,
                bank=banks[name],
                prefix=f"{name}_",
                suffix=suffix,
                processes=processes,
                overwrite=overwrite,
            )
        return written
