"""Annotations: an application's requirements of a schema node (docs/papers/ppm.md, table 1).

The dataclasses are the pydantic models of their documents: see `mediator.schema.validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Discriminator, Field, Tag, WrapValidator

from mediator.base.errors import Location
from mediator.schema.limits import ANNOTATIONS_PER_NODE, UTILITY_POINTS
from mediator.schema.validation import Number, Omissible, Positive, document, refuse

__all__ = [
    "DURABLE_S",
    "LEVELS",
    "Annotation",
    "Annotations",
    "BinaryRequirement",
    "Capability",
    "ContinuousRequirement",
    "Level",
    "Linear",
    "Metric",
    "Sigmoid",
    "Statistic",
    "Step",
    "Utility",
    "ViolationRule",
    "at_level",
]


class Capability(StrEnum):
    """A capability that a system has or lacks; named as in the PPM paper's table."""

    SCANS = "scans"
    SORTING = "sorting"
    RANGE_QUERIES = "range_queries"
    POINT_LOOKUPS = "point_lookups"
    CONDITIONAL_UPDATES = "conditional_updates"
    FULL_TEXT_SEARCH = "full_text_search"
    JOINS = "joins"
    ACID_TRANSACTIONS = "acid_transactions"
    ATOMIC_UPDATES = "atomic_updates"
    ANALYTICS_INTEGRATION = "analytics_integration"
    DATA_VOLUME_SCALABILITY = "data_volume_scalability"
    WRITE_SCALABILITY = "write_scalability"
    READ_SCALABILITY = "read_scalability"
    ELASTICITY = "elasticity"
    DURABILITY = "durability"
    REPLICATION = "replication"
    LINEARIZABLE = "linearizable"
    CAUSAL = "causal"
    MONOTONIC = "monotonic"
    EVENTUAL = "eventual"


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
"""The nodes at which each capability can be required (docs/papers/ppm.md, table 1)."""

DURABLE_S: Final = 1.0
"""Seconds of acknowledged writes that a durable system may lose at most in a crash."""


class Metric(StrEnum):
    """A measured metric of a system; latencies in seconds, throughputs in operations/s."""

    READ_AVAILABILITY = "read_availability"
    WRITE_AVAILABILITY = "write_availability"
    READ_LATENCY = "read_latency"
    WRITE_LATENCY = "write_latency"
    READ_THROUGHPUT = "read_throughput"
    WRITE_THROUGHPUT = "write_throughput"

    small_is_good: bool
    """Whether smaller is better: latencies."""

    is_ratio: bool
    """Whether it is at most 1: availabilities."""

    def __init__(self, name: str) -> None:
        self.small_is_good = name.endswith("_latency")
        self.is_ratio = name.endswith("_availability")


Statistic: TypeAlias = Literal["mean", "p99"]
"""The scored statistic of a latency: its weighted moving average, or its 99th percentile."""


def _ascending(points: Points) -> Points:
    pairs = enumerate(pairwise(points), 1)
    detail = "must lie beyond the point before it"
    refuse(Location(f"/{i}", detail) for i, ((one, _), (next_, _)) in pairs if not one < next_)
    return points


def _steep(steepness: float) -> float:
    if steepness == 0:
        raise ValueError("must not be 0")
    return steepness


Points: TypeAlias = tuple[tuple[float, float], ...]
_Point: TypeAlias = tuple[Number, Annotated[Number, Field(ge=0, le=1)]]
_Points: TypeAlias = Annotated[
    tuple[_Point, ...], Field(min_length=1, max_length=UTILITY_POINTS), AfterValidator(_ascending)
]


@document
@dataclass(frozen=True, slots=True)
class Linear:
    """Piecewise linear through (metric, utility) points; constant beyond the outer ones."""

    points: _Points
    shape: Literal["linear"] = "linear"


@document
@dataclass(frozen=True, slots=True)
class Step:
    """The utility of the last point at or below the metric, else of the first point."""

    points: _Points
    shape: Literal["step"] = "step"


