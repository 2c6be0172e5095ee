"""The cache sketch: filters, pending writes and purges."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter

from app.admin.api.responses import OfDatabase, component
from app.coherence.caches import Caches

__all__ = ["router"]

router = APIRouter()

Sketch = Annotated[
    Caches, component("caches", "There is no cache sketch here: PORTOLAN_SKETCH is off.")
]


@router.get("/sketch")
async def describe_sketch(caches: Sketch, database: OfDatabase = None) -> dict[str, Any]:
    """Describe the cache sketch class by class, and the caches that are purged.

    At most 1000 classes are shown; ``database`` selects those of one database. The time does not
    depend on the number of objects.
    """
    return await caches.overview(database)
