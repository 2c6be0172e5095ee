"""The admin application: health, metrics, and the routes of the control plane."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from app.access.security import Security
from app.admin import materialisation, placements, probes, schemas, sketch, systems, tenants
from app.admin.answers import PROBLEM
from app.admin.gate import AdminGate
from app.admin.health import Refresh, health_routes
from app.admin.pages.site import mount_pages
from app.coherence.beginnings import Beginnings
from app.coherence.caches import Caches
from app.http.browser import BrowserGuard
from app.http.framework import answer_problems
from app.http.message import Receive, Scope, Send
from app.lifecycle import Lifecycle
from app.recent import Recent
from mediator.access.tenancy import Tenancy
from mediator.materialise.service import MaterialiseService
from mediator.planes import ControlPlane
from mediator.probing import StalenessProbes

__all__ = ["create_admin_app"]

DataAsgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


def create_admin_app(
    control: ControlPlane,
    metrics: CollectorRegistry,
    primaries: MaterialiseService | None = None,
    beginnings: Beginnings | None = None,
    staleness: StalenessProbes | None = None,
    caches: Caches | None = None,
    lifecycle: Lifecycle | None = None,
    refresh: Refresh | None = None,
    tenancy: Tenancy | None = None,
    security: Security | None = None,
    data: DataAsgi | None = None,
    recent: Recent | None = None,
) -> FastAPI:
    """Make the admin application.

    Args:
        control: The control plane.
        metrics: What ``/metrics`` shows.
        primaries: What keeps primaries up.
        beginnings: Tells the sketch of new classes; None: there is no sketch.
        staleness: Carries out staleness probes.
        caches: What keeps caches coherent; None: there is no sketch.
        lifecycle: Where the process is in its life; None: nobody will end it.
        refresh: Looks up what ``/metrics`` shows and nobody tells of.
        tenancy: The tenants and their keys.
        security: Authenticates requests; None: nobody is authenticated.
        data: The data API, which pages ask inside the process; None: they show no data and no jobs.
        recent: What happened last; None: nothing is remembered.
    """
    app = FastAPI(
        title="Portolan admin",
        summary="Schemas, systems and placements.",
        version="1",
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": PROBLEM},
    )
    answer_problems(app)
    app.state.control = control
    app.state.primaries = primaries
    app.state.beginnings = beginnings
    app.state.probes = staleness
    app.state.caches = caches
    health = health_routes(control.readiness, lifecycle or Lifecycle(), metrics, refresh)
    app.include_router(health, tags=["health"])
    app.state.tenancy = tenancy
    app.state.data = data
    app.state.recent = recent
    app.state.metrics = metrics
    app.include_router(systems.router, prefix="/admin/v1", tags=["systems"])
    app.include_router(schemas.router, prefix="/admin/v1", tags=["schemas"])
    app.include_router(placements.router, prefix="/admin/v1", tags=["placements"])
    app.include_router(materialisation.router, prefix="/admin/v1", tags=["primaries"])
    app.include_router(probes.router, prefix="/admin/v1", tags=["probes"])
    app.include_router(sketch.router, prefix="/admin/v1", tags=["sketch"])
    app.include_router(tenants.router, prefix="/admin/v1", tags=["tenants"])
    mount_pages(app)
    if security is not None:
        app.add_middleware(
            AdminGate,
            authenticator=security.authenticator,
            book=security.book,
            metrics_open=security.metrics_open,
        )
    app.add_middleware(BrowserGuard)
    return app
