"""Empty classes are placed anew, and nothing acknowledged is lost, whichever replica stalls where.

The replica of these tests follows only when it is told to: it is cut off from the catalogue, or
stalls, as long as it is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mediator.base.errors import (
    Conflict,
    MediatorError,
    NotFound,
    OutcomeUnknown,
    TransactionAborted,
    Unavailable,
)
from mediator.catalogue import schemas as catalogue_schemas
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.replicas import CatalogueReplicas
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.control import membership
from mediator.control.port import SchemaChange
from mediator.model.operations import Put
from mediator.operations.calls import StoreCalls
from mediator.stores.port import SystemConfig
from mediator.transactions.log import Entry
from mediator.transactions.model import ReadSetEntry, Transaction
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, service, unique


def on(system: str) -> dict[str, Any]:
    return {"notes": {"fields": {"title": field_on(system)}}}


def calls_of(of: Service) -> StoreCalls:
    return of.mediator.calls


async def follows(of: Service) -> None:
    """Let a replica do what it does every second."""
    await of.mediator.membership.renew()


async def knows(of: Service, database: str) -> None:
    with pytest.raises(NotFound, match="notes/nobody"):
        await of.get(database, "notes", "nobody")


async def known(mediator: Service, late: Service) -> str:
    """Return a database with an empty class on Redis, which both replicas know."""
    name = await mediator.put_schema(on("redis"))
    await knows(late, name)
    return name


def placing(of: Service, database: str, system: str) -> asyncio.Task[SchemaChange]:
    change = of.mediator.control.set_schema(database, {"classes": on(system)})
    return asyncio.create_task(change)


class Gate:
    """Stops whoever calls something, before it or after it, until it is opened."""

    def __init__(self, call: Callable[..., Awaitable[Any]], *, after: bool = False) -> None:
        self._call = call
        self._after = after
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self, *args: Any, **options: Any) -> Any:
        result = await self._call(*args, **options) if self._after else None
        self.reached.set()
        await self.open.wait()
        return result if self._after else await self._call(*args, **options)


def stopped(patched: pytest.MonkeyPatch, owner: object, name: str, *, after: bool = False) -> Gate:
    """Stop whoever calls something of an owner from now on."""
    gate = Gate(getattr(owner, name), after=after)
    patched.setattr(owner, name, gate)
    return gate


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[SystemConfig]) -> AsyncIterator[Service]:
    """A replica that follows only when it is told to."""
    async with AsyncExitStack() as stack:
        started = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await started.mediator.scheduler.stop()
        yield started


async def waits(of: Service, late: Service) -> None:
    """Wait until a replica waits for the other one."""
    replicas = CatalogueReplicas(of.mediator.catalogue)

    async def held() -> bool:
        stored = (await of.mediator.stored_schemas.snapshot()).databases.values()
        return any(database.hold for database in stored)

    await eventually(held)
    epoch = (await of.mediator.stored_schemas.moment()).epoch
    assert late.mediator.replica in await replicas.behind(
        of.mediator.replica, epoch, membership.EXPIRED_S
    )


async def test_what_another_replica_creates_before_it_follows_is_kept(
    mediator: Service, late: Service
) -> None:
    name = await known(mediator, late)
    change = placing(mediator, name, "mongo")
    await waits(mediator, late)
    await late.create(name, "notes", "x", title="kept")
    assert not change.done()
    with pytest.raises(Unavailable, match="placed anew"):
        await mediator.create(name, "notes", "y", title="refused")
    await follows(late)
    with pytest.raises(Conflict, match="created meanwhile"):
        await change
    await follows(late)
    for of in (mediator, late):
        assert await of.values(name, "notes", "x") == {"title": "kept"}
        await of.create(name, "notes", of.mediator.replica, title="goes on")


async def test_writes_find_the_new_place_once_all_have_followed(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    gate = stopped(monkeypatch, mediator.mediator.schemas, "check_still_empty")
    change = placing(mediator, name, "mongo")
    await waits(mediator, late)
    await follows(late)
    await gate.reached.wait()
    for of in (mediator, late):
        with pytest.raises(Unavailable, match="placed anew"):
            await of.create(name, "notes", "x", title="refused")
    gate.open.set()
    await change
    await mediator.create(name, "notes", "y", title="at the new place")
    assert await late.values(name, "notes", "y") == {"title": "at the new place"}
    assert late.systems_of(name, "notes") == ("mongo",)
    await late.create(name, "notes", "x", title="new place")
    assert await mediator.values(name, "notes", "x") == {"title": "new place"}


async def test_a_write_under_way_is_waited_for(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    gate = stopped(monkeypatch, late.mediator.systems.get("redis").store, "write")
    write = asyncio.create_task(late.create(name, "notes", "x", title="kept"))
    await gate.reached.wait()
    change = placing(mediator, name, "mongo")
    await waits(mediator, late)
    following = asyncio.create_task(follows(late))

    async def refused() -> bool:
        return bool(calls_of(late).admission.refused)

    await eventually(refused)
    assert not following.done()
    gate.open.set()
    await write
    await following
    with pytest.raises(Conflict, match="created meanwhile"):
        await change
    assert await mediator.values(name, "notes", "x") == {"title": "kept"}


async def test_who_does_not_follow_is_waited_for_within_bounds(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    name = await known(mediator, late)
    with pytest.raises(Unavailable, match="do not confirm"):
        await placing(mediator, name, "mongo")
    for of in (mediator, late):
        await of.create(name, "notes", of.mediator.replica, title="goes on")


async def test_who_has_lost_its_lease_acknowledges_nothing(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    with monkeypatch.context() as patched:
        gate = stopped(patched, late.mediator.systems.get("redis").store, "write")
        write = asyncio.create_task(late.create(name, "notes", "x", title="late"))
        await gate.reached.wait()
    calls_of(late).admission.lease_until = 0.0
    with pytest.raises(Unavailable, match="not reached the catalogue"):
        await late.create(name, "notes", "y", title="refused")
    monkeypatch.setattr(membership, "EXPIRED_S", 0.0)  # so it is counted out
    await placing(mediator, name, "mongo")
    gate.open.set()
    with pytest.raises(OutcomeUnknown):
        await write
    monkeypatch.undo()
    for of in (mediator, late):
        await follows(of)
        with pytest.raises(NotFound):
            await of.get(name, "notes", "x")
        await of.create(name, "notes", of.mediator.replica, title="goes on")


async def test_who_was_counted_out_writes_to_no_place_that_was_left(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that has found its place before its replica follows again."""
    name = await known(mediator, late)
    with monkeypatch.context() as patched:
        gate = stopped(patched, calls_of(late), "_write_system")
        write = asyncio.create_task(late.create(name, "notes", "x", title="late"))
        await gate.reached.wait()
    monkeypatch.setattr(membership, "EXPIRED_S", 0.0)
    await placing(mediator, name, "mongo")
    monkeypatch.undo()
    await follows(late)
    gate.open.set()
    with pytest.raises(Unavailable, match="placed anew"):
        await write


