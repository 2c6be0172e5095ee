"""The admin application: health, metrics, and the routes of the control plane."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from app.access.security import Security
from app.admin import materialisation, placements, probes, schemas, sketch, systems, tenants
from app.admin.answers import PROBLEM
from app.admin.gate import AdminGate
from app.coherence.beginnings import Beginnings
from app.coherence.caches import Caches
from app.http.browser import BrowserGuard
from app.http.framework import answer_problems
from mediator.access.tenancy import Tenancy
from mediator.materialise.service import MaterialiseService
from mediator.planes import ControlPlane
from mediator.probing import StalenessProbes

__all__ = ["create_admin_app"]


def create_admin_app(
    control: ControlPlane,
    metrics: CollectorRegistry,
    primaries: MaterialiseService | None = None,
    beginnings: Beginnings | None = None,
    staleness: StalenessProbes | None = None,
    caches: Caches | None = None,
    tenancy: Tenancy | None = None,
    security: Security | None = None,
    *,
    only_loopback: bool = False,
) -> FastAPI:
    """Make the admin application.

    Args:
        control: The control plane.
        metrics: What ``/metrics`` shows.
        primaries: What keeps primaries up.
        beginnings: Tells the sketch of new classes; None: there is no sketch.
        staleness: Carries out staleness probes.
        caches: What keeps caches coherent; None: there is no sketch.
        tenancy: The tenants and their keys.
        security: Authenticates requests; None: nobody is authenticated.
        only_loopback: Whether requests must be addressed to this machine by a name of its own.
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
    app.state.tenancy = tenancy
    app.get("/live", tags=["health"])(_live)
    app.get("/ready", tags=["health"])(_readiness(control.readiness))
    app.get("/metrics", tags=["health"], response_class=Response)(_exposition(metrics))
    app.include_router(systems.router, prefix="/admin/v1", tags=["systems"])
    app.include_router(schemas.router, prefix="/admin/v1", tags=["schemas"])
    app.include_router(placements.router, prefix="/admin/v1", tags=["placements"])
    app.include_router(materialisation.router, prefix="/admin/v1", tags=["primaries"])
    app.include_router(probes.router, prefix="/admin/v1", tags=["probes"])
    app.include_router(sketch.router, prefix="/admin/v1", tags=["sketch"])
    app.include_router(tenants.router, prefix="/admin/v1", tags=["tenants"])
    if security is not None:
        app.add_middleware(
            AdminGate,
            authenticator=security.authenticator,
            book=security.book,
            metrics_open=security.metrics_open,
        )
    app.add_middleware(BrowserGuard, only_loopback=only_loopback)
    return app


async def _live() -> dict[str, bool]:
    """Say that the process runs; it says nothing about the stores."""
    return {"live": True}


def _readiness(ask: Callable[[], Awaitable[dict[str, Any]]]) -> Callable[[], Awaitable[Response]]:
    async def ready() -> Response:
        """Say whether requests can be served, and which systems are away (503 if none can)."""
        verdict = await ask()
        headers = {"Portolan-Degraded": ", ".join(verdict["degraded"])}
        return Response(
            orjson.dumps(verdict),
            200 if verdict["ready"] else 503,
            headers if verdict["degraded"] else None,
            "application/json",
        )

    return ready


def _exposition(metrics: CollectorRegistry) -> Callable[[], Awaitable[Response]]:
    async def exposition() -> Response:
        """Show all metrics in Prometheus' text format."""
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return exposition
