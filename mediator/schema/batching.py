"""Coalescing of a class's single operations into store calls, and how long they can wait for it.

Waiting costs latency and gains throughput. So reads wait only if read throughput is required of the
class, of its database or of a field, and writes likewise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from math import inf
from typing import Final, Literal, TypeAlias

from mediator.base.errors import Location
from mediator.base.offload import throttled
from mediator.schema.annotations import ContinuousRequirement, Metric
from mediator.schema.tree import ClassSchema, Schema

__all__ = ["Direction", "WaitBound", "mistakes_of_batching", "wait_bound"]

Direction: TypeAlias = Literal["read", "write"]

_THROUGHPUTS: Final[Mapping[Direction, Metric]] = {
    "read": Metric.READ_THROUGHPUT,
    "write": Metric.WRITE_THROUGHPUT,
}
_LATENCIES: Final[Mapping[Direction, Metric]] = {
    "read": Metric.READ_LATENCY,
    "write": Metric.WRITE_LATENCY,
}


@dataclass(frozen=True, slots=True)
class WaitBound:
    """Bounds of an operation's wait, in seconds.

    Attributes:
        max_wait_s: The longest wait.
        goal_s: The smallest goal of latency, for the wait and the store call together; inf: none.
    """

    max_wait_s: float
    goal_s: float = inf


def wait_bound(schema: Schema, class_: ClassSchema, direction: Direction) -> WaitBound | None:
    """Return the bound of the operations of a class in one direction; None: they do not wait."""
    if class_.batching is None:
        return None
    if not any(_required(schema, class_, _THROUGHPUTS[direction])):
        return None
    latencies = _latencies(schema, class_, direction)
    goals = (latency.goal for latency in latencies if latency.goal is not None)
    return WaitBound(class_.batching.max_wait_s, min(goals, default=inf))


def mistakes_of_batching(schema: Schema) -> Iterator[Location]:
    """Yield contradictions of batching: no throughput to gain, or a lower latency goal."""
    for class_ in schema.classes.values():
        if class_.batching is None:
            continue
        at = f"/classes/{class_.name}/batching"
        bounds = {name: wait_bound(schema, class_, name) for name in _THROUGHPUTS}
        if not any(bounds.values()):
            detail = "needs a requirement of read_throughput or write_throughput to wait for"
            yield Location(at, detail)
        for direction, bound in bounds.items():
            if bound is None:
                continue
            if any(latency.utility for latency in _latencies(schema, class_, direction)):
                detail = (
                    f"needs a goal of {direction}_latency to stay below; a utility gives no number"
                )
                yield Location(at, detail)
            if bound.max_wait_s >= bound.goal_s:
                detail = (
                    f"must be below the goal of {direction}_latency, {bound.goal_s:g} s, which"
                    f" cannot hold after a wait of {bound.max_wait_s:g} s"
                )
                yield Location(f"{at}/max_wait_s", detail)


def _latencies(
    schema: Schema, class_: ClassSchema, direction: Direction
) -> Iterator[ContinuousRequirement]:
    return _required(schema, class_, _LATENCIES[direction])


def _required(
    schema: Schema, class_: ClassSchema, metric: Metric
) -> Iterator[ContinuousRequirement]:
    """Yield the requirements of a metric: of the database, the class and its fields."""
    of_fields = (field.annotations for field in throttled(class_.fields.values()))
    for annotation in chain(schema.annotations, class_.annotations, chain.from_iterable(of_fields)):
        if isinstance(annotation, ContinuousRequirement) and annotation.metric is metric:
            yield annotation