async def test_who_stalls_under_its_hold_changes_nothing_afterwards(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    monkeypatch.setattr(catalogue_schemas, "HOLD_S", 0.0)
    gate = stopped(monkeypatch, mediator.mediator.schemas, "check_still_empty", after=True)
    change = placing(mediator, name, "mongo")
    await eventually(lambda: _following(late, gate))
    await follows(late)  # ends the hold, which is overdue
    await follows(late)
    await late.create(name, "notes", "x", title="kept")
    gate.open.set()
    with pytest.raises(Conflict, match="took too long"):
        await change
    for of in (mediator, late):
        await follows(of)
        assert await of.values(name, "notes", "x") == {"title": "kept"}


async def _following(late: Service, gate: Gate) -> bool:
    await follows(late)
    return gate.reached.is_set()


async def test_who_stalls_before_it_drops_the_old_place_drops_no_new_one(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    gate = stopped(monkeypatch, mediator.mediator.systems.get("redis").store, "drop")
    change = placing(mediator, name, "mongo")
    await eventually(lambda: _following(late, gate))
    back = placing(late, name, "redis")
    await back
    await late.create(name, "notes", "x", title="kept")
    gate.open.set()
    await change
    await follows(mediator)
    for of in (mediator, late):
        assert await of.values(name, "notes", "x") == {"title": "kept"}


async def test_a_transaction_under_way_is_in_the_way(mediator: Service) -> None:
    name = await mediator.put_schema(on("redis"))
    catalogue = Catalogue(mediator.catalogue_url)
    log = CatalogueTransactions(catalogue)
    await log.begin(Entry("m", name, [["notes", "x"]], None, None), 60.0)
    with pytest.raises(Conflict, match="under way"):
        await mediator.mediator.control.set_schema(name, {"classes": on("mongo")})
    await log.remove(["m"])
    await mediator.mediator.control.set_schema(name, {"classes": on("mongo")})
    await catalogue.close()


async def test_what_was_read_of_a_class_is_validated_where_it_was_placed(
    mediator: Service, late: Service
) -> None:
    carts = {"carts": {"fields": {"n": field_on("postgres", "integer")}}}
    name = await mediator.put_schema({**on("redis"), **carts})
    await knows(late, name)
    document = {"classes": {**on("mongo"), **carts}}
    change = asyncio.create_task(mediator.mediator.control.set_schema(name, document))
    await waits(mediator, late)
    await follows(late)
    await change
    await mediator.create(name, "notes", "x", title="new place")
    assert late.systems_of(name, "notes") == ("redis",), "it has not followed yet"
    write = Put(name, "carts", "y", unique("op"), values={"n": 1})
    with pytest.raises(TransactionAborted):
        await late.mediator.transactions.run(
            Transaction(name, unique("tx"), (ReadSetEntry("notes", "x", None),), (write,))
        )
    with pytest.raises(NotFound):
        await mediator.get(name, "carts", "y")


async def test_two_who_place_a_class_anew_do_not_both(mediator: Service, late: Service) -> None:
    name = await known(mediator, late)
    first = placing(mediator, name, "mongo")
    await waits(mediator, late)
    with pytest.raises(Conflict, match="Somebody else"):
        await placing(late, name, "postgres")
    await follows(late)
    await first
    assert mediator.systems_of(name, "notes") == ("mongo",)


async def test_a_dropped_database_is_left_by_all_before(mediator: Service, late: Service) -> None:
    name = await known(mediator, late)
    drop = asyncio.create_task(mediator.mediator.control.delete_schema(name))
    await waits(mediator, late)
    assert not drop.done()
    await follows(late)
    await drop
    with pytest.raises(MediatorError):
        await late.create(name, "notes", "x", title="refused")
