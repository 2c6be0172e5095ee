"""Empty classes get a new placement, and no acknowledged write is lost, whichever replica stalls.

The replica of these tests follows only when a test lets it: it is cut off from the catalogue, or
stalls, as long as it is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select, update

from mediator.base.errors import (
    Conflict,
    MediatorError,
    NotFound,
    OutcomeUnknown,
    TransactionAborted,
    Unavailable,
)
from mediator.catalogue import schemas as catalogue_schemas
from mediator.catalogue import tables
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.replicas import CatalogueReplicas
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.control import membership
from mediator.control.port import SchemaChange
from mediator.model.operations import Put
from mediator.operations.calls import StoreCalls
from mediator.stores.port import SystemConfig
from mediator.transactions.log import TransactionEntry
from mediator.transactions.model import CommitRequest, ReadSetEntry
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


class Pause:
    """Stops the callers of something, before it or after it, until it is opened."""

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


async def stopped(task: asyncio.Task[Any], *, by: Pause) -> None:
    """Wait until a task is stopped; raises what has ended it before."""
    reached = asyncio.create_task(by.reached.wait())
    await asyncio.wait([reached, task], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        reached.cancel()
        task.result()


def paused(patched: pytest.MonkeyPatch, owner: object, name: str, *, after: bool = False) -> Pause:
    """Stop the callers of something of an owner from now on."""
    pause = Pause(getattr(owner, name), after=after)
    patched.setattr(owner, name, pause)
    return pause


async def is_held(of: Service, database: str, class_name: str) -> bool:
    """Whether a replica refuses writes to a class."""
    fragments = of.mediator.data.model.databases[database].classes[class_name].fragments
    return calls_of(of).admission.refused.issuperset(fragments)


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[SystemConfig]) -> AsyncIterator[Service]:
    """A replica that follows only when a test lets it."""
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


async def test_an_object_created_by_a_replica_before_it_follows_is_kept(
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


async def test_writes_use_the_new_system_once_all_replicas_have_followed(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    pause = paused(monkeypatch, mediator.mediator.cutover, "check_still_empty")
    change = placing(mediator, name, "mongo")
    await waits(mediator, late)
    await follows(late)
    await pause.reached.wait()
    for of in (mediator, late):
        with pytest.raises(Unavailable, match="placed anew"):
            await of.create(name, "notes", "x", title="refused")
    pause.open.set()
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
    pause = paused(monkeypatch, late.mediator.systems.get("redis").store, "write")
    write = asyncio.create_task(late.create(name, "notes", "x", title="kept"))
    await pause.reached.wait()
    change = placing(mediator, name, "mongo")
    await waits(mediator, late)
    following = asyncio.create_task(follows(late))

    async def refused() -> bool:
        return bool(calls_of(late).admission.refused)

    await eventually(refused)
    assert not following.done()
    pause.open.set()
    await write
    await following
    with pytest.raises(Conflict, match="created meanwhile"):
        await change
    assert await mediator.values(name, "notes", "x") == {"title": "kept"}


async def test_a_replica_that_does_not_follow_is_waited_for_within_bounds(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    name = await known(mediator, late)
    with pytest.raises(Unavailable, match="do not confirm"):
        await placing(mediator, name, "mongo")
    for of in (mediator, late):
        await of.create(name, "notes", of.mediator.replica, title="goes on")


async def test_a_replica_without_its_lease_acknowledges_nothing(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    with monkeypatch.context() as patched:
        pause = paused(patched, late.mediator.systems.get("redis").store, "write")
        write = asyncio.create_task(late.create(name, "notes", "x", title="late"))
        await pause.reached.wait()
    calls_of(late).admission.lease_until = 0.0
    with pytest.raises(Unavailable, match="not reached the catalogue"):
        await late.create(name, "notes", "y", title="refused")
    monkeypatch.setattr(membership, "EXPIRED_S", 0.0)  # so it is counted out
    await placing(mediator, name, "mongo")
    pause.open.set()
    with pytest.raises(OutcomeUnknown):
        await write
    monkeypatch.undo()
    for of in (mediator, late):
        await follows(of)
        with pytest.raises(NotFound):
            await of.get(name, "notes", "x")
        await of.create(name, "notes", of.mediator.replica, title="goes on")


async def test_an_expired_replica_does_not_write_to_the_former_system(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that was routed before its replica followed the change."""
    name = await known(mediator, late)
    with monkeypatch.context() as patched:
        pause = paused(patched, calls_of(late), "_write_system")
        write = asyncio.create_task(late.create(name, "notes", "x", title="late"))
        await pause.reached.wait()
    monkeypatch.setattr(membership, "EXPIRED_S", 0.0)
    await placing(mediator, name, "mongo")
    monkeypatch.undo()
    await follows(late)
    pause.open.set()
    with pytest.raises(Unavailable, match="placed anew"):
        await write


