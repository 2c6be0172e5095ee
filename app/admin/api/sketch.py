"""The cache sketch: what is in the filters, what is pending, what is to be purged."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from app.admin.api.responses import OfDatabase, part
from app.coherence.caches import Caches

__all__ = ["router"]

router = APIRouter()

Sketch = Annotated[Caches, part("caches", "There is no cache sketch here: PORTOLAN_SKETCH is off.")]


@router.get("/sketch")
async def describe_sketch(caches: Sketch, database: OfDatabase = None) -> dict[str, Any]:
    """Describe the cache sketch class by class, and the caches that are purged.

    At most 1000 classes are shown; ``database`` narrows. It takes no longer the more objects there
    are.
    """
    return await caches.overview(database)
