"""`POST /detect` and `GET /health`: the public API for other programs."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from earmark.formats.events import Event
from earmark.frames import FrameScores
from earmark.inference.batch import parse_classes
from earmark.web.limits import Watch
from earmark.web.schemas import DetectionOut, EventOut, Health
from earmark.web.service import Detection, Service
from earmark.web.uploads import received

BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def detect_router(service: Service, version: str) -> APIRouter:
    """Return the routes for other programs."""
    router = APIRouter(tags=["detection"])

    @router.get("/health")
    async def health() -> Health:  # not on a thread, of which all may be busy
        """Say that the service is there."""
        return Health(version=version, model=service.model.name)

    @router.post("/detect", openapi_extra=BODY)
    async def detect(
        request: Request,
        sensitivity: Annotated[
            str, Query(max_length=32, description="low, normal, high or a number, as of detect.")
        ] = "normal",
        min_score: Annotated[
            float, Query(ge=0, le=1, description="Leave out events with a lower score.")
        ] = 0.0,
        classes: Annotated[
            str | None,
            Query(max_length=10_000, description="Only these classes, separated by commas."),
        ] = None,
        filename: Annotated[
            str, Query(max_length=1000, description="Name of a recording sent as raw bytes.")
        ] = "",
    ) -> DetectionOut:
        """Detect in a recording: a form with the field `file`, or the bytes themselves."""
        model = service.model
        decoding = model.decoding(sensitivity)  # raises before the upload
        chosen = None if classes is None else parse_classes([classes], model.detector.labels)

        def decode(scores: FrameScores) -> list[Event]:
            events = model.events(scores, decoding, min_score)
            return [event for event in events if chosen is None or event.label in chosen]

        path = service.library.work_path()
        async with received(request, path, service.limits, filename) as upload:
            watch = service.new_watch(service.limits.max_seconds)
            future = service.detect(upload.path, upload.name, decode, watch)
            work = asyncio.wrap_future(future)
            try:
                found = await _while_connected(request, work, watch)
            finally:
                watch.stop()  # before the file goes, the work must have ended
                if not future.cancel():  # it has begun
                    await asyncio.wait([work], timeout=30.0)
                    if work.done() and not work.cancelled():
                        work.exception()  # seen: of work whose time is over, nobody asks for it
        return DetectionOut(
            filename=upload.name,
            duration=found.duration,
            events=[EventOut.of(event) for event in found.events],
        )

    return router


async def _while_connected(
    request: Request, work: "asyncio.Future[Detection]", watch: Watch
) -> Detection:
    """Return the result of some work, which is stopped when its client has gone.

    Raise if its time is over, also while it waits for its turn.
    """
    while True:
        done, _ = await asyncio.wait([work], timeout=0.5)
        if done:
            return work.result()
        if await request.is_disconnected():
            watch.stop()
        watch.check()
