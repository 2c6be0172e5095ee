"""Empty classes get a new placement; no acknowledged write is lost, whichever replica stalls.

The `late` replica follows only on a test's request; until then it stands for one that is cut off
from the catalogue, or stalls.
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


def notes_on(system: str) -> dict[str, Any]:
    return {"notes": {"fields": {"title": field_on(system)}}}


def calls_of(mediator: Service) -> StoreCalls:
    return mediator.mediator.calls


async def follow(mediator: Service) -> None:
    """Let a replica do its periodic renewal, which adopts changes."""
    await mediator.mediator.membership.renew()


async def assert_knows(mediator: Service, database: str) -> None:
    with pytest.raises(NotFound, match="notes/nobody"):
        await mediator.get(database, "notes", "nobody")


async def make_shared_database(mediator: Service, late: Service) -> str:
    """Return a database that both replicas have adopted, with an empty class on Redis."""
    name = await mediator.put_schema(notes_on("redis"))
    await assert_knows(late, name)
    return name


def start_placement(mediator: Service, database: str, system: str) -> asyncio.Task[SchemaChange]:
    change = mediator.mediator.control.set_schema(database, {"classes": notes_on(system)})
    return asyncio.create_task(change)


class Pause:
    """Stops callers before or after a call until it is opened."""

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


async def wait_until_stopped(task: asyncio.Task[Any], *, by: Pause) -> None:
    """Wait until a task is stopped by a pause; raise its error if it ends before."""
    reached = asyncio.create_task(by.reached.wait())
    await asyncio.wait([reached, task], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        reached.cancel()
        task.result()


def pause_at(
    patched: pytest.MonkeyPatch, owner: object, name: str, *, after: bool = False
) -> Pause:
    """Patch a method of `owner` so that its callers stop."""
    pause = Pause(getattr(owner, name), after=after)
    patched.setattr(owner, name, pause)
    return pause


async def is_held(mediator: Service, database: str, class_name: str) -> bool:
    """Whether a replica refuses writes to a class."""
    fragments = mediator.mediator.data.model.databases[database].classes[class_name].fragments
    return calls_of(mediator).admission.refused.issuperset(fragments)


@pytest.fixture
async def late(mediator: Service, system_configs: Sequence[SystemConfig]) -> AsyncIterator[Service]:
    """A replica that follows the catalogue only on a test's request."""
    async with AsyncExitStack() as stack:
        instance = await stack.enter_async_context(service(system_configs, mediator.catalogue_url))
        await instance.mediator.scheduler.stop()
        yield instance


async def wait_for_hold(mediator: Service, late: Service) -> None:
    """Wait until a class is held and `late` has not yet confirmed it."""
    replicas = CatalogueReplicas(mediator.mediator.catalogue)

    async def is_stored() -> bool:
        stored = (await mediator.mediator.stored_schemas.snapshot()).databases.values()
        return any(database.hold for database in stored)

    await eventually(is_stored)
    epoch = (await mediator.mediator.stored_schemas.moment()).epoch
    assert late.mediator.replica in await replicas.behind(
        mediator.mediator.replica, epoch, membership.EXPIRED_S
    )


async def test_an_object_created_by_a_replica_before_it_follows_is_kept(
    mediator: Service, late: Service
) -> None:
    name = await make_shared_database(mediator, late)
    change = start_placement(mediator, name, "mongo")
    await wait_for_hold(mediator, late)
    await late.create(name, "notes", "x", title="kept")
    assert not change.done()
    with pytest.raises(Unavailable, match="placed anew"):
        await mediator.create(name, "notes", "y", title="refused")
    await follow(late)
    with pytest.raises(Conflict, match="created meanwhile"):
        await change
    await follow(late)
    for replica in (mediator, late):
        assert await replica.values(name, "notes", "x") == {"title": "kept"}
        await replica.create(name, "notes", replica.mediator.replica, title="goes on")


