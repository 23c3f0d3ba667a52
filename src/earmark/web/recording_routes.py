"""The model, and the recordings of the library: upload, list, play, delete."""

import asyncio
import math
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from earmark.formats.registry import EVENT_FORMATS
from earmark.inference.detector import SENSITIVITIES
from earmark.web.detect_routes import BODY
from earmark.web.library import Recording
from earmark.web.limits import RequestError
from earmark.web.playable import playable
from earmark.web.schemas import ModelOut, RecordingOut
from earmark.web.service import Service, named
from earmark.web.tiles import WIDTH
from earmark.web.uploads import received

PATIENCE = 3.0  # seconds that an upload waits for its events before the answer "working"

RESPONSES: dict[int | str, dict[str, Any]] = {
    202: {"model": RecordingOut, "description": "It is being analysed; ask for it again."}
}


def recording_router(service: Service) -> APIRouter:
    """Return the routes of the library."""
    router = APIRouter(prefix="/api", tags=["recordings"])
    library = service.library

    def describe(recording: Recording) -> RecordingOut:
        tile_seconds = WIDTH * service.model.spectrogram.hop
        duration = recording.duration
        correction = service.corrections.get(recording.name)
        return RecordingOut(
            id=recording.id,
            name=recording.name,
            duration=duration,
            n_events=recording.n_events,
            uncertainty=recording.uncertainty,
            corrected=correction is not None,
            checked=None if correction is None else correction.checked,
            status=recording.status,
            progress=recording.progress,
            detail=recording.detail,
            n_tiles=0 if duration is None else math.ceil(duration / tile_seconds),
        )

    @router.get("/model")
    def model() -> ModelOut:
        """Describe the model."""
        return ModelOut(
            **service.model.describe(),
            first=service.first.name,
            new_labels=sorted(service.corrections.labels - set(service.model.detector.labels)),
            tile_seconds=WIDTH * service.model.spectrogram.hop,
            sensitivities=SENSITIVITIES,
            formats={name: own.summary for name, own in EVENT_FORMATS.items()},
            limits=service.limits.to_dict(),
            temporary_library=library.is_temporary,
        )

    @router.get("/recordings")
    def recordings() -> list[RecordingOut]:
        """List the recordings, those first of which the model is least certain."""
        found = [describe(recording) for recording in library]
        return sorted(found, key=lambda own: (-(own.uncertainty or 0.0), own.name))

    @router.post("/recordings", status_code=201, openapi_extra=BODY, responses=RESPONSES)
    async def upload(
        request: Request,
        filename: Annotated[
            str, Query(max_length=1000, description="Name of a recording sent as raw bytes.")
        ] = "",
    ) -> Response:
        """Add a recording and detect in it; 202 if that takes longer than a moment."""
        async with received(request, library.work_path(), service.limits, filename) as file:
            recording, future = await asyncio.to_thread(service.add, file.path, file.name)
        await asyncio.wait([asyncio.wrap_future(future)], timeout=PATIENCE)
        if recording.status == "failed":
            service.remove(recording.id)
            raise RequestError(recording.code, recording.detail)
        status = 201 if recording.status == "ready" else 202
        return JSONResponse(describe(recording).model_dump(), status)

    @router.get("/recordings/{id}")
    def recording(id: str) -> RecordingOut:
        """Describe a recording."""
        return describe(library.find(id))

    @router.delete("/recordings/{id}", status_code=204)
    def delete(id: str) -> None:
        """Delete a recording and its file."""
        service.remove(id)

    @router.get("/recordings/{id}/audio", response_class=FileResponse)
    def audio(id: str) -> Response:
        """Send the recording as a browser can play it; parts of it for Range requests."""
        own = library.find(id)
        if own.analysis is None:
            raise RequestError(409, "The recording is still being read; try again in a moment.")
        with named(own.path, own.name):
            path, kind = playable(own.path, own.analysis.file("play"), library.work_path())
        if not path.exists():
            raise RequestError(404, "The recording has been deleted.")
        return FileResponse(path, media_type=kind, headers={"cache-control": "no-cache"})

    return router
