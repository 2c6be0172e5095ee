"""Replicas follow the catalogue by reading its changes, in any interleaving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mediator.base.errors import NotFound, Unavailable
from mediator.catalogue import epochs
from mediator.catalogue.schemas import LayoutChanged
from mediator.catalogue.stored_databases import (
    CatalogueSnapshot,
    Difference,
    Moment,
    StoredDatabase,
)
from mediator.control.follower import Coalesced
from mediator.control.layout import UniqueBuild
from mediator.stores.port import SystemConfig
from tests.faults.conditions import eventually
from tests.process.control.following import Replica, World, make_database, open_world
from tests.process.service import scratch_catalogue

MANY = 25


@pytest.fixture(scope="module")
async def opened(postgresql_config: SystemConfig) -> AsyncIterator[World]:
    async with scratch_catalogue(postgresql_config) as url, open_world(url) as world:
        yield world


@pytest.fixture
async def world(opened: World) -> World:
    await opened.restore(
        {"epoch": [{"only": 1, "epoch": 0}], "databases": [], "schema_changes": []}
    )
    return opened


async def start_replica(world: World, count: int = 2) -> Replica:
    """Return a replica that has read some databases."""
    for number in range(count):
        await world.schemas.put(make_database(f"db{number}"))
    replica = world.replica()
    await replica.follower.look()
    return replica


@pytest.mark.parametrize("count", [2, MANY])
async def test_unchanged_schemas_are_not_read(world: World, count: int) -> None:
    replica = await start_replica(world, count)
    model = replica.executor.model
    with world.counting():
        await replica.follower.look()
    assert (len(world.queries), world.parsed) == (1, [])
    with world.counting():
        await replica.follower.catch_up()
    assert (len(world.queries), world.parsed) == (2, [])
    assert replica.executor.model is model


@pytest.mark.parametrize("count", [2, MANY])
async def test_only_changed_schemas_are_read(world: World, count: int) -> None:
    replica = await start_replica(world, count)
    before = dict(replica.executor.model.databases)
    await world.schemas.put(make_database("db1", 2, "notes", "more"))
    await world.schemas.put(make_database("new"))
    with world.counting():
        await replica.follower.look()
    assert (len(world.queries), sorted(world.parsed)) == (4, ["db1", "new"])
    assert "IN (" in world.queries[-1]
    assert replica.stored == await world.stored()
    after = replica.executor.model.databases
    assert all(after[n] is before[n] for n in before if n != "db1")


@pytest.mark.parametrize("count", [2, MANY])
async def test_a_replica_does_not_read_its_own_change(world: World, count: int) -> None:
    replica = await start_replica(world, count)
    with world.counting():
        await replica.follower.catch_up()
        await replica.put(make_database("db1", 2, "notes", "more"))
        await replica.follower.look()
    assert (len(world.queries), world.parsed) == (10, [])
    assert replica.stored == await world.stored()


@pytest.mark.parametrize("count", [2, MANY])
async def test_an_unknown_name_costs_one_query(world: World, count: int) -> None:
    replica = await start_replica(world, count)
    for database, name in (("nobody", "notes"), ("db1", "nobody")):
        with world.counting(), pytest.raises(NotFound):
            await replica.executor.route(database, name)
        assert (len(world.queries), world.parsed) == (1, [])


async def test_concurrent_lookups_of_unknown_names_share_a_query(world: World) -> None:
    replica = await start_replica(world)
    lookups = [replica.executor.route(f"nobody{n}", "notes") for n in range(100)]
    with world.counting():
        results = await asyncio.gather(*lookups, return_exceptions=True)
    assert {type(result) for result in results} == {NotFound}
    assert (len(world.queries), world.parsed) == (2, [])


async def test_the_first_request_sees_the_change_of_another_replica(world: World) -> None:
    one, other = await start_replica(world), await start_replica(world, 0)
    lookups = [asyncio.create_task(one.executor.route("new", "x")) for _ in range(10)]
    await asyncio.sleep(0)
    await other.put(make_database("new"))
    assert (await one.executor.route("new", "notes")).schema.name == "notes"
    await asyncio.gather(*lookups, return_exceptions=True)


async def test_a_dropped_database_is_removed_and_can_be_created_again(world: World) -> None:
    replica = await start_replica(world)
    before = replica.executor.model.databases
    await world.schemas.remove(make_database("db0"))
    await replica.follower.look()
    assert replica.stored == [make_database("db1")]
    await world.schemas.put(make_database("db0"))
    await replica.follower.look()
    assert replica.executor.model.databases["db0"] is not before["db0"]
    await world.schemas.remove(make_database("db1"))
    await world.schemas.put(make_database("db1", 1, "others"))
    await replica.follower.look()
    assert replica.stored == await world.stored()


async def test_a_replica_behind_the_listed_changes_reads_a_snapshot(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(epochs, "MAX_NOTES", 3)
    replica = await start_replica(world, 5)
    moment = (await world.schemas.snapshot()).moment
    for version, outcome in ((2, Difference), (3, Difference), (4, CatalogueSnapshot)):
        await world.schemas.put(make_database("db0", version))
        assert type(await world.schemas.since(moment)) is outcome
    await world.schemas.remove(make_database("db3"))
    assert len((await world.backup())["schema_changes"]) == 3
    with world.counting():
        await replica.follower.look()
    assert world.parsed == ["db0"]
    assert replica.stored == await world.stored()


async def test_unlisted_changes_are_followed(world: World) -> None:
    replica = await start_replica(world)
    await world.put_without_note(make_database("db0", 2, "old"))
    await replica.follower.look()
    assert replica.stored == await world.stored()
    await world.put_without_note(make_database("db0", 3, "older"))
    await world.schemas.put(make_database("db1", 2, "new"))
    await replica.follower.look()
    assert replica.stored == await world.stored()


async def test_the_model_stays_if_the_last_change_is_not_listed(world: World) -> None:
    """As in a catalogue that is empty, or was last changed by older code."""
    replica = world.replica()
    for name in ("db0", "db1"):
        model = replica.executor.model
        await replica.follower.catch_up()
        assert replica.executor.model is model
        await world.put_without_note(make_database(name))
        await replica.follower.look()
    assert replica.stored == await world.stored()


@pytest.mark.parametrize("changes", [0, 1, 2, 3])
async def test_a_catalogue_that_was_restored_is_followed(world: World, changes: int) -> None:
    """Its epoch is then behind the replica's, equal to it, or ahead of it."""
    replica = await start_replica(world)
    backup = await world.backup()
    for version in (2, 3):
        await world.schemas.put(make_database("db0", version, "lost"))
    await replica.follower.look()
    await world.restore(backup)
    for version in range(changes):
        await world.schemas.put(make_database("db1", version + 2, "kept"))
    await replica.follower.look()
    assert replica.stored == await world.stored()
    await world.schemas.put(make_database("later"))
    await replica.follower.look()
    assert replica.stored == await world.stored()


