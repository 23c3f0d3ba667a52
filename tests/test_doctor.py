import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from rich.console import Console

from earmark.audio.encode import write_audio
from earmark.data.doctor import examine, inspect, low_rate_hint
from earmark.data.features import FeatureConfig
from earmark.data.findings import SEVERITIES, render
from earmark.data.manifest import Manifest
from earmark.formats.tags import write_tags
from earmark.training.settings import Settings

RATE = 32000


def noise(seed, seconds=2.0, level=0.1):
    return np.random.default_rng(seed).normal(0, level, round(seconds * RATE))


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """A folder of twenty-four recordings with nothing wrong."""
    folder = tmp_path_factory.mktemp("healthy")
    for number in range(24):
        write_audio(folder / f"{number:02d}.wav", noise(number), RATE)
    return folder


@pytest.fixture
def folder(healthy, tmp_path):
    """The same, to be damaged."""
    return shutil.copytree(healthy, tmp_path / "audio")


def manifest_of(folder, tags=None, names=None, labels=None):
    """Twelve dogs and twelve cats, except where `tags` differs."""
    names = sorted(path.name for path in folder.iterdir()) if names is None else names
    every = {
        name: ("dog",) if int(name[:2]) % 2 else ("cat",) for name in names if name[0].isdigit()
    }
    table = folder.parent / f"{folder.name}.tsv"
    write_tags(table, every | (tags or {}))
    return Manifest.read(table, folder, labels)


def found(report, kind, part=None):
    findings = [f for f in report.findings if f.kind == kind and part in (None, f.part)]
    assert len(findings) == 1, report.findings
    return findings[0]


class TestInspection:
    def test_has_duration_sample_rate_channels_and_peak(self, tmp_path):
        path = tmp_path / "a.wav"
        soundfile.write(path, np.stack([noise(0), noise(0)], axis=1), 16000)
        found_in = inspect(path)
        assert (found_in.error, found_in.duration, found_in.sample_rate, found_in.channels) == (
            None,
            4.0,
            16000,
            2,
        )
        assert found_in.peak == pytest.approx(np.abs(noise(0)).max(), abs=1e-4)
        assert found_in.clipped == 0

    def test_counts_runs_at_full_scale_and_not_single_peaks(self, tmp_path):
        wave = np.zeros(10 * RATE)
        wave[::100] = 1.0
        write_audio(tmp_path / "peaks.wav", wave, RATE)
        assert inspect(tmp_path / "peaks.wav").clipped == 0
        tone = 2 * np.sin(np.arange(10 * RATE) / 50)
        write_audio(tmp_path / "clipped.wav", tone, RATE)
        assert inspect(tmp_path / "clipped.wav").clipped == pytest.approx(0.66, abs=0.02)

    def test_counts_a_run_alike_across_blocks(self, tmp_path):
        for start in (0, 63999, 64000, 70000):  # blocks end at 64000
            wave = np.zeros(4 * RATE)
            wave[start : start + 12] = 1.0
            write_audio(tmp_path / "a.wav", wave, RATE)
            assert inspect(tmp_path / "a.wav").clipped * len(wave) == pytest.approx(10)

    def test_has_one_digest_for_the_same_samples_in_another_format(self, tmp_path):
        write_audio(tmp_path / "a.wav", noise(0), RATE)
        soundfile.write(tmp_path / "a.flac", *soundfile.read(tmp_path / "a.wav", dtype="int16"))
        assert inspect(tmp_path / "a.wav").digest == inspect(tmp_path / "a.flac").digest
        write_audio(tmp_path / "b.wav", noise(0), 16000)
        assert inspect(tmp_path / "a.wav").digest != inspect(tmp_path / "b.wav").digest

    def test_has_the_reason_why_a_recording_cannot_be_read(self, tmp_path):
        (tmp_path / "a.wav").write_text("no audio")
        assert "is not audio" in inspect(tmp_path / "a.wav").error


class TestHealthyData:
    def test_has_no_findings_and_correct_statistics(self, healthy):
        report = examine(manifest_of(healthy))
        assert report.findings == ()
        assert not report.stops
        part = report.parts["training"]
        assert (part.n_listed, part.n_missing, part.n_unreadable) == (24, 0, 0)
        assert (part.shortest, part.median, part.longest, part.total) == (2.0, 2.0, 2.0, 48.0)
        assert part.sample_rates == {RATE: 24}
        assert part.channels == {1: 24}
        assert part.classes == {"cat": 12, "dog": 12}

    def test_gives_the_same_report_with_any_number_of_processes(self, healthy):
        steps = []
        report = examine(manifest_of(healthy), processes=2, progress=lambda n, of: steps.append(n))
        assert report == examine(manifest_of(healthy), processes=1)
        assert steps == list(range(1, 25))


