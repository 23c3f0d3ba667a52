"""Corrections of recordings, the tables made of them, and the jobs that learn from them."""

from typing import Annotated

from fastapi import APIRouter, Body
from fastapi.responses import FileResponse, Response

from earmark.errors import choose
from earmark.formats.events import Event
from earmark.inference.tuning.objectives import OBJECTIVES
from earmark.web.corrections import Correction
from earmark.web.jobs import Job, Jobs
from earmark.web.limits import RequestError
from earmark.web.schemas import (
    ChangeOut,
    CorrectionsIn,
    CorrectionsOut,
    EventOut,
    JobOut,
    JobStarted,
    TrainIn,
    TuneIn,
)
from earmark.web.service import Service

MAX_CHANGES = 200  # events of one recording that are listed
TSV = "text/tab-separated-values; charset=utf-8"


def learning_router(service: Service, jobs: Jobs) -> APIRouter:
    """Return the routes of corrections and jobs."""
    router = APIRouter(prefix="/api", tags=["learning"])

    @router.get("/recordings/{id}/corrections")
    def corrections(id: str) -> CorrectionsOut:
        """Send the correction of a recording; before there is one, what was detected."""
        recording, events = service.known_events(id)
        correction = service.corrections.get(recording.name)
        own = correction or Correction()
        return CorrectionsOut(
            events=[EventOut.of(event) for event in events],
            as_detected=own.events is None,
            tags=dict(own.tags),
            checked=own.checked,
            corrected=correction is not None,
        )

    @router.put("/recordings/{id}/corrections")
    def correct(id: str, body: CorrectionsIn) -> CorrectionsOut:
        """Keep corrected events, tags that are confirmed or rejected, and what is checked."""
        recording, _ = service.scores(id)  # raises unless it is analysed
        events = []
        for own in body.events or ():
            if own.offset <= own.onset:
                raise RequestError(
                    422,
                    f"The event {own.event_label[:60]!r} must end after it begins. Got "
                    f"{own.onset:g} to {own.offset:g} s.",
                )
            events.append(Event(own.onset, own.offset, own.event_label, own.score))
        duration = recording.duration or 0.0
        correction = Correction(None if body.events is None else events, body.tags, body.checked)
        service.corrections.put(recording.name, correction, duration)
        return corrections(id)

    @router.delete("/recordings/{id}/corrections", status_code=204)
    def forget(id: str) -> None:
        """Forget the correction of a recording."""
        service.corrections.remove(service.library.find(id).name)

    @router.get("/corrections/strong.tsv", response_class=Response,
                responses={200: {"content": {"text/tab-separated-values": {}}}})  # fmt: skip
    def strong() -> Response:
        """Send the events of checked recordings as a table for earmark tune --strong."""
        return Response(service.tables().strong_text, media_type=TSV)

    @router.get("/corrections/weak.tsv", response_class=Response,
                responses={200: {"content": {"text/tab-separated-values": {}}}})  # fmt: skip
    def weak() -> Response:
        """Send the tags of checked recordings as a table for earmark train --from."""
        return Response(service.tables().weak_text, media_type=TSV)

    @router.post("/tune", status_code=202)
    def tune(body: Annotated[TuneIn | None, Body()] = None) -> JobStarted:
        """Tune the thresholds of the model on the checked events, as a job."""
        options = []
        if body is not None and body.objective is not None:
            options = ["--objective", choose("objective", body.objective, OBJECTIVES)]
        return JobStarted(id=jobs.start("tune", *options).id)

    @router.post("/train", status_code=202)
    def train(body: Annotated[TrainIn | None, Body()] = None) -> JobStarted:
        """Train from the served model on the checked tags, as a job."""
        max_epochs = (body or TrainIn()).max_epochs
        return JobStarted(id=jobs.start("train", max_epochs=max_epochs).id)

    @router.get("/jobs")
    def all_jobs() -> list[JobOut]:
        """List the jobs, the newest first."""
        return [describe_job(job) for job in jobs.all()]

    @router.get("/jobs/{id}")
    def job(id: str) -> JobOut:
        """Describe a job, and what it changed."""
        return describe_job(jobs.find(id))

    @router.post("/jobs/{id}/adopt", status_code=204)
    def adopt(id: str) -> None:
        """Use the model of a job from now on, also after a restart."""
        jobs.adopt(id)

    @router.delete("/model/adopted", status_code=204)
    def go_back() -> None:
        """Use the model again that the service was started with."""
        jobs.go_back()

    @router.delete("/jobs/{id}", status_code=204)
    def stop(id: str) -> None:
        """Stop a job."""
        jobs.stop(id)

    @router.get("/jobs/{id}/model", response_class=FileResponse)
    def model(id: str) -> Response:
        """Send the model file of a job."""
        own = jobs.find(id)
        if own.served is None:
            raise RequestError(409, "The job has no model yet.")
        return FileResponse(
            own.model, media_type="application/octet-stream", filename=own.model.name
        )

    return router


def describe_job(job: Job) -> JobOut:
    """Return a job as it is sent."""
    changed = [
        ChangeOut(
            id=recording.id,
            name=recording.name,
            before=change.before,
            after=change.after,
            added=[EventOut.of(event) for event in change.added[:MAX_CHANGES]],
            removed=[EventOut.of(event) for event in change.removed[:MAX_CHANGES]],
        )
        for recording, change in list(job.changed)
    ]
    return JobOut(
        id=job.id,
        kind=job.kind,
        status=job.status,
        progress=job.progress,
        detail=job.detail,
        log=list(job.log),
        changed=changed,
        adopted=job.adopted,
    )