async def test_catching_up_waits_for_a_change_under_way(
    world: World,
) -> None:
    replica = await start_replica(world)
    async with world.changing(make_database("db0", 2, "theirs")):
        await replica.follower.look()
        assert replica.stored[0].version == 1
        catching_up = asyncio.create_task(replica.follower.catch_up())
        await eventually(world.has_waiter)
        assert not catching_up.done()
    await catching_up
    assert replica.stored[0].version == 2


async def test_a_read_overtaken_by_an_own_change_is_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = await start_replica(world)
    await world.schemas.put(make_database("db0", 2, "theirs"))
    since, own = world.schemas.since, make_database("db0", 3, "own")

    async def change_after_read(moment: Moment) -> CatalogueSnapshot | Difference:
        result = await since(moment)
        monkeypatch.undo()
        await replica.put(own)
        return result

    monkeypatch.setattr(world.schemas, "since", change_after_read)
    await replica.follower.look()
    assert replica.stored[0] == own
    assert replica.stored == await world.stored()


async def test_an_own_change_does_not_hide_an_earlier_one(world: World) -> None:
    replica = await start_replica(world)
    await world.schemas.put(make_database("db0", 2, "theirs"))
    await replica.put(make_database("db1", 2, "own"))
    own = replica.executor.model.databases["db1"]
    await replica.follower.look()
    assert replica.stored == await world.stored()
    assert replica.executor.model.databases["db1"] is own
    await world.schemas.put(make_database("db0", 3, "theirs"))
    await replica.remove("db1")
    await replica.follower.look()
    assert replica.stored == await world.stored()


NAMES = st.sampled_from(["a", "b", "c"])
LOOK = st.tuples(st.just("look"), st.integers(0, 1))
CHANGE = st.tuples(st.sampled_from(["put", "remove"]), st.integers(0, 1), NAMES, NAMES)
UNLISTED = st.tuples(st.just("unnoted"), NAMES)
RESTORE = st.tuples(st.sampled_from(["backup", "restore"]))
HISTORIES = st.one_of(
    st.lists(LOOK | CHANGE | UNLISTED, max_size=12),
    st.lists(LOOK | CHANGE | RESTORE, max_size=12),
)


