"""Manifests -> what would stop or hurt training, before it begins.

Conventions: every recording is decoded once, whole, in constant memory. Levels are those of the
mean of its channels, which is what the network hears: two channels that clip at different times
are not seen to clip. A finding has one of three severities:

    stops    training could not begin, or its validation could not be scored
    hurts    training would run, and learn less or be judged wrongly
    note     worth a look; often as it should be

What stops: a table without clips or without one recording that can be read, of training or of
validation; training without any tag; and a class of validation that training does not know.
Recordings that are missing, unreadable or silent hurt, as long as others are left.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from earmark.audio.decode import audio_format, read_blocks
from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest
from earmark.errors import AudioError
from earmark.runtime.processes import map_in_order

if TYPE_CHECKING:
    from rich.console import RenderableType

SILENT = 1e-4  # of full scale, the peak: -80 dB, three steps of 16 bits
FULL_SCALE = 0.999  # what a converter, or a resampler after it, leaves of a clipped wave
CLIPPED = 1e-3  # of the samples
SHORT = 1.0  # seconds: one frame of the network sees 1.1 s through its convolutions
ODD = 2.0  # times the median length, or a part of it
RARE = 10  # clips of a class: fewer teach the clips, not the class

SEVERITIES = ("stops", "hurts", "note")
TRAINING, VALIDATION = "training", "validation"


@dataclass(frozen=True)
class Look:
    """What was found in one recording; `error` and nothing else if it cannot be read."""

    error: str | None = None
    duration: float = 0.0  # seconds
    sample_rate: int = 0
    channels: int = 0
    peak: float = 0.0  # of full scale
    clipped: float = 0.0  # of the samples: at full scale, the third or later one in a row
    digest: str = ""  # of the decoded samples

    @property
    def silent(self) -> bool:
        """Whether nothing can be heard in it."""
        return self.error is None and self.peak < SILENT


@dataclass(frozen=True)
class Finding:
    """One thing to know: what kind, how bad, where, a sentence, and the clips or classes.

    `items` is name -> detail, which may be empty.
    """

    kind: str
    severity: str
    part: str
    sentence: str
    items: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Part:
    """The figures of one manifest; lengths in seconds, counts of recordings that can be read."""

    n_listed: int
    n_missing: int
    n_unreadable: int
    shortest: float
    median: float
    longest: float
    total: float
    rates: Mapping[int, int]
    channels: Mapping[int, int]
    classes: Mapping[str, int]


@dataclass(frozen=True)
class Report:
    """What the doctor found: figures of each part, and findings, the worst first."""

    parts: Mapping[str, Part]
    findings: tuple[Finding, ...]

    @property
    def stops(self) -> bool:
        """Whether something would stop training."""
        return any(finding.severity == "stops" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values, ready for JSON."""
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
    """Look at all recordings and tables, and tell what is wrong with them.

    Args:
        train: what to learn from.
        valid: what to validate with, if known already.
        config: of the features, to tell whether recordings reach up to its highest mel.
        processes: how many to decode in; None takes a processor each, where that pays.
        progress: called with the number of recordings done, and of all.

    >>> report = examine(Manifest((), (), (), ("dog",)))
    >>> report.stops, report.findings[0].sentence
    (True, 'The training table names no clips.')
    """
    manifests = {TRAINING: train} | ({} if valid is None else {VALIDATION: valid})
    paths = list(dict.fromkeys(path for manifest in manifests.values() for path in manifest.paths))
    looks: dict[Path, Look] = {}
    with closing(map_in_order(look_at, paths, processes)) as found:
        for path, look in zip(paths, found, strict=True):
            looks[path] = look
            if progress is not None:
                progress(len(looks), len(paths))
    findings = [*_of_copies(manifests, looks), *_of_classes(train, valid, looks)]
    for part, manifest in reversed(manifests.items()):
        findings[:0] = _of_files(part, manifest, looks, config or FeatureConfig())
    findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    parts = {part: _figures(manifest, looks) for part, manifest in manifests.items()}
    return Report(parts, tuple(findings))


def look_at(path: Path) -> Look:
    """Decode a recording once and tell what it holds.

    >>> look_at(Path("none.wav"))
    Look(error='none.wav does not exist; check the path.', duration=0.0, ...)
    """
    digest = hashlib.blake2b(digest_size=16)
    n_samples = n_clipped = 0
    peak = 0.0
    before = np.zeros(2, bool)  # whether the last two samples of the block before were at the edge
    try:
        for block in read_blocks(path):
            level = np.abs(block)
            full = np.concatenate([before, level >= FULL_SCALE])
            n_clipped += int(np.count_nonzero(full[2:] & full[1:-1] & full[:-2]))
            n_samples, peak, before = n_samples + len(block), max(peak, level.max()), full[-2:]
            digest.update(block.tobytes())
    except AudioError as error:
        return Look(error=str(error))
    sample_rate, channels = audio_format(path)
    digest.update(str(sample_rate).encode())
    return Look(
        duration=n_samples / sample_rate,
        sample_rate=sample_rate,
        channels=channels,
        peak=float(peak),
        clipped=n_clipped / n_samples,
        digest=digest.hexdigest(),
    )


