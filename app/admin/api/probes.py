"""Staleness probes: begin one, follow it, end it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from app.admin.api.responses import JsonBody, json_request, part
from app.http.framework import SmallBodies
from mediator.base.errors import NotFound
from mediator.schema.validation import json_schema_of
from mediator.staleness_probes.model import PROBE_REQUEST, read_request
from mediator.staleness_probes.service import StalenessProbes

__all__ = ["Probes", "router"]

router = APIRouter(route_class=SmallBodies)

Probes = Annotated[StalenessProbes, part("probes", "This process carries out no probes.")]


@router.post(
    "/probes/staleness", status_code=202, openapi_extra=json_request(json_schema_of(PROBE_REQUEST))
)
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
