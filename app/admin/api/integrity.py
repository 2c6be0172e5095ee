"""Integrity: whether systems hold what was written through Portolan."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from app.admin.api.responses import Name, part
from app.http.framework import SmallBodies
from mediator.integrity.check import Integrity

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

_MOST: Final = 1_000_000

Objects = Annotated[int, Query(ge=1, le=_MOST, description="Objects compared at most.")]


@router.post("/integrity/{database}")
async def check_integrity(
    database: Name,
    integrity: Annotated[Integrity, part("integrity", "This process compares nothing.")],
    objects: Objects = 10_000,
) -> dict[str, Any]:
    """Compare what the systems hold of a database with what the feed says of it.

    It reads all changes that the feed keeps, and up to so many objects of each class.
    """
    return (await integrity.check(database, objects)).to_json()
