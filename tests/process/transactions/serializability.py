"""A checker of histories for strict serializability.

Every write of an item makes a distinct version, so the dependencies are known for certain (Adya's
direct serialization graph): an operation that read or overwrote a version comes after its writer,
and one that overwrote it comes after its readers. An operation that was acknowledged before another
one began precedes it. A history is strictly serializable iff this graph has no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TypeAlias

__all__ = ["Executed", "Item", "cycle_in"]

Item: TypeAlias = tuple[str, str, str]
"""Class, id and group."""


@dataclass
class Executed:
    """A transaction or a single write that has happened.

    Attributes:
        name: Its name.
        began: When it began, on the clock of the test.
        acknowledged: When it was acknowledged; None: never.
        reads: The version of every item that it read; None: it was not there.
        writes: The version of every item that it wrote.
    """

    name: str
    began: float
    acknowledged: float | None
    reads: Mapping[Item, int | None] = field(default_factory=dict)
    writes: Mapping[Item, int] = field(default_factory=dict)


def cycle_in(executed: Sequence[Executed]) -> list[str] | None:
    """Return a cycle, or None; raises `AssertionError` for an impossible history."""
    before: dict[str, set[str]] = {operation.name: set() for operation in executed}
    for earlier, later in _dependencies(executed):
        if earlier != later:
            before[later].add(earlier)
    for operation in executed:
        for other in executed:
            if operation.acknowledged is not None and operation.acknowledged < other.began:
                before[other.name].add(operation.name)
    try:
        list(TopologicalSorter(before).static_order())
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return None


def _dependencies(executed: Sequence[Executed]) -> Iterable[tuple[str, str]]:
    writers: dict[Item, dict[int, str]] = {}
    for operation in executed:
        for item, version in operation.writes.items():
            assert version not in writers.setdefault(item, {}), f"two wrote {item} {version}"
            writers[item][version] = operation.name
    for item_writers in writers.values():
        ordered = [item_writers[version] for version in sorted(item_writers)]
        yield from pairwise(ordered)
    for operation in executed:
        for item, read in operation.reads.items():
            item_writers = writers.get(item, {})
            assert read is None or read in item_writers, (
                f"{operation.name} read {item} {read}, which has no writer"
            )
            if read is not None:
                yield item_writers[read], operation.name
            overwriter = min((v for v in item_writers if read is None or v > read), default=None)
            if overwriter is not None and item_writers[overwriter] != operation.name:
                yield operation.name, item_writers[overwriter]
