"""Who may use the service, how much, and what stays when it is killed."""

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import pytest
from services import running, wav, write_model

from earmark.errors import DataError, SettingError
from earmark.web.guard import Access
from earmark.web.library import Library, temporary_base
from earmark.web.limits import Limits, RequestError
from earmark.web.serve import Settings, address, serve
from earmark.web.server import bind
from earmark.web.workers import LATER, Workers

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def web(model):
    with running(model, idle_seconds=1.0) as found:
        yield found


@pytest.fixture(scope="module")
def closed(model):
    """A service with a token."""
    with running(model, token=TOKEN) as found:
        yield found


class TestOtherSites:
    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:80", "10.0.0.1", "", "[", "::1"]
    )
    def test_a_request_for_another_name_is_refused(self, web, host):
        for path in ("/", "/health", "/api/recordings", "/page/style.css"):
            answer = web.client.get(path, headers={"host": host})
            assert answer.status_code == 421

    def test_names_of_this_machine_are_accepted(self, web):
        for host in ("localhost", "127.0.0.1", f"localhost:{web.access.port}", "[::1]:80"):
            assert web.client.get("/health", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "origin", ["https://evil.example", "null", "http://localhost:1", "file://", "http://["]
    )
    @pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
    def test_a_page_of_another_site_is_refused(self, web, origin, method):
        answer = web.client.request(method, "/api/recordings", headers={"origin": origin})
        assert answer.status_code == 403

    def test_the_own_page_is_accepted(self, web):
        own = f"http://127.0.0.1:{web.access.port}"
        headers = {"origin": own, "sec-fetch-site": "same-origin"}
        assert web.client.post("/detect", headers=headers, content=wav()).status_code == 200

    def test_an_image_or_form_on_another_site_is_refused_and_a_link_to_the_page_is_not(self, web):
        site = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        assert web.client.get("/api/recordings", headers=site).status_code == 403
        assert web.client.get("/health", headers=site).status_code == 403
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        assert web.client.get("/docs", headers=link).status_code == 200
        assert web.client.get("/api/recordings", headers=link).status_code == 403
        assert web.client.post("/detect", headers=link, content=wav()).status_code == 403

    def test_a_websocket_is_refused(self, web):
        headers = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
                   "sec-websocket-key": "x" * 24}  # fmt: skip
        assert web.client.get("/", headers=headers).status_code < 500

    @pytest.mark.parametrize("path", ["/", "/health", "/nothing", "/api/recordings", "/docs"])
    def test_every_answer_has_the_headers_that_protect_the_page(self, web, path):
        headers = web.client.get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert headers["server"] == "earmark"


class TestToken:
    def test_without_it_nothing_is_answered(self, closed):
        with httpx.Client(base_url=closed.client.base_url) as stranger:
            for path in ("/", "/health", "/docs", "/openapi.json", "/page/style.css", "/api/model"):
                answer = stranger.get(path)
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
            assert stranger.post("/detect", content=wav()).status_code == 401
            wrong = {"authorization": f"Bearer {TOKEN}x"}
            assert stranger.get("/health", headers=wrong).status_code == 401
            assert stranger.get("/?token=wrong").status_code == 401
            assert stranger.get(f"/api/model?token={TOKEN}").status_code == 401

    def test_the_header_is_enough(self, closed):
        assert closed.client.get("/api/model").status_code == 200

    def test_the_address_with_it_gives_the_page_a_cookie_that_scripts_cannot_read(self, closed):
        with httpx.Client(base_url=closed.client.base_url) as browser:
            first = browser.get(f"/?token={TOKEN}")
            assert first.status_code == 200
            cookie = first.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert TOKEN not in first.text
            assert browser.get("/").status_code == 200
            assert browser.get("/api/model").status_code == 200

    def test_an_address_that_others_can_reach_gets_a_token(self):
        assert len(Settings(host="0.0.0.0").with_token().token) >= 24
        assert Settings(host="192.168.0.7").with_token().token is not None
        assert Settings(host="::1").with_token().token is None
        with pytest.raises(SettingError, match="16 ASCII characters or more"):
            Settings(token="short").with_token()

    def test_names_of_a_service_that_others_can_reach(self):
        access = Access("0.0.0.0", 80, TOKEN, ("sounds.example",))
        for host in ("192.168.0.7", "sounds.example", socket.gethostname(), "localhost:80"):
            assert access.accepts_host(host)
        assert not access.accepts_host("evil.example")

    def test_another_address_of_this_machine_is_a_name_of_the_service(self):
        access = Access("127.0.0.2", 8000)
        assert access.accepts_host("127.0.0.2:8000")
        assert not access.accepts_host("evil.example")
        assert not access.accepts_host("127.0.0.3:8000")

    def test_a_query_of_many_fields_is_refused_like_any_other_without_the_token(self, closed):
        with httpx.Client(base_url=closed.client.base_url) as stranger:
            answer = stranger.get("/?" + "&".join(["a=b"] * 200))
            assert answer.status_code == 401
            assert answer.headers["x-frame-options"] == "DENY"

    def test_the_cookie_is_found_among_those_of_other_services(self, closed):
        cookie = f'other={{"a": 1}}; {closed.access.cookie}={TOKEN}'
        with httpx.Client(base_url=closed.client.base_url) as browser:
            assert browser.get("/health", headers={"cookie": cookie}).status_code == 200

    def test_the_printed_address_has_any_token_in_a_form_that_arrives(self):
        shown = address(Access("127.0.0.1", 80, "a&b=c#d+e f/0123456789"))
        assert httpx.URL(shown).params["token"] == "a&b=c#d+e f/0123456789"


