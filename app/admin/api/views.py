"""Materialised views: description, verification and rebuilding."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from app.admin.api.responses import Name, component
from mediator.materialisation.service import ViewService

__all__ = ["router"]

router = APIRouter()

Views = Annotated[ViewService, component("views", "This process keeps no views.")]
Repair = Annotated[bool, Query(description="Repair wrong copies.")]


@router.get("/views")
async def list_views(views: Views) -> dict[str, Any]:
    """Describe the views of all databases."""
    return {"items": await views.overview()}


@router.get("/views/{database}")
async def get_view(views: Views, database: Name) -> dict[str, Any]:
    """Describe a view: the age of its copies, the work on it, the last run over it."""
    return await views.describe(database)


@router.post("/views/{database}/verify", status_code=202)
async def verify_view(views: Views, database: Name, repair: Repair = False) -> dict[str, Any]:
    """Start to compare a view with its systems; refused (409) while a run goes on."""
    return await views.start_run(database, "verify", repair=repair)


@router.post("/views/{database}/rebuild", status_code=202)
async def rebuild_view(views: Views, database: Name) -> dict[str, Any]:
    """Start to rebuild a view; refused (409) while a run goes on.

    Until it ends, reads go to the systems themselves.
    """
    return await views.start_run(database, "rebuild")
