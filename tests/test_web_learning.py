"""Corrections become tables that the commands take, and jobs that learn from them."""

import errno
import io
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from services import running, wav, write_model
from tones import RATE, make_tone_clip, random_events

from earmark.data.manifest import Manifest
from earmark.errors import BundleError
from earmark.formats.events import Event, read_events
from earmark.inference.detector import Detector
from earmark.inference.model_file import BUNDLED
from earmark.training.api import tune
from earmark.web import training_clips
from earmark.web.adoption import open_model
from earmark.web.changes import find_change
from earmark.web.corrections import Correction, Corrections
from earmark.web.jobs import Jobs
from earmark.web.library import Library
from earmark.web.limits import RequestError
from earmark.web.serve import Settings, serve
from earmark.web.training_clips import training_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


def clip(events, seed):
    file = io.BytesIO()
    wave = make_tone_clip(np.random.default_rng(seed), events)
    soundfile.write(file, wave, RATE, format="WAV")
    return file.getvalue()


def sent(events):
    return [{"onset": e.onset, "offset": e.offset, "event_label": e.label} for e in events]


@pytest.fixture(scope="module")
def corrected(model, tmp_path_factory):
    """A service with ten recordings whose events somebody has marked."""
    library = tmp_path_factory.mktemp("library")
    rng = np.random.default_rng(7)
    with running(model, library) as web:
        reference = {}
        for n in range(10):
            events = random_events(rng, 4.0) if n else [Event(1.0, 2.0, "low")]
            own = web.upload(clip(events, n), f"clip_{n}.wav")
            path = f"/api/recordings/{own['id']}/corrections"
            answer = web.client.put(path, json={"events": sent(events), "checked": "events"})
            assert answer.status_code == 200
            reference[own["name"]] = sorted(events)
        yield web, reference, library


