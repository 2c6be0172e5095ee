"""The feed page: changes as they are made, or from the beginning of what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import Query, Request, Response

from app.admin.api.responses import OfDatabase
from app.admin.pages.data_client import chosen_database, send
from app.admin.pages.objects import ClassName
from app.admin.pages.page import Page, page_router, render

__all__ = ["PAGE"]

router = page_router()

After = Annotated[str, Query(max_length=1000)]
Wait = Annotated[int, Query(ge=0, le=10)]


@router.get("/feed")
async def show(
    request: Request,
    database: OfDatabase = None,
    class_name: ClassName = None,
    after: After = "",
    wait: Wait = 0,
) -> Response:
    """Show the changes after a position; without one there are none yet, and they are followed."""
    databases, name = await chosen_database(request, database)
    classes: list[str] = next((d["classes"] for d in databases if d["name"] == name), [])
    found: dict[str, Any] = {"changes": [], "position": ""}
    if name:
        given = {"class": class_name or "", "after": after}
        parameters = {key: text for key, text in given.items() if text}
        parameters |= {"limit": "50", "wait": str(wait)}
        found = await send(request, "GET", f"{name}/changes", parameters)
    return render(
        request,
        "feed.html",
        databases=databases,
        database=name,
        classes=classes,
        chosen=class_name or "",
        after=after,
        changes=[{**each, "fields": list(_fields(each))} for each in found["changes"]],
        position=found["position"],
    )


def _fields(change: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of a change with their values before and after; None: there was none."""
    before, after = change["before"] or {}, change["after"] or {}
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)


PAGE = Page("Feed", "/feed", "Changes of objects, as they are made.", router)
