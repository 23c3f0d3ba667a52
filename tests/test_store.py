import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from earmark.audio.decode import read_audio
from earmark.audio.encode import write_audio
from earmark.data import store as store_module
from earmark.data.features import FeatureConfig, log_mel
from earmark.data.manifest import Manifest, clip_paths
from earmark.data.store import Clip, Excerpt, FeatureStore, build_store
from earmark.encoders import ENCODERS, EncoderConfig
from earmark.errors import AudioError, DataError, SettingError
from earmark.files import locked
from earmark.runtime.processes import map_in_order

CONFIG = FeatureConfig(sample_rate=8000, n_mels=16, f_max=4000)
FILES = ("frames.f16", "index.jsonl", "store.json")

BUILD = """
import sys
from pathlib import Path
from earmark.data.features import FeatureConfig
from earmark.data.store import build_store

if __name__ == "__main__":
    audio, out, processes, n_clips = sys.argv[1:]
    files = {path.name: path for path in sorted(Path(audio).iterdir())}
    reports = 0

    def report(done, total):
        global reports
        print(done, flush=True)
        reports += 1
        if reports > int(n_clips):
            sys.stdin.read()  # waits to be killed, however long that takes on a busy machine

    build_store(out, files, FeatureConfig(sample_rate=8000, n_mels=16, f_max=4000),
                processes=int(processes), progress=report)
"""


@pytest.fixture(scope="module")
def audio(tmp_path_factory):
    """A folder of forty short recordings of different lengths."""
    folder = tmp_path_factory.mktemp("audio")
    rng = np.random.default_rng(0)
    for number in range(40):
        noise = rng.normal(0, 0.1, 4000 + 400 * number)
        write_audio(folder / f"{number:02d}.wav", noise, 8000)
    return folder


@pytest.fixture(scope="module")
def built(audio, tmp_path_factory):
    """A store of these recordings, built without interruption; not to be written to."""
    folder = tmp_path_factory.mktemp("stores") / "whole"
    build_store(folder, files_of(audio), CONFIG)
    return folder


@pytest.fixture
def copy(built, tmp_path):
    return shutil.copytree(built, tmp_path / "copy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"start": -1}, "numbers of a clip"),
        ({"n_frames": -1}, "numbers of a clip"),
        ({"frames_sum": 1.5}, "numbers of a clip"),
        ({"mtime_ns": True}, "numbers of a clip"),
        ({"file": 3}, "names of a clip"),
        ({"failed": 3}, "names of a clip"),
    ],
)
def test_a_line_of_the_index_has_numbers_from_0_and_texts(changes, message):
    clip = Clip("a.wav", start=3, n_frames=4)
    clip.check()
    replace(clip, failed="a.wav is empty").check()
    with pytest.raises(DataError, match=message):
        replace(clip, **changes).check()


def test_workers_of_a_scheduler_need_an_encoder_that_they_know(tmp_path, monkeypatch):
    encoder = EncoderConfig("mine", patch=1.0, hop=1.0)
    monkeypatch.setitem(ENCODERS, "mine", None)
    with pytest.raises(SettingError, match="'mine' is registered in this process"):
        store_module._on_cluster(tmp_path, replace(CONFIG, encoder=encoder), "127.0.0.1:1")
    assert store_module._on_cluster(tmp_path, CONFIG, None) is None


def test_a_repr_counts_the_clips_and_those_that_failed(audio, built, tmp_path):
    assert repr(FeatureStore.open(built)) == f"FeatureStore({str(built)!r}, 40 clips)"
    files = {"00.wav": audio / "00.wav", "gone.wav": tmp_path / "gone.wav"}
    assert repr(build_store(tmp_path / "store", files, CONFIG)).endswith("1 clips, 1 failed)")


def test_excerpts_are_parts_of_clips_that_a_check_and_another_process_know(built):
    whole = FeatureStore.open(built)
    store = whole.with_excerpts({"part": Excerpt("03.wav", 2, 5)})
    store = store.with_excerpts({"other": Excerpt("04.wav", 0, 1)})
    for own in (store, pickle.loads(pickle.dumps(store))):
        assert np.array_equal(own["part"], whole["03.wav"][2:7])
        assert len(own["other"]) == 1
        own.check()
    assert "part" not in whole
    with pytest.raises(DataError, match=r"there is no clip '3\.wav'; did you mean"):
        whole.with_excerpts({"part": Excerpt("3.wav", 0, 1)})