class TestCorrections:
    @pytest.fixture
    def own(self, model):
        with running(model) as web:
            found = web.upload(wav(4.0))
            yield web, f"/api/recordings/{found['id']}"

    def test_before_a_correction_there_is_what_was_detected(self, own):
        web, path = own
        answer = web.client.get(f"{path}/corrections").json()
        detected = web.client.post(f"{path}/events", json={}).json()
        assert answer == {"events": detected["events"], "as_detected": True, "tags": {},
                          "checked": None, "corrected": False}  # fmt: skip
        body = {
            "events": [{"onset": 1, "offset": 99, "event_label": "cow"}],
            "tags": {"low": False},
        }
        assert web.client.put(f"{path}/corrections", json=body).status_code == 200
        assert web.client.get(path).json()["corrected"] is True
        answer = web.client.get(f"{path}/corrections").json()
        cow = {"onset": 1.0, "offset": 4.0, "event_label": "cow", "score": None}
        assert answer == {"events": [cow], "as_detected": False, "tags": {"low": False},
                          "checked": None, "corrected": True}  # fmt: skip
        assert web.client.get("/api/model").json()["new_labels"] == ["cow"]
        exported = web.client.get(f"{path}/export?format=csv").text
        assert exported == "filename,onset,offset,event_label\na.wav,1.000,4.000,cow\n"
        assert web.client.delete(f"{path}/corrections").status_code == 204
        assert web.client.get(path).json()["corrected"] is False

    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            ({}, "events: Field required."),
            ({"events": None, "checked": "events"}, "Events that were checked must be sent"),
            ({"events": [{"onset": 2, "offset": 1, "event_label": "low"}]}, "must end after"),
            ({"events": [{"onset": 5, "offset": 6, "event_label": "low"}]}, "outside of the"),
            ({"events": [{"onset": -1, "offset": 1, "event_label": "low"}]}, "greater than or"),
            ({"events": [{"onset": 0, "offset": 1, "event_label": "a\tb"}]}, "tables cannot hold"),
            ({"events": [], "tags": {"a|b": True}}, "tables cannot hold"),
            ({"events": [{"onset": 0, "offset": 1, "event_label": ""}]}, "at least 1 character"),
            ({"events": [{"onset": "NaN", "offset": 1, "event_label": "a"}]}, "finite number"),
        ],
    )
    def test_a_wrong_one_is_refused(self, own, body, sentence):
        web, path = own
        answer = web.client.put(f"{path}/corrections", json=body)
        assert answer.status_code == 422
        assert sentence in answer.json()["detail"]
        assert web.client.get(path).json()["corrected"] is False

    def tables(self, web):
        """The rows of both tables, as they are downloaded."""
        texts = (web.client.get(f"/api/corrections/{x}.tsv").text for x in ("strong", "weak"))
        return [text.splitlines()[1:] for text in texts]

    def test_a_rejected_tag_removes_its_events_and_a_confirmed_one_without_events_is_no_strong_row(
        self, own
    ):
        web, path = own
        events = sent([Event(0, 1, "low"), Event(2, 3, "high")])
        body = {"events": events, "tags": {"high": False}, "checked": "events"}
        web.client.put(f"{path}/corrections", json=body)
        assert self.tables(web) == [["a.wav\t0.000\t1.000\tlow"], ["a.wav\tlow"]]
        body = {"events": [], "tags": {"high": True}, "checked": "events"}
        web.client.put(f"{path}/corrections", json=body)
        assert self.tables(web) == [[], ["a.wav\thigh"]]
        web.client.put(f"{path}/corrections", json={"events": None, "tags": {"low": False}})
        detected = web.client.post(f"{path}/events", json={}).json()["events"]
        assert {event["event_label"] for event in detected} == {"low", "high"}
        left = web.client.get(f"{path}/corrections").json()
        assert left["as_detected"]
        assert left["events"] == [own for own in detected if own["event_label"] != "low"]

    def test_detections_that_nobody_checked_become_no_tags(self, own):
        """A detection has a score; what somebody drew has none."""
        web, path = own
        detected = web.client.post(f"{path}/events", json={}).json()["events"]
        assert {event["event_label"] for event in detected} == {"low", "high"}
        body = {"events": None, "tags": {"low": True}}
        web.client.put(f"{path}/corrections", json=body)
        assert self.tables(web) == [[], []]  # nobody knows whether "high" is there
        web.client.put(f"{path}/corrections", json={**body, "checked": "tags"})
        assert self.tables(web) == [[], ["a.wav\tlow"]]
        cow = {"onset": 1, "offset": 2, "event_label": "cow"}
        body = {"events": [*detected, cow], "tags": {"low": True}}
        web.client.put(f"{path}/corrections", json=body)
        assert self.tables(web) == [[], []]
        web.client.put(f"{path}/corrections", json={**body, "checked": "tags"})
        assert self.tables(web) == [[], ["a.wav\tcow,low"]]
        web.client.put(f"{path}/corrections", json={**body, "checked": "events"})
        strong, weak = self.tables(web)
        assert len(strong) == len(detected)  # a tuning cannot take "cow"
        assert weak == ["a.wav\tcow,high,low"]

    def test_events_that_nobody_touched_keep_their_scores(self, own):
        web, path = own
        detected = web.client.post(f"{path}/events", json={}).json()["events"]
        moved = {**detected[0], "onset": detected[0]["onset"] + 0.01, "score": None}
        body = {"events": [moved, *detected[1:]]}
        web.client.put(f"{path}/corrections", json=body)
        for corrections in (web.service.corrections, Corrections(web.service.library.state)):
            own = corrections.get("a.wav").events
            assert [event.score for event in own] == [event["score"] for event in body["events"]]


