"""Every reader of files: its good files, how bad ones are crafted, and what reads them.

A reader has `make`, which writes one or more good files into a folder and returns the paths of
those to spoil; `read`, which reads the folder; and `craft`, which returns the content of a file
whose form is right and whose content is wrong, such as a checkpoint with a valid checksum. A new
reader is one class and one line of `READERS`.
"""

import io
import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
import torch

from earmark.audio.decode import audio_duration, audio_format, read_audio, read_blocks
from earmark.audio.pipe import PipeReader
from earmark.data.encoded import read_encoder
from earmark.data.features import FeatureConfig
from earmark.data.manifest import Manifest
from earmark.data.store import FeatureStore, build_store
from earmark.errors import EarmarkError
from earmark.experiments.plan import Plan
from earmark.formats.event_table import Event, EventTable
from earmark.formats.events import read_events, write_events
from earmark.formats.registry import EVENT_FORMATS
from earmark.formats.scores import SCORE_FORMATS, ScoreTable, read_scores, write_scores
from earmark.formats.tags import read_groups, read_tags
from earmark.frames import FrameGrid, FrameScores
from earmark.inference.detector import Detector
from earmark.inference.journal import Journal
from earmark.inference.model_file import load_bundle, save_bundle
from earmark.inference.onnx_file import load_onnx
from earmark.metrics.system_output import read_durations
from earmark.synth.scenes import SceneSets
from earmark.tensors import load_tensors, save_tensors
from earmark.training.checkpoint import Checkpoint, Epoch, State
from earmark.training.record import RunRecord
from earmark.training.settings import Settings
from faults import http_requests
from faults.mutation import change_bytes, change_json, change_text, change_values, odd_wav
from faults.samples import small_bundle, tone

Craft = Callable[[random.Random, Path], bytes]


@dataclass(frozen=True)
class Reader:
    """How the files of one kind are made, spoiled and read.

    Args:
        make: writes good files into a folder; returns those to spoil.
        read: reads what is in the folder, given the spoiled file.
        craft: returns a content that is right in form.
        n_cases: of a full run.
    """

    make: Callable[[Path], Sequence[Path]]
    read: Callable[[Path], object]
    craft: Craft
    n_cases: int


def spoil(reader: Reader, rng: random.Random, files: Sequence[Path]) -> tuple[Path, bytes]:
    """Return the file of a case and its bad content: changed bytes, or crafted."""
    path = rng.choice(list(files))
    if rng.randrange(4) == 0:
        return path, change_bytes(rng, path.read_bytes())
    return path, reader.craft(rng, path)


def _text(rng: random.Random, path: Path) -> bytes:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return change_text(rng, text).encode("utf-8", "surrogatepass")


def _json(rng: random.Random, path: Path) -> bytes:
    return change_json(rng, path.read_text()).encode()


def _json_lines(rng: random.Random, path: Path) -> bytes:
    lines = path.read_text().splitlines()
    at = rng.randrange(len(lines))
    lines[at] = change_json(rng, lines[at])
    return ("\n".join(lines) + "\n").encode()


# Audio.


def _make_audio(folder: Path) -> list[Path]:
    kinds = {
        "pcm16.wav": ("WAV", "PCM_16"),
        "float.wav": ("WAV", "FLOAT"),
        "gsm.wav": ("WAV", "GSM610"),
        "adpcm.wav": ("WAV", "IMA_ADPCM"),
        "a.flac": ("FLAC", "PCM_16"),
        "a.ogg": ("OGG", "VORBIS"),
        "a.opus": ("OGG", "OPUS"),
        "a.mp3": ("MP3", "MPEG_LAYER_III"),
        "a.aiff": ("AIFF", "PCM_24"),
        "g721.au": ("AU", "G721_32"),
        "a.caf": ("CAF", "ALAC_16"),
    }
    for name, (form, subtype) in kinds.items():
        soundfile.write(folder / name, tone(), 8000, subtype, format=form)
    return [folder / name for name in kinds]


def _craft_audio(rng: random.Random, path: Path) -> bytes:
    return odd_wav(rng)


def _read_audio(path: Path) -> object:
    """Read it whole, from its middle, in blocks at another rate, and as a pipe."""
    errors = []
    for read in (
        audio_format,
        audio_duration,
        read_audio,
        lambda file: read_audio(file, start=0.1),
        lambda file: [len(block) for block in read_blocks(file, 16000)],
        lambda file: [len(x) for x in PipeReader(io.BytesIO(file.read_bytes())).chunks()],
    ):
        try:
            read(path)
        except Exception as error:
            errors.append(error)
    return _raise_worst(errors, 6)


def _raise_worst(errors: list[Exception], n_ways: int) -> object:
    """Raise an error that is not ours, if there is one; otherwise the first, if all ways failed."""
    foreign = [error for error in errors if not isinstance(error, EarmarkError)]
    if foreign or len(errors) == n_ways:
        raise (foreign or errors)[0]
    return None


