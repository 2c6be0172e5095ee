"""The refresher of a materialiser: its steps and their order, whatever fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.base.lease import Lease, LeaseLost
from mediator.changes.document import document_of
from mediator.changes.feed import Event, Feed, PositionGone, partition_of
from mediator.materialisation.builds import Builds
from mediator.materialisation.copier import MAX_STUCK, Copier
from mediator.materialisation.refresh import MAX_PAGES, Refresher, Slot
from mediator.materialisation.state import CopyState, CopyStep, ViewPartition, ViewState, copy_key
from mediator.model.change import Change
from mediator.operations.calls import StoreCalls
from mediator.placement.decide import GroupPlacement, build_routes
from mediator.routing.model import ClassRoute
from mediator.schema.parse import parse_schema
from mediator.stores.guarded import GuardedStore
from mediator.stores.port import Record, StoreUnavailable
from mediator.stores.systems import Systems

DOCUMENT = {
    "mode": "microbatched",
    "classes": {"notes": {"fields": {"text": {"type": "string"}}}},
}
UNTIL = 1_000


def route() -> ClassRoute:
    groups = {"notes": {"main": GroupPlacement("mongo", ("text",))}}
    return build_routes(parse_schema("db", DOCUMENT), groups, {"notes": 1}, "postgres").classes[
        "notes"
    ]


NOTES = route()
SPLIT = build_routes(
    parse_schema(
        "db",
        DOCUMENT
        | {
            "classes": {
                "notes": {
                    "fields": {
                        "text": {"type": "string"},
                        "hits": {"type": "integer", "group": "hits"},
                    }
                }
            }
        },
    ),
    {
        "notes": {
            "main": GroupPlacement("mongo", ("text",)),
            "hits": GroupPlacement("redis", ("hits",)),
        }
    },
    {"notes": 1},
    "postgres",
).classes["notes"]
assert NOTES.copy is not None
COPY = copy_key(NOTES.copy)[1]


def change(id_: str, kind: str = "update") -> Change:
    return Change(f"{id_}{kind}", "db", "notes", id_, "main", 7, kind, None, None, 7, "db")


class WorldCopier(Copier):
    """Copies by the world's `copy` and `forget`."""

    def __init__(self, world: World, systems: Systems) -> None:
        super().__init__(cast("StoreCalls", SimpleNamespace(systems=systems)))
        self._world = world

    async def copy(self, route: ClassRoute, ids: Sequence[str], *, force: bool = False) -> int:
        return await self._world.copy(route, ids)

    async def forget(self, route: ClassRoute, deleted: Mapping[str, int]) -> None:
        await self._world.forget(route, deleted)

    async def read(self, route: ClassRoute, ids: Sequence[str]) -> list[Record | None]:
        return []

    async def read_copies(self, route: ClassRoute, ids: Sequence[str]) -> list[Record | None]:
        return []


class World:
    """A feed, the state of copies, and stores, which record their calls."""

    def __init__(self, *changes: Change, state: CopyState | None = None) -> None:
        self.calls: list[str] = []
        self.changes = list(changes)
        self.state = ViewPartition("first/0", {} if state is None else {COPY: state})
        self.route = NOTES
        self.current = "first"
        self.gone = False
        self.until = {"mongo": UNTIL}
        self.failing: set[str] = set()
        self.away = False
        self.copied: list[str] = []
        self.deleted: dict[str, int] = {}
        self.objects: list[str] = []
        self.limits: list[int] = []

    # the feed
    async def relayed_until(self, database: str) -> Mapping[str, int]:
        self.calls.append("until")
        return self.until

    async def generation(self, database: str) -> str:
        return self.current

    async def events(self, database: str, partition: int, after: str, limit: int) -> list[Event]:
        if self.gone:
            raise PositionGone("gone")
        self.calls.append("read")
        start = int(after)
        page = self.changes[start : start + limit]
        self.limits.append(limit)
        return [
            Event(partition, str(start + n), item.class_name, document_of(item))
            for n, item in enumerate(page, 1)
        ]

    async def last(self, database: str, partition: int) -> str:
        return str(len(self.changes))

    # the state
    async def load(self, database: str, partition: int) -> ViewPartition:
        return self.state

    async def advance(
        self,
        database: str,
        partition: int,
        cursor: tuple[str | None, str],
        steps: Sequence[CopyStep],
        lease: Lease,
    ) -> None:
        self.calls.append("advance")
        assert cursor[0] == self.state.cursor
        copies = dict(self.state.copies)
        for step in steps:
            assert copies.pop(step.copy, None) == step.before
            if step.after is not None:
                copies[step.copy] = step.after
        self.state = ViewPartition(cursor[1], copies)

    # the copier
    async def copy(self, route: ClassRoute, ids: Sequence[str]) -> int:
        self.calls.append("copy")
        if self.away or self.failing & set(ids):
            raise Unavailable("It does not answer.", system="mongo")
        self.copied += ids
        return len(ids)

    async def forget(self, route: ClassRoute, deleted: Mapping[str, int]) -> None:
        self.calls.append("forget")
        self.deleted.update(deleted)

    # stores
    async def ping(self) -> None:
        if self.away:
            raise StoreUnavailable

    async def count(self, fragment: Any) -> int:
        return 0

    async def scan(self, _: Any, after: str | None, limit: int, *__: Any) -> list[Any]:
        next_ids = [id_ for id_ in sorted(self.objects) if id_ > (after or "")]
        return [SimpleNamespace(id=id_) for id_ in next_ids[:limit]]

    def refresher(self) -> tuple[Refresher, Builds]:
        systems = Systems()
        for name in ("mongo", "postgres"):
            store: Any = SimpleNamespace(
                config=SimpleNamespace(name=name), ping=self.ping, count=self.count, scan=self.scan
            )
            systems.add(GuardedStore(store, lambda _: None, SystemClock()))
        copier = WorldCopier(self, systems)
        builds = Builds(copier, 0, SystemClock())
        slot = Slot("db", 0)
        feed, state = cast("Feed", self), cast("ViewState", self)
        return Refresher(slot, lambda: {"notes": self.route}, feed, state, copier, builds), builds

    @property
    def copy_state(self) -> CopyState:
        return self.state.copies[COPY]


