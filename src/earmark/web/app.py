"""The application: routers, page, errors and guard put together.

Conventions: every error is `{"detail": "one sentence"}`. Nothing is loaded from elsewhere: the page
and the description of the API come from this service.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp

from earmark.errors import EarmarkError
from earmark.web.analysis_routes import analysis_router
from earmark.web.api_page import STYLE, api_page
from earmark.web.detect_routes import detect_router
from earmark.web.guard import Access, Guard
from earmark.web.jobs import Jobs
from earmark.web.learning_routes import learning_router
from earmark.web.limits import RequestError, StoppedError
from earmark.web.recording_routes import recording_router
from earmark.web.schemas import PROBLEMS
from earmark.web.service import Service

logger = logging.getLogger(__name__)

PAGE = Path(__file__).parent / "page"
REVALIDATE = {"cache-control": "no-cache"}


def make_app(service: Service, access: Access, version: str, jobs: Jobs | None = None) -> ASGIApp:
    """Return the application of a service.

    Args:
        service: what answers.
        access: who may ask.
        version: of Earmark.
        jobs: what learns from corrections.
    """
    return Guard(make_api(service, version, jobs), access, service.limits)


def make_api(service: Service, version: str, jobs: Jobs | None = None) -> FastAPI:
    """Return the application without its guard; arguments as of `make_app`."""
    jobs = jobs or Jobs(service)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        jobs.close()
        service.close()

    api = FastAPI(
        title="Earmark",
        version=version,
        summary="Which sound starts and ends when.",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=PROBLEMS,
    )
    api.include_router(detect_router(service, version))
    api.include_router(recording_router(service))
    api.include_router(analysis_router(service))
    api.include_router(learning_router(service, jobs))
    _add_pages(api)
    _add_errors(api)
    return api


def _add_pages(api: FastAPI) -> None:
    @api.get("/", include_in_schema=False)
    def index() -> Response:
        return FileResponse(PAGE / "index.html", headers=REVALIDATE)

    @api.get("/docs", include_in_schema=False)
    def docs() -> Response:
        return HTMLResponse(api_page(api.openapi()))

    @api.get("/docs/style.css", include_in_schema=False)
    def style() -> Response:
        return Response(STYLE, media_type="text/css")

    api.mount("/page", _Page(directory=PAGE), name="page")


class _Page(StaticFiles):
    """The files of the page, which a browser asks for again after an update."""

    def file_response(self, *arguments: Any, **settings: Any) -> Response:
        response = super().file_response(*arguments, **settings)
        response.headers.update(REVALIDATE)
        return response


def _add_errors(api: FastAPI) -> None:
    @api.exception_handler(EarmarkError)
    def earmark_error(request: Request, error: Exception) -> Response:
        status = error.status if isinstance(error, RequestError) else 422
        status = 503 if isinstance(error, StoppedError) else status
        headers = {"retry-after": "5"} if status == 503 else None
        return JSONResponse({"detail": str(error)}, status, headers)

    @api.exception_handler(HTTPException)
    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"detail": str(error.detail)}, error.status_code, error.headers)

    @api.exception_handler(RequestValidationError)
    def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return JSONResponse({"detail": _sentence(error)}, 422)

    @api.exception_handler(OSError)
    def system_error(request: Request, error: Exception) -> Response:
        logger.error("%s %s: %s", request.method, request.url.path, error)
        why = getattr(error, "strerror", None) or "an error of the system"
        return JSONResponse({"detail": f"The service cannot do it now: {why}."}, 503)

    @api.exception_handler(Exception)
    def failed(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "The service failed; its log says why."}, 500)

    @api.exception_handler(ClientDisconnect)
    def gone(request: Request, error: Exception) -> Response:
        return JSONResponse({"detail": "The request ended before its end."}, 400)


def _sentence(error: RequestValidationError) -> str:
    """Return what is wrong first, in one sentence."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    what = ".".join(place)[:100] or "The body"
    return f"{what}: {str(first['msg'])[:200].rstrip('.')}."
