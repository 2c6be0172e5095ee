"""Copies objects into the view, as their systems hold them now.

It copies values with their versions, never operations: however often an object changed, it takes
one read per system and one write. A copy is joined from fragments that are read one after the
other, so its groups may be of different times; but each group existed, and copies only become newer
(`port.Mirror`), so every group passes through its versions in order.

Objects that the anchor lacks are not copied: the object is deleted, and its copy was removed before
the deletion was acknowledged, or will be when the deletion arrives in the feed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from mediator.base.errors import Unavailable
from mediator.operations.calls import StoreCalls
from mediator.operations.fragment_calls import FragmentCalls
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, Mirror, Read, Record, StoreError

__all__ = ["CHUNK", "MAX_STUCK", "Copier", "CopyResult", "join_fragments"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")

CopyWork: TypeAlias = Callable[[Sequence[str]], Coroutine[Any, Any, int]]
"""Processes objects, given by id; returns how many copies it wrote."""

CHUNK: Final = 500
"""Objects read and written in one call."""

MAX_STUCK: Final = 1_000
"""Maximum objects listed of one copy that cannot be copied."""

MAX_ATTEMPTS: Final = 8
"""How often to re-read an object whose copy was newer in one group and older in another."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The number of copies written, `stuck` objects that cannot be copied, and an `error`.

    `more_stuck`: more than `MAX_STUCK` objects are stuck, of which that many are listed.
    """

    written: int = 0
    stuck: tuple[str, ...] = ()
    error: str = ""
    more_stuck: bool = False

    def __add__(self, other: CopyResult) -> CopyResult:
        stuck = self.stuck + other.stuck
        return CopyResult(
            self.written + other.written,
            stuck[:MAX_STUCK],
            other.error or self.error,
            self.more_stuck or other.more_stuck or len(stuck) > MAX_STUCK,
        )


def join_fragments(fragments: Sequence[Record | None]) -> Record | None:
    """Join the fragments of an object, the anchor's first; None if the anchor lacks it.

    A fragment with another creation version belongs to a write in progress. Its groups are left out
    until their change arrives in the feed.
    """
    anchor = fragments[0]
    if anchor is None:
        return None
    current = [
        f for f in fragments if f is not None and f.creation_version == anchor.creation_version
    ]
    return Record(
        anchor.id,
        anchor.creation_version,
        {group: version for f in current for group, version in f.versions.items()},
        {name: value for f in current for name, value in f.values.items()},
    )


class Copier:
    def __init__(self, calls: StoreCalls) -> None:
        self._calls, self._fragments = calls, FragmentCalls(calls.systems)

    async def copy(self, route: ClassRoute, ids: Sequence[str]) -> int:
        """Copy objects as they are now; return the number of writes; raises `Unavailable`."""
        return sum([await self._copy_chunk(route, chunk) for chunk in _chunks(ids)])

    async def replace(self, route: ClassRoute, ahead: Sequence[Record]) -> int:
        """Replace copies that are ahead of their systems, given as they were found.

        The originals read here may be older than copies written meanwhile, so a copy is replaced
        only while it is unchanged::

            the original is at 5, its copy at 7      the original is at 5, its copy at 7
            this reads 5                             this reads 5
            a client writes 9; 9 is copied           a client deletes it; the copy is removed
            this would put 5 in the place of 9       this would bring the copy back

        Returns:
            How many copies were replaced.

        Raises:
            Unavailable: A system does not respond.
        """
        replaced = 0
        for chunk in _chunks(ahead):
            originals = await self.read(route, [copy.id for copy in chunk])
            pairs = zip(chunk, originals, strict=True)
            copies = [copy for copy, original in pairs if original is not None]
            records = [original for original in originals if original is not None]
            if records:
                copy, mirror = self._mirror(route)
                replace = partial(mirror.replace_copies, copy, copies, records)
                replaced += await self._write(copy, replace)
        return replaced

    async def copy_isolated(self, route: ClassRoute, ids: Sequence[str]) -> CopyResult:
        """Copy objects; an object that cannot be copied by its own fault does not stop the others.

        Raises `Unavailable` if a system fails.
        """
        return await self.work_isolated(route, ids, partial(self.copy, route))

    async def work_isolated(
        self, route: ClassRoute, ids: Sequence[str], work: CopyWork
    ) -> CopyResult:
        """Do `work` on objects likewise: on a chunk together, or else on parts of it."""
        result = CopyResult()
        for chunk in _chunks(ids):
            result += await self._bisect(route, chunk, work)
        return result

    async def _bisect(
        self, route: ClassRoute, ids: Sequence[str], work: CopyWork, *, is_retry: bool = False
    ) -> CopyResult:
        try:
            return CopyResult(await work(ids))
        except Exception as error:
            # If a system is down, no object is at fault: the entire refresh is retried later.
            if not await self._all_available(route):
                raise
            if is_retry:
                log.warning("%s/%s cannot be copied: %s", route.schema.name, ids[0], error)
                return CopyResult(0, tuple(ids), str(error) or type(error).__name__)
        if len(ids) == 1:  # a system may have been down, and may be up again
            return await self._bisect(route, ids, work, is_retry=True)
        half = len(ids) // 2
        first = await self._bisect(route, ids[:half], work)
        return first + await self._bisect(route, ids[half:], work)

    async def _all_available(self, route: ClassRoute) -> bool:
        assert route.copy is not None
        for name in {fragment.system for fragment in (*route.fragments, route.copy)}:
            guarded = self._calls.systems.find(name)
            if guarded is None:
                return False
            try:
                await guarded.guarded(guarded.store.ping)
            except StoreError:
                return False
        return True

    async def id_pages(self, route: ClassRoute) -> AsyncIterator[list[str]]:
        """Yield the ids of all objects and copies together, in order; raises `Unavailable`."""
        assert route.copy is not None
        after: str | None = None
        while True:
            scans = [await self._ids(fragment, after) for fragment in (route.anchor, route.copy)]
            full = [ids for ids in scans if len(ids) == CHUNK]
            # After the end of a full page, more ids may follow, which must be compared together.
            end = min((ids[-1] for ids in full), key=str.encode, default=None)
            ids = {id_ for scan in scans for id_ in scan}
            page = sorted(i for i in ids if end is None or i.encode() <= end.encode())
            if page:
                yield page
            if end is None:
                return
            after = end

    async def _ids(self, fragment: Fragment, after: str | None) -> list[str]:
        records = await self._fragments.on(
            fragment, "read", lambda store: store.scan(fragment, after, CHUNK, ())
        )
        return [record.id for record in records]

    async def count(self, route: ClassRoute) -> int:
        return await self._fragments.count(route)

    async def read(self, route: ClassRoute, ids: Sequence[str]) -> list[Record | None]:
        """Read objects from their systems, and join their fragments."""
        reads = [Read(fragment, id_) for id_ in ids for fragment in route.fragments]
        records = iter(await self._calls.read(reads))
        return [join_fragments([next(records) for _ in route.fragments]) for _ in ids]

    async def read_copies(self, route: ClassRoute, ids: Sequence[str]) -> list[Record | None]:
        assert route.copy is not None
        return await self._calls.read([Read(route.copy, id_) for id_ in ids])

    async def forget(self, route: ClassRoute, deleted: Mapping[str, int]) -> None:
        """Remove the copies of deleted objects, given the versions of the deletions."""
        for chunk in _chunks(list(deleted.items())):
            copy, mirror = self._mirror(route)
            await self._write(copy, partial(mirror.forget, copy, chunk))

    async def _copy_chunk(self, route: ClassRoute, ids: Sequence[str]) -> int:
        written = 0
        for _ in range(MAX_ATTEMPTS):
            records = [r for r in await self.read(route, ids) if r is not None]
            if not records:
                return written
            copy, mirror = self._mirror(route)
            accepted = await self._write(copy, partial(mirror.absorb, copy, records))
            written += len(records)
            ids = [r.id for r, done in zip(records, accepted, strict=True) if not done]
            if not ids:
                return written
        raise Unavailable("Copies are being written by others.", system=copy.system)

    def _mirror(self, route: ClassRoute) -> tuple[Fragment, Mirror]:
        assert route.copy is not None
        store = self._calls.systems.get(route.copy.system).store
        if not isinstance(store, Mirror):
            name = route.copy.system
            raise Unavailable(f"{name} cannot hold copies.", system=name)
        return route.copy, store

    async def _write(self, copy: Fragment, call: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        return await self._fragments.on(copy, "write", lambda _: call())


def _chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    for start in range(0, len(items), CHUNK):
        yield items[start : start + CHUNK]