async def test_writes_use_the_new_system_once_all_replicas_have_followed(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await make_shared_database(mediator, late)
    pause = pause_at(monkeypatch, mediator.mediator.cutover, "check_still_empty")
    change = start_placement(mediator, name, "mongo")
    await wait_for_hold(mediator, late)
    await follow(late)
    await pause.reached.wait()
    for replica in (mediator, late):
        with pytest.raises(Unavailable, match="placed anew"):
            await replica.create(name, "notes", "x", title="refused")
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
    name = await make_shared_database(mediator, late)
    pause = pause_at(monkeypatch, late.mediator.systems.get("redis").store, "write")
    write = asyncio.create_task(late.create(name, "notes", "x", title="kept"))
    await pause.reached.wait()
    change = start_placement(mediator, name, "mongo")
    await wait_for_hold(mediator, late)
    following = asyncio.create_task(follow(late))

    async def refuses() -> bool:
        return bool(calls_of(late).admission.refused)

    await eventually(refuses)
    assert not following.done()
    pause.open.set()
    await write
    await following
    with pytest.raises(Conflict, match="created meanwhile"):
        await change
    assert await mediator.values(name, "notes", "x") == {"title": "kept"}


async def test_the_wait_for_a_replica_that_does_not_follow_is_bounded(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "TIMEOUT_S", 0.2)
    name = await make_shared_database(mediator, late)
    with pytest.raises(Unavailable, match="do not confirm"):
        await start_placement(mediator, name, "mongo")
    for replica in (mediator, late):
        await replica.create(name, "notes", replica.mediator.replica, title="goes on")


async def test_a_replica_without_its_lease_acknowledges_nothing(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await make_shared_database(mediator, late)
    with monkeypatch.context() as patched:
        pause = pause_at(patched, late.mediator.systems.get("redis").store, "write")
        write = asyncio.create_task(late.create(name, "notes", "x", title="late"))
        await pause.reached.wait()
    calls_of(late).admission.lease_until = 0.0
    with pytest.raises(Unavailable, match="not reached the catalogue"):
        await late.create(name, "notes", "y", title="refused")
    monkeypatch.setattr(membership, "EXPIRED_S", 0.0)  # its lease has expired
    await start_placement(mediator, name, "mongo")
    pause.open.set()
    with pytest.raises(OutcomeUnknown):
        await write
    monkeypatch.undo()
    for replica in (mediator, late):
        await follow(replica)
        with pytest.raises(NotFound):
            await replica.get(name, "notes", "x")
        await replica.create(name, "notes", replica.mediator.replica, title="goes on")


async def test_an_expired_replica_does_not_write_to_the_former_system(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write was routed before its replica followed the change."""
    name = await make_shared_database(mediator, late)
    with monkeypatch.context() as patched:
        pause = pause_at(patched, calls_of(late), "_write_system")
        write = asyncio.create_task(late.create(name, "notes", "x", title="late"))
        await pause.reached.wait()
    monkeypatch.setattr(membership, "EXPIRED_S", 0.0)
    await start_placement(mediator, name, "mongo")
    monkeypatch.undo()
    await follow(late)
    pause.open.set()
    with pytest.raises(Unavailable, match="placed anew"):
        await write


async def test_a_replica_stalled_during_its_hold_changes_nothing_afterwards(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await make_shared_database(mediator, late)
    monkeypatch.setattr(catalogue_schemas, "HOLD_S", 0.0)
    pause = pause_at(monkeypatch, mediator.mediator.cutover, "check_still_empty", after=True)
    change = start_placement(mediator, name, "mongo")
    await eventually(lambda: _follows_and_reaches(late, pause))
    await follow(late)  # ends the overdue hold
    await follow(late)
    await late.create(name, "notes", "x", title="kept")
    pause.open.set()
    with pytest.raises(Conflict, match="took too long"):
        await change
    for replica in (mediator, late):
        await follow(replica)
        assert await replica.values(name, "notes", "x") == {"title": "kept"}


async def _follows_and_reaches(late: Service, pause: Pause) -> bool:
    await follow(late)
    return pause.reached.is_set()


async def test_a_replica_stalled_before_a_drop_does_not_drop_the_new_fragment(
    mediator: Service, late: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await make_shared_database(mediator, late)
    pause = pause_at(monkeypatch, mediator.mediator.systems.get("redis").store, "drop")
    change = start_placement(mediator, name, "mongo")
    await eventually(lambda: _follows_and_reaches(late, pause))
    back = start_placement(late, name, "redis")
    await back
    await late.create(name, "notes", "x", title="kept")
    pause.open.set()
    await change
    await follow(mediator)
    for replica in (mediator, late):
        assert await replica.values(name, "notes", "x") == {"title": "kept"}


async def test_an_open_transaction_prevents_a_new_placement(mediator: Service) -> None:
    name = await mediator.put_schema(notes_on("redis"))
    catalogue = Catalogue(mediator.catalogue_url)
    log = CatalogueTransactions(catalogue)
    await log.begin(TransactionEntry("m", name, [["notes", "x"]], None, None), 60.0)
    with pytest.raises(Conflict, match="under way"):
        await mediator.mediator.control.set_schema(name, {"classes": notes_on("mongo")})
    await log.remove(["m"])
    await mediator.mediator.control.set_schema(name, {"classes": notes_on("mongo")})
    await catalogue.close()


async def test_a_read_set_is_validated_on_the_new_system_of_a_class(
    mediator: Service, late: Service
) -> None:
    carts = {"carts": {"fields": {"n": field_on("postgres", "integer")}}}
    name = await mediator.put_schema({**notes_on("redis"), **carts})
    await assert_knows(late, name)
    document = {"classes": {**notes_on("mongo"), **carts}}
    change = asyncio.create_task(mediator.mediator.control.set_schema(name, document))
    await wait_for_hold(mediator, late)
    await follow(late)
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
    name = await mediator.put_schema(notes_on("redis"))
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
    name = await make_shared_database(mediator, late)
    first = start_placement(mediator, name, "mongo")
    await wait_for_hold(mediator, late)
    with pytest.raises(Conflict, match="Another change"):
        await start_placement(late, name, "postgres")
    await follow(late)
    await first
    assert mediator.systems_of(name, "notes") == ("mongo",)


async def test_a_database_is_dropped_after_all_replicas_have_followed(
    mediator: Service, late: Service
) -> None:
    name = await make_shared_database(mediator, late)
    drop = asyncio.create_task(mediator.mediator.control.delete_schema(name))
    await wait_for_hold(mediator, late)
    assert not drop.done()
    await follow(late)
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
    assert {killed, late.mediator.replica} < await names(), "their leases can still be valid"
    old = func.now() - timedelta(seconds=membership.EXPIRED_S + 1)
    row = update(tables.replicas).where(tables.replicas.c.name == killed)
    await catalogue.execute(row.values(seen=old))
    await mediator.mediator.membership.reap()
    remaining = await names()
    assert killed not in remaining
    assert {mediator.mediator.replica, late.mediator.replica} <= remaining
