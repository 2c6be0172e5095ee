"""Unique constraints that are added over data: no duplicate slips through, and none is left."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from random import Random
from time import time
from typing import Any, Final

import pytest

from mediator.base.clock import Clock
from mediator.base.errors import (
    Conflict,
    ConstraintViolated,
    MediatorError,
    NotUnique,
    Unavailable,
)
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.control.claim_sweep import Unique
from mediator.control.port import ChangeOptions, SchemaChange
from mediator.control.unique_builds import BUILD_S, KEPT_S
from mediator.data_plane import port
from mediator.data_plane.port import PAGE, pages
from mediator.model.operations import Create, Delete, Outcome, Put, Update
from mediator.routing.model import ClassRoute
from mediator.schema.types import Values
from mediator.transactions.log import TransactionEntry
from tests.process.control.test_placing_anew import follows, late, paused, waits
from tests.process.service import Service, error_of, field_on, unique

__all__ = ["late"]  # a fixture

SYSTEMS: Final = ["redis", "postgres", "mongo"]
SPLIT: Final = {"redis": "postgres", "postgres": "mongo", "mongo": "redis"}
"""For each system another one, for fields of a group of their own."""

UNCHECKED: Final = ChangeOptions(unchecked=True)


def users(system: str, *together: str, **members: Any) -> dict[str, Any]:
    """Return a schema of users on a system, and on another one; `members` are those of `email`."""
    fields = {
        "email": field_on(system, group="keys", **members),
        "tenant": field_on(system, group="keys"),
        "name": field_on(SPLIT[system], group="names"),
    }
    unique_together = [list(together)] if together else []
    return {"classes": {"users": {"fields": fields, "unique": unique_together}}}


async def put(of: Service, database: str, document: dict[str, Any], **options: Any) -> SchemaChange:
    return await of.mediator.control.set_schema(database, document, **options)


async def filled(of: Service, system: str, emails: Sequence[str]) -> str:
    """Return a database with a user for each address, without a constraint."""
    database = await of.put_schema(users(system)["classes"])
    creations = [
        Create(database, "users", f"u{i:05}", unique(), values={"email": email, "tenant": "t"})
        for i, email in enumerate(emails)
    ]
    for begin in range(0, len(creations), PAGE):
        await of.mediator.data.batch(creations[begin : begin + PAGE])
    return database


async def objects(of: Service, database: str) -> dict[str, Outcome]:
    found = [page async for page in pages(of.mediator.data, database, "users")]
    return {outcome.id: outcome for page in found for outcome in page}


async def takes(of: Service, database: str, email: str) -> bool:
    """Whether another user can have an address, who does not stay."""
    error = await error_of(of, Create(database, "users", "new", unique(), values={"email": email}))
    if error is None:
        await of.mediator.data.write(Delete(database, "users", "new", unique()))
    assert error is None or isinstance(error, NotUnique), error
    return error is None


def is_building(of: Service, database: str) -> bool:
    """Whether the model in force has a constraint that the schema does not have yet."""
    [class_] = of.mediator.data.model.databases[database].schema.classes.values()
    return bool(class_.unique)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_values_that_are_there_are_unique_from_then_on(
    mediator: Service, system: str
) -> None:
    database = await filled(mediator, system, [f"{i}@x" for i in range(PAGE + 20)])
    before = await objects(mediator, database)
    change = await put(mediator, database, users(system, unique=True))
    assert (change.version, change.violations) == (2, ())
    after = await objects(mediator, database)
    assert {id_: o.versions for id_, o in after.items()} == {
        id_: o.versions for id_, o in before.items()
    }
    for number in (0, PAGE - 1, PAGE, PAGE + 19):
        assert not await takes(mediator, database, f"{number}@x")
    values: Values = {"email": "new@x"}
    assert (
        await error_of(mediator, Update(database, "users", "u00000", unique(), values=values))
        is None
    )
    assert await takes(mediator, database, "0@x")


@pytest.mark.parametrize("system", SYSTEMS)
async def test_objects_with_the_same_values_refuse_the_change(
    mediator: Service, system: str
) -> None:
    database = await filled(mediator, system, ["a@x", "b@x", "a@x", "a@x"])
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
async def test_what_was_not_checked_is_found_when_it_is_claimed(
    mediator: Service, system: str
) -> None:
    """Nothing is in force then: neither the constraint nor the rest of the change."""
    database = await filled(mediator, system, ["a@x", "b@x", "a@x"])
    with pytest.raises(ConstraintViolated) as refused:
        await put(mediator, database, users(system, unique=True), options=UNCHECKED)
    [violation] = refused.value.extra["violations"]
    assert (violation["count"], set(violation["sample"])) == (1, {"u00000", "u00002"})
    assert not is_building(mediator, database)
    assert await takes(mediator, database, "b@x")
    assert (await mediator.mediator.control.schema(database)).version == 1


@pytest.mark.parametrize("page", [1, PAGE])
@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_constraint_that_comes_back_is_right_whatever_happened_without_it(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str, page: int
) -> None:
    """Values were exchanged, given up, taken over and deleted while nothing kept them unique."""
    monkeypatch.setattr(port, "PAGE", page)
    database = await filled(mediator, system, ["a@x", "b@x", "c@x", "d@x", "e@x"])
    await put(mediator, database, users(system, unique=True))
    await put(mediator, database, users(system))
    changed = {"u00000": "b@x", "u00001": "a@x", "u00002": "d@x", "u00003": "free@x"}
    for id_, email in changed.items():
        write = Update(database, "users", id_, unique(), values={"email": email})
        assert await error_of(mediator, write) is None
    assert await error_of(mediator, Delete(database, "users", "u00004", unique())) is None
    await put(mediator, database, users(system, unique=True))
    for email in changed.values():
        assert not await takes(mediator, database, email)
    for email in ("c@x", "e@x"):
        assert await takes(mediator, database, email)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_what_is_deleted_while_the_system_is_prepared_claims_nothing(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """It has its claim from before, and the replica that deletes it knows of no constraint."""
    database = await filled(mediator, system, ["a@x", "b@x"])
    await put(mediator, database, users(system, unique=True))
    await put(mediator, database, users(system))
    pause = paused(monkeypatch, mediator.mediator.stored_schemas, "hold")
    change = asyncio.create_task(put(mediator, database, users(system, unique=True)))
    await pause.reached.wait()
    await mediator.mediator.data.write(Delete(database, "users", "u00001", unique()))
    pause.open.set()
    await change
    assert await takes(mediator, database, "b@x")


@pytest.mark.parametrize("system", SYSTEMS)
async def test_what_is_written_since_its_page_was_read_claims_what_it_has(
    mediator: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    database = await filled(mediator, system, ["a@x", "b@x", "c@x"])
    pause = paused(monkeypatch, mediator.mediator.unique_builds.sweep, "claim")
    change = asyncio.create_task(put(mediator, database, users(system, unique=True)))
    await pause.reached.wait()
    for id_, email in (("u00000", "new@x"), ("u00001", "other@x")):
        write = Update(database, "users", id_, unique(), values={"email": email})
        assert await error_of(mediator, write) is None
    await mediator.mediator.data.write(Delete(database, "users", "u00002", unique()))
    pause.open.set()
    assert (await change).version == 2
    for email in ("new@x", "other@x"):
        assert not await takes(mediator, database, email)
    for email in ("a@x", "b@x", "c@x"):
        assert await takes(mediator, database, email)


@pytest.mark.parametrize("system", SYSTEMS)
async def test_a_replica_that_is_late_claims_what_it_writes(
    mediator: Service, late: Service, system: str
) -> None:
    """It writes by the model of before until it holds its writes, and then by the new one."""
    database = await filled(mediator, system, ["a@x"])
    await late.get(database, "users", "u00000")
    change = asyncio.create_task(put(mediator, database, users(system, unique=True)))
    await waits(mediator, late)
    await late.create(database, "users", "b", email="b@x")
    while not change.done():
        await follows(late)
        await asyncio.wait([change], timeout=0.05)
    assert (await change).version == 2
    for of in (mediator, late):
        for email in ("a@x", "b@x"):
            assert not await takes(of, database, email)


async def test_a_write_that_is_late_is_refused(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has its route from before would claim nothing."""
    database = await filled(mediator, "redis", ["a@x"])
    await late.get(database, "users", "u00000")
    write = Update(database, "users", "u00000", unique(), values={"email": "b@x"})
    pause = paused(monkeypatch, late.mediator.calls, "write")
    writing = asyncio.create_task(error_of(late, write))
    await pause.reached.wait()
    change = asyncio.create_task(put(mediator, database, users("redis", unique=True)))
    while not change.done():
        await follows(late)
        await asyncio.wait([change], timeout=0.05)
    await change
    pause.open.set()
    assert isinstance(await writing, Unavailable)
    assert not await takes(mediator, database, "a@x")