COMPLETE = CopyState(until_tick=1)
LEASE = Lease("materialise:db:0", "me")


async def test_a_refresh_copies_before_it_advances() -> None:
    world = World(change("a"), change("a"), change("b"), state=COMPLETE)
    refresher, _ = world.refresher()
    assert await refresher.refresh(LEASE)
    assert world.calls == ["until", "read", "copy", "advance"]
    assert world.copied == ["a", "b"]
    assert world.state.cursor == "first/3"
    assert world.copy_state == CopyState(UNTIL)


@pytest.mark.parametrize(
    ("until", "complete_until"),
    [
        ({"mongo": 1_000, "redis": 500}, 500),
        ({"mongo": 500, "redis": 1_000}, 500),
        ({"mongo": 1_000}, COMPLETE.until_tick),
    ],
)
async def test_a_copy_is_as_old_as_the_system_that_is_furthest_behind(
    until: dict[str, int], complete_until: int
) -> None:
    world = World(change("a"), state=COMPLETE)
    world.route, world.until = SPLIT, until
    refresher, _ = world.refresher()
    await refresher.refresh(LEASE)
    assert world.copy_state == CopyState(complete_until)


async def test_deleted_objects_are_forgotten_before_their_successors_are_copied() -> None:
    world = World(change("a", "delete"), change("a", "create"), state=COMPLETE)
    refresher, _ = world.refresher()
    await refresher.refresh(LEASE)
    assert world.calls == ["until", "read", "forget", "copy", "advance"]
    assert world.deleted == {"a": 7}


async def test_an_unavailable_store_ends_the_round_and_the_cursor_stays() -> None:
    world = World(change("a"), state=COMPLETE)
    world.away = True
    refresher, _ = world.refresher()
    with pytest.raises(Unavailable):
        await refresher.refresh(LEASE)
    assert world.state.cursor == "first/0"
    assert world.copy_state == COMPLETE


async def test_an_object_that_cannot_be_copied_does_not_block_others() -> None:
    world = World(*(change(f"n{n}") for n in range(9)), state=COMPLETE)
    world.failing = {"n4"}
    refresher, _ = world.refresher()
    await refresher.refresh(LEASE)
    assert sorted(world.copied) == [f"n{n}" for n in range(9) if n != 4]
    # But the copy is not reported as complete until the object is copied.
    assert world.copy_state == CopyState(1, "", ("n4",))
    await refresher.refresh(LEASE)
    assert world.copy_state == CopyState(1, "", ("n4",))
    world.failing = set()
    await refresher.refresh(LEASE)
    assert world.copy_state == CopyState(UNTIL)
    assert "n4" in world.copied


async def test_the_watermark_never_goes_back() -> None:
    world = World(state=CopyState(UNTIL + 5))
    refresher, _ = world.refresher()
    await refresher.refresh(LEASE)
    assert world.copy_state == CopyState(UNTIL + 5)


async def test_the_watermark_stays_while_a_system_does_not_report() -> None:
    world = World(change("a"), state=COMPLETE)
    world.until = {}
    refresher, _ = world.refresher()
    await refresher.refresh(LEASE)
    assert world.copy_state == COMPLETE
    assert world.copied == ["a"]


async def test_a_backlog_is_processed_before_the_watermark_advances() -> None:
    world = World(*(change(f"n{n}") for n in range(MAX_PAGES * 1_000 + 5)), state=COMPLETE)
    refresher, _ = world.refresher()
    assert not await refresher.refresh(LEASE)
    assert world.copy_state == COMPLETE
    assert await refresher.refresh(LEASE)
    assert world.copy_state == CopyState(UNTIL)


