"""Builds indexes over the objects of classes, before a schema with them is in force.

A build is a task of this replica, not of a request: a request that has waited long enough is
refused with the progress, and waits for the rest when it is sent again. Nothing else waits: objects
are read and written as usual, and other schema changes proceed.

A build only serves the schema that needs it; if that is never put in force, the next change of the
class removes the index. If the replica ends, another one starts the index over.
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
from mediator.control.layout import fragments_of, indexes_of, same_location
from mediator.control.schema_plan import SchemaPlan
from mediator.operations.fragment_calls import FragmentCalls
from mediator.stores.port import Fragment, IndexBuilding, Store

__all__ = ["WAIT_S", "AddedIndexes", "IndexBuilds", "IndexKey"]

WAIT_S: Final = 60.0
"""Seconds for which one request waits."""

IndexKey: TypeAlias = tuple[str, str, str, frozenset[tuple[str, ...]]]
"""The id of a database, the stored name of a class, the system, and the required indexes."""


class AddedIndexes(NamedTuple):
    """A fragment that gets indexes over objects, and its present form."""

    fragment: Fragment
    previous: Fragment

    @property
    def key(self) -> IndexKey:
        fragment, indexes = self.fragment, indexes_of(self.fragment)
        return fragment.database_id, fragment.stored_as, fragment.system, frozenset(indexes)

    @property
    def names(self) -> list[str]:
        """The indexes, as the schema names their fields."""
        existing = indexes_of(self.previous)
        return sorted(n for key, n in indexes_of(self.fragment).items() if key not in existing)


@dataclass(frozen=True, slots=True, eq=False)
class _Build:
    added: AddedIndexes
    started_s: float
    task: asyncio.Task[None]


@dataclass(eq=False)
class IndexBuilds:
    """The builds of this replica."""

    _calls: FragmentCalls
    _clock: Clock
    _running: dict[IndexKey, _Build] = field(default_factory=dict, init=False)

    def remaining(
        self, plan: SchemaPlan, finished: Collection[IndexKey]
    ) -> tuple[AddedIndexes, ...]:
        """Return the indexes that a change adds over objects, without the `finished` ones."""
        present = ((f, same_location(plan.present, f)) for f in fragments_of(plan.route))
        over_objects = [
            AddedIndexes(fragment, previous)
            for fragment, previous in present
            if previous is not None and fragment.class_name in plan.holding
        ]
        return tuple(added for added in over_objects if added.names and added.key not in finished)

    async def finish(self, added: Sequence[AddedIndexes]) -> set[IndexKey]:
        """Build indexes, or wait for running builds; returns the finished ones.

        Raises:
            Conflict: The time was too short for all of them; the next request continues to wait.
            MediatorError: A system does not answer.
        """
        if not added:
            return set()
        tasks = {indexes.key: self._build_of(indexes).task for indexes in added}
        _, pending = await asyncio.wait(tasks.values(), timeout=WAIT_S)
        for task in set(tasks.values()) - pending:
            task.result()
        if pending:
            database = added[0].fragment.database
            raise Conflict(
                f"Not all indexes are built yet: that takes more than {WAIT_S:g} s, and goes on."
                " Send the same request again to wait for it; until then nothing is changed.",
                extra={"builds": await self.of(database)},
            )
        return {*tasks}

    async def of(self, database: str) -> list[dict[str, Any]]:
        """Describe the builds of a database: indexes, system, seconds, and finished share."""
        builds = [b for b in self._running.values() if b.added.fragment.database == database]
        return [await self._describe(build) for build in builds]

    async def close(self) -> None:
        await end([build.task for build in self._running.values()])

    def _build_of(self, added: AddedIndexes) -> _Build:
        """Return the build of some indexes, started if there is none."""
        build = self._running.get(added.key)
        if build is None:
            task = asyncio.create_task(self._build(added))
            build = self._running[added.key] = _Build(added, self._clock.monotonic(), task)
            task.add_done_callback(lambda task: self._end_build(added.key, task))
        return build

    async def _build(self, added: AddedIndexes) -> None:
        await self._calls.on(added.fragment, "write", lambda store: _build(store, added))

    def _end_build(self, key: IndexKey, task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # retrieved: perhaps no request waits for it

    async def _describe(self, build: _Build) -> dict[str, Any]:
        fragment = build.added.fragment
        share: float | None = None
        with suppress(MediatorError):  # then it is unknown
            share = await self._calls.on(
                fragment, "read", lambda store: _built_share(store, fragment)
            )
        return {
            "class": fragment.class_name,
            "system": fragment.system,
            "indexes": build.added.names,
            "seconds": round(self._clock.monotonic() - build.started_s, 3),
            "share": share,
        }


async def _build(store: Store, added: AddedIndexes) -> None:
    if isinstance(store, IndexBuilding):  # else it builds them when it is prepared
        await store.build(*added)


async def _built_share(store: Store, fragment: Fragment) -> float | None:
    return await store.built(fragment) if isinstance(store, IndexBuilding) else None
