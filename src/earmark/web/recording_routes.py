"""The recordings of the library: upload, list, play, tiles, scores, events, hierarchy, export."""

import asyncio
import json
import math
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response

from earmark.errors import choose
from earmark.formats.event_table import EventTable, Layout
from earmark.formats.events import Event, encode_events
from earmark.formats.registry import EVENT_FORMATS
from earmark.inference.decoding import Decoding
from earmark.inference.detector import SENSITIVITIES
from earmark.web.detect_routes import BODY
from earmark.web.hierarchy import explain
from earmark.web.library import Recording
from earmark.web.limits import Refused
from earmark.web.playable import playable
from earmark.web.schemas import (
    EventOut,
    EventsIn,
    EventsOut,
    HierarchyOut,
    ModelOut,
    RecordingOut,
    ScoresOut,
)
from earmark.web.score_points import score_points
from earmark.web.service import Service
from earmark.web.tiles import MAX_LEVEL, WIDTH, tile_png
from earmark.web.uploads import received

PATIENCE = 3.0  # seconds that an upload waits for its events before the answer "working"
MAX_POINTS = 4000

FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "A file."}
}
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
        return RecordingOut(
            id=recording.id,
            name=recording.name,
            duration=duration,
            n_events=recording.n_events,
            uncertainty=recording.uncertainty,
            corrected=service.corrections.get(recording.name) is not None,
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
            tile_seconds=WIDTH * service.model.spectrogram.hop,
            sensitivities=SENSITIVITIES,
            formats=list(EVENT_FORMATS),
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
            detail = recording.detail
            service.remove(recording.id)
            raise Refused(422, detail)
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
        path, kind = playable(own.path, library.state / "work" / f"{id}.play")
        if not path.exists():
            raise Refused(404, "The recording has been deleted.")
        return FileResponse(path, media_type=kind, headers={"cache-control": "no-cache"})

    @router.get(
        "/recordings/{id}/tile",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}, "description": "A grey PNG."}},
    )
    def tile(
        request: Request,
        id: str,
        level: Annotated[int, Query(ge=0, le=MAX_LEVEL)] = 0,
        index: Annotated[int, Query(ge=0, le=1 << 40)] = 0,
    ) -> Response:
        """Send a part of the spectrogram: 256 columns, each of 2^level frames."""
        own = library.find(id)
        is_ready = own.status == "ready"
        png = None
        if own.analysis is not None and own.status != "failed":
            png = tile_png(own.analysis, level, index, is_ready)
        if png is None and own.status == "working":
            raise Refused(409, "This part is still being analysed; try again in a moment.")
        if png is None:
            raise Refused(404, "The recording has no such tile.")
        etag = f'"{Path(own.analysis.stem).name if own.analysis else ""}-{level}-{index}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(png, media_type="image/png", headers=headers)

    @router.get("/recordings/{id}/scores", response_model=ScoresOut)
    def scores(
        id: str,
        start: Annotated[float, Query(ge=0, le=1e7)] = 0.0,
        end: Annotated[float, Query(ge=0, le=1e7)] = 1e7,
        points: Annotated[int, Query(ge=1, le=MAX_POINTS)] = 1000,
    ) -> Response:
        """Send the frame-level scores of a part, the lowest and the highest per point."""
        _, found = service.scores(id)
        return Response(
            json.dumps(score_points(found, start, end, points), separators=(",", ":")),
            media_type="application/json",
        )

    @router.post("/recordings/{id}/events")
    def events(id: str, body: EventsIn) -> EventsOut:
        """Decode the scores of a recording: its events for some settings."""
        _, own, decoding = decoded(id, body)
        return EventsOut(
            events=[EventOut.of(event) for event in own],
            thresholds={label: decoding[label].threshold for label in decoding.labels},
        )

    def decoded(id: str, body: EventsIn) -> tuple[Recording, list[Event], Decoding]:
        recording, found = service.scores(id)
        model = service.model
        by_class = {label: own.model_dump() for label, own in body.class_rules.items()}
        decoding = model.decoding(body.sensitivity, body.rules.model_dump(), by_class)
        for label in body.classes or ():
            choose("class", label, decoding.labels)
        chosen = decoding.labels if body.classes is None else body.classes
        own = model.events(found, decoding, body.min_score or 0.0)
        return recording, [event for event in own if event.label in chosen], decoding

    @router.get("/recordings/{id}/hierarchy")
    def hierarchy(
        id: str,
        label: Annotated[str, Query(max_length=200)],
        time: Annotated[float, Query(ge=0, le=1e7)] = 0.0,
    ) -> HierarchyOut:
        """Show how the clip-level score of the window around a time comes about."""
        own, _ = service.scores(id)
        detector = service.model.detector
        return HierarchyOut(**explain(detector, own.path, own.duration or 0.0, label, time))

    @router.get("/recordings/{id}/export", response_class=Response, responses=FILE)
    def export(id: str, format: Annotated[str, Query(max_length=32)] = "tsv") -> Response:
        """Send the events, corrected ones if there are any, as a file of an event format."""
        return event_file(*service.known_events(id), format)

    @router.post("/recordings/{id}/export", response_class=Response, responses=FILE)
    def export_decoded(
        id: str, body: EventsIn, format: Annotated[str, Query(max_length=32)] = "tsv"
    ) -> Response:
        """Send the events for some settings as a file of an event format."""
        own, events, _ = decoded(id, body)
        return event_file(own, events, format)

    def event_file(own: Recording, events: list[Event], format: str) -> Response:
        about = EVENT_FORMATS[choose("event format", format, EVENT_FORMATS)]
        name = Path(own.name).name
        table = EventTable({name: events}, {name: own.duration or 0.0})
        content = encode_events(table, Layout(scores=about.score_by_default), format)
        body = content if isinstance(content, bytes) else content.encode()
        file = quote(f"{Path(name).stem}{about.suffixes[0]}")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{file}"}
        return Response(body, media_type="application/octet-stream", headers=headers)

    return router