def _readable(manifest: Manifest, looks: Mapping[Path, Look]) -> Iterator[tuple[str, Look, Any]]:
    """Yield name, look and tags of each clip that can be read."""
    for name, path, tags in zip(manifest.files, manifest.paths, manifest.tags, strict=True):
        if looks[path].error is None:
            yield name, looks[path], tags


def _figures(manifest: Manifest, looks: Mapping[Path, Look]) -> Part:
    clips = list(_readable(manifest, looks))
    lengths = sorted(look.duration for _, look, _ in clips) or [0.0]
    counted = Counter(tag for _, _, tags in clips for tag in tags)
    return Part(
        n_listed=len(manifest) + len(manifest.missing),
        n_missing=len(manifest.missing),
        n_unreadable=len(manifest) - len(clips),
        shortest=lengths[0],
        median=median(lengths),
        longest=lengths[-1],
        total=sum(lengths),
        rates=dict(sorted(Counter(look.sample_rate for _, look, _ in clips).items())),
        channels=dict(sorted(Counter(look.channels for _, look, _ in clips).items())),
        classes={label: counted[label] for label in manifest.labels},
    )


def _of_files(
    part: str, manifest: Manifest, looks: Mapping[Path, Look], config: FeatureConfig
) -> Iterator[Finding]:
    """Tell of recordings that are missing, unreadable, silent, clipped, short or odd."""
    n_listed = len(manifest) + len(manifest.missing)
    if not n_listed:
        yield Finding("empty", "stops", part, f"The {part} table names no clips.")
        return
    of = f"of {n_listed} {part} clips"
    clips = {name: look for name, look, _ in _readable(manifest, looks)}
    broken = {
        name: looks[path].error or ""
        for name, path in zip(manifest.files, manifest.paths, strict=True)
        if looks[path].error is not None
    }
    middle = median(look.duration for look in clips.values()) if clips else 0.0
    silent: dict[str, str] = {}
    short: dict[str, str] = {}
    odd: dict[str, str] = {}
    clipped: dict[str, str] = {}
    dull: dict[str, str] = {}
    for name, look in clips.items():
        if look.duration < SHORT:
            short[name] = f"{look.duration:.2f} s"
        elif not middle / ODD <= look.duration <= middle * ODD:
            odd[name] = f"{look.duration:.2f} s"
        if look.silent:
            silent[name] = f"peak {20 * np.log10(look.peak):.0f} dB" if look.peak else "all zero"
        if look.clipped > CLIPPED:
            clipped[name] = f"{look.clipped:.1%} of its samples"
        if look.sample_rate < 2 * config.f_max:
            dull[name] = f"{look.sample_rate} Hz"
    worst = "hurts" if clips else "stops"
    odd_length = f"are under half or over twice as long as the median of {middle:.2f} s"
    too_dull = f"hold nothing at the highest mels, which reach {config.f_max:g} Hz"
    for kind, severity, what, items in (
        ("missing", worst, "have no audio", dict.fromkeys(manifest.missing, "")),
        ("unreadable", worst, "cannot be read", broken),
        ("silent", "hurts", "are silent (peak below -80 dB)", silent),
        ("short", "hurts", f"are shorter than {SHORT:g} s", short),
        ("odd length", "note", odd_length, odd),
        ("clipped", "note", "clip, with runs of samples at full scale", clipped),
        ("low sample rate", "note", too_dull, dull),
    ):
        if items:
            yield Finding(kind, severity, part, f"{len(items)} {of} {what}.", items)


def _of_copies(manifests: Mapping[str, Manifest], looks: Mapping[Path, Look]) -> Iterator[Finding]:
    """Tell of recordings that are there more than once, as one file or with the same samples."""
    groups: dict[str, dict[str, list[_Member]]] = {}  # digest -> part -> clips
    for part, manifest in manifests.items():
        for member in map(_Member, manifest.files, manifest.paths, manifest.tags):
            look = looks[member.path]
            if look.error is None and not look.silent:
                groups.setdefault(look.digest, {}).setdefault(part, []).append(member)
    leaks = {
        group[TRAINING][0].name: f"is {group[VALIDATION][0].name} of validation"
        for group in groups.values()
        if len(group) > 1
    }
    if leaks:
        sentence = f"{len(leaks)} recordings of validation are trained on: scores will flatter."
        yield Finding("leak", "hurts", VALIDATION, sentence, leaks)
    for part in manifests:
        copied = [group[part] for group in groups.values() if len(group.get(part, [])) > 1]
        for kind, severity, alike, what in (
            ("contradiction", "hurts", False, "more than once with different tags"),
            ("duplicate", "note", True, "more than once with the same tags"),
        ):
            items = {
                first.name: ", ".join(
                    ("is the file of " if other.path == first.path else "sounds as ") + other.name
                    for other in others
                )
                for first, *others in copied
                if all(other.tags == first.tags for other in others) == alike
            }
            if items:
                sentence = f"{len(items)} recordings are in the {part} table {what}."
                yield Finding(kind, severity, part, sentence, items)


