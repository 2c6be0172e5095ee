"""The what-if page: sliders for weights, goals and metrics, and the placement that follows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from fastapi import Request, Response

from app.admin.api.responses import OfDatabase
from app.admin.pages.data_client import select_database
from app.admin.pages.page import Page, colours_of, page_router, render
from app.http.paths import parse_pairs
from mediator.base.errors import Invalid, Location, MediatorError
from mediator.control.plane import ControlPlane

__all__ = ["PAGE"]

router = page_router()
_SPAN: Final = 6.0
"""A slider spans a 64th to 64 times the current value, in octaves."""
_MAX_ANNOTATIONS: Final = 40
"""Annotations with sliders on a page: the first ones of a schema."""


@router.get("/what-if")
async def show(request: Request, database: OfDatabase = None) -> Response:
    """Show the sliders, and the outcome of those that the address moves."""
    control: ControlPlane = request.app.state.control
    databases, name = await select_database(request, database)
    context: dict[str, Any] = {"databases": databases, "database": name, "sliders": []}
    if name:
        positions = _positions(request.scope["query_string"])
        sliders = await _sliders(control, name, positions)
        outcome, problem = None, None
        try:
            outcome = await control.what_if(name, _supposition(sliders))
        except MediatorError as error:
            problem = error.detail
        colours = colours_of(await control.systems())
        context |= {"sliders": sliders, "outcome": outcome, "problem": problem, "colours": colours}
    return render(request, "what_if.html", **context)


def _positions(query: bytes) -> dict[str, float]:
    """Parse how far sliders were moved, in octaves; unknown names are ignored later."""
    positions = {}
    for name, text in parse_pairs(query):
        if name == "database":
            continue
        try:
            octaves = float(text)
        except ValueError:
            octaves = math.nan
        if not abs(octaves) <= _SPAN:
            location = Location(name[:100], f"a number from {-_SPAN:g} to {_SPAN:g} is expected")
            raise Invalid("A slider has no such position.", locations=[location])
        positions[name] = octaves
    return positions


async def _sliders(
    control: ControlPlane, database: str, positions: dict[str, float]
) -> list[dict[str, Any]]:
    annotations = list(_annotations((await control.schema(database)).document))
    metrics = {
        (annotation["metric"], annotation.get("statistic", "mean"))
        for _, _, annotation in annotations
    }
    candidates = (await control.summary(database))["candidates"]
    sliders = [*_annotation_sliders(annotations), *_system_sliders(candidates, sorted(metrics))]
    return [_with_position(slider, positions.get(slider["name"], 0.0)) for slider in sliders]


def _annotations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the requirements with a metric: node, JSON pointer, annotation."""
    yield from _metric_annotations("the database", "", document)
    for class_name, class_ in document["classes"].items():
        pointer = f"/classes/{class_name}"
        yield from _metric_annotations(class_name, pointer, class_)
        for name, field in class_["fields"].items():
            yield from _metric_annotations(
                f"{class_name}.{name}", f"{pointer}/fields/{name}", field
            )


def _metric_annotations(
    node: str, pointer: str, declaration: dict[str, Any]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for index, annotation in enumerate(declaration["annotations"]):
        if "metric" in annotation:
            yield node, f"{pointer}/annotations/{index}", annotation


def _annotation_sliders(
    annotations: list[tuple[str, str, dict[str, Any]]],
) -> Iterator[dict[str, Any]]:
    for node, pointer, annotation in annotations[:_MAX_ANNOTATIONS]:
        for member in ("weight", "goal"):
            if annotation.get(member):
                yield {
                    "name": f"{member} {pointer}",
                    "heading": node,
                    "metric": annotation["metric"],
                    "what": member,
                    "now": annotation[member],
                    "at": ("annotations", pointer, member),
                }


def _system_sliders(
    candidates: dict[str, Any], metrics: list[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    for system, candidate in candidates.items():
        for metric, statistic in metrics:
            kind = "p99" if statistic == "p99" else "metrics"
            value = candidate[kind].get(metric)
            if value:
                yield {
                    "name": f"{kind} {system} {metric}",
                    "heading": system,
                    "metric": metric,
                    "what": "99th percentile" if kind == "p99" else "measured",
                    "now": value,
                    "at": (kind, system, metric),
                }


def _with_position(slider: dict[str, Any], octaves: float) -> dict[str, Any]:
    value = slider["now"] * 2**octaves
    if slider["metric"].endswith("availability") and slider["what"] != "weight":
        value = min(1.0, value)
    return {**slider, "octaves": octaves, "then": value}


def _supposition(sliders: list[dict[str, Any]]) -> dict[str, Any]:
    supposition: dict[str, dict[str, dict[str, float]]] = {}
    for slider in sliders:
        if slider["octaves"]:
            kind, node, name = slider["at"]
            supposition.setdefault(kind, {}).setdefault(node, {})[name] = slider["then"]
    return supposition


PAGE = Page("What if", "/what-if", "What other weights, goals or metrics would move.", router)