# Tables, events, scores.


def _make_tables(folder: Path) -> list[Path]:
    tables = {
        "weak.tsv": "filename\tevent_labels\tspeaker\na.wav\tdog,cat\t1\nb.wav\tAir, wind\t2\n",
        "weak.csv": 'file;tags\na.wav;"dog;cat"\nb.wav;dog|cat\n',
        "plain.csv": "a.wav,dog\nb.wav,cat\n",
        "official.csv": '-5Q,60.0,70.0,"Fire engine, fire truck,Car","/m/1,/m/2"\n',
        "strong.tsv": "filename\tonset\toffset\tevent_label\na.wav\t0\t1.5\tdog\nb.wav\t\t\t\n",
        "durations.tsv": "filename\tduration\na.wav\t10.0\nb.wav\t3\n",
    }
    for name, text in tables.items():
        (folder / name).write_text(text)
    for name in ("a.wav", "b.wav"):
        soundfile.write(folder / name, tone(), 8000)
    return [folder / name for name in tables]


def _read_tables(path: Path) -> object:
    errors = []
    for read in (
        read_tags,
        lambda file: read_tags(file, ["dog", "cat", "dog,cat", "Air, wind"]),
        lambda file: read_groups(file, "speaker"),
        read_durations,
        read_events,
        lambda file: Manifest.read(file, file.parent),
    ):
        try:
            read(path)
        except Exception as error:
            errors.append(error)
    return _raise_worst(errors, 6)


def _make_events(folder: Path) -> list[Path]:
    events = [Event(0.5, 1.5, "dog", 0.75), Event(1.0, 2.0, "cat", 0.5)]
    table = EventTable({"a.wav": events}, {"a.wav": 10.0})
    paths = []
    for name, own in EVENT_FORMATS.items():
        paths.append(folder / f"{name}{own.suffixes[0]}")
        write_events(paths[-1], table, format=name)
    return paths


def _craft_events(rng: random.Random, path: Path) -> bytes:
    if path.suffix in (".json", ".jams"):
        return _json(rng, path)
    if path.suffix == ".jsonl":
        return _json_lines(rng, path)
    return change_bytes(rng, path.read_bytes()) if path.suffix == ".parquet" else _text(rng, path)


def _read_events(path: Path) -> object:
    return read_events(path, path.name.partition(".")[0])


def _make_scores(folder: Path) -> list[Path]:
    own = FrameScores([[0.9, 0.1], [0.2, 0.1]], ["dog", "cat"], FrameGrid(12.5))
    for name in SCORE_FORMATS:
        (folder / name).mkdir()
        write_scores(folder / name, ScoreTable(["dog", "cat"], {"a.wav": own}), name)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _craft_scores(rng: random.Random, path: Path) -> bytes:
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            values = {name: arrays[name] for name in arrays.files}
        name = rng.choice(list(values))
        odd = [np.zeros(0), np.zeros((0, 2)), np.array("x"), np.array([[float("nan")]]), np.ones(3)]
        values[name] = rng.choice(odd)
        if rng.randrange(3) == 0:
            del values[name]
        buffer = io.BytesIO()
        np.savez(buffer, **values)
        return buffer.getvalue()
    return change_bytes(rng, path.read_bytes()) if path.suffix == ".parquet" else _text(rng, path)


def _read_scores(path: Path) -> object:
    return read_scores(path.parent)


# Settings, plans, scenes, encoders.

_SETTINGS = """[features]
sample_rate = 16000
window = 0.04
hop = 0.02
n_mels = 64
[model]
channels = [8, 8, 8, 8]
n_recurrent = 8
pooling = "attention"
stages = [5, 5]
[training]
batch_size = 32
learning_rate = 0.001
max_epochs = 3
seed = 1
threads = 1
[augment]
time_shift = 1.0
gain_db = 6.0
n_time_masks = 2
"""


def _make_settings(folder: Path) -> list[Path]:
    (folder / "settings.toml").write_text(_SETTINGS)
    return [folder / "settings.toml"]


def _read_settings(path: Path) -> object:
    settings = Settings.load("fast", path)
    settings.model.check_parameters()
    return settings.to_dict()


_PLAN = """preset = "fast"
tuning = "clip"
[data]
train = "weak.tsv"
valid = "weak.tsv"
test = "strong.tsv"
[settings.training]
max_epochs = 1
[grid]
seeds = 2
[grid.structure]
single = {model.stages = []}
hierarchical = {model.stages = [5, 5]}
[configurations."attention"]
based_on = "single"
settings = {model.pooling = "attention"}
seeds = 1
"""


