"""The bundled pretrained model: small, offline, attributed, and of use on real sounds."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import run
from typer.testing import CliRunner

import earmark
from earmark.cli.app import app
from earmark.errors import BundleError
from earmark.experiments import demo
from earmark.formats.tables import read_table
from earmark.inference.cluster import ModelSource
from earmark.inference.model_file import BUNDLED, load_bundle
from earmark.synth.scenes import SceneSets
from earmark.training import api
from earmark.training.transfer import Origin

REPO = Path(__file__).parent.parent
SCENES = REPO / "benchmarks" / "scenes.toml"


@pytest.fixture(scope="module")
def bundle():
    return load_bundle(BUNDLED)


def test_it_is_small():
    assert BUNDLED.stat().st_size <= 6_000_000


def test_its_name_stands_for_it_wherever_a_model_is_taken(bundle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert earmark.load("everyday").labels == bundle.labels
    assert ModelSource.of("everyday") == ModelSource.of(BUNDLED)
    assert len(earmark.ensemble(["everyday", BUNDLED]).bundle.members) == 2
    assert api._open_start("everyday", None)[1] == Origin.read(BUNDLED)
    done = CliRunner().invoke(app, ["info", "everyday"])
    assert done.stdout.startswith("everyday, the bundled model\n")
    with pytest.raises(BundleError, match=r"no model file everyday\.onnx"):
        load_bundle("everyday.onnx")
    Path("everyday").write_bytes(b"a file of that name comes first")
    with pytest.raises(BundleError, match="everyday"):
        earmark.load("everyday")


def test_it_comes_with_the_package():
    tracked = subprocess.run(
        ["git", "ls-files", str(BUNDLED)], cwd=REPO, capture_output=True, text=True, check=False
    ).stdout
    assert tracked.strip() or not (REPO / ".git").exists()
    assert BUNDLED.is_relative_to(Path(earmark.__file__).parent)


def test_it_knows_the_classes_of_the_benchmark_from_tags_alone(bundle):
    classes = tomllib.loads(SCENES.read_text())["scenes"]["classes"]
    assert sorted(bundle.labels) == sorted(classes)
    assert bundle.training["supervision"] == "weak"
    assert bundle.tuning["supervision"] == "weak"
    # as the card and docs/events.md say
    assert len({rule.clip_threshold for rule in bundle.decoding.rules}) == 1


def test_load_and_detect_need_no_model_file_and_no_network(tmp_path):
    classes = tuple(demo.BUNDLED_LABELS)
    scene = earmark.make_scene(earmark.SceneConfig(classes=classes, **demo.BUNDLED_SCENE), 0)
    earmark.write_audio(tmp_path / "street.wav", scene.waveform, scene.sample_rate)
    code = (
        "import socket, sys\n"
        "def refuse(*_, **__): raise OSError('no network here')\n"
        "socket.socket.connect = socket.create_connection = refuse\n"
        "sys.argv = ['earmark', 'detect', 'street.wav', '--score']\n"
        "from earmark.cli import main\n"
        "main()"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    head, *rows = printed.splitlines()
    assert head == "filename\tonset\toffset\tevent_label\tscore"
    detector = earmark.load()
    events = detector.detect(tmp_path / "street.wav")
    assert events
    assert [row.split("\t")[3] for row in rows] == [event.label for event in events]
    assert detector.bundle.labels == load_bundle(BUNDLED).labels


def test_info_without_a_file_is_of_the_bundled_model():
    printed = run("info").stdout
    assert re.search(r"^classes +17,", printed, re.M)
    assert "glass_breaking" in printed


def test_every_source_whose_licence_requires_it_is_attributed(bundle, esc50):
    scene_sets = SceneSets.read(SCENES)
    used = {*scene_sets.scenes.classes, *scene_sets.scenes.backgrounds}
    table = read_table(esc50 / "clips.tsv")
    rows = [row.named(table.columns) for row in table.rows]
    due = [row for row in rows if row["event_label"] in used and row["licence"] != "CC0"]
    assert len(due) > 300
    for row in due:
        assert any(
            row["author"] in line and row["title"] in line and row["source"] in line
            for line in bundle.attribution
        ), row


def test_it_finds_real_sounds_in_scenes(esc50):
    scene_sets = SceneSets.read(SCENES)
    bank = earmark.Soundbank.from_table(esc50 / "clips.tsv", esc50 / "audio", [4])
    detector, reference, estimate = earmark.load(), {}, {}
    for index in range(40):
        scene = earmark.make_scene(scene_sets.scenes, 99, index, bank)
        reference[str(index)] = list(scene.events)
        estimate[str(index)] = detector.detect(scene.waveform, scene.sample_rate)
    assert earmark.segment_scores(reference, estimate, detector.labels).f_measure > 0.4