class TestRecordings:
    def test_that_are_missing_or_unreadable_hurt_while_others_are_left(self, folder):
        (folder / "03.wav").write_bytes(b"")
        report = examine(manifest_of(folder, tags={"lost.wav": ["dog"]}))
        assert found(report, "missing").items == {"lost.wav": ""}
        unreadable = found(report, "unreadable")
        assert "empty (0 bytes)" in unreadable.items["03.wav"]
        assert unreadable.severity == "hurts"
        assert not report.stops
        assert report.parts["training"].n_listed == 25

    def test_stop_when_none_can_be_read(self, tmp_path):
        (tmp_path / "audio").mkdir()
        (tmp_path / "audio" / "00.wav").write_bytes(b"")
        report = examine(manifest_of(tmp_path / "audio"))
        assert report.stops
        assert found(report, "unreadable").severity == "stops"

    def test_stop_when_all_are_missing(self, tmp_path):
        (tmp_path / "audio").mkdir()
        report = examine(manifest_of(tmp_path / "audio", tags={"a.wav": ["dog"]}))
        assert report.stops
        assert [finding.kind for finding in report.findings] == ["missing"]

    def test_that_are_silent_are_reported_with_their_peak(self, folder):
        write_audio(folder / "02.wav", np.zeros(2 * RATE), RATE)
        write_audio(folder / "04.wav", np.zeros(2 * RATE), RATE)
        write_audio(folder / "05.wav", np.sign(noise(5)) * 2 / 32768, RATE)
        report = examine(manifest_of(folder))
        assert found(report, "silent").items == {
            "02.wav": "all zero",
            "04.wav": "all zero",
            "05.wav": "peak -84 dB",
        }
        # Two silent recordings are no duplicates.
        assert "duplicate" not in {finding.kind for finding in report.findings}

    def test_that_are_short_odd_or_clipped_are_reported(self, folder):
        write_audio(folder / "02.wav", noise(2, seconds=0.5), RATE)
        write_audio(folder / "03.wav", noise(3, seconds=9), RATE)
        write_audio(folder / "04.wav", noise(4, level=5.0), RATE)
        report = examine(manifest_of(folder))
        assert found(report, "short").items == {"02.wav": "0.50 s"}
        assert found(report, "odd length").items == {"03.wav": "9.00 s"}
        assert list(found(report, "clipped").items) == ["04.wav"]

    def test_of_a_low_sample_rate_are_reported_if_the_mels_reach_higher(self, folder):
        write_audio(folder / "02.wav", noise(2), 16000)
        manifest = manifest_of(folder)
        assert found(examine(manifest), "low sample rate").items == {"02.wav": "16000 Hz"}
        assert not examine(manifest, config=FeatureConfig(f_max=8000)).findings[1:]

    def test_of_a_low_sample_rate_come_with_the_settings_to_type(self, folder):
        for path in folder.glob("*.wav"):
            write_audio(path, noise(int(path.stem)), 11025)
        finding = found(examine(manifest_of(folder)), "low sample rate")
        assert finding.remedy == "Train with --set features.sample_rate=11000"
        typed = finding.remedy.partition("Train with ")[2].split("--set ")[1:]
        chosen = Settings.load("fast", overrides=[x.strip() for x in typed]).features
        assert chosen.f_max == 5500
        hint = low_rate_hint(manifest_of(folder), FeatureConfig())
        assert hint == "--set features.sample_rate=11000"
        assert not low_rate_hint(manifest_of(folder), chosen)


class TestCopies:
    def test_with_the_same_tags_are_a_note(self, folder):
        shutil.copy(folder / "02.wav", folder / "04.wav")
        finding = found(examine(manifest_of(folder)), "duplicate")
        assert finding.severity == "note"
        assert finding.items == {"02.wav": "is a copy of 04.wav"}

    def test_with_other_tags_hurt(self, folder):
        shutil.copy(folder / "02.wav", folder / "05.wav")
        finding = found(examine(manifest_of(folder)), "contradiction")
        assert finding.severity == "hurts"
        assert finding.items == {"02.wav": "is a copy of 05.wav"}

    def test_of_one_file_under_two_names_are_reported_as_such(self, folder):
        finding = found(examine(manifest_of(folder, tags={"Y02.wav": ["cat"]})), "duplicate")
        assert finding.items == {"02.wav": "is the file of Y02.wav"}

    def test_between_training_and_validation_hurt(self, folder, tmp_path):
        other = tmp_path / "other"
        other.mkdir()
        write_audio(other / "90.wav", noise(90), RATE)
        shutil.copy(folder / "02.wav", other / "91.wav")
        report = examine(manifest_of(folder), manifest_of(other))
        leak = found(report, "leak")
        assert leak.severity == "hurts"
        assert leak.items == {"02.wav": "is 91.wav in validation"}

    def test_of_the_same_file_are_inspected_once(self, healthy):
        steps = []
        manifest = manifest_of(healthy)
        report = examine(manifest, manifest, progress=lambda n, of: steps.append(of))
        assert len(found(report, "leak").items) == 24
        assert steps[-1] == 24


