"""The relay of stores whose outboxes are in the records: it reads changes there, and settles them.

Every process relays what it has written itself, at once, and looks now and then for what nobody
relays: the writes of a process that has died. So two relays may meet at a record. That does no
harm: entries leave a record from the front only, after the feed has them, so whoever reads it reads
all that the feed may lack, in order; and the feed takes a change only if its version is above that
of the last one it has of the group, as versions of a group rise even over deletes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias

from mediator.base.clock import Clock
from mediator.model.change import Change
from mediator.stores.port import (
    Fragment,
    FragmentOf,
    PendingChanges,
    StoreRefused,
    UnrelayedChanges,
)

__all__ = ["Append", "PendingRelay"]

Append: TypeAlias = Callable[[Sequence[Change]], Awaitable[object]]
"""Appends, in their order, those changes whose version is above the last one of their group."""

_ROOM: Final = 10_000
"""Records kept in mind while the store or the feed does not answer; others are swept up."""

_AT_ONCE: Final = 64
"""Records that are read, and settled, in one call."""

_MANY: Final = 200
"""Changes of one record that may be more than a store returns at once."""

_PAGE: Final = 512
"""Records that a sweep finds in one call."""

_Where: TypeAlias = tuple[str, str, str]


class PendingRelay:
    """Brings the changes of one store to the feed.

    A call that fails has lost nothing: the next one does what is left.

    Args:
        store: The store.
        append: Brings changes to the feed.
        fragment_of: Finds the fragment of a class on the store.
        clock: When to sweep.
        odd: Told of records whose changes do not lead to their values.
        settled: Told of changes that are settled.
    """

    def __init__(
        self,
        store: PendingChanges,
        append: Append,
        fragment_of: FragmentOf,
        clock: Clock,
        odd: Callable[[UnrelayedChanges], None],
        settled: Append | None = None,
    ) -> None:
        self._store = store
        self._append = append
        self._fragment_of = fragment_of
        self._clock = clock
        self._odd = odd
        self._settled = settled
        self._waiting: dict[_Where, None] = {}
        self._doubtful: set[_Where] = set()
        self._swept_at: dict[tuple[str, str], float] = {}
        self.complete = False
        """Whether the last `drain` brought all that this process had written before it."""

    async def drain(self) -> int:
        """Bring what this process has written; return the number of changes.

        Raises:
            StoreError: What could not be brought is left for the next call.
        """
        self.complete = False
        overflowing = not self._take()
        self._doubtful.clear()
        brought, refusal = 0, None
        for (database, class_name), ids in self._by_class().items():
            fragment = self._fragment_of(database, class_name)
            for some in _batches(ids):
                try:
                    brought += await self._bring(fragment, some) if fragment else 0
                except StoreRefused as error:
                    refusal = error  # what is wrong with these records is not to stop the others
                else:
                    for id_ in some:
                        del self._waiting[database, class_name, id_]
        if refusal is not None:
            raise refusal
        if overflowing:  # so many wait that the store may have forgotten some
            self.sweep_soon()
        self.complete = self._take() and self._doubtful.isdisjoint(self._waiting)
        return brought

    def _take(self) -> bool:
        """Take what the store says was written; False if there may be more."""
        room = _ROOM - len(self._waiting)
        taken = self._store.take_written(room)
        self._waiting.update(dict.fromkeys(taken))
        return len(taken) < room

    def sweep_soon(self) -> None:
        """Let the next sweep look everywhere."""
        self._swept_at.clear()

    async def sweep(self, fragments: Iterable[Fragment]) -> int:
        """Look for changes that nobody relays, in classes whose turn it is; return how many."""
        brought = 0
        for fragment in fragments:
            name = (fragment.database_id, fragment.class_name)
            last, now = self._swept_at.get(name), self._clock.monotonic()
            if last is None or now - last >= self._store.sweep_every_s:
                brought += await self._sweep(fragment)
                self._swept_at[name] = now
        return brought

    async def _sweep(self, fragment: Fragment) -> int:
        brought, after = 0, None
        while ids := await self._store.sweep(fragment, after, _PAGE):
            for some in _batches(ids):
                brought += await self._bring(fragment, some)
            after = ids[-1]
        return brought

    async def _bring(self, fragment: Fragment, ids: Sequence[str]) -> int:
        waiting = await self._store.pending(fragment, ids)
        changes = [change for one in waiting for change in one.changes]
        if changes:
            await self._append(changes)
            await self._store.acknowledge(waiting)
            if self._settled is not None:
                await self._settled(changes)
        self._doubt(fragment, ids, waiting)
        for one in waiting:
            if not one.agrees:
                self._odd(one)
        return len(changes)

    def _doubt(
        self, fragment: Fragment, ids: Sequence[str], found: Sequence[UnrelayedChanges]
    ) -> None:
        """Remember records that were perhaps not read to their ends: then they are told again."""
        whole = {one.id for one in found if len(one.changes) < _MANY}
        where = (fragment.database_id, fragment.class_name)
        self._doubtful.update((*where, id_) for id_ in ids if id_ not in whole)

    def _by_class(self) -> dict[tuple[str, str], list[str]]:
        classes: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for database, class_name, id_ in self._waiting:
            classes[database, class_name].append(id_)
        return classes


def _batches(ids: Iterable[str]) -> Iterable[list[str]]:
    rest = iter(ids)
    while some := list(islice(rest, _AT_ONCE)):
        yield some