def craft(folder, change):
    """Change the lines of an index, and the checksums with them."""
    lines = [json.loads(line) for line in (folder / "index.jsonl").read_text().splitlines()]
    change(lines)
    index = b"".join(map(store_module._as_line, lines))
    (folder / "index.jsonl").write_bytes(index)
    summary = json.loads((folder / "store.json").read_text())
    del summary["sum"]
    summary["index_sum"] = zlib.crc32(index)
    summary["sum"] = zlib.crc32(store_module._as_line(summary))
    (folder / "store.json").write_text(json.dumps(summary))


def test_an_index_with_right_checksums_and_wrong_content_is_refused(copy):
    craft(copy, lambda lines: None)
    FeatureStore.open(copy)
    last = json.loads((copy / "index.jsonl").read_text().splitlines()[-1])
    craft(copy, lambda lines: lines[-1].update(n_frames=last["n_frames"] + 1))
    with pytest.raises(DataError, match=r"names frames that frames\.f16 does not have"):
        FeatureStore.open(copy)
    craft(copy, lambda lines: lines[0].update(features=[1]))
    with pytest.raises(DataError, match=r"the settings in index\.jsonl are no table"):
        FeatureStore.open(copy)


def test_a_long_recording_that_breaks_off_leaves_no_frames_behind(audio, tmp_path, monkeypatch):
    def read(path, sample_rate):
        yield np.zeros(20 * sample_rate, np.float32)
        assert list(tmp_path.glob("*.spill")), "frames must be on their way by now"
        raise AudioError(f"{path} breaks off")

    monkeypatch.setattr(store_module, "read_blocks", read)
    monkeypatch.setattr(store_module, "SPILL", 1)
    clip, frames = store_module._compute(("00.wav", audio / "00.wav"), tmp_path, CONFIG)
    assert (clip.n_frames, frames) == (0, b"")
    assert clip.failed.endswith("breaks off")
    assert not list(tmp_path.iterdir())


def files_of(folder):
    return {path.name: path for path in sorted(folder.iterdir())}


def content(folder):
    return {name: (folder / name).read_bytes() for name in FILES}


def unfinished(folder):
    """Make a finished store one that was killed before its last step."""
    (folder / "store.json").unlink()
    return folder


@pytest.fixture
def computed(monkeypatch):
    """The names that are computed from now on, in this process."""
    names = []
    compute = store_module._compute

    def noted(job, folder, config):
        names.append(job[0])
        return compute(job, folder, config)

    monkeypatch.setattr(store_module, "_compute", noted)
    return names


