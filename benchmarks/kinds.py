"""Kinds of data on which defaults and poolings are judged: folders with train, valid and test.

    python -m benchmarks.kinds DATA --processes 2
    python -m benchmarks.kinds DATA --only procedural-length3 lungs-whitened

`esc50` has few sources per class, `digits` many, `procedural` endlessly many; they are scenes
(kind_*.toml). `lungs` are real recordings with onsets and offsets by experts: folds 1 to 3 are for
training, 4 for validation, 5 for the test, and no patient is in two. Each folder has `weak.tsv`,
`strong.tsv` and `audio` per set, so that one plan runs on any of them:

    earmark compare benchmarks/defaults.toml --data DATA/digits --out ... --work ...

The training set of `digits-backgrounds` also has tables with noisy tags, `weak-missing20.tsv` (of
every five tags, one is missing) and `weak-wrong20.tsv` (one is another class); validation and test
tables are never noisy.

Made only by name: variations of the scenes, such as `digits-backgrounds`, digits over recordings
of wind, rain and others besides noise, or `procedural-length3` (kind_variations.toml), and
`lungs-whitened`, five-fold: folders fold0 to fold4, in each of which another fifth of the patients
is the test, the next one the validation, and the others the training. Its recordings are whitened,
so that the patient's body, the stethoscope and the room, which colour a whole recording, tell a
network less.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.config import build, read_toml
from earmark.formats.events import read_events, write_events
from earmark.formats.tables import read_table
from earmark.formats.tags import read_tags, write_tags
from earmark.synth.scenes import BankConfig, SceneConfig, SceneSets

HERE = Path(__file__).parent
SHARED = HERE.parents[1] / "shared"
SCENES = ("esc50", "digits", "procedural")
LUNG_CLASSES = ("crackle", "wheeze")  # rhonchi and stridor are in 18 and 4 clips
LUNG_FOLDS: Mapping[str, Sequence[str]] = {
    "train": ("1", "2", "3"),
    "valid": ("4",),
    "test": ("5",),
}
N_FOLDS = 5
LUNG_BAND = (40.0, 2700.0)  # Hz; breath, crackles and wheezes
LUNG_LEVEL = 0.02  # root of the median power of a whitened recording
KINDS = (*SCENES, "lungs")
WITH_NOISE = ("digits-backgrounds",)  # whose tags also come with noise
NOISE = {"missing20": ("missing", 0.2), "wrong20": ("wrong", 0.2)}
VARIATIONS: Mapping[str, Mapping[str, object]] = {  # kind and variation -> how it is made
    f"{kind}-{name}": {"kind": kind, **variation}
    for name, variation in read_toml(HERE / "kind_variations.toml").items()
    for kind in variation["kinds"]
}
ALL = (*KINDS, *VARIATIONS, "lungs-whitened")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", choices=ALL, nargs="*", default=KINDS, metavar="KIND")
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args(arguments)
    for kind in options.only:
        write_kind(kind, options.out / kind, options.processes)
        print(options.out / kind, flush=True)


def write_kind(kind: str, folder: Path, processes: int = 1) -> None:
    """Write a kind of data, unless its folder has it already."""
    if kind == "lungs-whitened":
        write_lung_folds(SHARED / "lungs", folder)
    elif kind == "lungs":
        write_lungs(SHARED / "lungs", folder)
    else:
        if not (folder / "test" / "strong.tsv").exists():  # written last
            scene_sets(kind).write(folder, processes=processes, overwrite=True)
        if kind in WITH_NOISE:
            write_noisy_tags(folder / "train")


def scene_sets(kind: str) -> SceneSets:
    """Return the sets of scenes of a kind, or of a variation of it."""
    variation = VARIATIONS.get(kind, {"kind": kind})
    sets = SceneSets.read(HERE / f"kind_{variation['kind']}.toml")
    changes, counts = variation.get("scenes", {}), variation.get("n", {})
    folds = variation.get("background_folds", {})
    scenes = build(SceneConfig, "scenes", {**asdict(sets.scenes), **changes})
    own = {
        name: replace(of, n=counts.get(name, of.n), background_folds=tuple(folds.get(name, ())))
        for name, of in sets.sets.items()
    }
    behind = build(BankConfig, "background_bank", variation.get("background_bank", {}))
    return replace(sets, scenes=scenes, sets=own, background_bank=behind)


def write_noisy_tags(folder: Path, seed: int = 0) -> None:
    """Write the noisy variants of the tags of a set next to them; the same seed gives the same."""
    tags = {file: sorted(own) for file, own in read_tags(folder / "weak.tsv").items()}
    for name, (how, share) in NOISE.items():
        path = folder / f"weak-{name}.tsv"
        if not path.exists():
            write_tags(path, add_noise(tags, how, share, seed))


def add_noise(
    tags: Mapping[str, Sequence[str]], how: str, share: float, seed: int
) -> dict[str, list[str]]:
    """Return tags of which a share is "missing", or "wrong": a class that the clip does not have.

    More noise of the same kind and seed hits the same tags and further ones.
    """
    rng = np.random.default_rng(seed)
    places = [(file, tag) for file, own in tags.items() for tag in own]
    order = rng.permutation(len(places))
    hit = {places[at] for at in order[: round(share * len(places))]}
    labels = sorted({tag for _, tag in places})
    draws = dict(zip(places, rng.random(len(places)), strict=True))
    noisy: dict[str, list[str]] = {}
    for file, own in tags.items():
        kept = [tag for tag in own if (file, tag) not in hit]
        if how == "wrong":
            for tag in own:
                absent = [label for label in labels if label not in {*own, *kept}]
                if (file, tag) in hit and absent:
                    kept.append(absent[int(draws[file, tag] * len(absent))])
        noisy[file] = sorted(kept)
    return noisy


def write_lungs(
    source: Path,
    out: Path,
    folds: Mapping[str, Sequence[str]] = LUNG_FOLDS,
    audio: Path | None = None,
) -> None:
    """Write tables of the lung sounds per set, and links to the recordings.

    Args:
        source: folder of the data set.
        out: folder of the sets.
        folds: set -> its folds.
        audio: folder of the recordings; by default that of the source.
    """
    if (out / "test" / "strong.tsv").exists():  # written last
        return
    table = read_table(source / "clips.tsv")
    table.require("filename", "fold")
    rows = [row.named(table.columns) for row in table.rows]
    fold_of = {row["filename"]: row["fold"] for row in rows}
    tags, events = read_tags(source / "clips.tsv"), read_events(source / "strong.tsv")
    for name, wanted in folds.items():
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "audio").exists():
            (folder / "audio").symlink_to((audio or source / "audio").resolve())
        files = [file for file in tags if fold_of[file] in wanted]
        write_tags(folder / "weak.tsv", {f: set(tags[f]) & set(LUNG_CLASSES) for f in files})
        own = {f: [e for e in events.get(f, ()) if e.label in LUNG_CLASSES] for f in files}
        write_events(folder / "strong.tsv", own)


def write_lung_folds(source: Path, out: Path) -> None:
    """Write the lung sounds five-fold, and one folder of whitened recordings for all folds."""
    audio = out / "audio"
    audio.mkdir(parents=True, exist_ok=True)
    for path in sorted((source / "audio").iterdir()):
        if not (audio / path.name).exists():
            waveform, sample_rate = read_audio(path)
            write_audio(audio / path.name, whiten(waveform, sample_rate), sample_rate)
    numbers = [str(number) for number in range(1, N_FOLDS + 1)]
    for fold in range(N_FOLDS):
        test, valid, *train = numbers[fold:] + numbers[:fold]
        folds = {"train": train, "valid": [valid], "test": [test]}
        write_lungs(source, out / f"fold{fold}", folds, audio)


def whiten(waveform: NDArray[np.float32], sample_rate: int) -> NDArray[np.float32]:
    """Return a recording whose spectrum, over its whole length, is flat within `LUNG_BAND`.

    The spectrum is the geometric mean over frames of 50 ms, smoothed over seven bins, so that a
    sound that comes and goes stays; what is outside the band is removed. Samples keep their times;
    the median of their power is the same for all recordings. Knocks, and some crackles, exceed full
    scale: one sample in 700, which a file clips.
    """
    hop = sample_rate // 40
    length = 2 * hop
    n_frames = -(-len(waveform) // hop) + 1
    padded = np.zeros((n_frames + 1) * hop)
    padded[hop : hop + len(waveform)] = waveform
    window = np.hanning(length + 1)[:-1] ** 0.5  # applied twice; the squares add up to 1
    frames = np.lib.stride_tricks.sliding_window_view(padded, length)[::hop]
    spectra = np.fft.rfft(frames * window)
    smoother = np.hanning(9)[1:-1] / np.hanning(9).sum()
    level = np.log(np.abs(spectra) ** 2 + 1e-9).mean(axis=0)
    level = np.convolve(np.pad(level, 3, mode="edge"), smoother, "valid")
    frequencies = np.fft.rfftfreq(length, 1 / sample_rate)
    inside = (frequencies >= LUNG_BAND[0]) & (frequencies <= LUNG_BAND[1])
    whitened = np.fft.irfft(spectra * np.where(inside, np.exp(-level / 2), 0.0), n=length) * window
    halves = np.zeros((2, n_frames + 1, hop))  # each frame's first and second half, where they lie
    halves[0, :-1], halves[1, 1:] = whitened[:, :hop], whitened[:, hop:]
    result = halves.sum(axis=0).reshape(-1)[hop : hop + len(waveform)]
    return (LUNG_LEVEL * result / np.sqrt(np.median(result**2) + 1e-12)).astype(np.float32)


if __name__ == "__main__":
    main()
