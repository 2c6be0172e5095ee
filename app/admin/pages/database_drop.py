"""Dropping a database: a preview, and its name typed as confirmation."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request, Response

from app.admin.api.responses import Control
from app.admin.pages.forms import read_form, read_name
from app.admin.pages.objects import Database
from app.admin.pages.page import colours_of, page_router, redirect, render
from app.http.paths import parse_integer
from mediator.control.plane import ControlPlane

__all__ = ["router"]

router = page_router()

_FIELDS: Final = frozenset({"database", "version", "name"})


@router.get("/schema/drop")
async def show(request: Request, control: Control, database: Database) -> Response:
    """Show what a drop would remove, without changing anything."""
    return await _page(request, control, database)


@router.post("/schema/drop")
async def drop(request: Request, control: Control) -> Response:
    """Drop a database whose name was typed, if its schema has not changed since it was shown."""
    form = await read_form(request, _FIELDS)
    database = read_name(form, "database")
    if form.get("name", "") != database:
        return await _page(request, control, database, mistyped=True)
    version = parse_integer(form.get("version", ""), "version", minimum=1)
    await control.delete_schema(database, version=version)
    return redirect("/schema")


async def _page(
    request: Request, control: ControlPlane, database: str, *, mistyped: bool = False
) -> Response:
    report = await control.delete_schema(database, dry_run=True)
    _, version = await control.stored_schema(database)
    serves = (await control.readiness())["systems"]
    before, uses = await control.pinned_versions(database)
    return render(
        request,
        "drop.html",
        database=database,
        version=version,
        objects=report["objects"],
        systems=_systems(serves, database),
        pinned=[use for use in uses if use.version >= before],
        mistyped=mistyped,
        colours=colours_of(await control.systems()),
    )


def _systems(serves: dict[str, Any], database: str) -> list[str]:
    """Name the systems that hold objects of a database."""
    return [
        name
        for name, system in serves.items()
        if any(node.partition(".")[0] == database for node in system["serves"])
    ]
