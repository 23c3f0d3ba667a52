"""Manifests -> a report of what would prevent or degrade training, before it starts.

Conventions: every recording is decoded once, completely, in constant memory. Levels are those of
the mean of all channels, which is the input of the network: two channels that clip at different
times do not count as clipped. A finding has one of three severities:

    stops    training cannot start, or its validation cannot be scored
    hurts    training would run, but learn less or be evaluated wrongly
    note     worth checking; often intended

These stop training: a training or validation table without clips, or without a single readable
recording; training clips without any tag; a validation class that is not a training class.
Missing, unreadable or silent recordings hurt, as long as others are left.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from earmark.audio.decode import audio_format, read_blocks
from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest
from earmark.errors import AudioError, SettingError
from earmark.runtime.processes import map_in_order

if TYPE_CHECKING:
    from rich.console import RenderableType

SILENT = 1e-4  # peak, relative to full scale: -80 dB, three steps of 16 bits
FULL_SCALE = 0.999  # level of a clipped waveform after a converter or a resampler
CLIPPED = 1e-3  # fraction of the samples
SHORT = 1.0  # seconds: the receptive field of one frame is 1.1 s
ODD = 2.0  # ratio to the median length, in either direction
RARE = 10  # clips per class: with fewer, a network memorises the clips
N_HEADERS = 32  # recordings whose sample rate stands for that of all

SEVERITIES = ("stops", "hurts", "note")
TRAINING, VALIDATION = "training", "validation"


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


@dataclass(frozen=True)
class Finding:
    """One problem.

    Args:
        kind: what it is, such as "missing" or "rare class".
        severity: one of `SEVERITIES`.
        part: "training" or "validation".
        sentence: a description for people.
        items: the clips or classes concerned -> detail, which may be empty.

    >>> Finding("empty", "stops", "training", "The training table has no clips.").items
    {}
    """

    kind: str
    severity: str
    part: str
    sentence: str
    items: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """Statistics of one manifest; durations in seconds, counts of readable recordings.

    Args:
        n_listed: clips in the table.
        n_missing: clips without a recording.
        n_unreadable: clips whose recording cannot be read.
        shortest: the shortest duration.
        median: the median duration.
        longest: the longest duration.
        total: the sum of all durations.
        sample_rates: sample rate -> number of recordings.
        channels: number of channels -> number of recordings.
        classes: label -> number of clips.

    >>> examine(Manifest((), (), (), ("dog",))).parts["training"].classes
    {'dog': 0}
    """

    n_listed: int
    n_missing: int
    n_unreadable: int
    shortest: float
    median: float
    longest: float
    total: float
    sample_rates: Mapping[int, int]
    channels: Mapping[int, int]
    classes: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """Statistics of each part ("training", "validation"), and findings, the most severe first.

    >>> Report({}, ()).stops
    False
    """

    parts: Mapping[str, Part]
    findings: tuple[Finding, ...]

    @property
    def stops(self) -> bool:
        """Whether any finding prevents training."""
        return any(finding.severity == "stops" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, ready for JSON."""
        return {
            "stops": self.stops,
            "parts": {name: asdict(part) for name, part in self.parts.items()},
            "findings": [asdict(finding) for finding in self.findings],
        }


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
    if 2 * len(low_rate) > len(clips):  # a lower sample rate loses nothing of most clips
        wanted = max(clips[name].sample_rate for name in low_rate)
        too_low += f"; train with {_settings_for(wanted, config)}"
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
            yield Finding(kind, severity, part, f"{len(items)} {of} {what}.", items)


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


def render(report: Report, n_items: int = 5) -> "RenderableType":
    """Return a report as tables for a terminal, with up to `n_items` names per finding.

    >>> import io
    >>> from rich.console import Console
    >>> console = Console(width=60, file=io.StringIO())
    >>> console.print(render(examine(Manifest((), (), (), ()))))
    >>> "has no clips" in console.file.getvalue()
    True
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    statistics = Table("", *report.parts, title="Recordings")
    shown: dict[str, Callable[[Part], str]] = {
        "clips listed": lambda part: f"{part.n_listed}",
        "missing": lambda part: f"{part.n_missing}",
        "unreadable": lambda part: f"{part.n_unreadable}",
        "shortest, median, longest": lambda part: (
            f"{part.shortest:.2f}, {part.median:.2f}, {part.longest:.2f} s"
        ),
        "total": lambda part: f"{part.total / 3600:.2f} h",
        "sample rates": lambda part: _counted(part.sample_rates, "Hz"),
        "channels": lambda part: _counted(part.channels, "ch"),
    }
    for name, describe in shown.items():
        statistics.add_row(name, *map(describe, report.parts.values()))
    classes = Table("class", *report.parts, title="Clips per class")
    for label in dict.fromkeys(label for part in report.parts.values() for label in part.classes):
        row = (str(part.classes.get(label, "-")) for part in report.parts.values())
        classes.add_row(Text(label), *row)
    findings = Table("", "finding", title="Findings", show_lines=True)
    colours = {"stops": "bold red", "hurts": "yellow", "note": "dim"}
    for finding in report.findings:
        names = [f"{name}: {detail}" if detail else name for name, detail in finding.items.items()]
        more = [f"and {len(names) - n_items} more"] if len(names) > n_items else []
        lines = [finding.sentence, *(f"  {name}" for name in [*names[:n_items], *more])]
        # Text, not markup: a file name may contain brackets.
        severity = Text(finding.severity, style=colours[finding.severity])
        findings.add_row(severity, Text("\n".join(lines)))
    if not report.findings:
        findings.add_row("", "No problems.")
    return Group(statistics, classes, findings)


def _counted(counts: Mapping[int, int], unit: str) -> str:
    if len(counts) == 1:
        return f"{next(iter(counts))} {unit}"
    return ", ".join(f"{value} {unit} x {count}" for value, count in counts.items()) or "-"
