"""Expiry: an object of a class with `ttl_s` expires that long after its creation.

All its fragments agree on its creation version, a time of the store's clock. The same clock decides
when it expires (`Systems.now_for`): so a replica's wrong clock expires no live object, and all
fragments expire at the same moment. From then on

- a read takes it for missing (`live_records`);
- a write first deletes its remains (`expiry_deletions`), and then finds no object;
- the sweep deletes all other remains.

A deletion spares every later generation (`Write.creation_version`), so it may come late or twice.
It is a write like any other, for the guard and for the feed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Final, TypeAlias

from mediator.base.errors import MediatorError
from mediator.routing.model import RoutingModel
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Fragment, Read, Record, StoreError, Write, WriteKind
from mediator.stores.systems import Systems

__all__ = ["Delete", "Sweep", "expired", "expiry_deletions", "live_records"]

PAGE: Final = 500
"""Records scanned in one call."""

PAGES: Final = 40
"""Pages of a fragment that one run scans at most."""

MAX_SKEW_S: Final = 10.0
"""Seconds by which a store's clock and ours may differ; beyond that one of them is wrong, and the
sweep deletes nothing."""

Now: TypeAlias = Callable[[Fragment], float]
"""Returns the time by which a fragment's objects expire, in seconds since the epoch."""

Delete: TypeAlias = Callable[[GuardedStore, Sequence[Write]], Awaitable[object]]
"""Executes deletions on one system."""


def expired(fragment: Fragment, record: Record, now: float) -> bool:
    """Whether a record is older than its class's `ttl_s`; `now` in seconds since the epoch."""
    return (
        fragment.ttl_s is not None and record.creation_version <= (now - fragment.ttl_s) * 1_000_000
    )


def live_records(
    calls: Sequence[Read], records: list[Record | None], now: Now
) -> list[Record | None]:
    """Return records as read, with None for expired ones."""
    if all(call.fragment.ttl_s is None for call in calls):
        return records
    return [
        None if record is None or _has_expired(call.fragment, record, now) else record
        for call, record in zip(calls, records, strict=True)
    ]


def _has_expired(fragment: Fragment, record: Record, now: Now) -> bool:
    return fragment.ttl_s is not None and expired(fragment, record, now(fragment))


def expiry_deletions(pairs: Iterable[tuple[Fragment, Record | None]], now: Now) -> list[Write]:
    """Return the deletions of expired records, one for each."""
    return list(
        {
            (fragment, record.id): _deletion(fragment, record)
            for fragment, record in pairs
            if record is not None and _has_expired(fragment, record, now)
        }.values()
    )


def _deletion(fragment: Fragment, record: Record) -> Write:
    # The same id whichever replica deletes it: the feed has the deletion once.
    identity = "\0".join(
        (fragment.database, fragment.class_name, record.id, str(record.creation_version))
    )
    operation = f"expiry-{blake2b(identity.encode(), digest_size=16).hexdigest()}"
    groups = tuple(fragment.groups)
    kind = WriteKind.DELETE
    return Write(
        fragment, record.id, kind, operation, groups, creation_version=record.creation_version
    )


class Sweep:
    """Deletes expired records that no write has met, some pages of each class at a time."""

    def __init__(self, systems: Systems, delete: Delete) -> None:
        self._systems = systems
        self._delete = delete
        self._reached: dict[tuple[str, str, str], str] = {}

    async def run(self, model: RoutingModel) -> int:
        """Continue where the last run stopped; return how many records were deleted.

        A run ends with a page that has nothing to delete, so it is cheap while nothing expires
        and keeps up when much does.
        """
        expiring = [
            fragment
            for database in model.databases.values()
            for route in database.classes.values()
            for fragment in route.fragments
            if fragment.ttl_s is not None
        ]
        keys = {_key(fragment) for fragment in expiring}
        self._reached = {key: id_ for key, id_ in self._reached.items() if key in keys}
        deleted = 0
        for fragment in expiring:
            # The health check reports a system that is down; go on with the others.
            with suppress(StoreError, MediatorError):
                if await self._trusts_clock(fragment):
                    deleted += await self._sweep(fragment)
        return deleted

    async def _trusts_clock(self, fragment: Fragment) -> bool:
        """Read the clock by which the objects expire; return whether ours agrees with it."""
        store = self._systems.get(fragment.anchor_system or fragment.system)
        await store.read_clock()
        skew_s = store.time.skew_s
        return skew_s is not None and abs(skew_s) <= MAX_SKEW_S

    async def _sweep(self, fragment: Fragment) -> int:
        deleted = 0
        for _ in range(PAGES):
            page_deletions = await self._page(fragment)
            deleted += page_deletions
            if not page_deletions:
                break
        return deleted

    async def _page(self, fragment: Fragment) -> int:
        store = self._systems.get(fragment.system)
        after = self._reached.pop(_key(fragment), None)
        records = await store.guarded(partial(store.store.scan, fragment, after, PAGE, ()))
        # A short page is the last one: the next run starts over.
        if len(records) == PAGE:
            self._reached[_key(fragment)] = records[-1].id
        deletions = expiry_deletions(
            ((fragment, record) for record in records), self._systems.now_for
        )
        if deletions:
            await self._delete(store, deletions)
        return len(deletions)


def _key(fragment: Fragment) -> tuple[str, str, str]:
    return fragment.system, fragment.database, fragment.class_name
