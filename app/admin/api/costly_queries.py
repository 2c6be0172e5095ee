"""Costly queries: what took long or was refused, by shape, and the index that would help."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter

from app.admin.api.responses import part
from app.telemetry.costly_queries import CostlyQueries, CostlyShape

__all__ = ["router"]

router = APIRouter()

Kept = Annotated[CostlyQueries, part("costly_queries", "This process keeps no queries.")]


@router.get("/costly-queries")
async def list_costly_queries(queries: Kept) -> dict[str, Any]:
    """List queries of this process that took long or were refused, without their constants."""
    return {"items": [_described(shape) for shape in queries.shapes]}


def _described(shape: CostlyShape) -> dict[str, Any]:
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
        "last": datetime.fromtimestamp(shape.last_s, UTC).isoformat(),
    }
