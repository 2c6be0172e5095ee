"""The map page: the tree of a schema, the system of each group, and why it is there."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from app.admin.pages.data_client import chosen_database
from app.admin.pages.explanations import flips, margin, reasons
from app.admin.pages.page import Page, page_router, render
from mediator.control.plane import ControlPlane

__all__ = ["PAGE", "colours_of"]

router = page_router()
_ROOT: Final = "*"
_LONGEST: Final = 127

Database = Annotated[str | None, Query(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
NodeName = Annotated[str | None, Query(max_length=_LONGEST)]


@router.get("/map")
async def show(request: Request, database: Database = None, node: NodeName = None) -> Response:
    """Show the tree of a database, and one of its nodes closely."""
    control: ControlPlane = request.app.state.control
    databases, name = await chosen_database(request, database)
    context: dict[str, Any] = {"databases": databases, "database": name, "summary": None}
    if name:
        summary = await control.summary(name)
        chosen = node or _first_node(summary["nodes"])
        explained = await control.explain(name, *_path(chosen))
        context |= {
            "summary": summary,
            "classes": _tree(summary),
            "colours": colours_of(await control.systems()),
            "explained": explained,
            "reasons": reasons(explained),
            "margin": margin(explained),
            "flips": flips(explained),
        }
    return render(request, "map.html", **context)


def colours_of(systems: list[dict[str, Any]]) -> dict[str, int]:
    """Return the colour of each system by its number, the same on all pages."""
    return {system["name"]: index for index, system in enumerate(systems)}


def _path(node: str) -> tuple[str, ...]:
    return () if node == _ROOT else tuple(node.split(".", 1))


def _first_node(nodes: dict[str, Any]) -> str:
    """Choose the node to begin with: a field that decides for itself, the one that splits off."""
    fields = [name for name in nodes if "." in name]
    alone = [n for n in fields if nodes[n]["system"] != nodes[n.split(".")[0]]["system"]]
    voting = [n for n in fields if nodes[n]["scores"]]
    return next(iter([*alone, *voting]), _ROOT)


def _tree(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """Arrange the nodes by class and cache group."""
    return [
        {
            "name": class_name,
            "groups": [
                {"name": name, "system": placed["system"], "fields": placed["fields"]}
                for name, placed in groups.items()
            ],
        }
        for class_name, groups in summary["groups"].items()
    ]


PAGE = Page("Map", "/map", "Which system serves which fragment of a database, and why.", router)
