"""The service: what it answers about recordings, equal to what the library computes."""

import errno
import io
import json
import re
import threading
from dataclasses import replace

import httpx
import numpy as np
import pytest
import soundfile
from services import LABELS, RATE, frames, running, sound, wav, write_model

from earmark.formats.registry import EVENT_FORMATS
from earmark.inference.decoding import Decoding
from earmark.inference.detector import Detector
from earmark.inference.model_file import load_bundle, save_bundle
from earmark.web import service as service_module
from earmark.web.library import Library
from earmark.web.served_model import ServedModel


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def detector(model):
    return Detector.load(model, threads=1)


@pytest.fixture(scope="module")
def web(model):
    with running(model, max_duration=120.0, max_upload=4 << 20) as found:
        yield found


@pytest.fixture(scope="module")
def recording(web):
    return web.upload(wav(9.0), "street.wav")


def rows(events):
    return [(e["onset"], e["offset"], e["event_label"], e["score"]) for e in events]


def expected(events):
    return [(e.onset, e.offset, e.label, e.score) for e in events]


class TestDetect:
    def test_finds_what_the_detector_finds(self, web, detector):
        content = wav(9.0, seed=5)
        answer = web.client.post("/detect", files={"file": ("dir/a b.wav", content)})
        assert answer.status_code == 200
        assert answer.json()["filename"] == "dir/a b.wav"
        assert answer.json()["duration"] == 9.0
        found = detector.detect(io.BytesIO(content))
        assert len(found) > 3
        assert rows(answer.json()["events"]) == expected(found)

    def test_takes_the_settings_of_the_command_line(self, web, detector):
        content = wav(9.0)
        query = {"sensitivity": "high", "min_score": 0.6, "classes": "low"}
        answer = web.client.post("/detect", params=query, content=content)
        found = detector.detect(io.BytesIO(content), sensitivity="high", min_score=0.6)
        assert rows(answer.json()["events"]) == expected(e for e in found if e.label == "low")

    @pytest.mark.parametrize("form", ["FLAC", "OGG", "MP3", "AIFF"])
    def test_reads_other_formats(self, web, form):
        content = wav(2.0, form=form, rate=32000)
        assert web.client.post("/detect", content=content).json()["duration"] == pytest.approx(
            0.5, abs=0.1
        )

    @pytest.mark.parametrize(
        ("query", "content", "status", "sentence"),
        [
            ({}, b"This is a letter.", 422, r"^a\.wav is not audio in a supported format"),
            ({}, b"", 422, "empty"),
            ({}, wav()[:30000], 422, "truncated"),
            ({"sensitivity": "hihg"}, wav(), 422, "did you mean 'high'"),
            ({"sensitivity": "nan"}, wav(), 422, "sensitivity must be a number"),
            ({"min_score": "2"}, wav(), 422, "min_score: "),
            ({"classes": "hihg"}, wav(), 422, "did you mean 'high'"),
        ],
    )
    def test_says_in_one_sentence_what_is_wrong(self, web, query, content, status, sentence):
        files = {"file": ("a.wav", content)}
        answer = web.client.post("/detect", params=query, files=files)
        assert answer.status_code == status
        assert re.search(sentence, answer.json()["detail"])
        assert "/tmp" not in answer.json()["detail"]

    def test_a_recording_that_is_too_long_is_refused(self, web):
        content = wav(121.0)
        assert len(content) < web.service.limits.max_upload
        answer = web.client.post("/detect", content=content)
        assert answer.status_code == 413
        assert "longer than 2 minutes" in answer.json()["detail"]

    @pytest.mark.parametrize("form", [True, False])
    def test_a_recording_that_is_too_large_is_refused(self, web, form):
        content = bytes(5 << 20)
        body = {"files": {"file": ("a.wav", content)}} if form else {"content": content}
        answer = web.client.post("/detect", **body)
        assert answer.status_code == 413
        assert "larger than 4 MB" in answer.json()["detail"]

    def test_a_body_without_a_length_that_is_too_large_is_refused(self, web):
        answer = web.client.post("/detect", content=(bytes(1 << 20) for _ in range(5)))
        assert answer.status_code == 413

    def test_leaves_no_file_behind(self, web):
        web.client.post("/detect", content=wav())
        web.client.post("/detect", content=b"nothing")
        assert list((web.service.library.state / "work").iterdir()) == []

    @pytest.mark.parametrize(
        "form",
        [
            b'--x\r\nContent-Disposition: form-data; name="other"\r\n\r\na\r\n--x--\r\n',
            b'--x\r\nContent-Disposition: form-data; name="file"\r\n\r\n' + wav(),
            b"--x\r\n" + b"a: b\r\n" * 5000,
            b"nothing of a form",
            b"--x\r\n" + b"a" * 20000,
        ],
    )
    def test_a_form_that_is_no_form_is_refused(self, web, form):
        headers = {"content-type": "multipart/form-data; boundary=x"}
        answer = web.client.post("/detect", content=form, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["detail"].endswith(".")


class TestRecordings:
    def test_an_upload_is_analysed_at_once(self, web, recording, detector):
        assert recording["status"] == "ready"
        assert recording["duration"] == 9.0
        found = detector.detect(io.BytesIO(wav(9.0)))
        assert recording["n_events"] == len(found)
        assert 0 <= recording["uncertainty"] <= 1
        assert recording["id"] in {own["id"] for own in web.client.get("/api/recordings").json()}

    def test_the_most_uncertain_come_first(self, web, recording):
        web.upload(wav(3.0, seed=9), "other.wav")
        unsure = [own["uncertainty"] for own in web.client.get("/api/recordings").json()]
        assert unsure == sorted(unsure, reverse=True)
        assert len(set(unsure)) > 1

    @pytest.mark.parametrize(
        ("name", "kept"),
        [
            ("../../evil.wav", "evil.wav"),
            ("C:\\temp\\evil2.wav", "evil2.wav"),
            ("/etc/evil3.wav", "evil3.wav"),
            (".earmark/x.wav", "x.wav"),
            ("..", "recording.wav"),
            ("no suffix", "no suffix.wav"),
            ("a\nb\t.wav", "ab.wav"),
            ("Küche 42.wav", "Küche 42.wav"),
            ("x" * 300 + ".wav", "x" * 100 + ".wav"),
        ],
    )
    def test_a_name_never_leaves_the_library(self, web, name, kept):
        answer = web.client.post("/api/recordings", params={"filename": name}, content=wav(1.0))
        assert answer.status_code == 201, answer.text
        assert answer.json()["name"] == kept
        folder = web.service.library.folder
        assert (folder / kept).read_bytes() == wav(1.0)
        assert web.client.delete(f"/api/recordings/{answer.json()['id']}").status_code == 204
        assert not (folder / kept).exists()

    def test_two_recordings_of_one_name_are_both_kept(self, web):
        found = [web.upload(wav(1.0, seed=seed), "Twice.wav") for seed in (1, 2)]
        assert [own["name"] for own in found] == ["Twice.wav", "Twice_2.wav"]
        third = web.upload(wav(1.0, form="FLAC"), "twice.flac")  # tables ignore case and suffix
        assert third["name"] == "twice_3.flac"

    def test_what_is_no_audio_is_not_kept(self, web):
        before = len(web.client.get("/api/recordings").json())
        answer = web.client.post("/api/recordings", files={"file": ("a.wav", b"a letter")})
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith("a.wav is not audio")
        damaged = wav(3.0, form="FLAC")
        damaged = damaged[: len(damaged) // 2]
        answer = web.client.post("/api/recordings", files={"file": ("b.flac", damaged)})
        assert answer.status_code == 422
        assert len(web.client.get("/api/recordings").json()) == before

    def test_an_unknown_recording_is_404(self, web):
        for path in ("", "/audio", "/tile", "/scores", "/hierarchy?label=low", "/export"):
            answer = web.client.get(f"/api/recordings/0000{path}")
            assert answer.status_code == 404
            assert answer.json()["detail"].startswith("There is no such recording")

    def test_the_audio_is_the_file_and_can_be_asked_for_in_parts(self, web, recording):
        path = f"/api/recordings/{recording['id']}/audio"
        whole = web.client.get(path)
        assert whole.content == wav(9.0)
        assert whole.headers["content-type"] == "audio/wav"
        part = web.client.get(path, headers={"range": "bytes=100-199"})
        assert part.status_code == 206
        assert part.content == wav(9.0)[100:200]
        beyond = web.client.get(path, headers={"range": "bytes=99999999-"})
        assert beyond.status_code == 416

    def test_audio_that_browsers_do_not_know_is_sent_as_wav(self, web):
        own = web.upload(wav(2.0, form="AIFF"), "a.aiff")
        answer = web.client.get(f"/api/recordings/{own['id']}/audio")
        assert answer.headers["content-type"] == "audio/wav"
        samples, rate = soundfile.read(io.BytesIO(answer.content))
        assert rate == RATE
        np.testing.assert_allclose(samples, sound(2.0), atol=1e-4)

    @pytest.mark.parametrize("codec", ["IMA_ADPCM", "GSM610", "DOUBLE"])
    def test_a_wav_with_a_codec_that_browsers_do_not_know_is_sent_as_pcm(self, web, codec):
        file = io.BytesIO()
        soundfile.write(file, sound(2.0), RATE, codec, format="WAV")
        own = web.upload(file.getvalue(), "coded.wav")
        answer = web.client.get(f"/api/recordings/{own['id']}/audio")
        assert soundfile.info(io.BytesIO(answer.content)).subtype == "PCM_16"

    def test_events_follow_the_settings(self, web, recording, detector):
        path = f"/api/recordings/{recording['id']}/events"
        scores = detector.frame_scores(io.BytesIO(wav(9.0)))
        own = web.client.post(path, json={}).json()
        assert rows(own["events"]) == expected(detector.decode(scores))
        high = web.client.post(path, json={"sensitivity": 2.0, "min_score": 0.4}).json()
        decoded = detector.decode(scores, sensitivity=2.0, min_score=0.4)
        assert rows(high["events"]) == expected(decoded)
        assert high["thresholds"]["low"] == pytest.approx(0.119, abs=0.001)
        rules = {"threshold": 0.99, "max_gap": 2.0, "min_duration": 1.0}
        few = web.client.post(path, json={"rules": rules, "classes": ["low"]}).json()["events"]
        assert all(e["event_label"] == "low" and e["offset"] - e["onset"] >= 1 for e in few)
        passed = {"rules": {"threshold": 0.4, "low_threshold": 0.9}}  # sliders pass each other
        same = {"rules": {"threshold": 0.4, "low_threshold": 0.4}}
        found = [web.client.post(path, json=body).json() for body in (passed, same)]
        assert found[0] == found[1]
        body = {"class_rules": {"low": {"threshold": 1.0}}}
        assert web.client.post(path, json=body).json()["thresholds"] == {"low": 1.0, "high": 0.5}

    @pytest.mark.parametrize(
        "body",
        [
            {"rules": {"treshold": 0.5}},
            {"rules": {"threshold": 0}},
            {"sensitivity": "very"},
            {"sensitivity": 1e9},
            {"min_score": 7},
            {"classes": ["cow"]},
            {"class_rules": {"cow": {}}},
            [],
        ],
    )
    def test_wrong_settings_are_refused(self, web, recording, body):
        answer = web.client.post(f"/api/recordings/{recording['id']}/events", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"].endswith((".", "?"))

    def test_scores_are_the_lowest_and_highest_of_each_point(self, web, recording, detector):
        scores = detector.frame_scores(io.BytesIO(wav(9.0))).scores
        path = f"/api/recordings/{recording['id']}/scores"
        fine = web.client.get(path, params={"points": 4000}).json()
        assert fine["labels"] == list(LABELS)
        np.testing.assert_allclose(np.array(fine["low"]).T, scores, atol=1e-4)
        assert fine["low"] == fine["high"]
        some = web.client.get(path, params={"points": 4000, "labels": ["low"]}).json()
        assert (some["labels"], some["low"]) == (["low"], fine["low"][1:])
        assert web.client.get(path, params={"labels": ["cow"]}).status_code == 422
        coarse = web.client.get(path, params={"points": 10, "start": 2.0, "end": 8.0}).json()
        first = round(coarse["start"] / 0.08)
        width = round(coarse["step"] / 0.08)
        assert len(coarse["low"][0]) <= 11
        assert coarse["start"] <= 2.0
        for at in range(len(coarse["low"][0])):
            part = scores[first + at * width : min(100, first + (at + 1) * width), 1]
            assert coarse["high"][1][at] == pytest.approx(part.max(), abs=1e-4)
            assert coarse["low"][1][at] == pytest.approx(part.min(), abs=1e-4)

    def test_tiles_show_the_log_mel_low_frequencies_at_the_bottom(self, web):
        time = np.arange(12 * RATE) / RATE
        wave = np.where(time < 6, np.sin(2 * np.pi * 300 * time), np.sin(2 * np.pi * 3500 * time))
        file = io.BytesIO()
        soundfile.write(file, 0.5 * wave, RATE, format="WAV")
        own = web.upload(file.getvalue(), "steps.wav")
        path = f"/api/recordings/{own['id']}/tile"
        model = web.client.get("/api/model").json()
        assert model["tile_seconds"] == 5.12
        assert own["n_tiles"] == 3
        first = frames(web.client.get(path, params={"level": 0, "index": 0}).content)
        assert first.shape == (model["n_mels"], 256)
        assert first[8:].max() > 200 > first[:4].max()  # a low tone only
        half = frames(web.client.get(path, params={"level": 1, "index": 0}).content)
        np.testing.assert_array_equal(half[:, :128], first.reshape(-1, 128, 2).max(axis=2))
        second = frames(web.client.get(path, params={"level": 0, "index": 1}).content)
        assert second[:4, 100:].max() > 200
        last = frames(web.client.get(path, params={"level": 0, "index": 2}).content)
        assert last[:, 600 - 512 :].max() == 0  # after the end
        far = frames(web.client.get(path, params={"level": 6, "index": 0}).content)
        assert far[:, :9].max() > 200
        assert far[:, 10:].max() == 0
        assert web.client.get(path, params={"level": 0, "index": 3}).status_code == 404
        assert web.client.get(path, params={"level": 99, "index": 0}).status_code == 422

    def test_a_tile_that_has_not_changed_is_not_sent_again(self, web, recording):
        path = f"/api/recordings/{recording['id']}/tile"
        etag = web.client.get(path).headers["etag"]
        assert web.client.get(path, headers={"if-none-match": etag}).status_code == 304

    @pytest.mark.parametrize("format", EVENT_FORMATS)
    def test_events_are_exported_in_every_format(self, web, recording, format, tmp_path):
        path = f"/api/recordings/{recording['id']}/export"
        answer = web.client.get(path, params={"format": format})
        assert answer.status_code == 200
        suffix = EVENT_FORMATS[format].suffixes[0]
        assert f"street{suffix}" in answer.headers["content-disposition"]
        file = tmp_path / f"street{suffix}"
        file.write_bytes(answer.content)
        (events,) = EVENT_FORMATS[format].read(file).values()
        assert len(events) == recording["n_events"]


@pytest.fixture(scope="module", params=[(), (5, 5)], ids=["single-level", "hierarchical"])
def found(request, tmp_path_factory):
    model = write_model(tmp_path_factory.mktemp("model"), stages=request.param)
    with running(model) as web:
        own = web.upload(wav(9.0))
        query = {"label": "low", "time": 6.0}
        path = f"/api/recordings/{own['id']}/hierarchy"
        yield web.client.get(path, params=query).json(), model, request.param


class TestHierarchy:
    def test_the_levels_go_from_frames_to_the_clip(self, found):
        levels = found[0]["hierarchical"]["levels"]
        assert [level["n"] for level in levels] == [50, 10, 2, 1]
        assert (found[0]["start"], found[0]["end"]) == (4.0, 8.0)

    def test_weights_sum_to_one_and_explain_every_score(self, found):
        answer, _, _ = found
        levels = answer["hierarchical"]["levels"]
        for level, parent, length in zip(levels, levels[1:], (5, 5, 2), strict=False):
            weights = np.array(level["weights"]).reshape(-1, length)
            scores = np.array(level["scores"]).reshape(-1, length)
            np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-4)
            pooled = (weights * scores).sum(axis=1)
            np.testing.assert_allclose(pooled, parent["scores"], atol=1e-4)
        single = answer["single"]
        frame_scores = np.array(levels[0]["scores"])
        assert single["clip"] == pytest.approx((single["weights"] * frame_scores).sum(), abs=1e-4)

    def test_the_pooling_of_the_model_gives_the_clip_score_of_the_network(self, found):
        answer, model, stages = found
        part = sound(9.0)[4 * RATE : 8 * RATE]
        file = io.BytesIO()
        soundfile.write(file, part, RATE, format="WAV")
        wanted = Detector.load(model, threads=1).tags(file)["low"]
        own = answer["hierarchical" if stages else "single"]["clip"]
        assert own == pytest.approx(wanted, abs=1e-4)


def test_the_model_is_described(web, detector):
    about = web.client.get("/api/model").json()
    assert about["labels"] == list(LABELS)
    assert about["frame_rate"] == 12.5
    assert about["window"] == 4.0
    assert about["decoding"]["low"]["threshold"] == detector.bundle.decoding["low"].threshold
    assert about["sensitivities"] == {"low": -1, "normal": 0, "high": 1}
    assert about["limits"]["max_duration"] == 120
    assert about["temporary_library"] is True
    assert web.client.get("/health").json() == {
        "status": "ok", "version": "test", "model": "small.earmark",
    }  # fmt: skip


def test_the_page_of_the_api_names_every_endpoint_and_loads_nothing_from_elsewhere(web):
    page = web.client.get("/docs").text
    described = web.client.get("/openapi.json").json()
    assert "/detect" in described["paths"]
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<span>{method.upper()}</span> {path}</h2>" in page
    assert not re.findall(r"(?:src|href)=.?(?:https?:)?//", page)
    assert "<script" not in page
    assert web.client.get("/docs/style.css").headers["content-type"].startswith("text/css")


def test_the_page_comes_from_the_service(web):
    page = web.client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    targets = re.findall(r'(?:src|href)="(page/[^"]+)"', page.text)
    assert len(targets) > 20
    for target in targets:
        assert web.client.get(f"/{target}").status_code == 200
    for path in (
        "/page/../app.py",
        "/page/%2e%2e/app.py",
        "/page//etc/passwd",
        "/page/..%2fapp.py",
    ):
        url = httpx.URL(f"http://127.0.0.1:{web.access.port}").copy_with(raw_path=path.encode())
        assert web.client.get(url).status_code == 404


def test_an_id_is_never_a_path(web, recording):
    folder = web.service.library.folder
    secret = folder.parent / f"{folder.name}-secret.wav"
    secret.write_bytes(wav(1.0))
    try:
        up = "%2e%2e%2f" + secret.name
        full = str(secret).replace("/", "%2f")
        for id in (up, full, "..%2f" * 8 + "etc%2fpasswd", f"{recording['id']}%2f{up}", "%00"):
            for path in (
                f"/api/recordings/{id}/audio",
                f"/api/recordings/{id}",
                f"/api/jobs/{id}/model",
            ):
                url = httpx.URL(f"http://127.0.0.1:{web.access.port}")
                url = url.copy_with(raw_path=path.encode())
                assert web.client.get(url).status_code == 404, path
                assert web.client.delete(url).status_code in (404, 405), path
        assert secret.exists()
    finally:
        secret.unlink(missing_ok=True)


def test_a_full_disk_is_said_and_costs_nothing(web, monkeypatch):
    def full(self, *arguments):
        raise OSError(errno.ENOSPC, "No space left on device", "/secret/path")

    before = web.client.get("/api/recordings").json()
    with monkeypatch.context() as patch:
        patch.setattr(Library, "add", full)
        answer = web.client.post("/api/recordings", content=wav(1.0))
        assert answer.status_code == 503
        assert answer.json()["detail"] == "The service cannot do it now: No space left on device."
    assert web.client.get("/api/recordings").json() == before
    assert list((web.service.library.state / "work").iterdir()) == []


def test_every_error_is_one_sentence_of_json(web):
    for method, path in (("GET", "/nothing"), ("PATCH", "/health"), ("POST", "/api/model")):
        answer = web.client.request(method, path)
        assert answer.status_code in (404, 405)
        assert isinstance(json.loads(answer.content)["detail"], str)


def test_a_recording_of_many_blocks_has_the_scores_of_the_whole(model, detector):
    """Written piece by piece, scores and tiles are those of one pass over all."""
    with running(model) as web:
        content = wav(100.0)
        own = web.upload(content, "long.wav")
        scores = detector.frame_scores(io.BytesIO(content))
        kept = web.service.scores(own["id"])[1]
        np.testing.assert_array_equal(kept.scores, scores.scores)
        np.testing.assert_array_equal(kept.clip_scores, scores.clip_scores)
        analysis = web.service.library.find(own["id"]).analysis
        assert analysis.spectrogram().shape == (5000, 16)
        high = np.pad(analysis.spectrogram(), ((0, 157 * 32 - 5000), (0, 0)))
        blocks = high.reshape(157, 32, 16).max(axis=1)
        np.testing.assert_array_equal(analysis.spectrogram(overview=True), blocks)


def test_a_label_that_is_asked_for_twice_is_sent_once(web, recording):
    path = f"/api/recordings/{recording['id']}/scores"
    found = web.client.get(path, params={"labels": ["low"] * 1000}).json()
    assert found["labels"] == ["low"]
    assert len(found["high"]) == 1


def test_no_error_about_a_recording_names_a_folder_of_the_machine(model, tmp_path):
    damaged = wav(4.0, form="AIFF")
    (tmp_path / "a.aiff").write_bytes(damaged)
    (tmp_path / "b\x1b.wav").write_bytes(b"RIFF nothing")
    with running(model, tmp_path) as web:
        own, odd = sorted(web.client.get("/api/recordings").json(), key=lambda x: x["name"])
        failed = web.wait(f"/api/recordings/{odd['id']}", "working")
        assert failed["detail"].startswith("b\\x1b.wav is not audio")
        answer = web.client.put(f"/api/recordings/{odd['id']}/corrections", json={"events": []})
        assert answer.status_code == 409
        assert "could not be analysed" in answer.json()["detail"]
        path = f"/api/recordings/{own['id']}"
        assert web.wait(path, "working")["status"] == "ready"
        (tmp_path / "a.aiff").write_bytes(damaged[: len(damaged) // 2])
        for what in ("audio", "hierarchy?label=low"):
            answer = web.client.get(f"{path}/{what}")
            assert answer.status_code == 422
            assert answer.json()["detail"].startswith("a.aiff is truncated")


def test_another_model_is_adopted_though_a_recording_has_vanished(model, tmp_path):
    for name in ("a.wav", "b.wav"):
        (tmp_path / name).write_bytes(wav(2.0))
    with running(model, tmp_path) as web:
        ids = {own["name"]: own["id"] for own in web.client.get("/api/recordings").json()}
        for id in ids.values():
            web.wait(f"/api/recordings/{id}", "working")
        (tmp_path / "a.wav").unlink()
        web.service.adopt(web.service.model)
        gone = web.wait(f"/api/recordings/{ids['a.wav']}", "working")
        assert (gone["status"], str(tmp_path) in gone["detail"]) == ("failed", False)
        assert web.wait(f"/api/recordings/{ids['b.wav']}", "working")["status"] == "ready"


def test_a_link_whose_recording_is_gone_fails_and_the_others_are_served(model, tmp_path):
    (tmp_path / "a.wav").write_bytes(wav(2.0))
    (tmp_path / "b.wav").symlink_to(tmp_path / "gone.wav")
    with running(model, tmp_path) as web:
        status = {}
        for own in web.client.get("/api/recordings").json():
            about = web.wait(f"/api/recordings/{own['id']}", "working")
            status[own["name"]] = (about["status"], about["detail"])
    reason = "It cannot be read: No such file or directory."
    assert status == {"a.wav": ("ready", ""), "b.wav": ("failed", reason)}


def test_no_scores_of_one_model_are_decoded_by_another_while_it_is_adopted(
    model, tmp_path, monkeypatch
):
    bundle = load_bundle(model)
    renamed = replace(bundle, labels=("a", "b"), decoding=Decoding.uniform(("a", "b"), 0.5))
    other = ServedModel.load(save_bundle(renamed, tmp_path / "other.earmark"))
    with running(model) as web:
        path = f"/api/recordings/{web.upload(wav(2.0))['id']}"
        remove, answers = web.service._remove_stale, []

        def ask_before():
            answers.append(web.client.post(f"{path}/events", json={}))
            remove()

        monkeypatch.setattr(web.service, "_remove_stale", ask_before)
        web.service.adopt(other)
        assert [answer.status_code for answer in answers] == [409], answers[0].text
        assert web.wait(path, "working")["status"] == "ready"
        found = web.client.post(f"{path}/events", json={}).json()
        assert set(found["thresholds"]) == {"a", "b"}


@pytest.mark.parametrize("kind", ["scores", "grey", "overview"])
def test_files_of_an_analysis_that_were_cut_off_are_made_again(model, tmp_path, kind):
    with running(model, tmp_path) as web:
        web.upload(wav(2.0))
        (path,) = (web.service.library.state / "scores").glob(f"*.{kind}")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with running(model, tmp_path) as web:
        (recording,) = web.client.get("/api/recordings").json()
        assert web.wait(f"/api/recordings/{recording['id']}", "working")["status"] == "ready"
    assert path.read_bytes() == content


def test_a_model_is_adopted_while_a_recording_is_analysed(model, monkeypatch):
    """The analysis that is stopped must not remove the files of the next one."""
    begun, go_on = threading.Event(), threading.Event()
    original = service_module.analyse

    def slow(detector, source, stem, watch, spectrogram=True):
        is_first = not begun.is_set()
        begun.set()
        if is_first:
            stem.with_name(f"{stem.name}.scores").write_bytes(b"")
            go_on.wait(5)  # the next one would end meanwhile
        return original(detector, source, stem, watch, spectrogram)

    monkeypatch.setattr(service_module, "analyse", slow)
    with running(model) as web:
        recording, first = web.service.add(_written(web, wav(2.0)), "a.wav")
        assert begun.wait(60)
        web.service.adopt(web.service.model)
        threading.Timer(1.0, go_on.set).start()
        first.result(60)
        found = web.wait(f"/api/recordings/{recording.id}", "working")
        assert found["status"] == "ready"
        assert web.client.get(f"/api/recordings/{recording.id}/scores").status_code == 200


def _written(web, content):
    path = web.service.library.work_path()
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("seconds", [0.01, 0.3, 5.13, 5.5])
def test_a_recording_of_any_length_has_a_spectrogram(web, seconds):
    """Pieces of few frames, as at the end of a recording, are drawn, too."""
    own = web.upload(wav(seconds), "short.wav")
    assert own["status"] == "ready"
    tile = web.client.get(f"/api/recordings/{own['id']}/tile?level=5&index=0")
    n_columns = -(-round(seconds * 50 + 0.49) // 32)
    assert frames(tile.content)[:, :n_columns].max() > 0
    assert frames(tile.content)[:, n_columns:].max() == 0
    web.client.delete(f"/api/recordings/{own['id']}")


def test_a_recording_can_be_deleted_while_it_is_analysed(model):
    with running(model) as web:
        content = wav(600.0)
        answer = web.client.post("/api/recordings", files={"file": ("a.wav", content)})
        path = f"/api/recordings/{answer.json()['id']}"
        assert web.client.delete(path).status_code == 204
        assert web.client.get(path).status_code == 404
        web.upload(wav(1.0), "b.wav")  # the workers go on
        web.service.workers.submit(lambda: None).result()
        names = {
            file.name.split("-")[0] for file in (web.service.library.state / "scores").iterdir()
        }
        assert answer.json()["id"] not in names
