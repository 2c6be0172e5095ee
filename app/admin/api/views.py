"""Views: how old their copies are, how they are kept up; verifying and rebuilding them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request

from app.admin.api.responses import DatabaseName
from mediator.base.errors import Conflict
from mediator.materialisation.service import MaterialiseService

__all__ = ["router"]

router = APIRouter()


def _views(request: Request) -> MaterialiseService:
    service: MaterialiseService | None = request.app.state.views
    if service is None:
        raise Conflict("This process keeps no views.")
    return service


Views = Annotated[MaterialiseService, Depends(_views)]
Repair = Annotated[bool, Query(description="Make good what is wrong.")]


@router.get("/views")
async def list_views(views: Views) -> dict[str, Any]:
    """Describe the views of all databases."""
    return {"items": await views.overview()}


@router.get("/views/{database}")
async def get_view(views: Views, database: DatabaseName) -> dict[str, Any]:
    """Describe a view: the age of its copies, the work on it, the last run over it."""
    return await views.describe(database)


@router.post("/views/{database}/verify", status_code=202)
async def verify_view(
    views: Views, database: DatabaseName, repair: Repair = False
) -> dict[str, Any]:
    """Begin to compare a view with its systems; refused (409) while a run goes on."""
    return await views.begin(database, "verify", repair=repair)


@router.post("/views/{database}/rebuild", status_code=202)
async def rebuild_view(views: Views, database: DatabaseName) -> dict[str, Any]:
    """Begin to copy everything anew; refused (409) while a run goes on.

    Until it is done reads go to the systems themselves.
    """
    return await views.begin(database, "rebuild")
