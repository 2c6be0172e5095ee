"""A checker of histories: whether they are strictly serializable.

Every write of an item makes a version of its own, so what depends on what is known for certain
(Adya's direct serialization graph): who read or overwrote a version comes after who wrote it, and
who overwrote it comes after who read it. Who was acknowledged before another one began comes
before them. A history is strictly serializable iff this has no cycle.
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
    before: dict[str, set[str]] = {each.name: set() for each in executed}
    for earlier, later in _dependencies(executed):
        if earlier != later:
            before[later].add(earlier)
    for one in executed:
        for other in executed:
            if one.acknowledged is not None and one.acknowledged < other.began:
                before[other.name].add(one.name)
    try:
        list(TopologicalSorter(before).static_order())
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return None


def _dependencies(executed: Sequence[Executed]) -> Iterable[tuple[str, str]]:
    writers: dict[Item, dict[int, str]] = {}
    for each in executed:
        for item, version in each.writes.items():
            assert version not in writers.setdefault(item, {}), f"two wrote {item} {version}"
            writers[item][version] = each.name
    for of in writers.values():
        ordered = [of[version] for version in sorted(of)]
        yield from pairwise(ordered)
    for each in executed:
        for item, read in each.reads.items():
            of = writers.get(item, {})
            assert read is None or read in of, (
                f"{each.name} read {item} {read}, which has no writer"
            )
            if read is not None:
                yield of[read], each.name
            overwriter = min((v for v in of if read is None or v > read), default=None)
            if overwriter is not None and of[overwriter] != each.name:
                yield each.name, of[overwriter]
