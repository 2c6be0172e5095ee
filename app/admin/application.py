"""The admin application: health, metrics, and the routes of the control plane."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from app.admin.api import (
    integrity,
    placements,
    probes,
    schemas,
    sketch,
    systems,
    tenants,
    views,
)
from app.admin.api.health import health_routes
from app.admin.api.responses import PROBLEM
from app.admin.context import AdminParts
from app.admin.pages.site import mount_pages
from app.http.browser import BrowserGuard
from app.http.framework import answer_problems
from app.http.reference import serve_reference
from app.security.admin_port import AdminAuthoriser
from mediator.control.port import ControlPlane

__all__ = ["create_admin_app"]

_ROUTERS: Final = {
    "systems": systems.router,
    "schemas": schemas.router,
    "placements": placements.router,
    "views": views.router,
    "probes": probes.router,
    "integrity": integrity.router,
    "sketch": sketch.router,
    "tenants": tenants.router,
}
"""Of the control plane, by the tag under which they are described."""


def create_admin_app(
    control: ControlPlane, metrics: CollectorRegistry, parts: AdminParts | None = None
) -> FastAPI:
    """Make the admin application.

    Args:
        control: The control plane.
        metrics: What ``/metrics`` shows.
        parts: The other parts of the service.
    """
    parts = parts or AdminParts()
    app = FastAPI(
        title="Portolan admin",
        summary="Schemas, systems and placements.",
        version="1",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": PROBLEM},
    )
    answer_problems(app)
    serve_reference(app)
    app.state.control = control
    app.state.metrics = metrics
    for part in fields(parts):
        setattr(app.state, part.name, getattr(parts, part.name))
    guarded = parts.security is not None
    health = health_routes(
        control.readiness, parts.lifecycle, metrics, parts.refresh, guarded=guarded
    )
    app.include_router(health, tags=["health"])
    for tag, router in _ROUTERS.items():
        app.include_router(router, prefix="/admin/v1", tags=[tag])
    mount_pages(app)
    if parts.security is not None:
        app.add_middleware(
            AdminAuthoriser,
            authenticator=parts.security.authenticator,
            access_cache=parts.security.access_cache,
            limiter=parts.security.limiter(),
            metrics_open=parts.security.metrics_open,
        )
    app.add_middleware(BrowserGuard, only_loopback=parts.only_loopback)
    return app
