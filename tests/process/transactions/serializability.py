"""A checker of histories: whether transactions happened as if one after the other.

Every write of an item makes a version of its own, so what depends on what is known for certain
(Adya's direct serialization graph): who read or overwrote a version comes after who wrote it, and
who overwrote it comes after who read it. Who was acknowledged before somebody else began comes
before them. A history is strictly serializable iff this has no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import TypeAlias

__all__ = ["Deed", "Item", "cycle_in"]

Item: TypeAlias = tuple[str, str, str]
"""Class, id and group."""


@dataclass
class Deed:
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


def cycle_in(deeds: Sequence[Deed]) -> list[str] | None:
    """Return a cycle among deeds, or None; raises `AssertionError` for what cannot have been."""
    before: dict[str, set[str]] = {deed.name: set() for deed in deeds}
    for earlier, later in _dependencies(deeds):
        if earlier != later:
            before[later].add(earlier)
    for one in deeds:
        for other in deeds:
            if one.acknowledged is not None and one.acknowledged < other.began:
                before[other.name].add(one.name)
    try:
        list(TopologicalSorter(before).static_order())
    except CycleError as error:
        cycle: list[str] = error.args[1]
        return cycle
    return None


def _dependencies(deeds: Sequence[Deed]) -> Iterable[tuple[str, str]]:
    writers: dict[Item, dict[int, str]] = {}
    for deed in deeds:
        for item, version in deed.writes.items():
            assert version not in writers.setdefault(item, {}), f"two made {item} {version}"
            writers[item][version] = deed.name
    for of in writers.values():
        ordered = [of[version] for version in sorted(of)]
        yield from pairwise(ordered)
    for deed in deeds:
        for item, read in deed.reads.items():
            of = writers.get(item, {})
            assert read is None or read in of, f"{deed.name} read {item} {read} of nobody"
            if read is not None:
                yield of[read], deed.name
            overwriter = min((v for v in of if read is None or v > read), default=None)
            if overwriter is not None and of[overwriter] != deed.name:
                yield deed.name, of[overwriter]
