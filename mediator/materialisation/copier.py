"""Bringing objects into the view, as their systems hold them now.

Values are copied with their versions, never operations: however often an object changed, it is one
read of each system and one write. A copy is made of parts that were read one after the other, so
its groups may be of different moments; each group is one that existed, and copies only become newer
(`port.Mirror`), so every group passes through its versions in order.

What the anchor does not hold is not copied: the object is dead, and its copy was removed before its
deletion was acknowledged, or will be when the feed tells of it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from mediator.base.errors import Unavailable
from mediator.operations.calls import StoreCalls
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, Mirror, Read, Record, StoreError
from mediator.stores.systems import unavailable

__all__ = ["CHUNK", "Copier", "join_parts"]

_T = TypeVar("_T")

CHUNK: Final = 500
"""Objects read and written in one call."""

LOOKS: Final = 8
"""How often an object is looked at again whose copy was newer in one group and older in another."""


def join_parts(parts: Sequence[Record | None]) -> Record | None:
    """Join what the systems hold of an object, the anchor first; None if that holds nothing.

    A part of another creation version belongs to an generation whose write is still under way: its
        groups are
    left out until the feed tells that they are there.
    """
    anchor = parts[0]
    if anchor is None:
        return None
    alive = [
        part
        for part in parts
        if part is not None and part.creation_version == anchor.creation_version
    ]
    return Record(
        anchor.id,
        anchor.creation_version,
        {group: version for part in alive for group, version in part.versions.items()},
        {name: value for part in alive for name, value in part.values.items()},
    )


class Copier:
    """Copies objects into the view."""

    def __init__(self, calls: StoreCalls) -> None:
        self._calls = calls

    async def copy(self, route: ClassRoute, ids: Sequence[str], *, force: bool = False) -> int:
        """Bring objects into the view as they are now; return how many writes that took.

        `force`: even where a copy is newer than what its systems hold.

        Raises:
            Unavailable: A system of the class, or the view, does not answer.
        """
        return sum([await self._chunk(route, chunk, force) for chunk in _chunks(ids)])

    async def read(self, route: ClassRoute, ids: Sequence[str]) -> list[Record | None]:
        """Read objects from the systems that hold them, each joined of its parts."""
        reads = [Read(fragment, id_) for id_ in ids for fragment in route.fragments]
        records = iter(await self._calls.read(reads))
        return [join_parts([next(records) for _ in route.fragments]) for _ in ids]

    async def held(self, route: ClassRoute, ids: Sequence[str]) -> list[Record | None]:
        """Read what the view holds of objects."""
        assert route.copy is not None
        return await self._calls.read([Read(route.copy, id_) for id_ in ids])

    async def forget(self, route: ClassRoute, dead: Mapping[str, int]) -> None:
        """Remove the copies of objects, given the version at which their anchor died."""
        assert route.copy is not None
        for chunk in _chunks(list(dead.items())):
            await self._send(route.copy, partial(_forget, chunk))

    async def _chunk(self, route: ClassRoute, ids: Sequence[str], force: bool) -> int:
        written = 0
        for _ in range(LOOKS):
            records = [r for r in await self.read(route, ids) if r is not None]
            taken = await self._absorb(route, records, force)
            written += len(records)
            ids = [record.id for record, done in zip(records, taken, strict=True) if not done]
            if not ids:
                return written
        assert route.copy is not None
        raise Unavailable("Copies are being written by others.", system=route.copy.system)

    async def _absorb(
        self, route: ClassRoute, records: Sequence[Record], force: bool
    ) -> list[bool]:
        assert route.copy is not None
        if not records:
            return []
        return await self._send(route.copy, lambda m, copy: m.absorb(copy, records, force=force))

    async def _send(
        self, copy: Fragment, call: Callable[[Mirror, Fragment], Coroutine[Any, Any, _T]]
    ) -> _T:
        guarded = self._calls.systems.get(copy.system)
        store = guarded.store
        if not isinstance(store, Mirror):
            raise Unavailable(f"{copy.system} cannot hold copies.", system=copy.system)
        try:
            return await guarded.guarded(lambda: call(store, copy))
        except StoreError as error:
            raise unavailable(guarded, error, "write") from error


async def _forget(dead: Sequence[tuple[str, int]], mirror: Mirror, copy: Fragment) -> None:
    await mirror.forget(copy, dead)


def _chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
