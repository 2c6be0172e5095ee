"""Health: the probes of platforms, and the metrics.

Three probes answer three questions. *Startup*: has the process been ready once? Until then the
other two mean nothing. *Live*: does it still answer? If not, kill it; unavailable stores are no
reason. *Ready*: should requests be sent to it now? Not while it can serve nothing or authenticate
nobody, and not while it drains.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson
from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.datastructures import State

from app.http.negotiation import JSON

__all__ = ["Lifecycle", "Refresh", "router"]

Refresh: TypeAlias = Callable[[], Awaitable[None]]

router = APIRouter()

_SHARED: Final = frozenset({"catalogue", "coordination"})
"""Databases that replicas share, besides systems; the coordination Redis is optional."""


@router.get("/startup")
async def startup(request: Request) -> Response:
    """Return whether the process has been ready once (503 until then)."""
    state = request.app.state
    if not state.lifecycle.came_up:
        await _readiness(state)
    started = state.lifecycle.came_up
    body = orjson.dumps({"started": started})
    return Response(body, 200 if started else 503, media_type=JSON)


@router.get("/live")
async def live() -> dict[str, bool]:
    """Answer while the process runs, whatever the state of the stores."""
    return {"live": True}


@router.get("/ready")
async def ready(request: Request) -> Response:
    """Return whether to send requests here, and which systems are away (503: send none)."""
    state = request.app.state
    readiness = await _readiness(state)
    if state.security is not None:  # this route needs no key, so it must name no class
        readiness = _outline(readiness)
    degraded = ", ".join(readiness["degraded"])
    headers = {"Portolan-Degraded": degraded} if degraded else None
    return Response(orjson.dumps(readiness), 200 if readiness["ready"] else 503, headers, JSON)


@router.get("/metrics", response_class=Response)
async def exposition(request: Request) -> Response:
    """Show all metrics in Prometheus' text format."""
    state = request.app.state
    if state.refresh is not None:
        await state.refresh()
    return Response(generate_latest(state.metrics), media_type=CONTENT_TYPE_LATEST)


async def _readiness(state: State) -> dict[str, Any]:
    """Return the readiness of the process, and record that it has come up."""
    stores = await state.control.readiness()
    if state.security is not None and not state.security.access_cache.is_valid:
        # The catalogue may answer again, but all are refused until the snapshot is read.
        degraded = list(dict.fromkeys([*stores["degraded"], "catalogue"]))
        stores = {**stores, "ready": False, "degraded": degraded, "catalogue": {"ok": False}}
    readiness: dict[str, Any] = state.lifecycle.readiness(stores)
    return readiness


def _outline(state: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is not public: classes, and error messages of systems."""
    systems = {name: {"ok": system["ok"]} for name, system in state["systems"].items()}
    shared = {name: {"ok": state[name]["ok"]} for name in _SHARED & state.keys()}
    return {**state, **shared, "systems": systems}


@dataclass(slots=True)
class Lifecycle:
    """Whether this process has started, and whether it drains.

    Attributes:
        came_up: Whether it has been ready once.
        draining: Whether it is about to end: requests are still answered, but should go elsewhere.
    """

    came_up: bool = False
    draining: bool = False

    def readiness(self, stores: Mapping[str, Any]) -> dict[str, Any]:
        """Return the readiness of the process, and record that it has come up."""
        self.came_up = self.came_up or bool(stores["ready"])
        ready = bool(stores["ready"]) and not self.draining
        return {**stores, "ready": ready, "draining": self.draining}
