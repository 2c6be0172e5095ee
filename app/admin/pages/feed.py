"""The feed page: changes as they are made, or from the start of the retained feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import Query, Request, Response

from app.admin.api.responses import OfDatabase
from app.admin.pages.data_client import select_database, send
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
    """Show the changes after a position; without one, none: the page follows new ones."""
    databases, name = await select_database(request, database)
    classes: list[str] = next((d["classes"] for d in databases if d["name"] == name), [])
    answer: dict[str, Any] = {"changes": [], "position": ""}
    if name:
        options = {"class": class_name or "", "after": after}
        parameters = {key: text for key, text in options.items() if text}
        parameters |= {"limit": "50", "wait": str(wait)}
        answer = await send(request, "GET", f"{name}/changes", parameters)
    return render(
        request,
        "feed.html",
        databases=databases,
        database=name,
        classes=classes,
        chosen=class_name or "",
        after=after,
        changes=[{**change, "fields": list(_fields(change))} for change in answer["changes"]],
        position=answer["position"],
    )


def _fields(change: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the fields of a change with their values before and after; None: absent."""
    before, after = change["before"] or {}, change["after"] or {}
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield name, before.get(name), after.get(name)


PAGE = Page("Feed", "/feed", "Changes of objects, as they are made.", router)
