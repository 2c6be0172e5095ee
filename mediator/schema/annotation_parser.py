"""Reading annotations: what may be required of a node, and where.

See docs/papers/ppm.md, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Final, Literal, TypeAlias

from mediator.schema.annotations import (
    Annotation,
    BinaryRequirement,
    Capability,
    ContinuousRequirement,
    Linear,
    Metric,
    Sigmoid,
    Statistic,
    Step,
    Utility,
    ViolationRule,
)
from mediator.schema.json_node import POSITIVE, Node
from mediator.schema.limits import ANNOTATIONS_PER_NODE, UTILITY_POINTS

__all__ = ["LEVELS", "Level", "read_annotations"]

Level: TypeAlias = Literal["database", "class", "field"]

_ANYWHERE: Final = ("field", "class", "database")
_DATA: Final = ("field", "class")
_FIELD: Final = ("field",)
_WHOLE: Final = ("class", "database")

LEVELS: Final[Mapping[Capability, tuple[Level, ...]]] = {
    Capability.SCANS: _FIELD,
    Capability.SORTING: _FIELD,
    Capability.RANGE_QUERIES: _FIELD,
    Capability.POINT_LOOKUPS: _FIELD,
    Capability.CONDITIONAL_UPDATES: _FIELD,
    Capability.FULL_TEXT_SEARCH: _FIELD,
    Capability.JOINS: _WHOLE,
    Capability.ACID_TRANSACTIONS: _WHOLE,
    Capability.ATOMIC_UPDATES: _DATA,
    Capability.ANALYTICS_INTEGRATION: _ANYWHERE,
    Capability.DATA_VOLUME_SCALABILITY: _ANYWHERE,
    Capability.WRITE_SCALABILITY: _ANYWHERE,
    Capability.READ_SCALABILITY: _ANYWHERE,
    Capability.ELASTICITY: _ANYWHERE,
    Capability.DURABILITY: _ANYWHERE,
    Capability.REPLICATION: _ANYWHERE,
    Capability.LINEARIZABLE: _DATA,
    Capability.CAUSAL: _DATA,
    Capability.MONOTONIC: _DATA,
    Capability.EVENTUAL: _DATA,
}
"""The nodes at which each capability may be required (docs/papers/ppm.md, table 1)."""

_AVAILABILITIES = (Metric.READ_AVAILABILITY, Metric.WRITE_AVAILABILITY)


def read_annotations(node: Node, level: Level) -> tuple[Annotation, ...]:
    """Read the annotations of a node of the given level."""
    read = (_annotation(element, level) for element in node.elements(ANNOTATIONS_PER_NODE))
    return tuple(annotation for annotation in read if annotation is not None)


def _annotation(node: Node, level: Level) -> Annotation | None:
    if node["require"].given:
        return _binary(node, level)
    if node["metric"].given:
        return _continuous(node)
    node.error('must be an object with "require" or "metric"')
    return None


def _binary(node: Node, level: Level) -> BinaryRequirement | None:
    node.shape(required=("require",))
    capability = node["require"].choice(Capability)
    if capability is None:
        return None
    if level not in LEVELS[capability]:
        allowed = " or ".join(LEVELS[capability])
        node["require"].error(f"{capability} may be required of a {allowed}, not of a {level}")
    return BinaryRequirement(capability)


def _continuous(node: Node) -> ContinuousRequirement | None:
    node.shape("weight", "goal", "utility", "statistic", "violation", required=("metric",))
    metric = node["metric"].choice(Metric)
    if metric is None:
        return None
    goal = _goal(node, metric)
    return ContinuousRequirement(
        metric=metric,
        weight=node["weight"].number(1.0, least=POSITIVE),
        goal=goal,
        utility=_utility(node["utility"]),
        statistic=_statistic(node["statistic"], metric),
        violation=_violation(node["violation"], most=inf if goal is not None else 1.0),
    )


def _goal(node: Node, metric: Metric) -> float | None:
    if node["goal"].given == node["utility"].given:
        node.error('must have exactly one of "goal" and "utility"')
    if not node["goal"].given:
        return None
    return node["goal"].number(least=POSITIVE, most=1.0 if metric in _AVAILABILITIES else inf)


def _statistic(node: Node, metric: Metric) -> Statistic:
    if node.given and not metric.small_is_good:
        node.error("is there for latencies only")
    return "p99" if node.word("mean", "p99") == "p99" else "mean"


def _violation(node: Node, most: float) -> ViolationRule | None:
    if not node.given:
        return None
    node.shape(required=("below", "for_s"))
    return ViolationRule(
        below=node["below"].number(least=POSITIVE, most=most),
        for_s=node["for_s"].number(least=0.0),
    )


def _utility(node: Node) -> Utility | None:
    if not node.given:
        return None
    shape = node["shape"].word("linear", "step", "sigmoid")
    if shape is None:
        node.shape("points", "midpoint", "steepness", required=("shape",))
        return None
    if shape == "sigmoid":
        return _sigmoid(node.shape(required=("shape", "midpoint", "steepness")))
    points = _points(node.shape(required=("shape", "points"))["points"])
    return Linear(points) if shape == "linear" else Step(points)


def _sigmoid(node: Node) -> Sigmoid:
    steepness = node["steepness"].number(1.0)
    if steepness == 0:
        node["steepness"].error("must not be 0")
    return Sigmoid(midpoint=node["midpoint"].number(), steepness=steepness)


def _points(node: Node) -> tuple[tuple[float, float], ...]:
    elements = node.elements(UTILITY_POINTS, least=1)
    points = tuple(_point(element) for element in elements)
    for (before, _), (after, _), element in zip(points, points[1:], elements[1:], strict=False):
        if not before < after:
            element.error("must lie beyond the point before it")
    return points


def _point(node: Node) -> tuple[float, float]:
    coordinates = node.elements(2, least=2)
    if not coordinates:
        return (0.0, 0.0)
    x, utility = coordinates
    return x.number(), utility.number(least=0.0, most=1.0)