class _Member(NamedTuple):
    """A clip among those that sound the same."""

    name: str
    path: Path
    tags: tuple[str, ...]


def _of_classes(
    train: Manifest, valid: Manifest | None, looks: Mapping[Path, Look]
) -> Iterator[Finding]:
    """Tell of classes that are rare, unseen, unknown or everywhere, and of clips without tags."""
    clips = [tags for _, _, tags in _readable(train, looks)]
    known = Counter(tag for tags in clips for tag in tags)
    judged: Counter[str] = Counter()
    if valid is not None:
        judged.update(tag for _, _, tags in _readable(valid, looks) for tag in tags)
        unknown = [label for label in valid.labels if label not in train.labels]
        sentence = "{n} classes of validation are unknown to training; remove or rename them."
        yield from _about("unknown class", "stops", VALIDATION, sentence, unknown, judged)
    if clips and not known:
        yield Finding("no tags", "stops", TRAINING, "No training clip has a tag to learn from.")
        return
    counts = {label: known[label] for label in train.labels} if clips else {}
    unseen = [label for label, count in counts.items() if not count]
    rare = [label for label, count in counts.items() if 0 < count < RARE]
    always = [label for label, count in counts.items() if count == len(clips)]
    for kind, severity, sentence, labels in (
        ("unseen class", "hurts", "{n} classes have no training clip that can be read.", unseen),
        ("rare class", "hurts", f"{{n}} classes have fewer than {RARE} training clips.", rare),
        ("no negatives", "hurts", "{n} classes are in every training clip.", always),
    ):
        yield from _about(kind, severity, TRAINING, sentence, labels, known)
    if judged:
        unjudged = [label for label, count in counts.items() if count and not judged[label]]
        sentence = "{n} classes are in training and never in validation, which cannot judge them."
        yield from _about("unjudged class", "note", VALIDATION, sentence, unjudged, judged)
    untagged = sum(not tags for tags in clips)
    if untagged:
        sentence = f"{untagged} training clips have no tag: nothing that is known is heard there."
        yield Finding("untagged", "note", TRAINING, sentence)


def _about(
    kind: str, severity: str, part: str, sentence: str, labels: list[str], counts: Counter[str]
) -> Iterator[Finding]:
    """Yield a finding about some classes, or nothing if there are none."""
    items = {label: f"{counts[label]} clips" for label in labels}
    if items:
        yield Finding(kind, severity, part, sentence.format(n=len(items)), items)


def render(report: Report, n_items: int = 5) -> "RenderableType":
    """Return a report as tables for a terminal, with up to `n_items` names for each finding.

    >>> import io
    >>> from rich.console import Console
    >>> console = Console(width=60, file=io.StringIO())
    >>> console.print(render(examine(Manifest((), (), (), ()))))
    >>> "names no clips" in console.file.getvalue()
    True
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    figures = Table("", *report.parts, title="Recordings")
    shown: dict[str, Callable[[Part], str]] = {
        "clips listed": lambda part: f"{part.n_listed}",
        "missing": lambda part: f"{part.n_missing}",
        "unreadable": lambda part: f"{part.n_unreadable}",
        "shortest, median, longest": lambda part: (
            f"{part.shortest:.2f}, {part.median:.2f}, {part.longest:.2f} s"
        ),
        "in all": lambda part: f"{part.total / 3600:.2f} h",
        "rates": lambda part: _counted(part.rates, "Hz"),
        "channels": lambda part: _counted(part.channels, "ch"),
    }
    for name, tell in shown.items():
        figures.add_row(name, *map(tell, report.parts.values()))
    classes = Table("class", *report.parts, title="Clips of each class")
    for label in dict.fromkeys(label for part in report.parts.values() for label in part.classes):
        row = (str(part.classes.get(label, "-")) for part in report.parts.values())
        classes.add_row(Text(label), *row)
    findings = Table("", "finding", title="Findings", show_lines=True)
    colours = {"stops": "bold red", "hurts": "yellow", "note": "dim"}
    for finding in report.findings:
        names = [f"{name}: {detail}" if detail else name for name, detail in finding.items.items()]
        more = [f"and {len(names) - n_items} more"] if len(names) > n_items else []
        lines = [finding.sentence, *(f"  {name}" for name in [*names[:n_items], *more])]
        # Text, not markup: a file name may hold brackets.
        severity = Text(finding.severity, style=colours[finding.severity])
        findings.add_row(severity, Text("\n".join(lines)))
    if not report.findings:
        findings.add_row("", "Nothing is wrong.")
    return Group(figures, classes, findings)


def _counted(counts: Mapping[int, int], unit: str) -> str:
    if len(counts) == 1:
        return f"{next(iter(counts))} {unit}"
    return ", ".join(f"{value} {unit} x {count}" for value, count in counts.items()) or "-"