async def test_a_replica_that_was_away_sends_nothing_without_claims(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was counted out, so nobody has waited for it, and it knows of no hold."""
    database = await filled(mediator, "redis", ["a@x"])
    await late.get(database, "users", "u00000")
    write = Update(database, "users", "u00000", unique(), values={"email": "b@x"})
    pause = paused(monkeypatch, late.mediator.calls, "write")
    writing = asyncio.create_task(error_of(late, write))
    await pause.reached.wait()
    await late.mediator.membership.close()
    await put(mediator, database, users("redis", unique=True))
    await follows(late)
    pause.open.set()
    assert isinstance(await writing, Unavailable)


async def test_transactions_under_way_are_waited_for(mediator: Service) -> None:
    database = await filled(mediator, "postgres", ["a@x"])
    catalogue = Catalogue(mediator.catalogue_url)
    log, document = CatalogueTransactions(catalogue), users("postgres", unique=True)
    await log.begin(TransactionEntry("m", database, [["users", "x"]], None, None), 60.0)
    with pytest.raises(Conflict, match="under way"):
        await put(mediator, database, document)
    assert not is_building(mediator, database)
    await log.remove(["m"])
    await put(mediator, database, document)
    await catalogue.close()


async def test_a_duplicate_that_comes_during_the_build_is_refused_or_found(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the page of an object is read its value can be taken: then the build is refused."""
    database = await filled(mediator, "mongo", ["a@x", "b@x", "c@x", "d@x"])
    monkeypatch.setattr(port, "PAGE", 2)
    pause = paused(monkeypatch, mediator.mediator.unique_builds.sweep, "claim", after=True)
    change = asyncio.create_task(put(mediator, database, users("mongo", unique=True)))
    await pause.reached.wait()
    assert (await mediator.mediator.control.schema(database)).version == 1
    assert not await takes(mediator, database, "a@x")
    assert await takes(mediator, database, "d@x")
    await mediator.create(database, "users", "twin", email="d@x")
    pause.open.set()
    with pytest.raises(ConstraintViolated) as refused:
        await change
    assert refused.value.extra["violations"][0]["sample"] == ["u00003", "twin"]
    assert await takes(mediator, database, "a@x")


class Ticking:
    """A clock by which each look takes half of the time that a request has."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self._looks = count(step=BUILD_S / 2)

    def monotonic(self) -> float:
        return next(self._looks)


async def test_a_build_goes_on_where_it_was(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, emails = mediator.mediator.unique_builds, [f"{n}@x" for n in range(5)]
    database = await filled(mediator, "postgres", emails)
    document, claimed = users("postgres", unique=True), list[str]()
    monkeypatch.setattr(port, "PAGE", 2)
    monkeypatch.setattr(builds, "clock", Ticking(builds.clock))
    claim = builds.sweep.claim

    async def noted(route: ClassRoute, unique: Unique, page: Sequence[Outcome]) -> Any:
        claimed.extend(outcome.id for outcome in page)
        return await claim(route, unique, page)

    monkeypatch.setattr(builds.sweep, "claim", noted)
    with pytest.raises(Conflict, match="to go on"):
        await put(mediator, database, document)
    assert claimed == ["u00000", "u00001"]
    assert (await mediator.mediator.control.schema(database)).notes[-1].startswith("email of users")
    assert [await takes(mediator, database, each) for each in emails] == [False] * 2 + [True] * 3
    with pytest.raises(Conflict, match="to go on"):
        await put(mediator, database, document)
    assert (await put(mediator, database, document)).version == 2
    assert claimed == [f"u{n:05}" for n in range(5)]
    assert not any([await takes(mediator, database, each) for each in emails])


async def test_a_build_with_which_nobody_goes_on_is_abandoned(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, document = mediator.mediator.unique_builds, users("redis", unique=True)
    database = await filled(mediator, "redis", ["a@x", "b@x", "c@x"])
    with monkeypatch.context() as patched:
        patched.setattr(port, "PAGE", 1)
        patched.setattr(builds, "clock", Ticking(builds.clock))
        with pytest.raises(Conflict, match="to go on"):
            await put(mediator, database, document)
    await builds.abandon_overdue()
    assert is_building(mediator, database)
    with monkeypatch.context() as patched:
        patched.setattr(builds.clock, "now", lambda: time() + KEPT_S + 1)
        await builds.abandon_overdue()
    assert not is_building(mediator, database)
    assert await takes(mediator, database, "a@x")
    await mediator.create(database, "users", "twin", email="a@x")
    with pytest.raises(ConstraintViolated):
        await put(mediator, database, document, options=UNCHECKED)


async def test_a_build_that_is_abandoned_puts_nothing_in_force(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another replica, after the last claim: others write without claims already."""
    builds, catalogue = mediator.mediator.unique_builds, mediator.mediator.stored_schemas
    database = await filled(mediator, "redis", ["a@x"])
    put_schema = catalogue.put

    async def late_put(*change: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(builds.clock, "now", lambda: time() + KEPT_S + 1)
            await builds.abandon_overdue()
        await mediator.create(database, "users", "twin", email="a@x")
        return await put_schema(*change)

    with monkeypatch.context() as patched:
        patched.setattr(catalogue, "put", late_put)
        with pytest.raises(ConstraintViolated):
            await put(mediator, database, users("redis", unique=True))
    assert (await mediator.mediator.control.schema(database)).version == 1


async def test_another_change_meanwhile_makes_the_build_begin_anew(
    mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await filled(mediator, "redis", ["a@x", "b@x"])
    pause = paused(monkeypatch, mediator.mediator.unique_builds.sweep, "claim", after=True)
    change = asyncio.create_task(put(mediator, database, users("redis", unique=True)))
    await pause.reached.wait()
    await put(mediator, database, users("redis", index=True))
    assert not is_building(mediator, database)
    await mediator.create(database, "users", "c", email="c@x")
    pause.open.set()
    assert (await change).version == 3
    assert not any([await takes(mediator, database, f"{each}@x") for each in "abc"])


async def test_what_cannot_be_built_is_refused(mediator: Service) -> None:
    database = await filled(mediator, "redis", ["a@x"])
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
    assert await takes(mediator, database, "a@x")


@pytest.mark.parametrize("system", SYSTEMS)
async def test_no_duplicate_slips_through_while_replicas_write(
    mediator: Service, replica: Service, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    """Writers take values of each other, at all times; the change is sent until it is in force."""
    monkeypatch.setattr(port, "PAGE", 2)
    database = await filled(mediator, system, [f"{n}@x" for n in range(20)])
    await replica.get(database, "users", "u00000")
    document, random, ended = users(system, unique=True), Random(7), asyncio.Event()
    fresh, results, had = count(), Counter[str](), {f"u{n:05}": f"{n}@x" for n in range(20)}

    async def write(of: Service) -> None:
        while not ended.is_set():
            id_ = random.choice([*had])
            # Others' values are tried once all writes claim: before, each would be a duplicate.
            taking = is_building(of, database) and random.random() < 0.3
            email = random.choice([*had.values()]) if taking else f"{next(fresh)}@y"
            kind = random.choice([Put, Update])
            operation = kind(database, "users", id_, unique(), values={"email": email})
            error = await error_of(of, operation)
            if error is None:
                had[id_] = email
            results["written" if error is None else type(error).__name__] += 1

    writers = [asyncio.create_task(write(of)) for of in (mediator, replica) for _ in range(3)]
    try:
        version = 1
        while version == 1:
            for twins in await duplicates(mediator, database):
                for id_ in twins[1:]:
                    await error_of(mediator, Delete(database, "users", id_, unique()))
            with suppress(ConstraintViolated, Conflict):  # or joint writes do not end in time
                change = await put(mediator, database, document, options=UNCHECKED)
                version = change.version
        assert not await duplicates(mediator, database)
    finally:
        ended.set()
        await asyncio.gather(*writers)
    assert not await duplicates(mediator, database)
    for outcome in (await objects(mediator, database)).values():
        assert not await takes(mediator, database, str((outcome.values or {})["email"]))
    assert results["written"] > 20, results


async def duplicates(of: Service, database: str) -> list[list[str]]:
    """Return the ids of those who have one address at one moment.

    They are read twice: what has the same versions both times was so in between.
    """
    before, after = await objects(of, database), await objects(of, database)
    holders: defaultdict[Any, list[str]] = defaultdict(list)
    for id_, outcome in before.items():
        if id_ in after and after[id_].versions == outcome.versions:
            holders[(outcome.values or {}).get("email")].append(id_)
    return [ids for email, ids in holders.items() if email is not None and len(ids) > 1]
