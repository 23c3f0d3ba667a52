"""Manifests -> a report of what would prevent or degrade training, before it starts.

Conventions: every recording is decoded once, completely, in constant memory. Levels are those of
the mean of all channels, which is the input of the network: two channels that clip at different
times do not count as clipped. `earmark.data.findings` describes the report.

These stop training: a training or validation table without clips, or without a single readable
recording; training clips without any tag; a validation class that is not a training class; groups,
if they are given, that are in both. Missing, unreadable or silent recordings hurt, as long as
others are left. Every finding says what to do, with what to type where that helps.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from earmark.audio.decode import audio_format, read_blocks
from earmark.data.features import FeatureConfig
from earmark.data.findings import REMEDIES, SEVERITIES, TRAINING, VALIDATION, Finding, Part, Report
from earmark.data.groups import suggest_groups
from earmark.data.manifest import Manifest
from earmark.errors import AudioError, SettingError
from earmark.runtime.processes import map_in_order

SILENT = 1e-4  # peak, relative to full scale: -80 dB, three steps of 16 bits
FULL_SCALE = 0.999  # level of a clipped waveform after a converter or a resampler
CLIPPED = 1e-3  # fraction of the samples
SHORT = 1.0  # seconds: the receptive field of one frame is 1.1 s
ODD = 2.0  # ratio to the median length, in either direction
RARE = 10  # clips per class: with fewer, a network memorises the clips
N_HEADERS = 32  # recordings whose sample rate stands for that of all


@dataclass(frozen=True)
class Inspection:
    """The properties of one recording; only `error` is set if it cannot be read.

    >>> Inspection(duration=2.0, sample_rate=16000, channels=1, peak=0.5).silent
    False
    """

    error: str | None = None
    duration: float = 0.0  # seconds
    sample_rate: int = 0
    channels: int = 0
    peak: float = 0.0  # relative to full scale
    clipped: float = 0.0  # fraction of samples that are the third or later in a run at full scale
    digest: str = ""  # hash of the decoded samples

    @property
    def silent(self) -> bool:
        """Whether its peak is below -80 dB."""
        return self.error is None and self.peak < SILENT


def examine(
    train: Manifest,
    valid: Manifest | None = None,
    config: FeatureConfig | None = None,
    *,
    processes: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Report:
    """Check all tables and recordings, and report problems.

    Args:
        train: the training clips.
        valid: the validation clips, if there are any yet.
        config: the features, to check that sample rates reach their highest mel band.
        processes: number of decoding processes; by default one per core, if there are enough
            recordings.
        progress: called with the number of recordings done, and of all recordings.

    >>> report = examine(Manifest((), (), (), ("dog",)))
    >>> report.stops, report.findings[0].sentence
    (True, 'The training table has no clips.')
    """
    manifests = {TRAINING: train} | ({} if valid is None else {VALIDATION: valid})
    paths = list(dict.fromkeys(path for manifest in manifests.values() for path in manifest.paths))
    inspections: dict[Path, Inspection] = {}
    with closing(map_in_order(inspect, paths, processes)) as inspected:
        for path, audio in zip(paths, inspected, strict=True):
            inspections[path] = audio
            if progress is not None:
                progress(len(inspections), len(paths))
    findings = [*_of_copies(manifests, inspections), *_of_classes(train, valid, inspections)]
    for part, manifest in reversed(manifests.items()):
        findings[:0] = _of_files(part, manifest, inspections, config or FeatureConfig())
    findings += _of_groups(train, valid)
    findings = [
        finding if finding.remedy else replace(finding, remedy=REMEDIES[finding.kind])
        for finding in findings
    ]
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    parts = {part: _statistics(manifest, inspections) for part, manifest in manifests.items()}
    return Report(parts, tuple(findings))


def inspect(path: Path) -> Inspection:
    """Decode a recording once and return its properties.

    >>> inspect(Path("none.wav"))
    Inspection(error='none.wav does not exist; check the path.', duration=0.0, ...)
    """
    digest = hashlib.blake2b(digest_size=16)
    n_samples = n_clipped = 0
    peak = 0.0
    before = np.zeros(
        2, bool
    )  # whether the last two samples of the previous block were at full scale
    try:
        for block in read_blocks(path):
            level = np.abs(block)
            full = np.concatenate([before, level >= FULL_SCALE])
            n_clipped += int(np.count_nonzero(full[2:] & full[1:-1] & full[:-2]))
            n_samples, peak, before = n_samples + len(block), max(peak, level.max()), full[-2:]
            digest.update(block.tobytes())
    except AudioError as error:
        return Inspection(error=str(error))
    sample_rate, channels = audio_format(path)
    digest.update(str(sample_rate).encode())
    return Inspection(
        duration=n_samples / sample_rate,
        sample_rate=sample_rate,
        channels=channels,
        peak=float(peak),
        clipped=n_clipped / n_samples,
        digest=digest.hexdigest(),
    )


def _readable(
    manifest: Manifest, inspections: Mapping[Path, Inspection]
) -> Iterator[tuple[str, Inspection, Any]]:
    """Yield name, inspection and tags of each readable clip."""
    for name, path, tags in zip(manifest.files, manifest.paths, manifest.tags, strict=True):
        if inspections[path].error is None:
            yield name, inspections[path], tags


def _statistics(manifest: Manifest, inspections: Mapping[Path, Inspection]) -> Part:
    clips = list(_readable(manifest, inspections))
    lengths = sorted(audio.duration for _, audio, _ in clips) or [0.0]
    counted = Counter(tag for _, _, tags in clips for tag in tags)
    return Part(
        n_listed=len(manifest) + len(manifest.missing),
        n_missing=len(manifest.missing),
        n_unreadable=len(manifest) - len(clips),
        shortest=lengths[0],
        median=median(lengths),
        longest=lengths[-1],
        total=sum(lengths),
        sample_rates=dict(sorted(Counter(audio.sample_rate for _, audio, _ in clips).items())),
        channels=dict(sorted(Counter(audio.channels for _, audio, _ in clips).items())),
        classes={label: counted[label] for label in manifest.labels},
    )


def _of_files(
    part: str, manifest: Manifest, inspections: Mapping[Path, Inspection], config: FeatureConfig
) -> Iterator[Finding]:
    """Report recordings that are missing, unreadable, silent, clipped, short or odd."""
    n_listed = len(manifest) + len(manifest.missing)
    if not n_listed:
        yield Finding("empty", "stops", part, f"The {part} table has no clips.")
        return
    of = f"of {n_listed} {part} clips"
    clips = {name: audio for name, audio, _ in _readable(manifest, inspections)}
    broken = {
        name: inspections[path].error or ""
        for name, path in zip(manifest.files, manifest.paths, strict=True)
        if inspections[path].error is not None
    }
    typical = median(audio.duration for audio in clips.values()) if clips else 0.0
    silent: dict[str, str] = {}
    short: dict[str, str] = {}
    odd: dict[str, str] = {}
    clipped: dict[str, str] = {}
    low_rate: dict[str, str] = {}
    for name, audio in clips.items():
        if audio.duration < SHORT:
            short[name] = f"{audio.duration:.2f} s"
        elif not typical / ODD <= audio.duration <= typical * ODD:
            odd[name] = f"{audio.duration:.2f} s"
        if audio.silent:
            silent[name] = f"peak {20 * np.log10(audio.peak):.0f} dB" if audio.peak else "all zero"
        if audio.clipped > CLIPPED:
            clipped[name] = f"{audio.clipped:.1%} of its samples"
        if audio.sample_rate < 2 * config.f_max:
            low_rate[name] = f"{audio.sample_rate} Hz"
    worst = "hurts" if clips else "stops"
    odd_length = f"are under half or over twice as long as the median of {typical:.2f} s"
    too_low = f"have a sample rate too low for the highest mel band, {config.f_max:g} Hz"
    remedies = {"low sample rate": "Nothing to do: the highest mels of these clips stay empty."}
    if 2 * len(low_rate) > len(clips):  # a lower sample rate loses nothing of most clips
        wanted = max(clips[name].sample_rate for name in low_rate)
        remedies["low sample rate"] = f"Train with {_settings_for(wanted, config)}"
    for kind, severity, what, items in (
        ("missing", worst, "have no recording", dict.fromkeys(manifest.missing, "")),
        ("unreadable", worst, "cannot be read", broken),
        ("silent", "hurts", "are silent (peak below -80 dB)", silent),
        ("short", "hurts", f"are shorter than {SHORT:g} s", short),
        ("odd length", "note", odd_length, odd),
        ("clipped", "note", "are clipped, with runs of samples at full scale", clipped),
        ("low sample rate", "note", too_low, low_rate),
    ):
        if items:
            sentence = f"{len(items)} {of} {what}."
            yield Finding(kind, severity, part, sentence, items, remedies.get(kind, ""))


def low_rate_hint(clips: Manifest, config: FeatureConfig) -> str:
    """Return the settings to type if most recordings end below the highest mel, from some headers.

    >>> low_rate_hint(Manifest((), (), (), ()), FeatureConfig())
    ''
    """
    rates = []
    for path in clips.paths[:: max(1, len(clips) // N_HEADERS)]:
        with suppress(AudioError):
            rates.append(audio_format(path)[0])
    low = [rate for rate in rates if rate < 2 * config.f_max]
    return _settings_for(max(low), config) if 2 * len(low) > len(rates) else ""


def _settings_for(sample_rate: int, config: FeatureConfig) -> str:
    """Return the overrides to type for recordings of a low sample rate.

    >>> _settings_for(8000, FeatureConfig())
    '--set features.sample_rate=8000'
    >>> _settings_for(2000, FeatureConfig())
    '--set features.sample_rate=2000 --set features.n_mels=64'
    """
    step = round(1 / config.hop)  # such that a hop is a whole number of samples
    sample_rate = max(step, sample_rate // step * step)
    f_max = min(config.f_max, sample_rate / 2)
    for n_mels in (config.n_mels, 64, 48, 32, 16, 8):
        try:
            replace(config.raw, sample_rate=sample_rate, f_max=f_max, n_mels=n_mels)
        except SettingError:  # some mels would be empty
            continue
        mels = f" --set features.n_mels={n_mels}" if n_mels != config.n_mels else ""
        return f"--set features.sample_rate={sample_rate}{mels}"
    return f"--set features.sample_rate={sample_rate}"


def _of_copies(
    manifests: Mapping[str, Manifest], inspections: Mapping[Path, Inspection]
) -> Iterator[Finding]:
    """Report recordings that occur more than once, as one file or with the same samples."""
    groups: dict[str, dict[str, list[_Member]]] = {}  # digest -> part -> clips
    for part, manifest in manifests.items():
        for member in map(_Member, manifest.files, manifest.paths, manifest.tags):
            audio = inspections[member.path]
            if audio.error is None and not audio.silent:
                groups.setdefault(audio.digest, {}).setdefault(part, []).append(member)
    leaks = {
        group[TRAINING][0].name: f"is {group[VALIDATION][0].name} in validation"
        for group in groups.values()
        if len(group) > 1
    }
    if leaks:
        sentence = f"{len(leaks)} validation recordings are in training: scores will be too high."
        yield Finding("leak", "hurts", VALIDATION, sentence, leaks)
    for part in manifests:
        copied = [group[part] for group in groups.values() if len(group.get(part, [])) > 1]
        for kind, severity, alike, what in (
            ("contradiction", "hurts", False, "more than once with different tags"),
            ("duplicate", "note", True, "more than once with the same tags"),
        ):
            items = {
                first.name: ", ".join(
                    ("is the file of " if other.path == first.path else "is a copy of ")
                    + other.name
                    for other in others
                )
                for first, *others in copied
                if all(other.tags == first.tags for other in others) == alike
            }
            if items:
                sentence = f"{len(items)} recordings are in the {part} table {what}."
                yield Finding(kind, severity, part, sentence, items)


def _of_groups(train: Manifest, valid: Manifest | None) -> Iterator[Finding]:
    """Report groups, such as speakers, that validation may share with training."""
    if train.groups:
        groups_of: dict[str, set[str]] = {label: set() for label in train.labels}
        for group, tags in zip(train.groups, train.tags, strict=True):
            for tag in tags:
                groups_of[tag].add(group)
        if valid is not None:
            n_clips = Counter(valid.groups)
            shared = {x: f"{n_clips[x]} clips" for x in sorted({*train.groups} & {*valid.groups})}
            if shared:
                sentence = f"{len(shared)} groups are in training and in validation."
                yield Finding("shared groups", "stops", VALIDATION, sentence, shared)
        alone = {label: own.copy().pop() for label, own in groups_of.items() if len(own) == 1}
        if valid is None and alone:
            sentence = f"{len(alone)} classes are in one group only."
            yield Finding("one group", "hurts", TRAINING, sentence, alone)
        return
    found = suggest_groups(train.files, train.tags, train.columns)
    if found is None:
        return
    why = "Validation that is split at random may share them, and its scores are then too high."
    if valid is not None:
        others = suggest_groups(valid.files, valid.tags, valid.columns)
        shared_groups = {*found.groups} & {*(others.groups if others else ())}
        if not shared_groups:
            return
        why = f"{len(shared_groups)} of them are in training and in validation."
    remedy = f"Train with {found.option}"
    yield Finding("groups", "hurts", TRAINING, f"{found.evidence} {why}", {}, remedy)


class _Member(NamedTuple):
    """A clip in a group with the same samples."""

    name: str
    path: Path
    tags: tuple[str, ...]


def _of_classes(
    train: Manifest, valid: Manifest | None, inspections: Mapping[Path, Inspection]
) -> Iterator[Finding]:
    """Report classes that are rare, unseen, unknown or in every clip, and clips without tags."""
    clips = [tags for _, _, tags in _readable(train, inspections)]
    known = Counter(tag for tags in clips for tag in tags)
    validated: Counter[str] = Counter()
    if valid is not None:
        validated.update(tag for _, _, tags in _readable(valid, inspections) for tag in tags)
        unknown = [label for label in valid.labels if label not in train.labels]
        sentence = "{n} validation classes are not in training; remove or rename them."
        yield from _about("unknown class", "stops", VALIDATION, sentence, unknown, validated)
    if clips and not known:
        yield Finding("no tags", "stops", TRAINING, "No training clip has a tag.")
        return
    counts = {label: known[label] for label in train.labels} if clips else {}
    unseen = [label for label, count in counts.items() if not count]
    rare = [label for label, count in counts.items() if 0 < count < RARE]
    always = [label for label, count in counts.items() if count == len(clips)]
    for kind, severity, sentence, labels in (
        ("unseen class", "hurts", "{n} classes have no readable training clip.", unseen),
        ("rare class", "hurts", f"{{n}} classes have fewer than {RARE} training clips.", rare),
        ("no negatives", "hurts", "{n} classes are in every training clip.", always),
    ):
        yield from _about(kind, severity, TRAINING, sentence, labels, known)
    if validated:
        unvalidated = [label for label, count in counts.items() if count and not validated[label]]
        sentence = "{n} training classes are not in validation, so they are not evaluated."
        yield from _about("unvalidated class", "note", VALIDATION, sentence, unvalidated, validated)
    untagged = sum(not tags for tags in clips)
    if untagged:
        sentence = f"{untagged} training clips have no tag: they count as without any class."
        yield Finding("untagged", "note", TRAINING, sentence)


def _about(
    kind: str, severity: str, part: str, sentence: str, labels: list[str], counts: Counter[str]
) -> Iterator[Finding]:
    """Yield a finding about some classes, if there are any."""
    items = {label: f"{counts[label]} clips" for label in labels}
    if items:
        yield Finding(kind, severity, part, sentence.format(n=len(items)), items)