class TestStore:
    def test_contains_the_log_mel_of_every_clip(self, audio, built):
        store = FeatureStore.open(built, CONFIG, files_of(audio))
        assert store.names == tuple(files_of(audio))
        assert len(store) == 40
        for name in store.names:
            expected = log_mel(read_audio(audio / name, 8000)[0], CONFIG).numpy()
            assert store[name].dtype == np.float16
            assert np.array_equal(store[name], expected.astype(np.float16))

    def test_is_the_same_bytes_in_any_number_of_processes(self, audio, built, tmp_path):
        build_store(tmp_path / "two", files_of(audio), CONFIG, processes=2)
        assert content(tmp_path / "two") == content(built)

    def test_has_mean_and_std_of_each_mel(self, built):
        store = FeatureStore.open(built)
        rows = np.concatenate([store[name] for name in store.names]).astype(np.float64)
        mean, std = store.statistics()
        assert np.allclose(mean, rows.mean(axis=0), rtol=1e-12)
        assert np.allclose(std, rows.std(axis=0), rtol=1e-9)
        few = np.concatenate([store[name] for name in store.names[:3]]).astype(np.float64)
        mean, std = store.statistics(store.names[:3])
        assert np.allclose(mean, few.mean(axis=0), rtol=1e-12)
        assert np.allclose(std, few.std(axis=0), rtol=1e-9)
        replace(CONFIG, mean=tuple(mean), std=tuple(std))  # settings take them as they are

    def test_of_silence_can_still_be_divided_by_its_std(self, tmp_path):
        write_audio(tmp_path / "a.wav", np.zeros(8000), 8000)
        store = build_store(tmp_path / "store", {"a.wav": tmp_path / "a.wav"}, CONFIG)
        assert store.statistics()[1].min() > 0

    def test_cannot_be_written_to(self, built):
        with pytest.raises(ValueError, match="read-only"):
            FeatureStore.open(built)["00.wav"][0] = 0

    def test_reads_the_same_in_other_processes(self, built):
        store = FeatureStore.open(built)
        assert np.array_equal(pickle.loads(pickle.dumps(store))["07.wav"], store["07.wav"])
        assert len(pickle.dumps(store)) < 1000
        there = list(map_in_order(store.__getitem__, store.names[:4], processes=2))
        for name, frames in zip(store.names, there, strict=False):
            assert np.array_equal(frames, store[name])

    def test_suggests_the_nearest_name_of_an_unknown_clip(self, built):
        with pytest.raises(DataError, match=r"no clip '7.wav'; did you mean '\d7.wav'"):
            FeatureStore.open(built)["7.wav"]

    def test_ignores_normalisation_in_the_settings(self, built):
        FeatureStore.open(built, replace(CONFIG, mean=(-5.0,), std=(2.0,)))

    def test_is_read_in_little_memory(self, tmp_path, monkeypatch):
        frames = np.random.default_rng(0).normal(size=(500, 16)).astype("<f2").tobytes()

        def compute(job, folder, config):
            line = store_module.Clip(job[0], n_frames=500, frames_sum=zlib.crc32(frames))
            return line, frames

        monkeypatch.setattr(store_module, "_compute", compute)
        files = {str(number): "unread" for number in range(1000)}
        store = build_store(tmp_path, files, CONFIG, processes=1)
        tracemalloc.start()
        try:
            store.statistics(store.names)
            store.check()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < len(frames) * 1000 / 20