async def test_large_changes_are_read_in_small_pages() -> None:
    large = {"text": "x" * 100_000}
    world = World(*(replace(change(f"n{n}"), after=large) for n in range(600)), state=COMPLETE)
    refresher, _ = world.refresher()
    assert await refresher.refresh(LEASE)
    assert max(world.limits[1:]) <= 40
    assert len(world.copied) == 600


async def test_an_unknown_copy_is_built() -> None:
    world = World(change("a"))
    refresher, builds = world.refresher()
    await refresher.refresh(LEASE)
    token = world.copy_state.build
    assert token
    assert world.copy_state == CopyState(None, token)
    while world.copy_state.build:
        await asyncio.sleep(0)
        await refresher.refresh(LEASE)
    assert world.copy_state == CopyState(UNTIL)
    assert builds.progress() == {}


def ids_of_the_partition(count: int) -> list[str]:
    ids = (f"n{number:06}" for number in itertools.count())
    return [*itertools.islice((id_ for id_ in ids if partition_of("notes", id_) == 0), count)]


async def finish_build(world: World, refresher: Refresher) -> None:
    """Refresh until the build, started or resumed by the first refresh, ends."""
    await refresher.refresh(LEASE)
    while world.copy_state.build:
        await asyncio.sleep(0)
        await refresher.refresh(LEASE)


async def test_a_build_with_many_stuck_objects_is_not_repeated_before_they_are_copied() -> None:
    world = World()
    world.objects = ids_of_the_partition(MAX_STUCK + 3)
    world.failing = {*world.objects}
    refresher, builds = world.refresher()
    await finish_build(world, refresher)
    stuck_state = world.copy_state
    assert stuck_state == CopyState(None, "", tuple(world.objects[:MAX_STUCK]), more_stuck=True)
    await refresher.refresh(LEASE)
    assert world.copy_state == stuck_state
    # One of the recorded ids fails still: the unrecorded objects are not searched for.
    world.failing = {world.objects[0]}
    await refresher.refresh(LEASE)
    assert world.copy_state == CopyState(None, "", (world.objects[0],), more_stuck=True)
    assert builds.progress() == {}
    # No recorded id is left: a build finds the other objects.
    world.failing = set()
    await refresher.refresh(LEASE)
    await finish_build(world, refresher)
    assert world.copy_state == CopyState(UNTIL)
    assert {*world.objects} <= {*world.copied}


async def test_changes_of_many_objects_that_cannot_be_copied_start_no_build() -> None:
    ids = [f"n{number:04}" for number in range(MAX_STUCK + 3)]
    world = World(*map(change, ids), state=COMPLETE)
    world.failing = {*ids}
    refresher, builds = world.refresher()
    for _ in range(2):
        await refresher.refresh(LEASE)
        assert world.copy_state == CopyState(1, "", tuple(ids[:MAX_STUCK]), more_stuck=True)
        assert builds.progress() == {}


async def test_many_objects_that_get_stuck_during_a_build_need_a_second_build() -> None:
    """They changed after the build had read them."""
    ids = [f"n{number:04}" for number in range(MAX_STUCK + 3)]
    world = World(*map(change, ids))
    refresher, builds = world.refresher()
    await refresher.refresh(LEASE)
    world.state = ViewPartition("first/0", world.state.copies)
    world.failing = {*ids}
    await finish_build(world, refresher)
    assert world.copy_state == CopyState(None, "", tuple(ids[:MAX_STUCK]), more_stuck=True)
    world.failing = set()
    await refresher.refresh(LEASE)
    await refresher.refresh(LEASE)
    assert world.copy_state.build
    await builds.cancel()


async def test_the_build_of_a_failed_replica_is_restarted() -> None:
    world = World(state=CopyState(None, "theirs"))
    refresher, builds = world.refresher()
    await refresher.refresh(LEASE)
    assert world.copy_state.build not in ("", "theirs")
    await builds.cancel()


@pytest.mark.parametrize("generation", ["first", "another"])
async def test_copies_are_rebuilt_if_changes_are_missing(generation: str) -> None:
    world = World(change("a"), change("b"), state=COMPLETE)
    world.current, world.gone = generation, generation == "first"
    refresher, builds = world.refresher()
    await refresher.refresh(LEASE)
    assert world.state.cursor == f"{generation}/2"
    assert world.copy_state.until_tick is None
    assert world.copy_state.build
    await builds.cancel()


async def test_copies_of_dropped_classes_are_forgotten() -> None:
    world = World(state=COMPLETE)
    world.state = ViewPartition("first/0", {COPY: COMPLETE, "notes@view.0@postgres": COMPLETE})
    refresher, _ = world.refresher()
    await refresher.refresh(LEASE)
    assert set(world.state.copies) == {COPY}


async def test_without_the_lease_no_build_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any) -> None:
        raise LeaseLost

    world = World()
    monkeypatch.setattr(world, "advance", refuse)
    refresher, builds = world.refresher()
    with pytest.raises(LeaseLost):
        await refresher.refresh(LEASE)
    assert builds.progress() == {}