async def test_a_replica_stalled_during_its_hold_changes_nothing_afterwards(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    monkeypatch.setattr(catalogue_schemas, "HOLD_S", 0.0)
    pause = paused(monkeypatch, mediator.mediator.cutover, "check_still_empty", after=True)
    change = placing(mediator, name, "mongo")
    await eventually(lambda: _following(late, pause))
    await follows(late)  # ends the hold, which is overdue
    await follows(late)
    await late.create(name, "notes", "x", title="kept")
    pause.open.set()
    with pytest.raises(Conflict, match="took too long"):
        await change
    for of in (mediator, late):
        await follows(of)
        assert await of.values(name, "notes", "x") == {"title": "kept"}


async def _following(late: Service, pause: Pause) -> bool:
    await follows(late)
    return pause.reached.is_set()


async def test_a_replica_stalled_before_a_drop_does_not_drop_the_new_fragment(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await known(mediator, late)
    pause = paused(monkeypatch, mediator.mediator.systems.get("redis").store, "drop")
    change = placing(mediator, name, "mongo")
    await eventually(lambda: _following(late, pause))
    back = placing(late, name, "redis")
    await back
    await late.create(name, "notes", "x", title="kept")
    pause.open.set()
    await change
    await follows(mediator)
    for of in (mediator, late):
        assert await of.values(name, "notes", "x") == {"title": "kept"}


async def test_an_open_transaction_prevents_a_new_placement(mediator: Service) -> None:
    name = await mediator.put_schema(on("redis"))
    catalogue = Catalogue(mediator.catalogue_url)
    log = CatalogueTransactions(catalogue)
    await log.begin(TransactionEntry("m", name, [["notes", "x"]], None, None), 60.0)
    with pytest.raises(Conflict, match="under way"):
        await mediator.mediator.control.set_schema(name, {"classes": on("mongo")})
    await log.remove(["m"])
    await mediator.mediator.control.set_schema(name, {"classes": on("mongo")})
    await catalogue.close()


async def test_a_read_set_is_validated_on_the_new_system_of_a_class(
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
            CommitRequest(name, unique("tx"), (ReadSetEntry("notes", "x", None),), (write,))
        )
    with pytest.raises(NotFound):
        await mediator.get(name, "carts", "y")


async def test_a_hold_ends_for_a_replica_that_retired_versions_during_it(mediator: Service) -> None:
    name = await mediator.put_schema(on("redis"))
    catalogue, schemas = mediator.mediator.stored_schemas, mediator.mediator.schemas
    _, held = await catalogue.hold(await schemas.stored(name), ["notes"])
    assert held.hold is not None
    await schemas.retire(name, 1, dry_run=False)
    assert mediator.mediator.data.model.databases[name].held == {"notes"}
    await catalogue.release(held.hold)
    await schemas.refresh()
    assert not mediator.mediator.data.model.databases[name].held


async def test_of_two_concurrent_placements_of_a_class_one_is_refused(
    mediator: Service, late: Service
) -> None:
    name = await known(mediator, late)
    first = placing(mediator, name, "mongo")
    await waits(mediator, late)
    with pytest.raises(Conflict, match="Another change"):
        await placing(late, name, "postgres")
    await follows(late)
    await first
    assert mediator.systems_of(name, "notes") == ("mongo",)


async def test_a_database_is_dropped_after_all_replicas_have_followed(
    mediator: Service, late: Service
) -> None:
    name = await known(mediator, late)
    drop = asyncio.create_task(mediator.mediator.control.delete_schema(name))
    await waits(mediator, late)
    assert not drop.done()
    await follows(late)
    await drop
    with pytest.raises(MediatorError):
        await late.create(name, "notes", "x", title="refused")


async def test_a_replica_that_ended_without_leaving_is_removed_once_its_lease_is_over(
    mediator: Service, late: Service
) -> None:
    catalogue = mediator.mediator.catalogue
    replicas = CatalogueReplicas(catalogue)
    killed = unique()
    await replicas.join(killed)

    async def names() -> set[str]:
        rows = await catalogue.execute(select(tables.replicas.c.name))
        return set(rows.scalars())

    await mediator.mediator.membership.reap()
    assert {killed, late.mediator.replica} < await names(), "their leases may stand"
    old = func.now() - timedelta(seconds=membership.EXPIRED_S + 1)
    row = update(tables.replicas).where(tables.replicas.c.name == killed)
    await catalogue.execute(row.values(seen=old))
    await mediator.mediator.membership.reap()
    left = await names()
    assert killed not in left
    assert {mediator.mediator.replica, late.mediator.replica} <= left
