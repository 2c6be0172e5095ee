"""Staleness probes: start, follow and end one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from app.admin.api.responses import JsonBody, component, json_request
from app.http.framework import SmallBodies
from mediator.base.errors import NotFound
from mediator.schema.validation import json_schema_of
from mediator.staleness_probes.model import PROBE_REQUEST, read_request
from mediator.staleness_probes.service import StalenessProbes

__all__ = ["Probes", "router"]

router = APIRouter(route_class=SmallBodies)

Probes = Annotated[StalenessProbes, component("probes", "This process carries out no probes.")]


@router.post(
    "/probes/staleness", status_code=202, openapi_extra=json_request(json_schema_of(PROBE_REQUEST))
)
async def begin_probe(probes: Probes, body: JsonBody) -> dict[str, Any]:
    """Start to measure how stale reads of a class are; refused (409) while a probe runs.

    It writes to scratch objects of the class, which are removed at the end.
    """
    return await probes.start(read_request(body))


@router.get("/probes/staleness")
async def get_probe(probes: Probes) -> dict[str, Any]:
    """Describe the running probe, or the last one: progress, bounds, percentiles."""
    return _require(probes.describe())


@router.delete("/probes/staleness")
async def stop_probe(probes: Probes) -> dict[str, Any]:
    """End the running probe, once its scratch objects are removed."""
    return _require(await probes.stop())


def _require(probe: dict[str, Any] | None) -> dict[str, Any]:
    if probe is None:
        raise NotFound("There was no probe yet.")
    return probe