@document
@dataclass(frozen=True, slots=True)
class Sigmoid:
    """1 / (1 + exp(-steepness * (metric - midpoint))); a negative steepness falls."""

    midpoint: Number
    steepness: Annotated[Number, AfterValidator(_steep)]
    shape: Literal["sigmoid"] = "sigmoid"


def _shape(raw: Any) -> str | None:
    return f"({raw.get('shape')})" if isinstance(raw, dict) else None


Utility: TypeAlias = Linear | Step | Sigmoid
_Utility: TypeAlias = Annotated[
    Annotated[Linear, Tag("(linear)")]
    | Annotated[Step, Tag("(step)")]
    | Annotated[Sigmoid, Tag("(sigmoid)")],
    Discriminator(
        _shape,
        custom_error_type="/shape",
        custom_error_message="must be one of linear, step, sigmoid",
    ),
]


@document
@dataclass(frozen=True, slots=True)
class ViolationRule:
    """A violation event occurs once the score stays below `below` for `for_s` seconds."""

    below: Positive
    for_s: Annotated[Number, Field(ge=0)]


@document
@dataclass(frozen=True, slots=True)
class BinaryRequirement:
    """The system must have the capability; binds the node and all its descendants."""

    capability: Annotated[Capability, Field(validation_alias="require")]


@document
@dataclass(frozen=True, slots=True)
class ContinuousRequirement:
    """A metric with a goal or a utility function, and its weight; evaluated at fields."""

    metric: Metric
    weight: Positive = 1.0
    goal: Omissible[Positive] = None
    utility: Omissible[_Utility] = None
    statistic: Statistic = "mean"
    violation: Omissible[ViolationRule] = None


def _continuous(raw: Any, parse: Callable[[Any], ContinuousRequirement]) -> ContinuousRequirement:
    requirement = parse(raw)
    refuse(_mistakes(requirement, has_statistic="statistic" in raw))
    return requirement


def _mistakes(requirement: ContinuousRequirement, *, has_statistic: bool) -> Iterator[Location]:
    goal, violation = requirement.goal, requirement.violation
    if (goal is None) == (requirement.utility is None):
        yield Location("", 'must have exactly one of "goal" and "utility"')
    if goal is not None and goal > 1 and requirement.metric.is_ratio:
        yield Location("/goal", "must be at most 1")
    if has_statistic and not requirement.metric.small_is_good:
        yield Location("/statistic", "has a meaning for latencies only")
    if violation is not None and goal is None and violation.below > 1:
        yield Location("/violation/below", "must be at most 1, which is a utility at its best")


def _kind(raw: Any) -> str | None:
    if not isinstance(raw, dict):
        return None
    return "(require)" if "require" in raw else "(metric)" if "metric" in raw else None


Annotation: TypeAlias = BinaryRequirement | ContinuousRequirement
_Annotation: TypeAlias = Annotated[
    Annotated[BinaryRequirement, Tag("(require)")]
    | Annotated[ContinuousRequirement, WrapValidator(_continuous), Tag("(metric)")],
    Discriminator(
        _kind,
        custom_error_type="kind",
        custom_error_message='must be an object with "require" or "metric"',
    ),
]
Annotations: TypeAlias = Annotated[tuple[_Annotation, ...], Field(max_length=ANNOTATIONS_PER_NODE)]


def at_level(level: Level) -> AfterValidator:
    """Refuse capabilities that cannot be required of a node of this level."""

    def check(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
        required = (
            (i, annotation.capability)
            for i, annotation in enumerate(annotations)
            if isinstance(annotation, BinaryRequirement)
        )
        refuse(
            Location(f"/{i}/require", f"{name} may be required of a {' or '.join(LEVELS[name])}")
            for i, name in required
            if level not in LEVELS[name]
        )
        return annotations

    return AfterValidator(check)
