"""Corrections, and the jobs that learn from them."""

from fastapi import APIRouter

from earmark.web.service import Service


def learning_router(service: Service) -> APIRouter:
    """Return the routes of corrections and jobs."""
    return APIRouter(prefix="/api", tags=["learning"])
