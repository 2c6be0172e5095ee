"""Staleness probes: begin one, follow it, end it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter

from app.admin.api.responses import JsonBody, json_request, part
from app.api.models.common import NAME_SCHEMA
from app.http.framework import SmallBodies
from mediator.base.errors import NotFound
from mediator.staleness_probes.model import (
    MAX_COUNT,
    MAX_DURATION_S,
    MAX_RATE,
    MAX_TIMEOUT_S,
    read_request,
)
from mediator.staleness_probes.service import StalenessProbes

__all__ = ["Probes", "router"]

router = APIRouter(route_class=SmallBodies)

PROBE_REQUEST: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["database", "class"],
    "additionalProperties": False,
    "properties": {
        "database": NAME_SCHEMA,
        "class": NAME_SCHEMA,
        "path": {
            "type": "string",
            "default": "fresh",
            "description": "fresh, view, or the URL of a cache in PORTOLAN_PROBE_CACHES.",
        },
        "count": {"type": "integer", "minimum": 1, "maximum": MAX_COUNT, "default": 100},
        "rate": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX_RATE,
            "default": 10,
            "description": "Measurements in a second; all must begin within"
            f" {MAX_DURATION_S:g} seconds.",
        },
        "timeout_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX_TIMEOUT_S,
            "default": 10,
        },
        "delta_s": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_TIMEOUT_S},
        "bound_s": {"type": "number", "minimum": 0},
    },
}

Probes = Annotated[StalenessProbes, part("probes", "This process carries out no probes.")]


@router.post("/probes/staleness", status_code=202, openapi_extra=json_request(PROBE_REQUEST))
async def begin_probe(probes: Probes, body: JsonBody) -> dict[str, Any]:
    """Begin to measure how stale reads of a class are; refused (409) while a probe goes on.

    It writes to scratch objects of the class, which are removed at the end.
    """
    return await probes.start(read_request(body))


@router.get("/probes/staleness")
async def get_probe(probes: Probes) -> dict[str, Any]:
    """Describe the probe that is going on, or the last one: progress, bounds, percentiles."""
    return _there(probes.describe())


@router.delete("/probes/staleness")
async def stop_probe(probes: Probes) -> dict[str, Any]:
    """End the probe that is going on, once its scratch objects are removed."""
    return _there(await probes.stop())


def _there(described: dict[str, Any] | None) -> dict[str, Any]:
    if described is None:
        raise NotFound("There was no probe yet.")
    return described
