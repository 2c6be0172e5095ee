"""The queries page: slow or refused queries, and the index that would help."""

from __future__ import annotations

from fastapi import Request, Response

from app.admin.pages.page import Page, page_router, render
from mediator.data_plane.executor import LONG_QUERY_S

__all__ = ["PAGE"]

router = page_router()


@router.get("/queries")
async def show(request: Request) -> Response:
    queries = request.app.state.costly_queries
    shapes = [] if queries is None else queries.shapes
    return render(request, "queries.html", shapes=shapes, long_s=LONG_QUERY_S)


PAGE = Page("Queries", "/queries", "Queries that took long or were refused, by shape.", router)