class TestSlowClients:
    def connect(self, web):
        return socket.create_connection(("127.0.0.1", web.access.port), timeout=20)

    def test_a_client_that_never_ends_its_head_is_cut_off(self, web):
        with self.connect(web) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
            assert client.recv(1000) == b""
        with self.connect(web) as client:
            assert client.recv(1000) == b""

    def test_a_client_that_never_ends_the_head_of_a_later_request_is_cut_off(self, web):
        with self.connect(web) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(b"}"):
                answer += client.recv(10000)
            assert answer.startswith(b"HTTP/1.1 200")
            client.sendall(b"GET /health HT")
            assert client.recv(1000) == b""

    @pytest.mark.parametrize("path", [b"/detect", b"/api/tune", b"/api/recordings/0/events"])
    def test_a_client_that_stops_in_its_body_is_refused(self, web, path):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
        with self.connect(web) as client:
            client.sendall(head)
            answer = b"".join(iter(lambda: client.recv(10000), b""))
        assert b" 408 " in answer.split(b"\r\n")[0]
        assert b"Nothing was received for 1 s" in answer

    def test_a_client_that_leaves_in_its_body_leaves_nothing(self, web):
        head = b"POST /api/recordings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
        with self.connect(web) as client:
            client.sendall(head + b"RIFF")
        until = time.monotonic() + 20
        while list((web.service.library.state / "work").iterdir()):
            assert time.monotonic() < until
            time.sleep(0.05)

    @pytest.mark.parametrize(
        "noise",
        [
            b"\x16\x03\x01\x02\x00" * 50,
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"GET /" + b"a" * 100_000,
            b"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"POST /detect HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        ],
    )
    def test_what_is_no_http_is_refused(self, web, noise):
        with self.connect(web) as client:
            client.sendall(noise)
            answer = b""
            try:
                while chunk := client.recv(65536):
                    answer += chunk
            except ConnectionResetError:
                pass
        assert not answer or answer.split()[1][:1] == b"4"
        assert web.client.get("/health").status_code == 200


