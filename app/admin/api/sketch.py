"""The cache sketch: what is in the filters, what is pending, what is to be purged."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from app.coherence.caches import Caches
from mediator.base.errors import Conflict

__all__ = ["router"]

router = APIRouter()


def _caches(request: Request) -> Caches:
    caches: Caches | None = request.app.state.caches
    if caches is None:
        raise Conflict("There is no cache sketch here: PORTOLAN_SKETCH is off.")
    return caches


Database = Annotated[str | None, Query(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


@router.get("/sketch")
async def describe_sketch(
    caches: Annotated[Caches, Depends(_caches)], database: Database = None
) -> dict[str, Any]:
    """Describe the cache sketch class by class, and the caches that are purged.

    At most 1000 classes are shown; ``database`` narrows. It takes no longer the more objects there
    are.
    """
    return await caches.overview(database)
