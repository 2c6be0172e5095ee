"""The admin application: health, metrics, and the routes of the control plane."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from app.admin.api import (
    admission,
    clusters,
    copies,
    costly_queries,
    health,
    integrity,
    overrides,
    pinned_versions,
    placements,
    probes,
    schemas,
    sketch,
    systems,
    tenants,
    views,
)
from app.admin.api.responses import PROBLEM
from app.admin.context import AdminContext
from app.admin.pages.site import mount_pages
from app.http.browser import BrowserGuard
from app.http.compression import Compression
from app.http.framework import answer_problems
from app.http.reference import serve_reference
from app.security.admin_port import AdminAuthoriser
from mediator.control.plane import ControlPlane

__all__ = ["create_admin_app"]

_ROUTERS: Final = {
    "systems": systems.router,
    "schemas": schemas.router,
    "pinned versions": pinned_versions.router,
    "placements": placements.router,
    "overrides": overrides.router,
    "views": views.router,
    "probes": probes.router,
    "integrity": integrity.router,
    "copies": copies.router,
    "sketch": sketch.router,
    "queries": costly_queries.router,
    "admission": admission.router,
    "clusters": clusters.router,
    "tenants": tenants.router,
}
"""Routers of the control plane, by their tag in the description."""


def create_admin_app(
    control: ControlPlane, metrics: CollectorRegistry, context: AdminContext | None = None
) -> FastAPI:
    context = context or AdminContext()
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
    for member in fields(context):
        setattr(app.state, member.name, getattr(context, member.name))
    app.include_router(health.router, tags=["health"])
    for tag, router in _ROUTERS.items():
        app.include_router(router, prefix="/admin/v1", tags=[tag])
    mount_pages(app)
    if context.security is not None:
        app.add_middleware(
            AdminAuthoriser,
            context.security.authenticator,
            context.security.access_cache,
            context.security.limiter(),
            metrics_open=context.security.metrics_open,
        )
    if context.compresses:
        app.add_middleware(Compression)
    app.add_middleware(BrowserGuard, only_loopback=context.only_loopback)
    return app
