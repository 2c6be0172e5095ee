"""The map page: the tree of a schema, the system of each group, and why it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from app.admin.api.responses import OfDatabase
from app.admin.pages.data_client import select_database
from app.admin.pages.overrides import router
from app.admin.pages.page import Page, colours_of, render
from mediator.control.plane import ControlPlane
from mediator.placement.figures import metric, name_of, share

__all__ = ["PAGE", "flips", "margin", "reasons"]

_ROOT: Final = "*"
_MAX_LENGTH: Final = 127

NodeName = Annotated[str | None, Query(max_length=_MAX_LENGTH)]


@router.get("/map")
async def show(request: Request, database: OfDatabase = None, node: NodeName = None) -> Response:
    control: ControlPlane = request.app.state.control
    databases, name = await select_database(request, database)
    context: dict[str, Any] = {"databases": databases, "database": name, "summary": None}
    if name:
        summary = await control.summary(name)
        node_name = node or _first_node(summary["nodes"])
        explanation = await control.explain(name, *_path(node_name))
        overrides = await control.overrides(name)
        context |= {
            "summary": summary,
            "classes": _tree(summary),
            "colours": colours_of(await control.systems()),
            "explained": explanation,
            "override": next(
                (override for override in overrides if override["node"] == explanation["node"]),
                None,
            ),
            "reasons": reasons(explanation),
            "margin": margin(explanation),
            "flips": flips(explanation),
        }
    return render(request, "map.html", **context)


def _path(node: str) -> tuple[str, ...]:
    return () if node == _ROOT else tuple(node.split(".", 1))


def _first_node(nodes: dict[str, Any]) -> str:
    """Choose the first node to show: a field on another system than its class, or a scored one."""
    fields = [name for name in nodes if "." in name]
    split_off = [
        name for name in fields if nodes[name]["system"] != nodes[name.split(".")[0]]["system"]
    ]
    scored = [name for name in fields if nodes[name]["scores"]]
    return next(iter([*split_off, *scored]), _ROOT)


def _tree(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": class_name,
            "groups": [
                {"name": name, "system": group["system"], "fields": group["fields"]}
                for name, group in groups.items()
            ],
        }
        for class_name, groups in summary["groups"].items()
    ]


PAGE = Page("Map", "/map", "Which system serves which fragment of a database, and why.", router)

_MAX_FACTOR: Final = 1_000.0
"""A threshold further away than this factor does not matter in practice."""


def reasons(explanation: Mapping[str, Any]) -> list[str]:
    """Describe how well each system meets each requirement with a metric."""
    candidates = explanation["candidates"]
    scored = {name: c["terms"] for name, c in candidates.items() if c["terms"]}
    if not scored:
        return []
    total = sum(term["weight"] for term in next(iter(scored.values())))
    columns = zip(*scored.values(), strict=True)
    return [_requirement(list(scored), column, total) for column in columns]


def margin(explanation: Mapping[str, Any]) -> str:
    """Describe by how much the chosen system leads, or trails where data keeps it."""
    scores = explanation["scores"]
    system, margin = explanation["system"], explanation["margin"]
    if system not in scores:
        return "No score decided."
    best = max(scores, key=lambda name: scores[name])
    if scores[best] > scores[system]:
        return f"By today's scores {best} leads with {scores[best]:.3g} to {scores[system]:.3g}."
    if explanation["required_system"]:
        return f"{system} is required, and none scores higher."
    if margin is None:
        return f"{system} is the only system that can serve it."
    runner_up = margin["runner_up"]
    lead = share(margin["ratio"]) if margin["ratio"] < _MAX_FACTOR else "far"
    return (
        f"{system} scores {scores[system]:.3g} and {runner_up}, the runner-up,"
        f" {scores[runner_up]:.3g}: {lead} ahead."
    )


def flips(explanation: Mapping[str, Any]) -> list[str]:
    """Describe what would flip the choice, one metric of one system at a time, nearest first."""
    sentences = [
        (_distance(threshold["measured"], value), _flip(threshold, value, word))
        for threshold in explanation["thresholds"]
        for value, word in ((threshold["below"], "fell to"), (threshold["above"], "rose to"))
        if value is not None
    ]
    return [sentence for distance, sentence in sorted(sentences) if distance <= _MAX_FACTOR]


def _requirement(names: Sequence[str], terms: Sequence[Mapping[str, Any]], total: float) -> str:
    first = terms[0]
    name, goal = first["metric"], first["goal"]
    subject = name_of(name).capitalize()
    if first["statistic"] == "p99":
        subject += ", 99th percentile"
    target = f"goal {metric(goal, name)}" if goal is not None else "by a utility of at most 1"
    weight = f"{share(first['weight'] / total)} of the score"
    values = "; ".join(_met(system, term) for system, term in zip(names, terms, strict=True))
    return f"{subject} ({target}; {weight}): {values}."


def _met(system: str, term: Mapping[str, Any]) -> str:
    worth = f"{term['f']:.3g} times the goal" if term["by"] == "goal" else f"worth {term['f']:.3g}"
    return f"{system} has {metric(term['measured'], term['metric'])}, {worth}"


def _flip(threshold: Mapping[str, Any], value: float, word: str) -> str:
    name = threshold["metric"]
    statistic = "99th percentile of the " if threshold["statistic"] == "p99" else ""
    measured = metric(threshold["measured"], name)
    subject = f"the {statistic}{name_of(name)} of {threshold['system']}"
    return f"{subject} {word} {metric(value, name)} (it is {measured})"


def _distance(measured: float, value: float) -> float:
    low, high = sorted((measured, value))
    return high / low if low > 0 else float("inf")
