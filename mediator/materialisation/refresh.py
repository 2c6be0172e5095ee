"""Incremental refresh of a view from one partition of the change feed.

A refresh first reads the tick up to which the feed is complete, then the new changes, then copies
the objects as they are by then, and finally publishes the tick up to which the copies are complete.
In any other order it would promise too much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from mediator.base.errors import Unavailable
from mediator.base.lease import Lease
from mediator.base.page_size import PageSize
from mediator.changes.document import change_from
from mediator.changes.feed import Event, Feed, PositionGone
from mediator.materialisation.builds import Build, Builds
from mediator.materialisation.copier import Copier, CopyResult
from mediator.materialisation.state import CopyState, CopyStep, ViewPartition, ViewState, copy_key
from mediator.model.change import Change
from mediator.routing.model import ClassRoute

__all__ = ["CompactedChanges", "Refresher", "Slot"]


@dataclass(slots=True)
class MaterialiserProgress:
    """The progress of one partition since its materialiser got the lease.

    By class: changed objects (`dirty`), summed over the refreshes; copies written and removed.
    `builds` has the processed objects of running builds, and their approximate totals.
    """

    refreshes: int = 0
    changes: int = 0
    dirty: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    forgotten: dict[str, int] = field(default_factory=dict)
    builds: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    error: str = ""

    def add(self, class_name: str, written: int, forgotten: int = 0, dirty: int = 0) -> None:
        self.dirty[class_name] = self.dirty.get(class_name, 0) + dirty
        self.written[class_name] = self.written.get(class_name, 0) + written
        self.forgotten[class_name] = self.forgotten.get(class_name, 0) + forgotten

    def document(self, replica: str, at_us: int) -> dict[str, Any]:
        return {"replica": replica, "at_us": at_us, **asdict(self)}


@dataclass(slots=True)
class PendingCopies:
    """Copies of one class to remove, with the versions of the deletions, and objects to copy.

    Copies are removed first: a recreated object has a later creation version, so its copy stays.
    Objects to copy are in the order of their first changes.
    """

    deleted: dict[str, int] = field(default_factory=dict)
    dirty: dict[str, None] = field(default_factory=dict)

    def add(self, change: Change, anchored: Mapping[str, object]) -> None:
        """Add a change; `anchored` are the groups that decide whether an object exists."""
        if change.kind == "delete" and change.group in anchored:
            self.deleted[change.object_id] = max(
                change.version, self.deleted.get(change.object_id, change.version)
            )
        else:
            self.dirty[change.object_id] = None


class CompactedChanges:
    """Copies to write and remove for some changes: far smaller than the changes with their values.

    Attributes:
        pending: By class, for classes that have a copy.
        count: The number of changes, of all classes.
    """

    def __init__(self, routes: Mapping[str, ClassRoute]) -> None:
        self._routes = routes
        self.pending: dict[str, PendingCopies] = {}
        self.count = 0

    def add(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self.count += 1
            route = self._routes.get(change.class_name)
            if route is not None and route.copy is not None:
                pending = self.pending.setdefault(change.class_name, PendingCopies())
                pending.add(change, route.anchor.groups)


MAX_PAGES: Final = 20
"""Maximum pages of changes in one refresh, so that the cursor moves."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One partition of a database's feed (`database`: its id), materialised under a lease."""

    database: str
    partition: int


@dataclass(frozen=True, slots=True)
class _NewChanges:
    """New changes of the feed; `lost`: changes before them are missing."""

    changes: CompactedChanges
    cursor: str
    complete: bool
    lost: bool = False