class TestBuild:
    def test_computes_nothing_twice(self, audio, copy, computed):
        before = content(copy)
        build_store(copy, files_of(audio), CONFIG)
        assert computed == []
        assert content(copy) == before

    def test_reports_its_progress(self, audio, tmp_path):
        steps = []
        files = dict(list(files_of(audio).items())[:3])
        build_store(tmp_path, files, CONFIG, progress=lambda done, total: steps.append(done))
        assert steps == [0, 1, 2, 3]
        build_store(tmp_path, files, CONFIG, progress=lambda done, total: steps.append(done))
        assert steps[4:] == [3]

    def test_adds_new_clips_at_the_end(self, audio, built, tmp_path, computed):
        files = files_of(audio)
        build_store(tmp_path, dict(list(files.items())[:10]), CONFIG)
        build_store(tmp_path, dict(list(files.items())[10:20]), CONFIG)
        build_store(tmp_path, files, CONFIG)
        assert computed == list(files)
        assert content(tmp_path) == content(built)

    def test_computes_a_changed_source_again_and_only_that(self, audio, tmp_path, computed):
        sources = shutil.copytree(audio, tmp_path / "audio")
        files = files_of(sources)
        build_store(tmp_path / "store", files, CONFIG)
        computed.clear()
        write_audio(sources / "05.wav", np.ones(8000) / 2, 8000)
        with pytest.raises(DataError, match=r"changes to 05.wav; call build_store"):
            FeatureStore.open(tmp_path / "store", files=files)
        store = build_store(tmp_path / "store", files, CONFIG)
        assert computed == ["05.wav"]
        expected = log_mel(read_audio(sources / "05.wav")[0], CONFIG).numpy()
        assert np.array_equal(store["05.wav"], expected.astype(np.float16))
        rows = np.concatenate([store[name] for name in store.names]).astype(np.float64)
        assert np.allclose(store.statistics()[0], rows.mean(axis=0))  # not of the old frames
        FeatureStore.open(tmp_path / "store", files=files).check()

    def test_notices_a_change_that_keeps_the_size(self, audio, tmp_path, computed):
        sources = shutil.copytree(audio, tmp_path / "audio")
        build_store(tmp_path / "store", files_of(sources), CONFIG)
        computed.clear()
        wav = bytearray((sources / "05.wav").read_bytes())
        wav[-100] ^= 255
        (sources / "05.wav").write_bytes(wav)
        build_store(tmp_path / "store", files_of(sources), CONFIG)
        assert computed == ["05.wav"]

    def test_accepts_a_source_that_was_only_copied(self, audio, copy, tmp_path):
        moved = tmp_path / "moved"
        moved.mkdir()
        for path in audio.iterdir():
            (moved / path.name).write_bytes(path.read_bytes())
        FeatureStore.open(copy, CONFIG, files_of(moved))

    def test_skips_a_clip_that_cannot_be_read(self, audio, tmp_path, computed):
        sources = shutil.copytree(audio, tmp_path / "audio")
        (sources / "03.wav").write_bytes(b"no audio at all")
        (sources / "04.wav").write_bytes(b"")
        files = files_of(sources) | {"lost.wav": sources / "lost.wav"}
        store = build_store(tmp_path / "store", files, CONFIG)
        assert set(store.failed) == {"03.wav", "04.wav", "lost.wav"}
        assert "is not audio" in store.failed["03.wav"]
        assert "does not exist" in store.failed["lost.wav"]
        assert len(store) == 38
        assert "03.wav" not in store
        with pytest.raises(DataError, match=r"03.wav was skipped: .*is not audio"):
            store["03.wav"]
        FeatureStore.open(tmp_path / "store", CONFIG, files)  # set aside is known, not changed
        before = content(tmp_path / "store")
        computed.clear()
        build_store(tmp_path / "store", files, CONFIG)  # tries them again, and leaves no trace
        assert computed == ["03.wav", "04.wav", "lost.wav"]
        assert content(tmp_path / "store") == before
        shutil.copy(audio / "03.wav", sources / "03.wav")
        store = build_store(tmp_path / "store", files, CONFIG)
        assert set(store.failed) == {"04.wav", "lost.wav"}
        assert len(store) == 39

    def test_raises_if_no_clip_can_be_read(self, tmp_path):
        with pytest.raises(DataError, match=r"None of 1 clips can be read. The first err.*exist"):
            build_store(tmp_path / "store", {"a.wav": tmp_path / "a.wav"}, CONFIG)
        with pytest.raises(DataError, match="files is empty"):
            build_store(tmp_path / "store", {}, CONFIG)

    def test_streams_long_clips_in_little_memory(self, tmp_path, monkeypatch):
        write_audio(tmp_path / "a.wav", np.random.default_rng(0).normal(0, 0.1, 6_400_000), 8000)
        files = {"a.wav": tmp_path / "a.wav", "b.wav": tmp_path / "a.wav"}
        build_store(tmp_path / "held", files, CONFIG)
        monkeypatch.setattr(store_module, "SPILL", 1 << 14)
        tracemalloc.start()
        try:
            build_store(tmp_path / "spilled", files, CONFIG)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert content(tmp_path / "spilled") == content(tmp_path / "held")
        assert not list((tmp_path / "spilled").glob("*.spill"))
        assert peak < 2_000_000  # the samples are 26 MB, and the frames 1.3 MB in two copies

    def test_resumes_after_a_full_disk(self, audio, built, tmp_path):
        resource = pytest.importorskip("resource", reason="limits of a process are those of Unix")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
        try:
            with pytest.raises(DataError, match=r"Cannot write the store .*: File too large"):
                build_store(tmp_path, files_of(audio), CONFIG)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        build_store(tmp_path, files_of(audio), CONFIG)
        assert content(tmp_path) == content(built)

    def test_is_refused_while_another_one_runs(self, audio, copy):
        with locked(copy), pytest.raises(DataError, match="Another process is building"):
            build_store(copy, files_of(audio), CONFIG)
        build_store(copy, files_of(audio), CONFIG)

    def test_leaves_the_threads_of_torch_as_they_were(self, audio, tmp_path):
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            build_store(tmp_path, dict(list(files_of(audio).items())[:2]), CONFIG, processes=1)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)

    def test_refuses_no_processes(self, audio, tmp_path):
        with pytest.raises(SettingError, match="processes must be 1 or more"):
            build_store(tmp_path, files_of(audio), CONFIG, processes=0)

    def test_works_with_real_recordings(self, esc50, tmp_path):
        manifest = Manifest.read(esc50 / "clips.tsv", esc50 / "audio").take(range(8))
        store = build_store(tmp_path, clip_paths(manifest))
        assert store.names == manifest.files
        assert not store.failed
        assert all(store[name].shape[1] == 80 for name in store.names)
        assert np.isfinite(store[manifest.files[0]]).all()


