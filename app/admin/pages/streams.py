"""The streams page: event streams and their consumers, standing queries, and the plan of these.

It does not refresh itself: a solver takes up to two seconds for the plan.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from fastapi import Request, Response

from app.admin.api.responses import Name, OfDatabase
from app.admin.pages.data_client import DataApiRefused, chosen_database, exchange, send
from app.admin.pages.page import HEADERS, Page, page_router, render
from app.http.negotiation import SVG

__all__ = ["PAGE"]

router = page_router()

_SHOWN: Final = 100
"""Event streams on the page; of queries a database has no more."""

_NOT_FOUND: Final = 404


@router.get("/streams")
async def show(request: Request, database: OfDatabase = None) -> Response:
    databases, name = await chosen_database(request, database)
    context: dict[str, Any] = {"databases": databases, "database": name}
    if name:
        streams = (await send(request, "GET", f"{name}/event-streams"))["items"]
        context |= {
            "streams": await _each(request, f"{name}/event-streams", streams[:_SHOWN], "name"),
            "left_out": len(streams) - len(streams[:_SHOWN]),
            "queries": await _queries(request, name),
            "plan": await _plan(request, name),
        }
    return render(request, "streams.html", **context)


@router.get("/streams/{database}/plan.svg")
async def draw(request: Request, database: Name) -> Response:
    """Answer the drawing of the plan, for the page alone: it brings styles of its own."""
    headers = {
        **HEADERS,
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    }
    drawn = await exchange(
        request, "GET", f"{database}/standing-queries/plan", headers={"accept": SVG}
    )
    return Response(drawn.content, headers=headers, media_type=SVG)


async def _queries(request: Request, database: str) -> list[dict[str, Any]]:
    path = f"{database}/standing-queries"
    listed = (await send(request, "GET", path))["items"]
    return await _each(request, path, listed, "id")


async def _each(
    request: Request, path: str, listed: list[dict[str, Any]], key: str
) -> list[dict[str, Any]]:
    """Read each of what is listed, unless it has gone meanwhile."""
    found = await asyncio.gather(*(_if_there(request, f"{path}/{each[key]}") for each in listed))
    return [each for each in found if each is not None]


async def _plan(request: Request, database: str) -> dict[str, Any] | None:
    """Return the plan; None: no query is executed."""
    return await _if_there(request, f"{database}/standing-queries/plan")


async def _if_there(request: Request, path: str) -> dict[str, Any] | None:
    try:
        return await send(request, "GET", path)
    except DataApiRefused as refused:
        if refused.problem["status"] == _NOT_FOUND:
            return None
        raise


PAGE = Page(
    "Streams", "/streams", "What arrives in streams, and the queries that wait for it.", router
)
