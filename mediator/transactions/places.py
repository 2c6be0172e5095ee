"""Where the objects of a transaction live, and the marks that it sets there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mediator.operations.marks import Marker
from mediator.placement.routing import ClassRoute
from mediator.stores.port import Fragment, Standing

__all__ = ["Held", "Target", "gathered", "lock_all", "unlock_all"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Target:
    """An object that a transaction writes: all its parts are marked, whichever it touches.

    So a write over several systems meets a mark at its first step already.
    """

    route: ClassRoute
    id: str


@dataclass(frozen=True, slots=True)
class Held:
    """A marked object: as it stands, it stays until its mark goes."""

    route: ClassRoute
    id: str
    parts: Mapping[Fragment, Standing]

    @property
    def birth(self) -> int | None:
        """The object's birth; None if it is not there."""
        return self.parts[self.route.anchor].birth

    def lacks(self, fragment: Fragment) -> bool:
        """Whether the object has no part there."""
        return self.parts[fragment].birth != self.birth

    @property
    def versions(self) -> dict[str, int | None]:
        """The version of every group; None where it is absent."""
        known: dict[str, int | None] = {}
        for fragment, standing in self.parts.items():
            absent = standing.birth is None or self.lacks(fragment)
            for group in fragment.groups:
                known[group] = None if absent else standing.versions.get(group)
        return known


async def lock_all(
    marker: Marker, targets: Sequence[Target], mark: str
) -> tuple[list[Held], list[tuple[Fragment, str, str]]]:
    """Mark objects; returns them as they stand, and the records that have another mark."""
    places = [(target, fragment) for target in targets for fragment in target.route.fragments]
    standings = await gathered(marker.lock(f, target.id, mark) for target, f in places)
    parts: dict[tuple[ClassRoute, str], dict[Fragment, Standing]] = {}
    foreign = []
    for (target, fragment), standing in zip(places, standings, strict=True):
        parts.setdefault((target.route, target.id), {})[fragment] = standing
        if standing.mark != mark:
            foreign.append((fragment, target.id, standing.mark))
    return [Held(t.route, t.id, parts[t.route, t.id]) for t in targets], foreign


async def unlock_all(
    marker: Marker,
    targets: Iterable[Target],
    mark: str,
    but: Collection[tuple[Fragment, str]] = (),
) -> None:
    """Take a transaction's marks away, wherever they are but on some records."""
    places = [(fragment, target.id) for target in targets for fragment in target.route.fragments]
    await gathered(marker.unlock(*place, mark) for place in places if place not in but)


async def gathered(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all to their end, and then raise what the first of them raised."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return [result for result in results if not isinstance(result, BaseException)]
