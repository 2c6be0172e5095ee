"""The queries page: what took long or was refused, and the index that would help."""

from __future__ import annotations

from fastapi import Request, Response

from app.admin.pages.page import Page, page_router, render
from mediator.data_plane.executor import LONG_QUERY_S

__all__ = ["PAGE"]

router = page_router()


@router.get("/queries")
async def show(request: Request) -> Response:
    kept = request.app.state.costly_queries
    shapes = [] if kept is None else kept.shapes
    return render(request, "queries.html", shapes=shapes, long_s=LONG_QUERY_S)


PAGE = Page("Queries", "/queries", "Queries that took long or were refused, by shape.", router)