class TestLimits:
    def test_too_many_at_once_are_refused_and_the_others_served(self, model):
        with running(model, max_active=1, max_waiting=1) as web:
            starts = threading.Event()
            hold = threading.Event()
            blocked = web.service.workers.submit(lambda: (starts.set(), hold.wait(60)))
            starts.wait(60)
            answers = []
            waiting = threading.Thread(
                target=lambda: answers.append(web.client.post("/detect", content=wav()))
            )
            waiting.start()
            while web.service.workers._n_waiting < 1:
                time.sleep(0.01)
            with httpx.Client(base_url=web.client.base_url, timeout=60) as other:
                refused = other.post("/detect", content=wav())
                assert refused.status_code == 503
                assert refused.headers["retry-after"]
                assert "1 recordings are waiting" in refused.json()["detail"]
                refused = other.post("/api/recordings", content=wav())
                assert refused.status_code == 503
                assert other.get("/api/recordings").json() == []
            hold.set()
            waiting.join()
            blocked.result()
            assert answers[0].status_code == 200

    def test_work_that_waits_too_long_for_its_turn_is_refused(self, model):
        with running(model, max_active=1, max_seconds=0.2) as web:
            hold = threading.Event()
            web.service.workers.submit(lambda: hold.wait(60))
            try:
                answer = web.client.post("/detect", content=wav(), timeout=30)
            finally:
                hold.set()
            assert answer.status_code == 503
            assert "took longer than 0.2 seconds" in answer.json()["detail"]
            assert list((web.service.library.state / "work").iterdir()) == []

    def test_work_that_takes_too_long_is_stopped(self, model):
        with running(model, max_seconds=0.01) as web:
            answer = web.client.post("/detect", content=wav(300.0))
            assert answer.status_code == 503
            assert "took longer than 0.01 seconds" in answer.json()["detail"]
            assert list((web.service.library.state / "work").iterdir()) == []

    def test_work_of_a_client_that_has_gone_is_stopped(self, model):
        with running(model) as web:
            with (
                httpx.Client(base_url=web.client.base_url, timeout=0.2) as impatient,
                pytest.raises(httpx.TimeoutException),
            ):
                impatient.post("/detect", content=wav(2000.0))
            until = time.monotonic() + 60
            while list((web.service.library.state / "work").iterdir()):
                assert time.monotonic() < until
                time.sleep(0.05)

    def test_a_library_that_is_full_takes_no_more(self, model):
        with running(model, max_recordings=1) as web:
            web.upload(wav(1.0))
            answer = web.client.post("/api/recordings", content=wav(1.0))
            assert answer.status_code == 413
            assert "delete some" in answer.json()["detail"]
        with running(model, max_library=20_000) as web:
            web.upload(wav(1.0))
            answer = web.client.post("/api/recordings", content=wav(1.0))
            assert answer.status_code == 413

    def test_a_large_request_that_is_no_recording_is_refused(self, model):
        with running(model, max_body=1000) as web:
            own = web.upload(wav(1.0))
            path = f"/api/recordings/{own['id']}/events"
            assert web.client.post(path, json={"classes": ["x" * 1000]}).status_code == 413
            chunks = (b" " * 600 for _ in range(3))
            headers = {"content-type": "application/json"}
            assert web.client.post(path, content=chunks, headers=headers).status_code == 413

    def test_what_waits_is_cancelled_at_the_end_and_urgent_work_goes_first(self):
        workers = Workers(1, 4)
        hold, order = threading.Event(), []
        first = workers.submit(hold.wait)
        later = workers.submit(lambda: order.append("later"), LATER)
        urgent = workers.submit(lambda: order.append("urgent"))
        hold.set()
        later.result()
        assert order == ["urgent", "later"]
        assert first.done()
        assert urgent.done()
        workers.close()
        with pytest.raises(RequestError, match="is ending"):
            workers.submit(hold.wait)