class TestClasses:
    def test_that_are_rare_unseen_or_in_every_clip_hurt(self, healthy):
        names = sorted(path.name for path in healthy.iterdir())
        tags = {
            name: ["noise", "owl"] if number < 3 else ["noise"] for number, name in enumerate(names)
        }
        report = examine(manifest_of(healthy, tags, labels=["noise", "owl", "yeti"]))
        assert found(report, "rare class").items == {"owl": "3 clips"}
        assert found(report, "unseen class").items == {"yeti": "0 clips"}
        assert found(report, "no negatives").items == {"noise": "24 clips"}
        assert {finding.severity for finding in report.findings} == {"hurts"}

    def test_whose_only_clips_are_unreadable_are_unseen(self, folder):
        (folder / "02.wav").write_bytes(b"")
        report = examine(manifest_of(folder, tags={"02.wav": ["owl"]}))
        assert found(report, "unseen class").items == {"owl": "0 clips"}

    def test_that_are_only_in_validation_stop(self, healthy):
        train = manifest_of(healthy)
        valid = manifest_of(healthy, tags={"00.wav": ["owl"]})
        report = examine(train, valid)
        assert report.stops
        assert found(report, "unknown class").items == {"owl": "1 clips"}
        assert report.findings[0].kind == "unknown class"  # the most severe comes first

    def test_that_are_not_in_validation_are_a_note(self, healthy):
        train = manifest_of(healthy)
        valid = train.take([0, 2])
        assert found(examine(train, valid), "unvalidated class").items == {"dog": "0 clips"}

    def test_are_needed(self, healthy):
        names = sorted(path.name for path in healthy.iterdir())
        report = examine(manifest_of(healthy, dict.fromkeys(names, ()), labels=["dog"]))
        assert report.stops
        assert found(report, "no tags").severity == "stops"

    def test_may_be_absent_from_some_clips(self, healthy):
        report = examine(manifest_of(healthy, {"00.wav": ()}))
        assert found(report, "untagged").severity == "note"


class TestTables:
    def test_without_clips_stop(self, healthy):
        nothing = manifest_of(healthy).take([])
        assert examine(nothing).stops
        report = examine(manifest_of(healthy), nothing)
        assert found(report, "empty", "validation").severity == "stops"


class TestReport:
    def test_can_be_printed_as_json_and_as_tables(self, folder):
        (folder / "03.wav").write_bytes(b"")
        shutil.move(folder / "05.wav", folder / "05[red].wav")
        write_audio(folder / "05[red].wav", np.zeros(RATE), RATE)
        report = examine(manifest_of(folder), manifest_of(folder))
        plain = json.loads(json.dumps(report.to_dict()))
        assert plain["stops"] is False
        assert plain["parts"]["training"]["classes"] == {"cat": 12, "dog": 11}
        assert {finding["severity"] for finding in plain["findings"]} <= set(SEVERITIES)
        console = Console(file=io.StringIO(), width=120)
        console.print(render(report, n_items=2))
        shown = console.file.getvalue()
        assert "05[red].wav: all zero" in shown
        assert "and 20 more" in shown
        for finding in report.findings:
            assert finding.sentence in shown
            assert finding.remedy and f"-> {finding.remedy}"[:60] in shown

    def test_without_findings_reports_no_problems(self, healthy):
        console = Console(file=io.StringIO(), width=120)
        console.print(render(examine(manifest_of(healthy))))
        assert "No problems." in console.file.getvalue()


def test_real_recordings_are_examined(esc50):
    manifest = Manifest.read(esc50 / "clips.tsv", esc50 / "audio")
    report = examine(manifest.take(range(0, 1399, 50)))
    assert not report.stops
    assert report.parts["training"].sample_rates == {32000: 28}
    assert report.parts["training"].n_unreadable == 0
    assert "rare class" in {finding.kind for finding in report.findings}


def test_real_lists_without_their_audio_stop(dcase2017, tmp_path):
    manifest = Manifest.read(dcase2017 / "testing_set.csv", tmp_path)
    report = examine(manifest, replace(manifest, missing=()))
    assert report.stops
    assert len(found(report, "missing").items) == 488
    assert Path(manifest.missing[0]).suffix == ".wav"