class TestKilledBuild:
    def start(self, audio, out, processes, n_clips=1000):
        return subprocess.Popen(
            [sys.executable, "-c", BUILD, str(audio), str(out), str(processes), str(n_clips)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def test_resumes_to_the_same_bytes(self, audio, built, tmp_path, computed):
        moments = random.Random(0)
        out = tmp_path / "store"
        for _ in range(3):
            n_clips = moments.randrange(2, 12)
            with self.start(audio, out, 1, n_clips + 1) as process:
                for _ in range(n_clips):
                    process.stdout.readline()
                time.sleep(moments.random() * 0.003)
                process.send_signal(signal.SIGKILL)
        lines = (out / "index.jsonl").read_text().split("\n")[1:-1]
        assert 0 < len(lines) < 40
        build_store(out, files_of(audio), CONFIG)
        assert len(computed) == 40 - len(lines)
        assert content(out) == content(built)

    @pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
    def test_leaves_no_process_behind(self, audio, built, tmp_path):
        out = tmp_path / "store"
        with self.start(audio, out, processes=2) as process:
            while process.stdout.readline().strip() != "2":
                pass
            workers = [
                int(entry.name)
                for entry in Path("/proc").iterdir()
                if entry.name.isdigit() and parent_of(entry.name) == process.pid
            ]
            process.send_signal(signal.SIGKILL)
        assert len(workers) >= 2
        deadline = time.monotonic() + 10
        while any(map(is_running, workers)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(map(is_running, workers))
        build_store(out, files_of(audio), CONFIG)
        assert content(out) == content(built)

    def test_never_accepts_a_partial_clip(self, audio, built, tmp_path):
        cuts = random.Random(1)
        for number in range(25):
            out = unfinished(shutil.copytree(built, tmp_path / str(number)))
            header = (out / "index.jsonl").read_bytes().index(b"\n") + 1
            n_lines, n_rows = (
                (out / "index.jsonl").stat().st_size,
                (out / "frames.f16").stat().st_size,
            )
            os.truncate(out / "index.jsonl", cuts.randrange(header, n_lines + 1))
            os.truncate(out / "frames.f16", cuts.randrange(n_rows + 1))
            (out / "left.spill").touch()
            build_store(out, files_of(audio), CONFIG)
            assert content(out) == content(built)
            assert not (out / "left.spill").exists()

    def test_computes_frames_again_that_never_reached_the_disk(self, audio, copy, built, computed):
        out = unfinished(copy)
        with (out / "frames.f16").open("r+b") as file:  # as a power cut leaves it
            file.seek(-5000, os.SEEK_END)
            file.write(bytes(5000))
        build_store(out, files_of(audio), CONFIG)
        assert 0 < len(computed) < 10
        assert content(out) == content(built)

    def test_is_not_opened_before_it_is_finished(self, copy, tmp_path):
        with pytest.raises(DataError, match="is unfinished; call build_store"):
            FeatureStore.open(unfinished(copy))
        with pytest.raises(DataError, match="no feature store"):
            FeatureStore.open(tmp_path / "nothing")


class TestDamage:
    def test_of_sizes_is_detected(self, audio, copy):
        for name in FILES:
            whole = (copy / name).read_bytes()
            for wrong in (whole[:-1], whole + b"x", b""):
                (copy / name).write_bytes(wrong)
                with pytest.raises(DataError, match=r"damaged: .*Delete the folder"):
                    FeatureStore.open(copy)
                with pytest.raises(DataError, match="damaged"):
                    build_store(copy, files_of(audio), CONFIG)
            (copy / name).write_bytes(whole)
        FeatureStore.open(copy)

    def test_of_frames_that_are_gone_is_reported_as_no_bytes(self, copy):
        (copy / "frames.f16").unlink()
        with pytest.raises(DataError, match=r"frames\.f16 has 0 bytes instead of"):
            FeatureStore.open(copy)

    def test_of_any_byte_is_detected(self, copy):
        places = random.Random(2)
        for name in FILES:
            whole = (copy / name).read_bytes()
            for _ in range(20):
                wrong = bytearray(whole)
                wrong[places.randrange(len(whole))] ^= 1 << places.randrange(8)
                (copy / name).write_bytes(wrong)
                with pytest.raises(DataError, match=r"damaged|version"):
                    FeatureStore.open(copy).check()
            (copy / name).write_bytes(whole)
        FeatureStore.open(copy).check()

    @pytest.mark.parametrize("name", FILES)
    def test_by_a_missing_file_is_detected(self, copy, name):
        (copy / name).unlink()
        with pytest.raises(DataError, match=r"damaged|unfinished"):
            FeatureStore.open(copy)

    def test_of_the_index_is_detected_by_a_build(self, audio, copy):
        (copy / "index.jsonl").unlink()
        with pytest.raises(DataError, match=r"index.jsonl is missing. Delete"):
            build_store(copy, files_of(audio), CONFIG)

    def test_other_settings_are_named(self, audio, copy):
        for act in (
            lambda config: FeatureStore.open(copy, config),
            lambda config: build_store(copy, files_of(audio), config),
        ):
            with pytest.raises(DataError, match=r"other settings: hop 0.02 instead of 0.01\. Del"):
                act(replace(CONFIG, hop=0.01))

    def test_another_version_is_named(self, copy):
        summary = json.loads((copy / "store.json").read_text())
        (copy / "store.json").write_text(json.dumps(summary | {"version": 99}))
        with pytest.raises(DataError, match="version 99"):
            FeatureStore.open(copy)

    def test_missing_and_changed_sources_are_named(self, audio, copy):
        files = files_of(audio)
        with pytest.raises(DataError, match=r"does not contain x0, x1, x2 and 1 more; call build"):
            FeatureStore.open(copy, files=files | {f"x{n}": audio / "00.wav" for n in range(4)})
        with pytest.raises(DataError, match=r"changes to 00.wav;"):
            FeatureStore.open(copy, files=files | {"00.wav": audio / "01.wav"})


class TestProcesses:
    def test_that_die_are_reported(self):
        with pytest.raises(DataError, match="worker process died"):
            list(map_in_order(os._exit, [3] * 4, processes=2))


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:  # it has ended
        return None


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def store(audio, tmp_path_factory):
    """A store of the samples of these recordings."""
    folder = tmp_path_factory.mktemp("stores") / "waveforms"
    return build_store(folder, files_of(audio), FeatureConfig(sample_rate=8000, kind="waveform"))


class TestStoreOfWaveforms:
    def test_has_the_samples_of_every_clip_in_half_precision(self, audio, store):
        for name in store.names:
            samples, _ = read_audio(audio / name, 8000)
            frames = store[name].reshape(-1).astype(np.float32)
            assert 0 <= len(frames) - len(samples) < 160
            error = np.abs(frames[: len(samples)] - samples)
            assert (error <= np.maximum(np.abs(samples) / 2048, 3e-8)).all()
            assert not frames[len(samples) :].any()

    def test_has_one_mean_and_one_std_of_all_samples(self, store):
        together = np.concatenate([store[name].reshape(-1) for name in store.names])
        for mean, std in (store.statistics(), store.statistics(store.names)):
            assert mean.shape == std.shape == (1,)
            np.testing.assert_allclose(mean, together.astype(np.float64).mean(), atol=1e-9)
            np.testing.assert_allclose(std, together.astype(np.float64).std(), rtol=1e-9)

    def test_is_not_taken_for_one_of_log_mels(self, audio, store):
        with pytest.raises(DataError, match="kind"):
            FeatureStore.open(store.folder, FeatureConfig(sample_rate=8000, f_max=4000.0))