def _make_plan(folder: Path) -> list[Path]:
    (folder / "weak.tsv").write_text("filename\tevent_labels\na.wav\tdog\nb.wav\tcat\n")
    strong = "filename\tonset\toffset\tevent_label\na.wav\t0\t0.2\tdog\nb.wav\t0\t0.1\tcat\n"
    (folder / "strong.tsv").write_text(strong)
    (folder / "audio").mkdir()
    for name in ("a.wav", "b.wav"):
        soundfile.write(folder / "audio" / name, tone(), 8000)
    (folder / "plan.toml").write_text(_PLAN)
    return [folder / "plan.toml"]


def _read_plan(path: Path) -> object:
    return [run.key for run in Plan.read(path).runs()[:20]]


_SCENES = """[scenes]
sample_rate = 8000
duration = 2.0
n_events = [1, 2]
event_duration = [0.5, 1.0]
snr_db = [0.0, 10.0]
classes = ["siren", "knock"]
[sets.train]
n = 4
seed = 1
"""


def _make_scenes(folder: Path) -> list[Path]:
    (folder / "scenes.toml").write_text(_SCENES)
    return [folder / "scenes.toml"]


_ENCODER = """[encoder]
file = "tiny.onnx"
patch = 0.2
hop = 0.1
[features]
sample_rate = 8000
n_mels = 16
f_max = 4000.0
"""


def _make_encoder(folder: Path) -> list[Path]:
    """Write an encoder of log-mel patches: (batch, 10 frames, 16 mels) -> (batch, 12)."""
    from onnx import TensorProto, helper, numpy_helper, save

    weights = numpy_helper.from_array(np.full((160, 12), 0.01, np.float32), "weights")
    nodes = [
        helper.make_node("Flatten", ["patches"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["embedding"]),
    ]
    patches = helper.make_tensor_value_info("patches", TensorProto.FLOAT, ["batch", 10, 16])
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", 12])
    graph = helper.make_graph(nodes, "tiny", [patches], [embedding], [weights])
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=8), folder / "tiny.onnx")
    (folder / "tiny.toml").write_text(_ENCODER)
    return [folder / "tiny.toml", folder / "tiny.onnx"]


def _craft_encoder(rng: random.Random, path: Path) -> bytes:
    return _text(rng, path) if path.suffix == ".toml" else change_bytes(rng, path.read_bytes())


# Model files, checkpoints, stores, journals, results.


def _make_model(folder: Path) -> list[Path]:
    return [save_bundle(small_bundle(), folder / "model.earmark")]


def _craft_tensors(rng: random.Random, path: Path) -> bytes:
    """Return a file of tensors with a valid checksum, and wrong values, shapes or names."""
    text, tensors = load_tensors(path, "file")
    if rng.randrange(3):
        text = change_json(rng, text)
    else:
        name = rng.choice(sorted(tensors))
        value = tensors.pop(name)
        kind = rng.randrange(6)
        if kind == 1:
            tensors[name] = torch.zeros(rng.choice(((0,), (1, 1, 1), (3, 0), ())))
        elif kind == 2:
            tensors[name] = torch.full_like(value.float(), float("nan"))
        elif kind == 3:
            odd = (torch.int8, torch.bool, torch.float64, torch.float16, torch.complex64)
            tensors[name] = value.to(rng.choice(odd))
        elif kind == 4:
            tensors[rng.choice(("x", "", "0", "0.", "adam.x.y", "best9.a", name + ".x"))] = value
        elif kind == 5:
            tensors[name] = value.float() * 1e38
    out = path.with_name("crafted")
    save_tensors(out, tensors, text)
    content = out.read_bytes()
    out.unlink()
    return content


def _read_model(path: Path) -> object:
    """Load it, describe it, and detect with it: what is accepted must work."""
    from earmark.inference.description import describe_bundle

    detector = Detector(load_bundle(path), threads=1)
    describe_bundle(detector.bundle.describe())
    return detector.detect(tone(0.5), sample_rate=8000)


def _make_checkpoint(folder: Path) -> list[Path]:
    weights = {"a.weight": torch.ones(2, 2), "a.bias": torch.zeros(2)}
    moments = {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(2, 2)}}
    state = State(2, 0, 0.5, 4, 1.0, [Epoch(n, 1e-3, 0.5, 0.4, 0.7, 0.6, 9.0) for n in range(2)])
    Checkpoint(state, weights, [weights], weights, moments, {"seed": "0"}).write(folder)
    clips = Manifest(("a.wav",), (Path("a.wav"),), (("dog",),), ("dog",))
    RunRecord("", folder / "features", Settings(), 10.0, clips, 8, 0, "weak").write(folder)
    return [folder / "checkpoint.safetensors", folder / "run.json"]


def _craft_checkpoint(rng: random.Random, path: Path) -> bytes:
    return _json(rng, path) if path.suffix == ".json" else _craft_tensors(rng, path)


