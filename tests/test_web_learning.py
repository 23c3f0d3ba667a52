"""Corrections become tables that the commands take, and jobs that learn from them."""

import io
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from services import running, wav, write_model
from tones import RATE, make_tone_clip, random_events

from earmark.data.manifest import Manifest
from earmark.formats.events import Event, read_events
from earmark.inference.detector import Detector
from earmark.training.api import tune
from earmark.web.changes import find_change
from earmark.web.corrections import Correction
from earmark.web.limits import RequestError
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
            answer = web.client.put(path, json={"events": sent(events)})
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
        assert answer == {"events": detected["events"], "tags": {}, "corrected": False,
                          "events_checked": False}  # fmt: skip
        body = {
            "events": [{"onset": 1, "offset": 99, "event_label": "cow"}],
            "tags": {"low": False},
        }
        assert web.client.put(f"{path}/corrections", json=body).status_code == 200
        assert web.client.get(path).json()["corrected"] is True
        answer = web.client.get(f"{path}/corrections").json()
        cow = {"onset": 1.0, "offset": 4.0, "event_label": "cow", "score": None}
        assert answer == {"events": [cow], "tags": {"low": False}, "corrected": True,
                          "events_checked": True}  # fmt: skip
        exported = web.client.get(f"{path}/export?format=csv").text
        assert exported == "filename,onset,offset,event_label\na.wav,1.000,4.000,cow\n"
        assert web.client.delete(f"{path}/corrections").status_code == 204
        assert web.client.get(path).json()["corrected"] is False

    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            ({}, "events: Field required."),
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

    def test_a_rejected_tag_removes_its_events_and_a_confirmed_one_without_events_is_no_strong_row(
        self, own
    ):
        web, path = own
        events = sent([Event(0, 1, "low"), Event(2, 3, "high")])
        web.client.put(f"{path}/corrections", json={"events": events, "tags": {"high": False}})
        strong, weak = (
            web.client.get(f"/api/corrections/{x}.tsv").text for x in ("strong", "weak")
        )
        assert strong.splitlines()[1:] == ["a.wav\t0.000\t1.000\tlow"]
        assert weak.splitlines()[1:] == ["a.wav\tlow"]
        web.client.put(f"{path}/corrections", json={"events": [], "tags": {"high": True}})
        strong, weak = (
            web.client.get(f"/api/corrections/{x}.tsv").text for x in ("strong", "weak")
        )
        assert strong.splitlines()[1:] == []
        assert weak.splitlines()[1:] == ["a.wav\thigh"]
        body = {"events": events, "tags": {"high": True}, "events_checked": False}
        web.client.put(f"{path}/corrections", json=body)
        assert web.client.get("/api/corrections/strong.tsv").text.splitlines()[1:] == []


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
        own = Correction([Event(4.5, 5.0, "low"), Event(7.9, 9.0, "high")])
        rows, notes = training_rows({"long.wav": (long, 12.0, own)}, 2.0, tmp_path)
        assert sorted(rows.values()) == [(), (), (), (), ("high",), ("low",)]
        (low,) = [path for path, tags in rows.items() if tags == ("low",)]
        samples, _ = soundfile.read(low)
        assert len(samples) == 2 * RATE
        assert samples[0] == pytest.approx(4 / 12, abs=1e-3)
        assert notes == []
        unknown = Correction([], {"low": True})
        rows, notes = training_rows({"long.wav": (long, 12.0, unknown)}, 2.0, tmp_path)
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
                web.client.put(path, json={"events": sent([Event(0, 1, "low")])})
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
        assert web.jobs.find(id).process.poll() is not None
        assert next(own["id"] for own in web.client.get("/api/jobs").json()) == id

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
            assert "no event of the model's classes" in web.client.post("/api/tune").text
            assert "confirm one" in web.client.post("/api/train").text
            web.client.put(path, json={"events": sent([Event(0, 1, "low")])})
            assert "two recordings or more" in web.client.post("/api/tune").text
            answer = web.client.post("/api/tune", json={"objective": "f_mesure"})
            assert "did you mean 'f_measure'" in answer.json()["detail"]
            assert web.client.get("/api/jobs/none").status_code == 404
            with pytest.raises(RequestError):
                web.jobs.find("none")


def test_an_event_that_moves_a_little_is_no_change():
    before = [Event(0, 1, "dog"), Event(2, 3, "cat")]
    change = find_change(before, [Event(0.2, 1.1, "dog"), Event(2.8, 4, "cat")])
    assert change.added == [Event(2.8, 4, "cat")]
    assert change.removed == [Event(2, 3, "cat")]
    assert find_change([], []).added == []