class TestTables:
    def test_the_strong_table_has_the_events_and_tuning_takes_it(self, corrected, model, tmp_path):
        web, reference, library = corrected
        table = tmp_path / "strong.tsv"
        table.write_text(web.client.get("/api/corrections/strong.tsv").text)
        assert {name: sorted(events) for name, events in read_events(table).items()} == reference
        detector = Detector.load(model, threads=1)
        _, result = tune(detector, table, library, strong=True)
        assert result.supervision == "strong"
        assert result.classes["low"].n_positive > 0

    def test_the_weak_table_has_the_tags_of_recordings_that_are_there(self, corrected, tmp_path):
        web, reference, library = corrected
        table = tmp_path / "weak.tsv"
        table.write_text(web.client.get("/api/corrections/weak.tsv").text)
        clips = Manifest.read(table, library)
        assert len(clips) == 10
        assert not clips.missing
        wanted = {name: tuple(sorted({e.label for e in own})) for name, own in reference.items()}
        assert dict(zip(clips.files, clips.tags, strict=True)) == wanted

    def test_clips_are_cut_from_a_long_recording(self, tmp_path):
        long = tmp_path / "long.wav"
        soundfile.write(long, np.arange(12 * RATE) / (12 * RATE), RATE)
        events = [Event(4.5, 5.0, "low"), Event(7.9, 9.0, "high")]
        own = Correction(events, checked="events")
        recordings = {"long.wav": (long, 12.0, own)}
        weak = {"long.wav": own.labels}
        rows, notes = training_rows(weak, recordings, 2.0, tmp_path)
        assert sorted(rows.values()) == [(), (), (), (), ("high",), ("low",)]
        (low,) = [path for path, tags in rows.items() if tags == ("low",)]
        samples, _ = soundfile.read(low)
        assert len(samples) == 2 * RATE
        assert samples[0] == pytest.approx(4 / 12, abs=1e-3)
        assert notes == ["6 clips of 2 s are cut from long.wav, which is long."]
        unknown = Correction([], {"low": True}, "tags")
        recordings = {"long.wav": (long, 12.0, unknown)}
        rows, notes = training_rows({"long.wav": ("low",)}, recordings, 2.0, tmp_path)
        assert rows == {}
        assert notes[0].startswith("long.wav is left out: it is long")


