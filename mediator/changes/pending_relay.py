"""The relay of stores whose outboxes are in the records: it appends and acknowledges changes.

Every process relays its own writes, and periodically sweeps for the writes of failed processes. Two
relays can therefore work on the same record. This is harmless: entries leave a record only from the
front, after the feed has them, so a reader of the record sees everything that the feed may lack, in
order; and the feed accepts a change only if its version is above the last one of the group, whose
versions rise even over deletes.
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
"""Appends, in order, to a database's feed the changes above the last version of their group."""

_MAX_QUEUED: Final = 10_000
"""Maximum records queued while the store or the feed is down; a sweep finds the others."""

_BATCH_RECORDS: Final = 64
"""Records that one call reads and acknowledges."""

_SWEEP_PAGE: Final = 512
"""Records that one call of a sweep returns."""

_RecordKey: TypeAlias = tuple[str, str, str]


@dataclass(eq=False)
class PendingRelay:
    """Relays the changes of one store to the feed; a call that fails loses nothing.

    `on_inconsistent` receives records whose changes do not lead to their values, `on_acknowledged`
    acknowledged changes. `complete`: the last `drain` relayed everything that this process had
    written before it.
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
        """Relay the writes of this process; return the number of changes.

        Raises:
            StoreError: Changes that failed are left for the next call.
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
                    refusal = error  # continue with the other records
                else:
                    for id_ in batch:
                        del self._queue[database, class_name, id_]
        if refusal is not None:
            raise refusal
        if overflowing:  # the store may have dropped reports
            self.sweep_soon()
        # A second time: the store reports again the records that have more changes.
        self.complete = self._enqueue() and self._unfinished.isdisjoint(self._queue)
        return relayed

    def _enqueue(self) -> bool:
        """Queue the records that the store reports as written; return False if more may follow."""
        room = _MAX_QUEUED - len(self._queue)
        written = self._store.take_written(room)
        self._queue.update(dict.fromkeys(written))
        return len(written) < room

    def sweep_soon(self) -> None:
        self._swept_at.clear()

    async def sweep(self, fragments: Iterable[Fragment]) -> int:
        """Relay changes of dead processes in the classes that are due; return how many."""
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
        while ids := await self._store.sweep(fragment, after, _SWEEP_PAGE):
            for batch in _batches(ids):
                relayed += await self._relay(fragment, batch)
            after = ids[-1]
        return relayed

    async def _relay(self, fragment: Fragment, ids: Sequence[str]) -> int:
        pending = await self._store.pending(fragment, ids)
        changes = [change for record in pending for change in record.changes]
        if changes:
            await self._append(fragment.database_id, changes)
            # After the append: if a relay dies in between, another one appends the changes again,
            # and the feed recognises them by their versions.
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
        """Note which records may have more changes: the store reports them again."""
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
    while batch := list(islice(remaining, _BATCH_RECORDS)):
        yield batch
