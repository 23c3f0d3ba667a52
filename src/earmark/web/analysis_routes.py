"""What was found in a recording: tiles, scores, events, hierarchy, export."""

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from earmark.errors import choose
from earmark.formats.event_table import EventTable, Layout
from earmark.formats.events import Event, encode_events
from earmark.formats.registry import EVENT_FORMATS
from earmark.inference.decoding import Decoding
from earmark.web.hierarchy import explain
from earmark.web.library import Recording
from earmark.web.limits import RequestError
from earmark.web.schemas import EventOut, EventsIn, EventsOut, HierarchyOut, ScoresOut
from earmark.web.score_points import score_points
from earmark.web.service import Service, named
from earmark.web.tiles import MAX_LEVEL, tile_png

MAX_POINTS = 4000

FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "A file."}
}


def analysis_router(service: Service) -> APIRouter:
    """Return the routes of what was found in recordings."""
    router = APIRouter(prefix="/api", tags=["recordings"])
    library = service.library

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
            raise RequestError(409, "This part is still being analysed; try again in a moment.")
        if png is None:
            raise RequestError(404, "The recording has no such tile.")
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
        labels: Annotated[list[str] | None, Query(max_length=1000)] = None,
    ) -> Response:
        """Send the frame-level scores of a part, the lowest and the highest per point."""
        _, found = service.scores(id)
        return Response(
            json.dumps(score_points(found, start, end, points, labels), separators=(",", ":")),
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
        with named(own.path, own.name):
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
