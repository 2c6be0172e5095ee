"""The data page: the objects of a class as a client reads them, and the plan of the query."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response

from app.admin.api.responses import OfDatabase
from app.admin.pages.data_client import DataApiRefused, chosen_database, send
from app.admin.pages.page import Page, page_router, render

__all__ = ["PAGE"]

router = page_router()

ClassName = Annotated[str | None, Query(alias="class", pattern=r"^([a-z][a-z0-9_]{0,62})?$")]
Text = Annotated[str, Query(max_length=4000)]
Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("/data")
async def show(
    request: Request,
    database: OfDatabase = None,
    class_name: ClassName = None,
    filter: Text = "",  # noqa: A002 - the name of the parameter
    order: Text = "",
    limit: Limit = 20,
    after: Text = "",
) -> Response:
    databases, name = await chosen_database(request, database)
    classes: list[str] = next((d["classes"] for d in databases if d["name"] == name), [])
    chosen = class_name or next(iter(classes), "")
    answer, problem = None, None
    if chosen:
        given = {"filter": filter, "order": order, "after": after}
        parameters = {key: text for key, text in given.items() if text}
        parameters |= {"limit": str(limit), "explain": "true"}
        try:
            answer = await send(request, "GET", f"{name}/{chosen}", parameters)
        except DataApiRefused as refused:
            problem = refused.problem
    return render(
        request,
        "data.html",
        databases=databases,
        database=name,
        classes=classes,
        chosen=chosen,
        query={"filter": filter, "order": order, "limit": limit},
        answer=answer,
        columns=_columns(answer["items"]) if answer else [],
        problem=problem,
    )


def _columns(items: list[dict[str, Any]]) -> list[str]:
    """Name the members of all objects, the id first."""
    return list(dict.fromkeys(["id", *(name for item in items for name in item)]))


PAGE = Page("Data", "/data", "The objects of a class, and how a query finds them.", router)
