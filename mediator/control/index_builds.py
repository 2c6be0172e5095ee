"""Building indexes over the objects of classes, before a schema with them is in force.

A build is a task of this replica, which no request owns: one that has waited long enough is refused
with how far it has come, and the same one, sent again, waits for the rest. Nothing else waits: the
objects are read and written as ever, and other schema changes go on.

What a build has made is of use to the schema that needs it alone; if that is never put in force,
the next change of the class removes it. If the replica ends, any other one begins the index anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from mediator.base.clock import Clock
from mediator.base.concurrency import end
from mediator.base.errors import Conflict, MediatorError
from mediator.control.layout import fragments_of, indexes_of, same_place
from mediator.control.schema_plan import SchemaPlan
from mediator.operations.fragment_calls import FragmentCalls
from mediator.stores.port import Fragment, IndexBuilding, Store

__all__ = ["WAIT_S", "AddedIndexes", "IndexBuilds", "IndexKey"]

WAIT_S: Final = 60.0
"""Seconds for which one request waits."""

IndexKey: TypeAlias = tuple[str, str, str, frozenset[tuple[str, ...]]]
"""The id of a database, the stored name of a class, the system, and the indexes it is to have."""


class AddedIndexes(NamedTuple):
    """A fragment that gets indexes over objects, and what there is of it so far."""

    fragment: Fragment
    previous: Fragment

    @property
    def key(self) -> IndexKey:
        of, indexes = self.fragment, indexes_of(self.fragment)
        return of.database_id, of.stored_as, of.system, frozenset(indexes)

    @property
    def names(self) -> list[str]:
        """The indexes, as the schema names their fields."""
        there = indexes_of(self.previous)
        return sorted(n for key, n in indexes_of(self.fragment).items() if key not in there)


@dataclass(frozen=True, slots=True, eq=False)
class _Build:
    added: AddedIndexes
    begun_s: float
    task: asyncio.Task[None]


@dataclass(eq=False)
class IndexBuilds:
    """The builds of this replica."""

    _calls: FragmentCalls
    _clock: Clock
    _running: dict[IndexKey, _Build] = field(default_factory=dict, init=False)

    def left(self, plan: SchemaPlan, done: Collection[IndexKey]) -> tuple[AddedIndexes, ...]:
        """Return what a change adds over objects, but for what is `done`."""
        present = ((f, same_place(plan.present, f)) for f in fragments_of(plan.route))
        over_objects = [
            AddedIndexes(fragment, previous)
            for fragment, previous in present
            if previous is not None and fragment.class_name in plan.holding
        ]
        return tuple(each for each in over_objects if each.names and each.key not in done)

    async def finish(self, added: Sequence[AddedIndexes]) -> set[IndexKey]:
        """Build indexes, or wait for those who do; returns what is done.

        Raises:
            Conflict: There was no time for all of them; the next request goes on waiting.
            MediatorError: A system does not answer.
        """
        if not added:
            return set()
        tasks = {each.key: self._begun(each).task for each in added}
        _, late = await asyncio.wait(tasks.values(), timeout=WAIT_S)
        for task in set(tasks.values()) - late:
            task.result()
        if late:
            database = added[0].fragment.database
            raise Conflict(
                f"Not all indexes are built yet: that takes more than {WAIT_S:g} s, and goes on."
                " Send the same request again to wait for it; until then nothing is changed.",
                extra={"builds": await self.of(database)},
            )
        return {*tasks}

    async def of(self, database: str) -> list[dict[str, Any]]:
        """Describe the builds of a database: what, where, for how long, and the share of it."""
        builds = [b for b in self._running.values() if b.added.fragment.database == database]
        return [await self._described(build) for build in builds]

    async def close(self) -> None:
        await end([build.task for build in self._running.values()])

    def _begun(self, added: AddedIndexes) -> _Build:
        """Return the build of some indexes, which is begun if there is none."""
        build = self._running.get(added.key)
        if build is None:
            task = asyncio.create_task(self._build(added))
            build = self._running[added.key] = _Build(added, self._clock.monotonic(), task)
            task.add_done_callback(lambda task: self._ended(added.key, task))
        return build

    async def _build(self, added: AddedIndexes) -> None:
        await self._calls.on(added.fragment, "write", lambda store: _build(store, added))

    def _ended(self, key: IndexKey, task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved: there may be no request that waits for it

    async def _described(self, build: _Build) -> dict[str, Any]:
        fragment = build.added.fragment
        share: float | None = None
        with suppress(MediatorError):  # then it is not known
            share = await self._calls.on(fragment, "read", lambda store: _built(store, fragment))
        return {
            "class": fragment.class_name,
            "system": fragment.system,
            "indexes": build.added.names,
            "seconds": round(self._clock.monotonic() - build.begun_s, 3),
            "share": share,
        }


async def _build(store: Store, added: AddedIndexes) -> None:
    if isinstance(store, IndexBuilding):  # else it builds them when it is prepared
        await store.build(*added)


async def _built(store: Store, fragment: Fragment) -> float | None:
    return await store.built(fragment) if isinstance(store, IndexBuilding) else None
