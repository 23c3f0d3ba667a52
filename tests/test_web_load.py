"""The service under load, and fuzzed from its own schema."""

import threading
import time

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from services import running, wav

from benchmarks.service import Load, Sounds, write_model
from earmark.web.jobs import Jobs


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("model"))


def test_answers_stay_right_under_load_and_nothing_is_left(model):
    sounds = Sounds.make(model, n_sounds=4)
    assert any(sounds.events)
    with running(model, idle_seconds=2.0) as web:
        url = f"http://127.0.0.1:{web.access.port}"
        load = Load(url, sounds, patience=0.1)
        report = load.run(60, 8)
        load.close()
        assert report.wrong == []
        assert sum(report.counts.values()) == 60
        assert len(report.counts) >= 8
        until = time.monotonic() + 60
        work = web.service.library.state / "work"
        while list(work.iterdir()):
            assert time.monotonic() < until
            time.sleep(0.1)
        assert threading.active_count() < 80  # pools of a fixed size, which start as needed
        assert len(web.service.library) == 0
        assert list((web.service.library.state / "scores").iterdir()) == []


@pytest.fixture(scope="module")
def fuzzed(model):
    """A service with a recording, whose jobs do nothing, and its schema."""
    import schemathesis

    with (
        running(model, max_body=200_000, max_upload=200_000) as web,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(Jobs, "_run_process", lambda self, job, arguments: 2)
        own = web.upload(wav(2.0))
        described = web.client.get("/openapi.json").json()
        yield web, own["id"], schemathesis.openapi.from_dict(described)


def test_no_request_that_the_schema_describes_is_a_server_error(fuzzed):
    """Valid and invalid requests for every endpoint; answers must be as described."""
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    web, id, schema = fuzzed
    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    base_url = str(web.client.base_url)
    n_sent = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        has_own = "/recordings/{id}" in operation.path and operation.method != "delete"
        for mode in schemathesis.GenerationMode:
            ids = [{"id": id}, None] if has_own else [None]
            strategy = st.one_of(
                operation.as_strategy(mode, path_parameters=path_parameters)
                for path_parameters in ids
            )

            @settings(
                max_examples=4,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def send(case):
                nonlocal n_sent
                case.call_and_validate(base_url=base_url, checks=wanted, timeout=60)
                n_sent += 1

            try:
                send()
            except Exception as error:
                if "generate" in type(error).__name__.lower() or "Unsatisfiable" in repr(error):
                    continue  # nothing invalid can be said about it
                raise
    assert n_sent > 80
    assert httpx.get(f"{base_url}/health").status_code == 200
