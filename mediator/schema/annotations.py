"""Annotations: what an application needs of a node of its schema (docs/papers/ppm.md, table 1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

__all__ = [
    "DURABLE_S",
    "Annotation",
    "BinaryRequirement",
    "Capability",
    "ContinuousRequirement",
    "Linear",
    "Metric",
    "Sigmoid",
    "Statistic",
    "Step",
    "Utility",
    "ViolationRule",
]


class Capability(StrEnum):
    """What a system either can or cannot do; the names of the PPM paper's table."""

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


DURABLE_S: Final = 1.0
"""Seconds of acknowledged writes that a durable system may lose at most in a crash."""


class Metric(StrEnum):
    """What is measured of a system; latencies in seconds, throughputs in operations/s."""

    READ_AVAILABILITY = "read_availability"
    WRITE_AVAILABILITY = "write_availability"
    READ_LATENCY = "read_latency"
    WRITE_LATENCY = "write_latency"
    READ_THROUGHPUT = "read_throughput"
    WRITE_THROUGHPUT = "write_throughput"

    small_is_good: bool
    """Whether less of it is better, as with latencies."""

    def __init__(self, name: str) -> None:
        self.small_is_good = name.endswith("_latency")


Statistic: TypeAlias = Literal["mean", "p99"]
"""Which statistic of a latency is scored: its weighted moving average, or its 99th percentile."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Piecewise linear through (metric, utility) points; constant beyond the outer ones."""

    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """The utility of the last point at or below the metric; of the first point before it."""

    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Sigmoid:
    """1 / (1 + exp(-steepness * (metric - midpoint))); a negative steepness falls."""

    midpoint: float
    steepness: float


Utility: TypeAlias = Linear | Step | Sigmoid


@dataclass(frozen=True, slots=True)
class ViolationRule:
    """An event is due once the score stays below `below` for `for_s` seconds."""

    below: float
    for_s: float


@dataclass(frozen=True, slots=True)
class BinaryRequirement:
    """The system must have the capability; binds the node and everything below it."""

    capability: Capability


@dataclass(frozen=True, slots=True)
class ContinuousRequirement:
    """A metric with a goal or a utility function, and its weight; evaluated at fields."""

    metric: Metric
    weight: float
    goal: float | None = None
    utility: Utility | None = None
    statistic: Statistic = "mean"
    violation: ViolationRule | None = None


Annotation: TypeAlias = BinaryRequirement | ContinuousRequirement
