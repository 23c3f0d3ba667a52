"""Same seed, same machine: the same weights and the same events, whatever order a system has.

Each case is a process of its own, since the seed of hashes is that of a process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from earmark.audio.encode import write_audio
from earmark.formats.tags import write_tags

SRC = str(Path(__file__).parent.parent / "src")
CODE = """
import hashlib, json
import earmark
from earmark.inference.model_file import load_bundle

small = ("features.sample_rate=8000 features.n_mels=16 features.f_max=4000 model.n_recurrent=2 "
         "model.channels=[2,2,2,2] model.last_channels=4 training.max_epochs=2 training.threads=1 "
         "training.batch_size=4 training.seed=3 augment.mixing=0.5").split()
earmark.train("train.tsv", audio="audio", valid="valid.tsv", out="run", overrides=small)
bundle = load_bundle("run/model.earmark")
detector = earmark.load("run/model.earmark", threads=1)
events = {name: detector.detect(f"audio/{name}", sensitivity="high") for name in ("0.wav", "1.wav")}
print(json.dumps({
    "labels": bundle.labels,
    "weights": {name: hashlib.sha256(value.numpy().tobytes()).hexdigest()
                for name, value in bundle.weights.items()},
    "decoding": bundle.describe()["decoding"],
    "events": {name: [[x.onset, x.offset, x.label, x.score] for x in own]
               for name, own in events.items()},
}))
"""


def make_clips(folder, order):
    """Write tones in noise and their tables; `order` is that in which the files come to be."""
    (folder / "audio").mkdir(parents=True)
    tags = {}
    for n in range(8):
        tags[f"{n}.wav"] = ("low",) if n % 2 else ("high", "noise")
    for n in order:
        rng = np.random.default_rng(n)
        tone = np.sin(2 * np.pi * (500 if n % 2 else 2000) * np.arange(8000) / 8000)
        write_audio(folder / "audio" / f"{n}.wav", 0.3 * tone + 0.01 * rng.random(8000), 8000)
    write_tags(folder / "train.tsv", dict(list(tags.items())[:6]))
    write_tags(folder / "valid.tsv", dict(list(tags.items())[6:]))


def train(folder, hash_seed):
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join([SRC, os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    make_clips(folder, range(8))
    return train(folder, "1")


def test_another_seed_of_hashes_and_another_order_of_files_change_nothing(first, tmp_path):
    make_clips(tmp_path, (5, 2, 7, 0, 3, 6, 1, 4))
    other = train(tmp_path, "2")
    assert first["weights"]
    assert any(first["events"].values())
    assert other == first
