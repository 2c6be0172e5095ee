"""Primaries: how old their copies are, how they are kept up; verifying and rebuilding them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from app.admin.api.responses import DatabaseName
from mediator.base.errors import Conflict
from mediator.materialisation.service import MaterialiseService

__all__ = ["router"]

router = APIRouter()


def _primaries(request: Request) -> MaterialiseService:
    service: MaterialiseService | None = request.app.state.primaries
    if service is None:
        raise Conflict("This process keeps no primaries.")
    return service


Primaries = Annotated[MaterialiseService, Depends(_primaries)]
Repair = Annotated[bool, Query(description="Make good what is wrong.")]


@router.get("/materialisation")
async def list_primaries(primaries: Primaries) -> dict[str, Any]:
    """Describe the primaries of all databases."""
    return {"items": await primaries.overview()}


@router.get("/materialisation/{database}")
async def get_primary(primaries: Primaries, database: DatabaseName) -> dict[str, Any]:
    """Describe a primary: the age of its copies, the work on it, the last run over it."""
    return await primaries.describe(database)


@router.post("/materialisation/{database}/verify", status_code=202)
async def verify_primary(
    primaries: Primaries, database: DatabaseName, repair: Repair = False
) -> dict[str, Any]:
    """Begin to compare a primary with its systems; refused (409) while a run goes on."""
    return await primaries.begin(database, "verify", repair=repair)


@router.post("/materialisation/{database}/rebuild", status_code=202)
async def rebuild_primary(primaries: Primaries, database: DatabaseName) -> dict[str, Any]:
    """Begin to copy everything anew; refused (409) while a run goes on.

    Until it is done reads go to the systems themselves.
    """
    return await primaries.begin(database, "rebuild")
