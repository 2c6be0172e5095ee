"""Unique constraints added to data: each value is claimed, despite concurrent writes."""

from __future__ import annotations

import asyncio

import pytest

from mediator.base.errors import Conflict, ConstraintViolated, MediatorError, NotUnique, Unavailable
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.control.port import ChangeOptions
from mediator.data_plane import port
from mediator.data_plane.port import PAGE
from mediator.model.operations import Create, Delete, Update
from mediator.schema.types import Values
from mediator.transactions.log import TransactionEntry
from tests.process.control.test_placing_anew import follow, late, pause_at, wait_for_hold
from tests.process.control.unique_building import (
    SYSTEMS,
    UNCHECKED,
    can_claim,
    fill_database,
    is_building,
    objects,
    put,
    users,
)
from tests.process.service import Service, error_of, field_on, unique

__all__ = ["late"]  # a fixture


@pytest.mark.parametrize("system", SYSTEMS)
async def test_existing_values_are_unique_from_then_on(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    monkeypatch.setattr(port, "PAGE", 5)
    database = await fill_database(mediator, system, [f"{i}@x" for i in range(7)])
    before = await objects(mediator, database)
    change = await put(mediator, database, users(system, unique=True))
    assert (change.version, change.violations) == (2, ())
    after = await objects(mediator, database)
    assert {id_: o.versions for id_, o in after.items()} == {
        id_: o.versions for id_, o in before.items()
    }
    for number in (0, 4, 5, 6):
        assert not await can_claim(mediator, database, f"{number}@x")
    values: Values = {"email": "new@x"}
    assert (
        await error_of(mediator, Update(database, "users", "u00000", unique(), values=values))
        is None
    )
    assert await can_claim(mediator, database, "0@x")


@pytest.mark.parametrize("system", SYSTEMS)
async def test_objects_with_the_same_values_refuse_the_change(
    mediator: Service, system: str
) -> None:
    database = await fill_database(mediator, system, ["a@x", "b@x", "a@x", "a@x"])
    await mediator.create(database, "users", "none")
    document = users(system, "tenant", "email")
    expected = {
        "location": "/classes/users",
        "constraint": "unique/0",
        "count": 2,
        "checked": 5,
        "sample": ["u00002", "u00003"],
    }
    assert (await put(mediator, database, document, dry_run=True)).violations == (expected,)
    with pytest.raises(ConstraintViolated) as refused:
        await put(mediator, database, document)
    assert refused.value.extra == {"violations": [expected]}
    assert refused.value.locations[0].pointer == "/classes/users/unique/0"
    single = await put(mediator, database, users(system, unique=True), dry_run=True)
    assert single.violations[0]["location"] == "/classes/users/fields/email"
    assert single.violations[0]["constraint"] == "unique"
    for id_ in ("u00002", "u00003"):
        await mediator.mediator.data.write(Delete(database, "users", id_, unique()))
    assert (await put(mediator, database, document)).violations == ()
    values: Values = {"tenant": "t", "email": "a@x"}
    twin = Create(database, "users", "twin", unique(), values=values)
    assert isinstance(await error_of(mediator, twin), NotUnique)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_duplicates_that_were_not_checked_are_found_when_claimed(
    mediator: Service, system: str
) -> None:
    """The whole change is refused, not only the constraint."""
    database = await fill_database(mediator, system, ["a@x", "b@x", "a@x"])
    with pytest.raises(ConstraintViolated) as refused:
        await put(mediator, database, users(system, unique=True), options=UNCHECKED)
    [violation] = refused.value.extra["violations"]
    assert (violation["count"], set(violation["sample"])) == (1, {"u00000", "u00002"})
    assert not is_building(mediator, database)
    assert await can_claim(mediator, database, "b@x")
    assert (await mediator.mediator.control.schema(database)).version == 1


@pytest.mark.parametrize("page", [1, PAGE])
@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_constraint_that_is_added_a_second_time_matches_the_values(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str, page: int
) -> None:
    """Values were swapped, given up, taken over and deleted while there was no constraint."""
    monkeypatch.setattr(port, "PAGE", page)
    database = await fill_database(mediator, system, ["a@x", "b@x", "c@x", "d@x", "e@x"])
    await put(mediator, database, users(system, unique=True))
    await put(mediator, database, users(system))
    changed = {"u00000": "b@x", "u00001": "a@x", "u00002": "d@x", "u00003": "free@x"}
    for id_, email in changed.items():
        write = Update(database, "users", id_, unique(), values={"email": email})
        assert await error_of(mediator, write) is None
    assert await error_of(mediator, Delete(database, "users", "u00004", unique())) is None
    await put(mediator, database, users(system, unique=True))
    for email in changed.values():
        assert not await can_claim(mediator, database, email)
    for email in ("c@x", "e@x"):
        assert await can_claim(mediator, database, email)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_an_object_deleted_while_the_system_is_prepared_claims_nothing(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """It has a claim of the former constraint; the replica that deletes it sees no constraint."""
    database = await fill_database(mediator, system, ["a@x", "b@x"])
    await put(mediator, database, users(system, unique=True))
    await put(mediator, database, users(system))
    pause = pause_at(monkeypatch, mediator.mediator.stored_schemas, "hold")
    change = asyncio.create_task(put(mediator, database, users(system, unique=True)))
    await pause.reached.wait()
    await mediator.mediator.data.write(Delete(database, "users", "u00001", unique()))
    pause.open.set()
    await change
    assert await can_claim(mediator, database, "b@x")


@pytest.mark.parametrize("system", SYSTEMS)
async def test_an_object_written_after_its_page_was_read_claims_its_new_values(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    database = await fill_database(mediator, system, ["a@x", "b@x", "c@x"])
    pause = pause_at(monkeypatch, mediator.mediator.unique_builds.sweep, "claim")
    change = asyncio.create_task(put(mediator, database, users(system, unique=True)))
    await pause.reached.wait()
    for id_, email in (("u00000", "new@x"), ("u00001", "other@x")):
        write = Update(database, "users", id_, unique(), values={"email": email})
        assert await error_of(mediator, write) is None
    await mediator.mediator.data.write(Delete(database, "users", "u00002", unique()))
    pause.open.set()
    assert (await change).version == 2
    for email in ("new@x", "other@x"):
        assert not await can_claim(mediator, database, email)
    for email in ("a@x", "b@x", "c@x"):
        assert await can_claim(mediator, database, email)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_replica_that_is_late_claims_what_it_writes(
    mediator: Service, late: Service, system: str
) -> None:
    """It writes by the former model until it adopts the hold, and by the new one afterwards."""
    database = await fill_database(mediator, system, ["a@x"])
    await late.get(database, "users", "u00000")
    change = asyncio.create_task(put(mediator, database, users(system, unique=True)))
    await wait_for_hold(mediator, late)
    await late.create(database, "users", "b", email="b@x")
    while not change.done():
        await follow(late)
        await asyncio.wait([change], timeout=0.05)
    assert (await change).version == 2
    for replica in (mediator, late):
        for email in ("a@x", "b@x"):
            assert not await can_claim(replica, database, email)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_replica_that_is_late_claims_values_of_a_constraint_with_a_new_field(
    mediator: Service, late: Service, system: str
) -> None:
    """There is nothing to build, but a write by the former model would leave a stale claim."""
    fields = {"slot": field_on(system, "integer", group="keys")}
    database = await mediator.put_schema({"rooms": {"fields": fields}})
    await mediator.create(database, "rooms", "a", slot=1)
    await late.get(database, "rooms", "a")
    both = {**fields, "room": field_on(system, "integer", group="keys")}
    document = {"classes": {"rooms": {"fields": both, "unique": [["room", "slot"]]}}}
    change = asyncio.create_task(put(mediator, database, document))
    await wait_for_hold(mediator, late)
    move = Update(database, "rooms", "a", unique(), values={"slot": 2})
    assert await error_of(late, move) is None
    while not change.done():
        await follow(late)
        await asyncio.wait([change], timeout=0.05)
    assert (await change).version == 2
    in_room = Update(database, "rooms", "a", unique(), values={"room": 7})
    assert await error_of(mediator, in_room) is None
    for replica in (mediator, late):
        twin = Create(database, "rooms", "b", unique(), values={"room": 7, "slot": 2})
        assert isinstance(await error_of(replica, twin), NotUnique)


async def test_a_write_that_is_late_is_refused(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write with the former route would claim nothing."""
    database = await fill_database(mediator, "redis", ["a@x"])
    await late.get(database, "users", "u00000")
    write = Update(database, "users", "u00000", unique(), values={"email": "b@x"})
    pause = pause_at(monkeypatch, late.mediator.calls, "write")
    writing = asyncio.create_task(error_of(late, write))
    await pause.reached.wait()
    change = asyncio.create_task(put(mediator, database, users("redis", unique=True)))
    while not change.done():
        await follow(late)
        await asyncio.wait([change], timeout=0.05)
    await change
    pause.open.set()
    assert isinstance(await writing, Unavailable)
    assert not await can_claim(mediator, database, "a@x")


async def test_a_replica_that_was_away_sends_nothing_without_claims(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease had expired, so nobody waited for it, and it has not seen the hold."""
    database = await fill_database(mediator, "redis", ["a@x"])
    await late.get(database, "users", "u00000")
    write = Update(database, "users", "u00000", unique(), values={"email": "b@x"})
    pause = pause_at(monkeypatch, late.mediator.calls, "write")
    writing = asyncio.create_task(error_of(late, write))
    await pause.reached.wait()
    await late.mediator.membership.close()
    await put(mediator, database, users("redis", unique=True))
    await follow(late)
    pause.open.set()
    assert isinstance(await writing, Unavailable)


async def test_transactions_under_way_are_waited_for(mediator: Service) -> None:
    database = await fill_database(mediator, "postgres", ["a@x"])
    catalogue = Catalogue(mediator.catalogue_url)
    log, document = CatalogueTransactions(catalogue), users("postgres", unique=True)
    await log.begin(TransactionEntry("m", database, [["users", "x"]], None, None), 60.0)
    with pytest.raises(Conflict, match="under way"):
        await put(mediator, database, document)
    assert not is_building(mediator, database)
    await log.remove(["m"])
    await put(mediator, database, document)
    await catalogue.close()


async def test_a_duplicate_written_during_the_build_is_refused_or_found(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until an object's page is read, its value can be taken; the build is refused then."""
    database = await fill_database(mediator, "mongo", ["a@x", "b@x", "c@x", "d@x"])
    monkeypatch.setattr(port, "PAGE", 2)
    pause = pause_at(monkeypatch, mediator.mediator.unique_builds.sweep, "claim", after=True)
    change = asyncio.create_task(put(mediator, database, users("mongo", unique=True)))
    await pause.reached.wait()
    assert (await mediator.mediator.control.schema(database)).version == 1
    assert not await can_claim(mediator, database, "a@x")
    assert await can_claim(mediator, database, "d@x")
    await mediator.create(database, "users", "twin", email="d@x")
    pause.open.set()
    with pytest.raises(ConstraintViolated) as refused:
        await change
    assert refused.value.extra["violations"][0]["sample"] == ["u00003", "twin"]
    assert await can_claim(mediator, database, "a@x")


async def test_what_cannot_be_built_is_refused(mediator: Service) -> None:
    database = await fill_database(mediator, "redis", ["a@x"])
    renamed = {"classes": {"users": {"fields": {**users("redis")["classes"]["users"]["fields"]}}}}
    fields = renamed["classes"]["users"]["fields"]
    fields["mail"] = {**fields.pop("email"), "unique": True}
    options = ChangeOptions(rename={"users": {"email": "mail"}})
    with pytest.raises(Conflict) as refused:
        await put(mediator, database, renamed, options=options)
    assert refused.value.locations[0].pointer == "/classes/users/fields/mail/unique"
    over_two = users("redis", "email", "name")
    for field in over_two["classes"]["users"]["fields"].values():
        field.pop("group")
    with pytest.raises(MediatorError):
        await put(mediator, database, over_two)
    assert await can_claim(mediator, database, "a@x")
