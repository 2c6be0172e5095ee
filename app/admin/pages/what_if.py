"""The what-if page: sliders for weights, goals and metrics, and the placement that follows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

from fastapi import Request, Response

from app.admin.api.responses import OfDatabase
from app.admin.pages.data_client import chosen_database
from app.admin.pages.page import Page, colours_of, page_router, render
from app.http.paths import parse_pairs
from mediator.base.errors import Invalid, Location, MediatorError
from mediator.control.plane import ControlPlane

__all__ = ["PAGE"]

router = page_router()
_SPAN: Final = 6.0
"""A slider goes from a 64th of the present value to 64 times of it, in octaves."""
_MOST: Final = 40
"""Sliders of a page; a schema with more annotations shows those of the nodes that come first."""


@router.get("/what-if")
async def show(request: Request, database: OfDatabase = None) -> Response:
    """Show the sliders, and what follows from those that the address says were moved."""
    control: ControlPlane = request.app.state.control
    databases, name = await chosen_database(request, database)
    context: dict[str, Any] = {"databases": databases, "database": name, "sliders": []}
    if name:
        moved = _moved(request.scope["query_string"])
        sliders = await _sliders(control, name, moved)
        outcome, problem = None, None
        try:
            outcome = await control.what_if(name, _supposition(sliders))
        except MediatorError as error:
            problem = error.detail
        colours = colours_of(await control.systems())
        context |= {"sliders": sliders, "outcome": outcome, "problem": problem, "colours": colours}
    return render(request, "what_if.html", **context)


def _moved(query: bytes) -> dict[str, float]:
    """Read how far sliders were moved, in octaves; what belongs to no slider is left alone."""
    moved = {}
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
        moved[name] = octaves
    return moved


async def _sliders(
    control: ControlPlane, database: str, moved: dict[str, float]
) -> list[dict[str, Any]]:
    annotated = list(_annotations((await control.schema(database)).document))
    measured = {(a["metric"], a.get("statistic", "mean")) for _, _, a in annotated}
    candidates = (await control.summary(database))["candidates"]
    sliders = [*_of_annotations(annotated), *_of_systems(candidates, sorted(measured))]
    return [_positioned(slider, moved.get(slider["name"], 0.0)) for slider in sliders]


def _annotations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the requirements with a metric: node, JSON pointer, annotation."""
    yield from _measured("the database", "", document)
    for class_name, class_ in document["classes"].items():
        pointer = f"/classes/{class_name}"
        yield from _measured(class_name, pointer, class_)
        for name, field in class_["fields"].items():
            yield from _measured(f"{class_name}.{name}", f"{pointer}/fields/{name}", field)


def _measured(
    node: str, pointer: str, annotated: dict[str, Any]
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for index, annotation in enumerate(annotated["annotations"]):
        if "metric" in annotation:
            yield node, f"{pointer}/annotations/{index}", annotation


def _of_annotations(annotated: list[tuple[str, str, dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    for node, pointer, annotation in annotated[:_MOST]:
        for what in ("weight", "goal"):
            if annotation.get(what):
                yield {
                    "name": f"{what} {pointer}",
                    "heading": node,
                    "metric": annotation["metric"],
                    "what": what,
                    "now": annotation[what],
                    "at": ("annotations", pointer, what),
                }


def _of_systems(
    candidates: dict[str, Any], measured: list[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    for system, candidate in candidates.items():
        for metric, statistic in measured:
            kind = "p99" if statistic == "p99" else "metrics"
            now = candidate[kind].get(metric)
            if now:
                yield {
                    "name": f"{kind} {system} {metric}",
                    "heading": system,
                    "metric": metric,
                    "what": "99th percentile" if kind == "p99" else "measured",
                    "now": now,
                    "at": (kind, system, metric),
                }


def _positioned(slider: dict[str, Any], octaves: float) -> dict[str, Any]:
    then = slider["now"] * 2**octaves
    if slider["metric"].endswith("availability") and slider["what"] != "weight":
        then = min(1.0, then)
    return {**slider, "octaves": octaves, "then": then}


def _supposition(sliders: list[dict[str, Any]]) -> dict[str, Any]:
    supposed: dict[str, dict[str, dict[str, float]]] = {}
    for slider in sliders:
        if slider["octaves"]:
            kind, node, name = slider["at"]
            supposed.setdefault(kind, {}).setdefault(node, {})[name] = slider["then"]
    return supposed


PAGE = Page("What if", "/what-if", "What other weights, goals or metrics would move.", router)
