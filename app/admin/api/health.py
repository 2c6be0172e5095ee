"""Health: the probes of platforms, and the metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import orjson
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from app.admin.lifecycle import Lifecycle

__all__ = ["Refresh", "health_routes"]

Refresh: TypeAlias = Callable[[], Awaitable[None]]
_Route: TypeAlias = Callable[[], Awaitable[Response]]


def health_routes(
    stores: Callable[[], Awaitable[dict[str, Any]]],
    lifecycle: Lifecycle,
    metrics: CollectorRegistry,
    refresh: Refresh | None,
    *,
    guarded: bool,
) -> APIRouter:
    """Make the routes; where others need keys (`guarded`), readiness names no class."""
    router = APIRouter()

    async def readiness() -> dict[str, Any]:
        return lifecycle.readiness(await stores())

    router.get("/startup")(_startup(readiness, lifecycle))
    router.get("/live")(_live)
    router.get("/ready")(_ready(readiness, guarded=guarded))
    router.get("/metrics", response_class=Response)(_exposition(metrics, refresh))
    return router


async def _live() -> dict[str, bool]:
    """Say that the process runs; it says nothing about the stores."""
    return {"live": True}


def _startup(readiness: Callable[[], Awaitable[dict[str, Any]]], lifecycle: Lifecycle) -> _Route:
    async def startup() -> Response:
        """Say whether the process has been ready once (503 until then)."""
        if not lifecycle.came_up:
            await readiness()
        body = orjson.dumps({"started": lifecycle.came_up})
        return Response(body, 200 if lifecycle.came_up else 503, media_type="application/json")

    return startup


def _ready(readiness: Callable[[], Awaitable[dict[str, Any]]], *, guarded: bool) -> _Route:
    async def ready() -> Response:
        """Say whether to send requests here, and which systems are away (503: send none)."""
        state = await readiness()
        if guarded:
            state = _outline(state)
        headers = {"Portolan-Degraded": ", ".join(state["degraded"])}
        return Response(
            orjson.dumps(state),
            200 if state["ready"] else 503,
            headers if state["degraded"] else None,
            "application/json",
        )

    return ready


def _outline(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not for everybody: classes, and what a system said when it failed."""
    systems = {name: {"ok": system["ok"]} for name, system in state["systems"].items()}
    return {**state, "catalogue": {"ok": state["catalogue"]["ok"]}, "systems": systems}


def _exposition(metrics: CollectorRegistry, refresh: Refresh | None) -> _Route:
    async def exposition() -> Response:
        """Show all metrics in Prometheus' text format."""
        if refresh is not None:
            await refresh()
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return exposition
