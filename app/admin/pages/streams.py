"""The streams page: event streams and their consumers, standing queries and their plan.

It does not refresh itself: a solver takes up to two seconds for the plan.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import Request, Response

from app.admin.api.responses import Name, OfDatabase
from app.admin.pages.data_client import DataApiRefused, exchange, select_database, send
from app.admin.pages.page import HEADERS, Page, page_router, render
from app.http.negotiation import SVG

__all__ = ["PAGE"]

router = page_router()

_MAX_STREAMS: Final = 100
"""Event streams on the page; a database has no more queries than that."""

_NOT_FOUND: Final = 404


@router.get("/streams")
async def show(request: Request, database: OfDatabase = None) -> Response:
    databases, name = await select_database(request, database)
    context: dict[str, Any] = {"databases": databases, "database": name}
    if name:
        streams = (await send(request, "GET", f"{name}/event-streams"))["items"]
        context |= {
            "streams": await _read_all(
                request, f"{name}/event-streams", streams[:_MAX_STREAMS], "name"
            ),
            "left_out": len(streams) - len(streams[:_MAX_STREAMS]),
            "queries": await _queries(request, name),
            "plan": await _plan(request, name),
        }
    return render(request, "streams.html", **context)


@router.get("/streams/{database}/plan.svg")
async def draw(request: Request, database: Name) -> Response:
    """Answer with the drawing of the plan, for the page only: it has inline styles."""
    headers = {
        **HEADERS,
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    }
    drawing = await exchange(
        request, "GET", f"{database}/standing-queries/plan", headers={"accept": SVG}
    )
    return Response(drawing.content, headers=headers, media_type=SVG)


async def _queries(request: Request, database: str) -> list[dict[str, Any]]:
    path = f"{database}/standing-queries"
    items = (await send(request, "GET", path))["items"]
    return await _read_all(request, path, items, "id")


async def _read_all(
    request: Request, path: str, items: list[dict[str, Any]], key: str
) -> list[dict[str, Any]]:
    """Read each item, unless it was deleted meanwhile."""
    documents = await asyncio.gather(
        *(_read_if_exists(request, f"{path}/{item[key]}") for item in items)
    )
    return [document for document in documents if document is not None]


async def _plan(request: Request, database: str) -> dict[str, Any] | None:
    """Return the plan; None: no query is executed."""
    return await _read_if_exists(request, f"{database}/standing-queries/plan")


async def _read_if_exists(request: Request, path: str) -> dict[str, Any] | None:
    try:
        return await send(request, "GET", path)
    except DataApiRefused as refused:
        if refused.problem["status"] == _NOT_FOUND:
            return None
        raise


PAGE = Page(
    "Streams", "/streams", "What arrives in streams, and the queries that wait for it.", router
)
