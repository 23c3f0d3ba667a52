"""Features, detection and comparison on Dask, with real scheduler and worker processes."""

import json
import logging
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import cluster_tasks
import numpy as np
import psutil
import pytest
from cluster_tasks import Machines, exit_at, import_missing, started, until, wait_for_go
from tones import write_tones

import earmark
from earmark.audio.encode import write_audio
from earmark.cli import main
from earmark.data.features import FeatureConfig
from earmark.data.store import build_store
from earmark.errors import BundleError, ClusterError, SettingError
from earmark.experiments import Plan, run_plan
from earmark.formats.events import write_events
from earmark.inference import cluster as detection
from earmark.inference import folder
from earmark.inference.cluster import ModelSource, detect_files_on_cluster, detect_on_cluster
from earmark.inference.detector import Detector, name_recordings
from earmark.inference.model_file import BUNDLED
from earmark.runtime import cluster
from earmark.runtime.cluster import Cluster, running
from earmark.runtime.processes import map_as_done, map_in_order
from earmark.runtime.worker import code_versions, run_chunk
from earmark.synth.scenes import SceneConfig, write_scenes

CONFIG = FeatureConfig(sample_rate=8000, n_mels=16, f_max=4000)
SAMPLES = FeatureConfig(kind="waveform", sample_rate=8000)
NOWHERE = "tcp://127.0.0.1:1"


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    machines = Machines(tmp_path_factory.mktemp("machines"))
    yield machines
    machines.end()


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Forty short recordings, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("clips")
    rng = np.random.default_rng(0)
    for number in range(40):
        write_audio(folder / f"{number:02d}.wav", rng.normal(0, 0.1, 4000 + 400 * number), 8000)
    (folder / "41.wav").touch()
    return folder


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    config = SceneConfig(classes=("siren", "bell"), duration=3.0, event_duration=(0.5, 2.0))
    write_scenes(folder, 12, config, seed=1)
    long = np.random.default_rng(0).normal(0, 0.1, 8000 * 12)
    write_audio(folder / "audio" / "scene_00001_long.wav", long, 8000)
    (folder / "audio" / "z.wav").write_bytes(b"no audio")
    return folder / "audio"


def content(folder):
    return {name: (folder / name).read_bytes() for name in ("frames.f16", "index.jsonl")}