class TestJobs:
    def test_a_job_tunes_and_its_model_is_adopted(self, corrected, model):
        web, _, _ = corrected
        before = web.client.get("/api/model").json()
        started = web.client.post("/api/tune")
        assert started.status_code == 202
        assert web.client.post("/api/tune").status_code == 409  # one at a time
        path = f"/api/jobs/{started.json()['id']}"
        job = web.wait(path, "running")
        assert job["status"] == "done", job
        assert job["progress"] == 1.0
        assert len(job["changed"]) == 10
        assert "f_measure" in job["detail"]
        assert str(web.service.library.folder) not in "\n".join(job["log"])
        changed = {own["name"]: own for own in job["changed"]}
        tuned = web.jobs.find(job["id"]).served.detector
        for recording in web.service.library:
            found = tuned.detect(recording.path)
            own = changed[recording.name]
            assert own["after"] == len(found)
            assert own["after"] - own["before"] == len(own["added"]) - len(own["removed"])
        assert web.client.post(f"{path}/adopt").status_code == 204
        after = web.client.get("/api/model").json()
        assert after["name"] != before["name"]
        assert after["decoding"] == {
            label: {name: getattr(tuned.bundle.decoding[label], name) for name in own}
            for label, own in before["decoding"].items()
        }
        assert web.client.get(path).json()["adopted"] is True
        saved = web.client.get(f"{path}/model")
        assert saved.content == web.jobs.find(job["id"]).model.read_bytes()

    def test_a_job_trains_from_the_served_model(self, corrected):
        web, _, _ = corrected
        started = web.client.post("/api/train", json={"max_epochs": 1})
        assert started.status_code == 202, started.text
        job = web.wait(f"/api/jobs/{started.json()['id']}", "running")
        assert job["status"] == "done", job
        assert "after 1 epochs" in job["detail"]
        trained = web.jobs.find(job["id"]).served.detector
        assert trained.labels == ("high", "low")
        assert "from" in str(trained.bundle.training).lower()
        assert web.client.post(f"/api/jobs/{job['id']}/adopt").status_code == 204
        for recording in web.service.library:
            own = web.wait(f"/api/recordings/{recording.id}", "working")
            assert own["n_events"] == len(trained.detect(recording.path))
        assert list((web.service.library.state / "work").glob("job-*")) == []

    def test_the_detail_of_a_training_names_the_classes_that_its_model_loses(self, model):
        with running(model) as web:
            for name in ("a.wav", "b.wav", "c.wav", "d.wav"):
                path = f"/api/recordings/{web.upload(wav(4.0), name)['id']}/corrections"
                body = {"events": sent([Event(0, 1, "low")]), "checked": "events"}
                web.client.put(path, json=body)
            started = web.client.post("/api/train", json={"max_epochs": 1})
            job = web.wait(f"/api/jobs/{started.json()['id']}", "running")
            assert job["status"] == "done", job
            assert "The new model will not know high" in job["detail"]

    def test_a_job_can_be_stopped(self, corrected):
        web, _, _ = corrected
        id = web.client.post("/api/train", json={"max_epochs": 9999}).json()["id"]
        assert web.client.post(f"/api/jobs/{id}/adopt").status_code == 409
        assert web.client.delete(f"/api/jobs/{id}").status_code == 204
        job = web.wait(f"/api/jobs/{id}", "running")
        assert job["status"] == "stopped"
        process = web.jobs.find(id).process
        assert process is None or process.poll() is not None
        assert next(own["id"] for own in web.client.get("/api/jobs").json()) == id

    @pytest.fixture
    def commands(self, monkeypatch):
        """The arguments of each job, and the table that it wrote; no command is run."""
        found = []

        def note(jobs, job, arguments):
            option = "--valid" if job.kind == "tune" else "--train"
            table = Path(arguments[arguments.index(option) + 1]).read_text()
            found.append((arguments, table))
            return 1

        monkeypatch.setattr(Jobs, "_run_process", note)
        return found

    def finish(self, web, kind):
        started = web.client.post(f"/api/{kind}")
        assert started.status_code == 202, started.text
        return web.wait(f"/api/jobs/{started.json()['id']}", "running")

    def test_its_tables_are_those_that_are_downloaded(self, corrected, commands):
        web, _, _ = corrected
        strong, weak = (
            web.client.get(f"/api/corrections/{x}.tsv").text for x in ("strong", "weak")
        )
        self.finish(web, "tune")
        self.finish(web, "train")
        assert [table for _, table in commands] == [strong, weak]

    def test_its_command_knows_where_the_encoder_was_moved(self, corrected, commands, monkeypatch):
        web, _, _ = corrected
        moved = replace(web.service.model, encoder=Path("moved.toml"))
        monkeypatch.setattr(web.service, "model", moved)
        for kind in ("tune", "train"):
            self.finish(web, kind)
        for arguments, _ in commands:
            assert arguments[arguments.index("--encoder") + 1] == "moved.toml"

    def test_a_correction_replaces_the_tags_of_the_same_recording_in_the_table_of_the_service(
        self, model, tmp_path, commands
    ):
        table = tmp_path / "tags.tsv"
        table.write_text("filename\tevent_labels\na.wav\thigh\nb.wav\thigh\n")
        library = tmp_path / "library"
        library.mkdir()
        for name in ("a.wav", "b.wav"):
            (library / name).write_bytes(wav(4.0))
        with running(model, library, base=(table, library)) as web:
            for own in web.client.get("/api/recordings").json():
                web.wait(f"/api/recordings/{own['id']}", "working")
                if own["name"] == "a.wav":
                    body = {"events": None, "tags": {"low": True}, "checked": "tags"}
                    path = f"/api/recordings/{own['id']}/corrections"
                    assert web.client.put(path, json=body).status_code == 200
            job = self.finish(web, "train")
            assert "1 clips of tags.tsv are added." in job["log"]
        ((_, text),) = commands
        assert text.splitlines()[1:] == [f"{library / 'b.wav'}\thigh", "a.wav\tlow"]

    def test_long_recordings_are_cut_after_the_answer_and_that_can_be_stopped(
        self, model, monkeypatch
    ):
        begun, go_on = threading.Event(), threading.Event()
        cut = training_clips._cut

        def slowly(*arguments):
            for found in cut(*arguments):
                begun.set()
                assert go_on.wait(60)
                yield found

        monkeypatch.setattr(training_clips, "_cut", slowly)
        with running(model) as web:
            own = web.upload(wav(30.0))
            body = {"events": sent([Event(0, 1, "low")]), "checked": "events"}
            web.client.put(f"/api/recordings/{own['id']}/corrections", json=body)
            started = web.client.post("/api/train")  # answers before anything is cut
            assert started.status_code == 202
            assert begun.wait(60)
            path = f"/api/jobs/{started.json()['id']}"
            assert web.client.get(path).json()["status"] == "running"
            web.client.delete(path)
            go_on.set()
            job = web.wait(path, "running")
            assert job["status"] == "stopped"
            assert job["log"] == []  # no command was run

    def test_the_command_of_a_job_ends_with_the_process_that_started_it(self, model, tmp_path):
        """Also if that process is killed, which closes the pipe between them."""
        command = [sys.executable, "-m", "earmark.web.job_process", "serve", str(model)]
        process = subprocess.Popen(
            [*command, "--port", "0", "--library", str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout.readline().startswith("small.earmark: http://")
            process.communicate(timeout=100)  # closes its standard input
        finally:
            process.kill()
        assert process.returncode in (0, 130)  # 130 if it had not begun to serve
        assert not (tmp_path / ".earmark" / "work").exists()

    def test_without_corrections_there_is_nothing_to_learn_from(self, model):
        with running(model) as web:
            own = web.upload(wav(4.0))
            for kind in ("tune", "train"):
                answer = web.client.post(f"/api/{kind}")
                assert answer.status_code == 409
                assert "correct a recording first" in answer.json()["detail"]
            path = f"/api/recordings/{own['id']}/corrections"
            web.client.put(path, json={"events": []})
            assert "events somebody checked" in web.client.post("/api/tune").text
            assert "tags somebody checked" in web.client.post("/api/train").text
            web.client.put(path, json={"events": [], "checked": "events"})
            assert "no event of the model's classes" in web.client.post("/api/tune").text
            assert "confirm one" in web.client.post("/api/train").text
            body = {"events": sent([Event(0, 1, "low")]), "checked": "events"}
            web.client.put(path, json=body)
            assert "two recordings or more" in web.client.post("/api/tune").text
            answer = web.client.post("/api/tune", json={"objective": "f_mesure"})
            assert "did you mean 'f_measure'" in answer.json()["detail"]
            assert web.client.get("/api/jobs/none").status_code == 404
            with pytest.raises(RequestError):
                web.jobs.find("none")


class TestAdoption:
    """Models of jobs are made by copying the first one, which takes no time."""

    @pytest.fixture
    def tuned(self, monkeypatch):
        def copy(jobs, job, arguments):
            shutil.copy(arguments[arguments.index("--model") + 1], job.model)
            return 0

        monkeypatch.setattr(Jobs, "_run_process", copy)

    def tune(self, web):
        started = web.client.post("/api/tune").json()
        job = web.wait(f"/api/jobs/{started['id']}", "running")
        assert job["status"] == "done", job
        return job

    def check_two(self, web):
        for name in ("a.wav", "b.wav"):
            path = f"/api/recordings/{web.upload(wav(2.0), name)['id']}/corrections"
            body = {"events": sent([Event(0, 1, "low")]), "checked": "events"}
            assert web.client.put(path, json=body).status_code == 200

    def test_an_adopted_model_is_used_after_a_restart_with_the_same_model(
        self, model, tmp_path, tuned
    ):
        library = tmp_path / "library"
        with running(model, library) as web:
            self.check_two(web)
            assert web.client.delete("/api/model/adopted").status_code == 409
            web.client.post(f"/api/jobs/{self.tune(web)['id']}/adopt")
            name = web.client.get("/api/model").json()["name"]
            assert name.startswith("small-tune-")
        with running(model, library) as web:
            about = web.client.get("/api/model").json()
            assert (about["name"], about["first"]) == (name, "small.earmark")
        other = write_model(tmp_path, "other.earmark", mean=-7.0)
        with running(other, library) as web:
            assert web.client.get("/api/model").json()["name"] == "other.earmark"
        with running(model, library) as web:
            assert web.client.get("/api/model").json()["name"] == name
            assert web.client.delete("/api/model/adopted").status_code == 204
            assert web.client.get("/api/model").json()["name"] == "small.earmark"
        with running(model, library) as web:
            assert web.client.get("/api/model").json()["name"] == "small.earmark"
        assert list((library / ".earmark" / "models").iterdir()) == []

    def test_the_adopted_model_and_that_of_the_last_job_are_kept(self, model, tmp_path, tuned):
        with running(model, tmp_path) as web:
            self.check_two(web)
            first, second, third = (self.tune(web) for _ in range(3))
            (left,) = (tmp_path / ".earmark" / "models").iterdir()
            assert third["id"] in left.name
            answer = web.client.post(f"/api/jobs/{first['id']}/adopt")
            assert answer.status_code == 409
            assert "It was deleted" in answer.json()["detail"]
            assert web.client.get(f"/api/jobs/{second['id']}/model").status_code == 409
            web.client.post(f"/api/jobs/{third['id']}/adopt")
            fourth, fifth = self.tune(web), self.tune(web)
            kept = {path.name for path in (tmp_path / ".earmark" / "models").iterdir()}
            assert kept == {f"small-tune-{own['id']}.earmark" for own in (third, fifth)}
            assert fourth["id"] not in str(kept)

    def test_an_adopted_model_that_is_gone_is_reported_and_the_first_one_used(
        self, model, tmp_path, tuned, caplog
    ):
        with running(model, tmp_path) as web:
            self.check_two(web)
            web.client.post(f"/api/jobs/{self.tune(web)['id']}/adopt")
        (file,) = (tmp_path / ".earmark" / "models").iterdir()
        file.unlink()
        with running(model, tmp_path) as web:
            assert web.client.get("/api/model").json()["name"] == "small.earmark"
        assert "The adopted model is not used" in caplog.text

    def test_a_model_that_a_full_disk_does_not_keep_is_not_used(
        self, model, tmp_path, tuned, monkeypatch
    ):
        def full(*arguments):
            raise OSError(errno.ENOSPC, "No space left on device")

        with running(model, tmp_path) as web:
            self.check_two(web)
            job = self.tune(web)
            monkeypatch.setattr("earmark.web.jobs.keep_adopted", full)
            assert web.client.post(f"/api/jobs/{job['id']}/adopt").status_code >= 500
            assert web.client.get("/api/model").json()["name"] == "small.earmark"
            assert web.client.get(f"/api/jobs/{job['id']}").json()["adopted"] is False

    def test_a_model_of_a_job_can_be_served_by_its_path_and_is_kept(self, model, tmp_path, tuned):
        library = tmp_path / "library"
        with running(model, library) as web:
            self.check_two(web)
            kept = web.jobs.find(self.tune(web)["id"]).model
        with running(kept, library) as web:
            web.client.post(f"/api/jobs/{self.tune(web)['id']}/adopt")
            self.tune(web)
            assert kept.exists()
            assert web.client.delete("/api/model/adopted").status_code == 204
            assert web.client.get("/api/model").json()["name"] == kept.name

    def test_corrections_count_while_their_recordings_are_analysed_again(self, model, tuned):
        with running(model) as web:
            self.check_two(web)
            for recording in web.service.library:  # as after a model was adopted
                recording.status, recording.expected = "working", None
            self.tune(web)
            assert len(web.service.tables().strong) == 2
            for recording in web.service.library:
                recording.status = "failed"
            assert "correct a recording first" in web.client.post("/api/tune").text

    def test_a_file_that_is_gone_is_named_though_a_model_was_adopted_in_its_place(
        self, model, tmp_path, tuned
    ):
        first = Path(shutil.copy(model, tmp_path))
        with running(first, tmp_path / "library") as web:
            self.check_two(web)
            web.client.post(f"/api/jobs/{self.tune(web)['id']}/adopt")
        first.unlink()
        with (
            Library(tmp_path / "library") as library,
            pytest.raises(BundleError, match="There is no model file"),
        ):
            open_model(library, first)

    def test_everyday_is_served_as_the_file_that_a_model_can_be_adopted_in_place_of(
        self, monkeypatch
    ):
        asked = []

        def note(library, first, *settings):
            asked.append(first)
            raise KeyboardInterrupt

        monkeypatch.setattr("earmark.web.serve.open_model", note)
        with pytest.raises(KeyboardInterrupt):
            serve(Path("everyday"), Settings(port=0))
        assert asked == [BUNDLED]


def test_an_event_that_moves_a_little_is_no_change():
    before = [Event(0, 1, "dog"), Event(2, 3, "cat")]
    change = find_change(before, [Event(0.2, 1.1, "dog"), Event(2.8, 4, "cat")])
    assert change.added == [Event(2.8, 4, "cat")]
    assert change.removed == [Event(2, 3, "cat")]
    assert find_change([], []).added == []
