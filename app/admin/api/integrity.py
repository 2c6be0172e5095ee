"""Integrity: whether systems hold what was written through Portolan."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Path, Query, Request

from app.http.framework import SmallBodies
from mediator.base.errors import Conflict
from mediator.integrity.check import Integrity

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

_MOST: Final = 1_000_000

Database = Annotated[str, Path(pattern="^[a-z][a-z0-9_]{0,62}$")]
Objects = Annotated[int, Query(ge=1, le=_MOST, description="Objects compared at most.")]


def _integrity(request: Request) -> Integrity:
    integrity: Integrity | None = request.app.state.integrity
    if integrity is None:
        raise Conflict("This process compares nothing.")
    return integrity


@router.post("/integrity/{database}")
async def check_integrity(
    database: Database,
    integrity: Annotated[Integrity, Depends(_integrity)],
    objects: Objects = 10_000,
) -> dict[str, Any]:
    """Compare what the systems hold of a database with what the feed says of it.

    It reads all changes that the feed keeps, and up to so many objects of each class.
    """
    return (await integrity.check(database, objects)).to_json()
