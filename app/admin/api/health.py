"""Health: what platforms probe, and the metrics.

Three questions have three answers. *Startup*: has the process come up once? Until then the other
two mean nothing; one that never was able to serve has not come up. *Live*: does it still answer? If
not, kill it; stores that are away are no reason. *Ready*: should requests be sent to it now? Not
while there is nothing that it could serve, and not any more once it drains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import orjson
from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

__all__ = ["Lifecycle", "Refresh", "health_routes"]

Refresh: TypeAlias = Callable[[], Awaitable[None]]


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

    @router.get("/startup")
    async def startup() -> Response:
        """Say whether the process has been ready once (503 until then)."""
        if not lifecycle.came_up:
            lifecycle.readiness(await stores())
        body = orjson.dumps({"started": lifecycle.came_up})
        return Response(body, 200 if lifecycle.came_up else 503, media_type="application/json")

    @router.get("/live")
    async def live() -> dict[str, bool]:
        """Say that the process runs; it says nothing about the stores."""
        return {"live": True}

    @router.get("/ready")
    async def ready() -> Response:
        """Say whether to send requests here, and which systems are away (503: send none)."""
        state = lifecycle.readiness(await stores())
        if guarded:
            state = _outline(state)
        headers = {"Portolan-Degraded": ", ".join(state["degraded"])}
        return Response(
            orjson.dumps(state),
            200 if state["ready"] else 503,
            headers if state["degraded"] else None,
            "application/json",
        )

    @router.get("/metrics", response_class=Response)
    async def exposition() -> Response:
        """Show all metrics in Prometheus' text format."""
        if refresh is not None:
            await refresh()
        return Response(generate_latest(metrics), media_type=CONTENT_TYPE_LATEST)

    return router


def _outline(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not for everybody: classes, and what a system said when it failed."""
    systems = {name: {"ok": system["ok"]} for name, system in state["systems"].items()}
    return {**state, "catalogue": {"ok": state["catalogue"]["ok"]}, "systems": systems}


class Lifecycle:
    """Whether this process has started, and whether it drains.

    Attributes:
        came_up: Whether it could serve at some time.
        draining: Whether it is about to end: what comes is still answered, but should go elsewhere.
    """

    def __init__(self) -> None:
        self.came_up = False
        self.draining = False

    def readiness(self, stores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the readiness of the process, and record that it has come up."""
        self.came_up = self.came_up or bool(stores["ready"])
        ready = bool(stores["ready"]) and not self.draining
        return {**stores, "ready": ready, "draining": self.draining}
