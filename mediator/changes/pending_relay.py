"""The relay of stores whose outboxes are in the records: it appends and acknowledges changes.

Every process relays what it has written itself, and sweeps now and then for the writes of
processes that have failed. So two relays may meet at a record. That does no harm: entries leave a
record from the front only, after the feed has them, so a reader of the record reads all that the
feed may lack, in order; and the feed takes a change only if its version is above that of the last
one it has of the group, as versions of a group rise even over deletes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
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

Append: TypeAlias = Callable[[str, Sequence[Change]], Awaitable[object]]
"""Appends to a database's feed, in their order, changes above the last version of their group."""

_CAPACITY: Final = 10_000
"""Records queued while the store or the feed does not answer; a sweep finds the others."""

_AT_ONCE: Final = 64
"""Records that are read, and acknowledged, in one call."""

_PAGE: Final = 512
"""Records that a sweep finds in one call."""

_RecordKey: TypeAlias = tuple[str, str, str]


@dataclass(eq=False)
class PendingRelay:
    """Relays the changes of one store to the feed; a call that fails loses nothing.

    `on_inconsistent` receives records whose changes do not lead to their values, `on_acknowledged`
    changes that were acknowledged. `complete` is whether the last `drain` relayed all that this
    process had written before it.
    """

    _store: PendingChanges
    _append: Append
    _fragment_of: FragmentOf
    _clock: Clock
    _on_inconsistent: Callable[[UnrelayedChanges], None]
    _on_acknowledged: Append | None = None
    _queue: dict[_RecordKey, None] = field(default_factory=dict, init=False)
    _unfinished: set[_RecordKey] = field(default_factory=set, init=False)
    _swept_at: dict[tuple[str, str], float] = field(default_factory=dict, init=False)
    complete: bool = field(default=False, init=False)

    async def drain(self) -> int:
        """Relay what this process has written; return the number of changes.

        Raises:
            StoreError: What could not be relayed is left for the next call.
        """
        self.complete = False
        overflowing = not self._enqueue()
        self._unfinished.clear()
        relayed, refusal = 0, None
        for (database, class_name), ids in self._by_class().items():
            fragment = self._fragment_of(database, class_name)
            for batch in _batches(ids):
                try:
                    relayed += await self._relay(fragment, batch) if fragment else 0
                except StoreRefused as error:
                    refusal = error  # the other records go on
                else:
                    for id_ in batch:
                        del self._queue[database, class_name, id_]
        if refusal is not None:
            raise refusal
        if overflowing:  # the store may have dropped some
            self.sweep_soon()
        # Once more: the store has reported again the records that have more changes.
        self.complete = self._enqueue() and self._unfinished.isdisjoint(self._queue)
        return relayed

    def _enqueue(self) -> bool:
        """Queue the records that the store reports as written; false if there may be more."""
        room = _CAPACITY - len(self._queue)
        written = self._store.take_written(room)
        self._queue.update(dict.fromkeys(written))
        return len(written) < room

    def sweep_soon(self) -> None:
        self._swept_at.clear()

    async def sweep(self, fragments: Iterable[Fragment]) -> int:
        """Relay changes of processes that have died, in classes that are due; return how many."""
        relayed = 0
        for fragment in fragments:
            name = (fragment.database_id, fragment.class_name)
            last, now = self._swept_at.get(name), self._clock.monotonic()
            if last is None or now - last >= self._store.sweep_every_s:
                relayed += await self._sweep(fragment)
                self._swept_at[name] = now
        return relayed

    async def _sweep(self, fragment: Fragment) -> int:
        relayed, after = 0, None
        while ids := await self._store.sweep(fragment, after, _PAGE):
            for batch in _batches(ids):
                relayed += await self._relay(fragment, batch)
            after = ids[-1]
        return relayed

    async def _relay(self, fragment: Fragment, ids: Sequence[str]) -> int:
        pending = await self._store.pending(fragment, ids)
        changes = [change for record in pending for change in record.changes]
        if changes:
            await self._append(fragment.database_id, changes)
            # After the append: a relay that dies in between leaves them, and another one appends
            # them again, which the feed recognises by their versions.
            await self._store.acknowledge(pending)
            if self._on_acknowledged is not None:
                await self._on_acknowledged(fragment.database_id, changes)
        self._note_unfinished(fragment, ids, pending)
        for record in pending:
            if not record.agrees:
                self._on_inconsistent(record)
        return len(changes)

    def _note_unfinished(
        self, fragment: Fragment, ids: Sequence[str], pending: Sequence[UnrelayedChanges]
    ) -> None:
        """Record which records may have more changes: the store reports them again."""
        finished = {record.id for record in pending if record.complete}
        key = (fragment.database_id, fragment.class_name)
        self._unfinished.update((*key, id_) for id_ in ids if id_ not in finished)

    def _by_class(self) -> dict[tuple[str, str], list[str]]:
        classes: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for database, class_name, id_ in self._queue:
            classes[database, class_name].append(id_)
        return classes


def _batches(ids: Iterable[str]) -> Iterable[list[str]]:
    remaining = iter(ids)
    while batch := list(islice(remaining, _AT_ONCE)):
        yield batch