class History:
    """Two replicas that change and follow a catalogue."""

    def __init__(self, world: World, backup: dict[str, list[dict[str, object]]]) -> None:
        self._world = world
        self._backup = backup
        self._replicas = [world.replica(), world.replica()]
        self._set = 0

    async def look(self, index: int) -> None:
        await self._replicas[index].follower.look()
        assert self._replicas[index].stored == await self._world.stored()

    async def put(self, index: int, name: str, between: str) -> None:
        """Set a schema; if the names differ, change `between` after the replica has caught up."""
        replica = self._replicas[index]
        await replica.follower.catch_up()
        if between != name:
            await self._world.schemas.put(await self._next(between))
        await replica.put(await self._next(name))

    async def remove(self, index: int, name: str, between: str) -> None:
        await self._replicas[index].follower.catch_up()
        if between != name:
            await self._world.schemas.put(await self._next(between))
        await self._replicas[index].remove(name)

    async def unnoted(self, name: str) -> None:
        await self._world.put_without_note(await self._next(name))

    async def backup(self) -> None:
        self._backup = await self._world.backup()

    async def restore(self) -> None:
        await self._world.restore(self._backup)

    async def _next(self, name: str) -> StoredDatabase:
        self._set += 1
        versions = {d.name: d.version for d in await self._world.stored()}
        return make_database(name, versions.get(name, 0) + 1, f"c{self._set}")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(history=[("put", 0, "a", "b"), ("restore",)])
@given(history=HISTORIES)
async def test_after_any_history_a_replica_follows_the_catalogue(
    opened: World, history: list[tuple[object, ...]]
) -> None:
    empty: dict[str, list[dict[str, object]]]
    empty = {"epoch": [{"only": 1, "epoch": 0}], "databases": [], "schema_changes": []}
    await opened.restore(empty)
    replicas = History(opened, empty)
    for step, *arguments in history:
        await getattr(replicas, str(step))(*arguments)
    for index in (0, 1):
        await replicas.look(index)


async def test_a_coalesced_call_is_served_by_a_later_run() -> None:
    runs, resume = 0, asyncio.Event()

    async def run() -> None:
        nonlocal runs
        runs += 1
        await resume.wait()

    shared = Coalesced(run)
    first = asyncio.create_task(shared())
    await asyncio.sleep(0)
    later_calls = [asyncio.create_task(shared()) for _ in range(10)]
    await asyncio.sleep(0)
    assert runs == 1
    resume.set()
    await asyncio.gather(first, *later_calls)
    assert runs == 2


async def test_a_failed_run_fails_for_all_callers_a_cancelled_one_for_none() -> None:
    runs, resume = 0, asyncio.Event()

    async def run() -> None:
        nonlocal runs
        runs += 1
        await resume.wait()
        if runs == 2:
            raise Unavailable("The catalogue does not answer.", system="catalogue")

    shared = Coalesced(run)
    first = asyncio.create_task(shared())
    await asyncio.sleep(0)
    later_calls = [asyncio.create_task(shared()) for _ in range(3)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    resume.set()
    results = await asyncio.gather(*later_calls, return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 3
    assert runs == 2
    await shared()
    assert runs == 3


async def test_a_hold_is_put_in_force_with_the_routes_of_its_row(world: World) -> None:
    """The layout was changed and changed back; this replica has read only the first change."""
    replica = await start_replica(world, 1)
    [plain] = replica.stored
    plain, before = with_build(plain, None), plain
    _, plain = await world.schemas.put_layout(plain, before)
    build = UniqueBuild("b", (("title",),), datetime.now(UTC))
    _, building = await world.schemas.put_layout(with_build(plain, build), plain)
    await replica.follower.look()
    assert claims(replica) == (("title",),)
    await world.schemas.put_layout(plain, building)
    await replica.follower.adopt_update(*await world.schemas.hold(plain, ["notes"]))
    assert claims(replica) == ()
    assert replica.executor.model.databases[plain.name].held == {"notes"}


async def test_a_changed_layout_is_reported_before_the_hold_that_the_change_ended(
    world: World,
) -> None:
    """A new plan reads both; else the change would be refused because of another's hold."""
    await world.schemas.put(make_database("db0"))
    [plain] = await world.stored()
    _, held = await world.schemas.hold(plain, ["notes"])
    await world.schemas.put_layout(with_build(held, None), held)
    with pytest.raises(LayoutChanged):
        await world.schemas.retire(held, 1)


def with_build(stored: StoredDatabase, build: UniqueBuild | None) -> StoredDatabase:
    notes = {**stored.layout["notes"], "building": build.to_json() if build else None}
    return replace(stored, layout={"notes": notes})


def claims(replica: Replica) -> tuple[tuple[str, ...], ...]:
    """Return the unique constraints of the only class in the model in force."""
    [database] = replica.executor.model.databases.values()
    [fragment] = database.classes["notes"].fragments
    return fragment.unique