def command(monkeypatch, *words):
    """Run a command in this process; return its exit code."""
    monkeypatch.setattr(sys, "argv", ["earmark", *map(str, words)])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def is_alive(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class TestMap:
    def test_a_killed_worker_loses_nothing_and_doubles_nothing(self, machines, tmp_path):
        machines.with_workers(2)
        work = partial(wait_for_go, tmp_path)
        with ThreadPoolExecutor(1) as thread:
            mapped = thread.submit(
                lambda: list(map_in_order(work, range(6), cluster=Cluster(machines.address)))
            )
            until(lambda: len({process for _, process in started(tmp_path)}) == 2, "both working")
            dead = machines.kill_worker()
            (tmp_path / "go").touch()
            results = mapped.result(cluster_tasks.TIMEOUT)
        assert [item for item, _ in results] == list(range(6))
        assert dead not in {process for _, process in results}
        begun = [item for item, process in started(tmp_path) if process == dead]
        again = [item for item, process in started(tmp_path) if process != dead]
        assert len(begun) == 1  # in the middle of it
        assert sorted(again) == list(range(6))

    def test_results_come_in_order_or_as_they_are_done(self, machines):
        machines.with_workers(1)
        where = Cluster(machines.address, per_task=3)
        assert list(map_in_order(abs, range(-9, 0), cluster=where)) == list(range(9, 0, -1))
        assert sorted(map_as_done(abs, range(-9, 0), cluster=where)) == list(range(1, 10))

    def test_an_item_that_ends_its_workers_is_reported_by_name(self, tmp_path):
        machines = Machines(tmp_path, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0")
        try:
            where = Cluster(
                machines.address,
                name="item {}".format,
                killed=lambda item, error: error,
                per_task=4,
            )
            work = partial(exit_at, "bad")
            with ThreadPoolExecutor(1) as thread:
                mapped = thread.submit(
                    lambda: list(map_in_order(work, ["a", "b", "bad", "c"], cluster=where))
                )
                try:
                    until(lambda: machines.with_a_worker() and mapped.done(), "the end")
                finally:
                    machines.end()  # otherwise it would wait for workers for ever
            a, b, error, c = mapped.result()
        finally:
            machines.end()
        assert (a, b, c) == ("a", "b", "c")
        assert str(error).startswith("item bad ended 1 workers, each while it was the only task")

    def test_a_scheduler_without_workers_is_waited_for_until_it_is_gone(
        self, tmp_path, monkeypatch, caplog
    ):
        monkeypatch.setattr(cluster, "PATIENCE", 0.1)
        machines = Machines(tmp_path)
        with ThreadPoolExecutor(1) as thread, caplog.at_level(logging.WARNING, "earmark"):
            mapped = thread.submit(
                lambda: list(map_in_order(abs, [-1], cluster=Cluster(machines.address)))
            )
            until(lambda: "There are no workers at" in caplog.text, "the warning")
            machines.end()
            with pytest.raises(ClusterError, match=r"connection to the scheduler .* was lost"):
                mapped.result(cluster_tasks.TIMEOUT)

    def test_other_versions_on_a_worker_are_an_error(self, machines, monkeypatch):
        machines.with_workers(1)
        own = code_versions()
        monkeypatch.setattr(cluster, "code_versions", lambda: own | {"torch": "9.9"})
        with pytest.raises(ClusterError, match=r"has torch \d\S*, .* torch 9.9; install"):
            list(map_in_order(abs, [-1], cluster=Cluster(machines.address)))

    def test_a_worker_without_this_module_is_an_error(self, tmp_path):
        old = tmp_path / "old" / "earmark"
        old.mkdir(parents=True)
        (old / "__init__.py").write_text("")
        machines = Machines(tmp_path)
        try:
            machines.add_worker("--no-nanny", PYTHONPATH=str(old.parent))
            with pytest.raises(
                ClusterError, match=r"cannot import this Earmark .* install earmark"
            ):
                list(map_in_order(abs, [-1], cluster=Cluster(machines.address)))
        finally:
            machines.end()

    def test_an_import_error_of_the_function_itself_stays_what_it_is(self, machines):
        machines.with_workers(1)
        with pytest.raises(ImportError, match="no_such_module"):
            list(map_in_order(import_missing, [1], cluster=Cluster(machines.address)))

    def test_a_file_that_a_worker_lacks_is_an_error_with_worker_and_file(
        self, machines, monkeypatch
    ):
        machines.with_workers(1)
        monkeypatch.setattr(cluster, "file_sizes", lambda paths: {"/only/here.wav": 10})
        with pytest.raises(ClusterError, match=r"Worker tcp://127.* cannot find /only/here.wav"):
            list(map_in_order(abs, [-1], cluster=Cluster(machines.address)))

    def test_another_file_under_the_same_path_is_an_error(self, tmp_path):
        (tmp_path / "a.wav").write_bytes(b"12345")
        with pytest.raises(ClusterError, match=r"another .*a.wav .*: 5 bytes instead of 6;"):
            run_chunk(b"", b"", {str(tmp_path / "a.wav"): 6}, code_versions())

    def test_processes_and_a_cluster_are_not_both_given(self):
        for way in (map_in_order, map_as_done):
            with pytest.raises(SettingError, match="leave it out with a scheduler"):
                list(way(abs, [-1], 2, Cluster(NOWHERE)))

    def test_chunks_are_smaller_where_items_are_few_or_files_are_large(self, tmp_path, monkeypatch):
        def sizes(where, n_items, n_threads):
            chunks = cluster._chunks(range(n_items), where, n_threads)
            return [len(chunk.items) for chunk in chunks]

        assert sizes(Cluster(NOWHERE, per_task=32), 1000, 4) == [32] * 31 + [8]
        assert sizes(Cluster(NOWHERE, per_task=32), 10, 4) == [1] * 10
        assert sizes(Cluster(NOWHERE, group=lambda item: item // 3), 10, 4) == [3, 3, 3, 1]
        monkeypatch.setattr(cluster, "CHUNK_BYTES", 9)
        (tmp_path / "a").write_bytes(b"12345")
        (tmp_path / "b").write_bytes(b"12345")
        files = Cluster(NOWHERE, files=lambda item: [tmp_path / "ab"[item % 2]], per_task=32)
        assert sizes(files, 100, 1) == [2] * 50


class TestLocalCluster:
    def test_it_listens_on_loopback_only_and_ends_with_its_block(self):
        others = set(psutil.Process().children(recursive=True))
        with running("local:1") as address:
            assert list(map_in_order(abs, [-2, -1], cluster=Cluster(address))) == [2, 1]
            family = set(psutil.Process().children(recursive=True)) - others
            ports = [
                connection.laddr.ip
                for process in family
                for connection in process.net_connections()
                if connection.status == psutil.CONN_LISTEN
            ]
        assert set(ports) == {"127.0.0.1"}
        assert len(ports) >= 3  # scheduler, nanny, worker
        until(lambda: not any(map(is_alive, family)), "the end of all processes")

    def test_one_that_does_not_start_is_an_error(self, monkeypatch):
        monkeypatch.setattr(sys, "executable", "false")
        with pytest.raises(ClusterError, match="local cluster 'local:1' did not start"):
            list(map_in_order(abs, [-1], cluster=Cluster("local:1")))


class TestFeatures:
    def test_a_store_is_the_same_bytes_though_a_worker_is_killed(
        self, machines, clips, tmp_path, monkeypatch
    ):
        machines.with_workers(2)
        monkeypatch.chdir(clips)  # a worker has another working folder
        files = {path.name: Path(path.name) for path in sorted(clips.iterdir())}
        one = build_store(tmp_path / "one", files, CONFIG, processes=1)
        killed = []

        def kill_at_first(done, total):
            if done and not killed:
                killed.append(machines.kill_worker())

        two = build_store(
            tmp_path / "two", files, CONFIG, scheduler=machines.address, progress=kill_at_first
        )
        assert killed
        assert content(tmp_path / "two") == content(tmp_path / "one")
        assert two.failed == one.failed
        assert list(one.failed) == ["41.wav"]

    def test_frames_of_a_long_clip_go_through_a_file(self, machines, tmp_path):
        machines.with_workers(1)
        noise = np.random.default_rng(0).normal(0, 0.1, 300 * 8000)
        write_audio(tmp_path / "long.wav", noise, 8000)
        files = {"long.wav": tmp_path / "long.wav"}
        build_store(tmp_path / "one", files, SAMPLES, processes=1)
        build_store(tmp_path / "two", files, SAMPLES, scheduler=machines.address)
        assert content(tmp_path / "two") == content(tmp_path / "one")
        assert not list((tmp_path / "two").glob("*.spill"))

    def test_a_store_with_nothing_to_compute_needs_no_scheduler(self, clips, tmp_path):
        files = {"00.wav": clips / "00.wav"}
        build_store(tmp_path / "store", files, CONFIG)
        assert build_store(tmp_path / "store", files, CONFIG, scheduler=NOWHERE).names == (
            "00.wav",
        )

    def test_a_registered_encoder_stays_in_its_process(self, clips, tmp_path):
        from earmark.encoders import ENCODERS, register_encoder

        register_encoder(
            "only-here",
            lambda file: __import__("torch").nn.AvgPool1d(2000),
            encoder={"patch": 0.25, "hop": 0.25, "input": "waveform"},
            features={"sample_rate": 8000, "hop": 0.25, "n_mels": 1, "f_max": 4000},
        )
        try:
            config = earmark.data.encoded.read_encoder("only-here")
            with pytest.raises(SettingError, match="'only-here' is registered in this process"):
                build_store(tmp_path, {"a": clips / "00.wav"}, config, scheduler=NOWHERE)
        finally:
            del ENCODERS["only-here"]


class TestDetection:
    def test_results_are_those_of_one_process_to_the_bit_though_a_worker_is_killed(
        self, machines, scenes, monkeypatch
    ):
        machines.with_workers(2)
        monkeypatch.setattr(folder, "TOGETHER", 4)  # so that there are several groups
        monkeypatch.chdir(scenes.parent)  # a worker has another working folder
        files = name_recordings(scenes.name)
        one = list(Detector.load().detect_each(files, sensitivity="high", keep_scores=True))
        there = detect_on_cluster(
            BUNDLED, files, machines.address, sensitivity="high", keep_scores=True
        )
        two = [next(there)]
        machines.kill_worker()
        two += there
        assert [result.name for result in two] == [result.name for result in one] == list(files)
        assert sum(len(result.events) for result in one) > 3
        for a, b in zip(one, two, strict=True):
            assert (a.duration, repr(a.error)) == (b.duration, repr(b.error))
            assert a.events == b.events
            if a.scores is not None:
                np.testing.assert_array_equal(a.scores.scores, b.scores.scores)
        assert max(result.duration for result in one) > 10  # one does not fit into the window
        assert str(two[-1].error).startswith("audio/z.wav ")  # as it was given

    def test_the_command_prints_the_table_of_one_process(
        self, machines, scenes, tmp_path, monkeypatch, capsys
    ):
        machines.with_workers(1)
        files = sorted(scenes.glob("*.wav"))[:3]
        events = Detector.load().detect_files(files)
        assert sum(map(len, events.values())) > 0
        write_events(tmp_path / "one.tsv", events)
        there = ["--scheduler", machines.address, "--scores", str(tmp_path / "scores")]
        assert command(monkeypatch, "detect", *files, "--score", *there) == 0
        assert capsys.readouterr().out == (tmp_path / "one.tsv").read_text()
        assert len(list((tmp_path / "scores").glob("*.tsv"))) == 3

    def test_a_task_has_what_one_process_gathers_and_longer_recordings_have_their_own(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(folder, "TOGETHER", 3)
        monkeypatch.setattr(folder, "LARGE", 30_000)
        seconds = {"a": 1, "b": 2, "c": 1, "d": 1, "e": 1.5, "f": 1}
        files = {name: tmp_path / f"{name}.wav" for name in (*seconds, "gone")}
        for name, duration in seconds.items():
            write_audio(files[name], np.zeros(int(duration * 8000)), 8000)

        def names(done=()):
            return [(own.short, own.alone) for own in detection._groups(files, done, window=1.2)]

        assert names() == [(["a", "c"], ["b"]), (["d", "f"], ["e"]), (["gone"], [])]
        assert names(done=["a", "e"])[:2] == [(["c"], ["b"]), (["d", "f"], [])]
        monkeypatch.setattr(detection, "MANY", 3)  # headers are not looked at, sizes are
        assert names()[:2] == [(["a", "c"], ["b"]), (["d", "e", "f"], [])]

    def test_another_model_on_a_worker_is_an_error(self, machines, scenes, monkeypatch):
        machines.with_workers(1)
        monkeypatch.setattr(detection, "_sha256", lambda path: "0" * 64)
        with pytest.raises(ClusterError, match=r"another one .* instead of 000000000000"):
            detect_files_on_cluster(BUNDLED, scenes, machines.address)

    def test_a_model_that_is_nowhere_is_an_error(self):
        with pytest.raises(BundleError, match=r"no model file .*gone.earmark"):
            ModelSource("/gone.earmark", "").load()

    def test_a_recording_that_ends_workers_is_one_that_cannot_be_read(self, scenes, monkeypatch):
        def map_none(function, items, where):
            error = ClusterError("It ended 4 workers.")
            yield from (where.killed(item, error) for item in items)

        monkeypatch.setattr(detection, "map_on_cluster", map_none)
        killed = detect_files_on_cluster(BUNDLED, scenes / "z.wav", NOWHERE).failed
        assert str(killed["z.wav"]) == "It ended 4 workers."

    def test_a_scheduler_that_is_not_there_is_one_sentence_and_code_2(
        self, scenes, monkeypatch, capsys
    ):
        monkeypatch.setattr(cluster, "CONNECT", 0.5)
        assert command(monkeypatch, "detect", scenes, "--scheduler", NOWHERE) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"earmark: There is no Dask scheduler at {NOWHERE}: no answer")

    def test_threads_are_for_one_process(self, scenes, monkeypatch, capsys):
        words = ["detect", scenes, "--scheduler", NOWHERE, "--threads", "2"]
        assert command(monkeypatch, *words) == 2
        assert "every task has one thread; leave out --threads." in capsys.readouterr().err


class TestComparison:
    PLAN = """
        [data]
        train = "train_weak.tsv"
        valid = "valid_weak.tsv"
        test = "test_strong.tsv"
        [settings]
        features = {sample_rate = 8000, n_mels = 16, f_max = 4000}
        model = {channels = [4, 4, 4, 4], last_channels = 4, n_recurrent = 4, dropout = 0.1}
        training = {batch_size = 4, max_epochs = 2, threads = 1}
        [grid]
        seeds = 1
        structure = {single = {model.stages = []}, hierarchical = {model.stages = [5]}}
    """

    def test_results_are_those_of_one_process_though_a_worker_is_killed(
        self, machines, tmp_path, monkeypatch
    ):
        machines.with_workers(2)
        for seed, part in enumerate(("train", "valid", "test")):
            write_tones(tmp_path, 8, seed=seed, prefix=part)
        (tmp_path / "plan.toml").write_text(self.PLAN)
        monkeypatch.chdir(tmp_path)  # a worker has another working folder
        plan = Plan.read("plan.toml")
        one = run_plan(plan, Path("one"), processes=1)
        with ThreadPoolExecutor(1) as thread:
            there = thread.submit(
                run_plan, plan, Path("two"), device="auto", scheduler=machines.address
            )
            until(lambda: len(list(Path("two/work").glob("*/lock"))) > 2, "two trainings")
            machines.kill_worker()
            two = there.result(cluster_tasks.TIMEOUT)
        assert [result.configuration for result in two] == ["single", "hierarchical"]
        for a, b in zip(one, two, strict=True):
            assert json.dumps([a.scores, a.counts, a.example]) == json.dumps(
                [b.scores, b.counts, b.example]
            )
        assert len(list(Path("two").glob("*.json"))) == 2

    def test_processes_and_a_scheduler_are_not_both_given(self, tmp_path, monkeypatch):
        for seed, part in enumerate(("train", "valid", "test")):
            write_tones(tmp_path, 2, seed=seed, prefix=part)
        (tmp_path / "plan.toml").write_text(self.PLAN)
        plan = Plan.read(tmp_path / "plan.toml")
        with pytest.raises(SettingError, match="processes or scheduler, not both"):
            run_plan(plan, tmp_path / "out", processes=2, scheduler=NOWHERE)