@dataclass(eq=False)
class Refresher:
    """Refreshes the copies of one partition, while its lease is held.

    `_routes` returns the classes that have a copy, by name.
    """

    _slot: Slot
    _routes: Callable[[], Mapping[str, ClassRoute]]
    _feed: Feed
    _state: ViewState
    _copier: Copier
    _builds: Builds
    progress: MaterialiserProgress = field(default_factory=MaterialiserProgress)
    _page_size: PageSize = field(default_factory=PageSize, init=False)

    async def refresh(self, lease: Lease) -> bool:
        """Apply new changes under the partition's lease; return whether these were all.

        Raises:
            Unavailable: A store or the feed does not respond; the cursor does not move.
            LeaseLost: Another replica holds the lease of the partition.
        """
        slot, routes = self._slot, self._routes()
        self.progress.error = self._builds.error()
        state = await self._state.load(slot.database, slot.partition)
        finished = self._builds.done()
        # Before the changes are read: they must include everything that this tick promises.
        until = await self._feed.relayed_until(slot.database)
        new = await self._new_changes(state.cursor, routes)
        steps, started = await self._steps(routes, state, until, new, finished)
        cursor = (state.cursor, new.cursor)
        await self._state.advance(slot.database, slot.partition, cursor, steps, lease)
        # After the cursor is recorded: writes during a build's reads come in later changes.
        self._builds.drop(finished)
        await self._builds.start(started)
        self._count(new, finished.values())
        return new.complete

    async def _steps(
        self,
        routes: Mapping[str, ClassRoute],
        state: ViewPartition,
        until: Mapping[str, int],
        new: _NewChanges,
        finished: Mapping[str, Build],
    ) -> tuple[list[CopyStep], dict[str, Build]]:
        """Copy changed objects; return the copies' next states, and builds to start."""
        pending = new.changes.pending
        steps: list[CopyStep] = []
        started: dict[str, Build] = {}
        for name, route in routes.items():
            copy = _copy_name(route)
            before = state.copies.get(copy)
            if before is None or new.lost or self._builds.is_needed(copy, before):
                started[copy] = self._builds.create(route)
                after: CopyState | None = CopyState(build=started[copy].token)
            else:
                result = await self._apply(route, pending.get(name, PendingCopies()), before)
                until_tick = _until(route, until) if new.complete else None
                after = _next_state(before, result, until_tick, finished.get(copy))
            steps.append(CopyStep(copy, before, after))
        dropped = sorted(state.copies.keys() - {step.copy for step in steps})
        return steps + [CopyStep(copy, state.copies[copy], None) for copy in dropped], started

    async def _new_changes(
        self, cursor: str | None, routes: Mapping[str, ClassRoute]
    ) -> _NewChanges:
        database, partition = self._slot.database, self._slot.partition
        generation = await self._feed.generation(database)
        cursor_generation, _, after = (cursor or "").partition("/")
        if cursor_generation == generation:
            changes = CompactedChanges(routes)
            with suppress(PositionGone):
                after, complete = await self._read(after, changes)
                return _NewChanges(changes, f"{generation}/{after}", complete)
        last = await self._feed.last(database, partition)
        no_changes = CompactedChanges(routes)
        return _NewChanges(no_changes, f"{generation}/{last}", complete=True, lost=True)

    async def _read(self, after: str, changes: CompactedChanges) -> tuple[str, bool]:
        """Add the changes after a position; return the last position, and whether it is the end."""
        for _ in range(MAX_PAGES):
            count = self._page_size.count
            page = await self._page(after, count)
            self._page_size.succeeded([len(event.data) for event in page])
            changes.add(change_from(event.data, self._slot.database) for event in page)
            after = page[-1].id if page else after
            if len(page) < count:
                return after, True
        return after, False

    async def _page(self, after: str, count: int) -> list[Event]:
        try:
            return await self._feed.events(self._slot.database, self._slot.partition, after, count)
        except Unavailable:
            self._page_size.failed()
            raise

    async def _apply(
        self, route: ClassRoute, pending: PendingCopies, before: CopyState
    ) -> CopyResult:
        if pending.deleted:
            await self._copier.forget(route, pending.deleted)
        dirty = [*{**dict.fromkeys(before.stuck), **pending.dirty}]
        result = await self._copier.copy_isolated(route, dirty)
        self.progress.add(route.schema.name, result.written, len(pending.deleted), len(dirty))
        self.progress.error = result.error or self.progress.error
        return result

    def _count(self, new: _NewChanges, finished: Iterable[Build]) -> None:
        self.progress.refreshes += 1
        self.progress.changes += new.changes.count
        self.progress.builds = self._builds.progress()
        for build in finished:
            self.progress.add(build.class_name, written=build.result.written)


def _copy_name(route: ClassRoute) -> str:
    assert route.copy is not None
    return copy_key(route.copy)[1]


def _until(route: ClassRoute, until: Mapping[str, int]) -> int | None:
    """Return the tick up to which the feed has every acknowledged write of a class."""
    ticks = [until.get(fragment.system) for fragment in route.fragments]
    present = [tick for tick in ticks if tick is not None]
    return min(present) if len(present) == len(ticks) else None


def _next_state(
    before: CopyState, result: CopyResult, until_tick: int | None, build: Build | None
) -> CopyState | None:
    """Return the state of a copy after a refresh, which copied the changed objects (`result`).

    It copied everything up to `until_tick`; None: not everything. `build` was finished when it
    began. Without a next state, the copy is built.
    """
    pending_build = before.build
    if build is not None and build.token == pending_build:
        result, pending_build = result + build.result, ""
    more_stuck = before.more_stuck or result.more_stuck
    if pending_build:
        return CopyState(None, pending_build, result.stuck, more_stuck)
    if more_stuck and not result.stuck:
        return None  # only now another build: an earlier one would leave the same objects
    if result.stuck or until_tick is None:
        return CopyState(before.until_tick, "", result.stuck, more_stuck)
    return CopyState(max(until_tick, before.until_tick or 0))