def _read_checkpoint(path: Path) -> object:
    if path.suffix == ".json":
        return RunRecord.read(path.parent)
    return Checkpoint.read(path.parent, {"seed": "0"})


_STORE_FEATURES = FeatureConfig(sample_rate=8000, n_mels=16, f_max=4000.0, window=0.064, hop=0.032)


def _make_store(folder: Path) -> list[Path]:
    for name in ("a.wav", "b.wav"):
        soundfile.write(folder / name, tone(), 8000)
    clips = {name: folder / name for name in ("a.wav", "b.wav")}
    build_store(folder / "features", clips, _STORE_FEATURES, processes=1)
    return [folder / "features" / name for name in ("store.json", "index.jsonl", "frames.f16")]


def _craft_store(rng: random.Random, path: Path) -> bytes:
    """Return a file of a store whose checksums are right; the index has its sum in the summary."""
    if path.name == "frames.f16":
        return change_bytes(rng, path.read_bytes())
    if path.name == "index.jsonl":
        content = _json_lines(rng, path)
        summary = json.loads(path.with_name("store.json").read_text())
        summary["index_sum"] = zlib.crc32(content)
        path.with_name("store.json").write_bytes(_summed(summary))
        return content
    summary = change_values(rng, json.loads(path.read_text()))
    return _summed(summary) if isinstance(summary, dict) else json.dumps(summary).encode()


def _summed(summary: dict) -> bytes:  # type: ignore[type-arg]
    summary.pop("sum", None)
    own = zlib.crc32(json.dumps(summary).encode() + b"\n")
    return json.dumps({**summary, "sum": own}).encode()


def _read_store(path: Path) -> object:
    """Open it, read every clip and its statistics; then build it again, which resumes."""
    errors = []

    def open_and_read() -> None:
        store = FeatureStore.open(path.parent, _STORE_FEATURES)
        store.check()
        store.statistics(store.names)

    def build() -> None:
        clips = {name: path.parents[1] / name for name in ("a.wav", "b.wav")}
        build_store(path.parent, clips, _STORE_FEATURES, processes=1)

    for read in (open_and_read, build):
        try:
            read()
        except Exception as error:
            errors.append(error)
    return _raise_worst(errors, 2)


def _make_journal(folder: Path) -> list[Path]:
    (folder / "a.wav").write_bytes(b"x")
    with Journal(folder / "journal", "key") as journal:
        journal.add("a.wav", folder / "a.wav", 1.5, [Event(0, 1, "dog", 0.5)])
    return [folder / "journal"]


def _read_journal(path: Path) -> object:
    with Journal(path, "key") as journal:
        return journal.entries({"a.wav": path.with_name("a.wav")})


def _make_onnx(folder: Path) -> list[Path]:
    return [Detector(small_bundle(), threads=1).export(folder / "model.onnx")]


def _craft_onnx(rng: random.Random, path: Path) -> bytes:
    import onnx

    model = onnx.load_from_string(path.read_bytes())
    entry = rng.choice(list(model.metadata_props))
    try:
        entry.value = change_json(rng, entry.value)
    except ValueError:
        entry.value = change_text(rng, entry.value).encode(errors="replace").decode()
    if rng.randrange(4) == 0 and model.graph.initializer:
        del model.graph.initializer[rng.randrange(len(model.graph.initializer))]
    content: bytes = model.SerializeToString()
    return content


def _read_onnx(path: Path) -> object:
    detector = Detector(load_onnx(path), threads=1)
    return detector.detect(tone(0.5), sample_rate=8000)


READERS: dict[str, Reader] = {
    "audio": Reader(_make_audio, _read_audio, _craft_audio, 12_000),
    "tables": Reader(_make_tables, _read_tables, _text, 70_000),
    "events": Reader(_make_events, _read_events, _craft_events, 120_000),
    "scores": Reader(_make_scores, _read_scores, _craft_scores, 25_000),
    "settings": Reader(_make_settings, _read_settings, _text, 60_000),
    "plan": Reader(_make_plan, _read_plan, _text, 5_000),
    "scenes": Reader(_make_scenes, SceneSets.read, _text, 90_000),
    "encoder": Reader(_make_encoder, read_encoder, _craft_encoder, 5_000),
    "model": Reader(_make_model, _read_model, _craft_tensors, 3_000),
    "checkpoint": Reader(_make_checkpoint, _read_checkpoint, _craft_checkpoint, 10_000),
    "store": Reader(_make_store, _read_store, _craft_store, 6_000),
    "journal": Reader(_make_journal, _read_journal, _json_lines, 100_000),
    "onnx": Reader(_make_onnx, _read_onnx, _craft_onnx, 600),
    "http": Reader(http_requests.make, http_requests.read, http_requests.craft, 6_000),
}