class TestLibrary:
    def test_a_folder_of_recordings_is_listed_and_kept(self, model, tmp_path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "a.wav").write_bytes(wav(2.0))
        (tmp_path / "damaged.wav").write_bytes(b"RIFF nothing")
        with running(model, tmp_path) as web:
            found = {own["name"]: own for own in web.client.get("/api/recordings").json()}
            assert set(found) == {"sub/a.wav", "damaged.wav"}
            ready = web.wait(f"/api/recordings/{found['sub/a.wav']['id']}", "working")
            assert ready["status"] == "ready"
            failed = web.wait(f"/api/recordings/{found['damaged.wav']['id']}", "working")
            assert failed["status"] == "failed"
            assert failed["detail"].startswith("damaged.wav is")
            web.upload(wav(1.0), "b.wav")
            path = f"/api/recordings/{ready['id']}/corrections"
            body = {"events": [{"onset": 0.5, "offset": 1.0, "event_label": "low"}]}
            assert web.client.put(path, json=body).status_code == 200
            with pytest.raises(DataError, match="Another process is serving"):
                Library(tmp_path)
        kept = {file.name for file in (tmp_path / ".earmark" / "scores").iterdir()}
        assert not (tmp_path / ".earmark" / "work").exists()
        with running(model, tmp_path) as web:
            names = [own["name"] for own in web.client.get("/api/recordings").json()]
            assert sorted(names) == ["b.wav", "damaged.wav", "sub/a.wav"]
            web.wait(f"/api/recordings/{ready['id']}", "working")
            assert {file.name for file in (tmp_path / ".earmark" / "scores").iterdir()} == kept
            own = web.client.get(path).json()
            assert own["corrected"] is True
            assert own["events"][0]["onset"] == 0.5

    def test_damaged_corrections_are_not_overwritten(self, model, tmp_path):
        (tmp_path / ".earmark").mkdir()
        (tmp_path / ".earmark" / "corrections.json").write_text('{"recordings": {"a": 5}}')
        with pytest.raises(DataError, match="mend it, or move it away"), running(model, tmp_path):
            pass

    def test_a_damaged_analysis_is_made_again(self, model, tmp_path):
        (tmp_path / "a.wav").write_bytes(wav(2.0))
        with running(model, tmp_path) as web:
            (own,) = web.client.get("/api/recordings").json()
            web.wait(f"/api/recordings/{own['id']}", "working")
        (scores,) = (tmp_path / ".earmark" / "scores").glob("*.scores")
        size = scores.stat().st_size
        scores.write_bytes(scores.read_bytes()[:-7])
        with running(model, tmp_path) as web:
            assert web.wait(f"/api/recordings/{own['id']}", "working")["status"] == "ready"
        assert scores.stat().st_size == size

    def test_a_temporary_library_of_a_process_that_was_killed_is_removed(
        self, monkeypatch, tmp_path
    ):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        code = (
            "import tempfile, os, signal\n"
            f"tempfile.tempdir = {str(tmp_path)!r}\n"
            "from earmark.web.library import Library\n"
            "library = Library()\n"
            "library.work_path().write_bytes(b'part of an upload')\n"
            "print(library.folder, flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL
        left = Path(done.stdout.strip())
        assert left.exists()
        with Library() as other:
            assert not left.exists()
            with Library() as third:  # one that is in use stays
                assert other.folder.exists()
                assert third.folder != other.folder
        assert [path.name for path in temporary_base().iterdir()] == ["lock"]

    def test_parts_of_uploads_that_a_killed_service_left_in_a_library_are_removed(self, tmp_path):
        code = (
            "import os, pathlib, signal, sys\n"
            "from earmark.web.library import Library\n"
            "library = Library(pathlib.Path(sys.argv[1]))\n"
            "library.work_path().write_bytes(b'part of an upload')\n"
            "print(*(path.name for path in (library.state / 'work').iterdir()), flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        command = [sys.executable, "-c", code, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL
        part = tmp_path / ".earmark" / "work" / done.stdout.strip()
        assert part.is_file()
        with Library(tmp_path) as library:
            assert not part.exists()
            assert len(library) == 0


class TestCommand:
    def test_prints_its_address_with_a_token_and_ends_with_ctrl_c(self, model, tmp_path):
        command = [sys.executable, "-m", "earmark", "serve", str(model), "--port", "0"]
        process = subprocess.Popen(
            [*command, "--host", "0.0.0.0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )
        try:
            line = process.stdout.readline()
            address, token = line.split()[1].split("?token=")
            assert line == f"small.earmark: {address}?token={token} (Ctrl-C ends it)\n"
            url = f"http://127.0.0.1:{address.rstrip('/').rsplit(':', 1)[1]}/detect"
            assert httpx.post(url, content=wav(), timeout=60).status_code == 401
            headers = {"authorization": f"Bearer {token}"}
            assert httpx.post(url, content=wav(), headers=headers, timeout=60).status_code == 200
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=100)
        finally:
            process.kill()
        assert process.returncode == 0
        assert out == ""
        assert err == "earmark: The service has ended.\n"
        (base,) = tmp_path.glob("earmark-serve-*")
        assert [path.name for path in base.iterdir()] == ["lock"]

    def test_a_port_that_is_taken_is_one_sentence(self, model):
        with bind("127.0.0.1", 0) as listening:
            port = listening.getsockname()[1]
            with pytest.raises(SettingError, match=f"port {port}: Address already in use; choose"):
                serve(model, Settings(port=port))

    @pytest.mark.parametrize(
        "limit", [{"max_upload": math.inf}, {"max_duration": math.inf}, {"max_active": 100_000}]
    )
    def test_limits_that_are_none_are_refused(self, limit):
        with pytest.raises(SettingError, match=f"{next(iter(limit))} must be at most"):
            Limits(**limit)

    def test_limits_must_be_above_zero(self):
        with pytest.raises(SettingError, match="max_duration must be a number above 0"):
            Limits(max_duration=0)
