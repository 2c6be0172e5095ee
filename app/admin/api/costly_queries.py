"""Costly queries: slow or refused queries by shape, and the indexes that would help."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter

from app.admin.api.responses import Control, component
from app.telemetry.costly_queries import CostlyQueries, CostlyShape
from mediator.base.errors import NotFound
from mediator.base.observation import CostlyQueryFound
from mediator.control.plane import ControlPlane
from mediator.schema.added_indexes import index_patch

__all__ = ["router"]

router = APIRouter()

Queries = Annotated[CostlyQueries, component("costly_queries", "This process keeps no queries.")]


@router.get("/costly-queries")
async def list_costly_queries(queries: Queries, control: Control) -> dict[str, Any]:
    """List slow or refused queries of this process, without their constants."""
    return {"items": [await _describe(shape, control) for shape in queries.shapes]}


async def _describe(shape: CostlyShape, control: ControlPlane) -> dict[str, Any]:
    last = shape.last
    return {
        "database": last.database,
        "class": last.class_name,
        "shape": last.shape,
        "answered": shape.answered,
        "seconds": shape.seconds,
        "slowest_s": shape.slowest_s,
        "rows": shape.rows,
        "refused": shape.refused,
        "refusal": last.refusal,
        "without_index": list(last.without_index),
        "indexes": await _proposed_indexes(last, control),
        "last": datetime.fromtimestamp(shape.last_s, UTC).isoformat(),
    }


async def _proposed_indexes(query: CostlyQueryFound, control: ControlPlane) -> list[dict[str, Any]]:
    """Describe the indexes that would help, with patches that add them to the current schema."""
    if not query.indexes:
        return []
    try:
        document, _ = await control.stored_schema(query.database)
    except NotFound:  # dropped since
        return []
    patches = [(names, index_patch(document, query.class_name, names)) for names in query.indexes]
    return [{"fields": list(names), "patch": patch} for names, patch in patches if patch]
