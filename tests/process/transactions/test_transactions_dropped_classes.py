"""Classes dropped during a transaction: it fails as not found, not as unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import select

from mediator.base.errors import Conflict, NotFound, TransactionAborted
from mediator.catalogue.tables import transactions as table
from mediator.catalogue.transaction_log import CatalogueTransactions
from mediator.model.operations import Outcome, Put
from mediator.transactions.model import CommitRequest, ReadSetEntry
from tests.faults.conditions import eventually
from tests.process.control.test_placing_anew import is_held, pause_at
from tests.process.service import Service, field_on, unique

REMAINING = {
    "carts": {"fields": {"n": field_on("redis", "integer", default=0)}},
    "pairs": {
        "fields": {
            "title": field_on("postgres"),
            "hits": field_on("redis", "integer", group="zz"),
            "a_long_name": field_on("mongo", group="a_long_name"),
        }
    },
}
DROPPED = {"users": {"fields": {"n": field_on("postgres", "integer", default=0)}}}


@pytest.fixture
async def shop(mediator: Service) -> str:
    return await mediator.put_schema({**REMAINING, **DROPPED})


def put(database: str, class_name: str, id_: str, **values: Any) -> Put:
    return Put(database, class_name, id_, unique("op"), values=values, fingerprint="f")


def write_both(database: str, id_: str, *reads: ReadSetEntry) -> CommitRequest:
    writes = put(database, "carts", id_, n=1), put(database, "users", id_, n=1)
    return CommitRequest(database, unique("tx"), reads, writes, fingerprint="f")


async def run(mediator: Service, request: CommitRequest) -> list[Outcome]:
    return await mediator.mediator.transactions.run(request)


def drop_at(
    mediator: Service, database: str, call: Callable[..., Awaitable[Any]], *, before: bool
) -> Callable[..., Awaitable[Any]]:
    """Return a step that drops the class before or after it is taken."""

    async def step(*args: Any) -> Any:
        if before:
            await drop(mediator, database)
        result = await call(*args)
        if not before:
            await drop(mediator, database)
        return result

    return step


async def drop(mediator: Service, database: str) -> None:
    await mediator.mediator.control.set_schema(database, {"classes": REMAINING})


async def logged_states(mediator: Service, operation: str) -> list[str]:
    log = mediator.mediator.transactions.log
    assert isinstance(log, CatalogueTransactions)
    async with mediator.mediator.catalogue.begin() as connection:
        rows = await connection.execute(select(table.c.state).where(table.c.operation == operation))
        return list(rows.scalars())


@pytest.mark.parametrize("begins", ["is about to begin", "has set intents"])
async def test_a_class_dropped_before_the_log_entry_is_not_found(
    mediator: Service, shop: str, monkeypatch: pytest.MonkeyPatch, begins: str
) -> None:
    transactions, request = mediator.mediator.transactions, write_both(shop, unique())
    owner: Any = transactions.phases if begins == "is about to begin" else transactions.log
    monkeypatch.setattr(owner, "begin", drop_at(mediator, shop, owner.begin, before=True))
    with pytest.raises(NotFound, match="no class users"):
        await run(mediator, request)
    assert await logged_states(mediator, request.operation) == []
    with pytest.raises(NotFound):
        await mediator.get(shop, "carts", request.writes[0].id)
    await mediator.create(shop, "carts", request.writes[0].id, n=2)  # no intent is left behind


async def test_a_class_dropped_before_validation_aborts_the_transaction(
    mediator: Service, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions, id_ = mediator.mediator.transactions, unique()
    step = drop_at(mediator, shop, transactions.resolver.intents.record_states, before=True)
    monkeypatch.setattr(transactions.resolver.intents, "record_states", step)
    seen = ReadSetEntry("users", id_, None)
    request = CommitRequest(shop, unique("tx"), (seen,), (put(shop, "carts", id_, n=1),), "f")
    with pytest.raises(TransactionAborted):
        await run(mediator, request)
    assert await logged_states(mediator, request.operation) == []


@pytest.mark.parametrize("step", ["begin", "commit"])
async def test_a_class_cannot_be_dropped_while_a_transaction_writes_to_it(
    mediator: Service, shop: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The drop is refused: at once if the transaction has begun, else after its commit."""
    transactions, request = mediator.mediator.transactions, write_both(shop, unique())
    pause = pause_at(monkeypatch, transactions.log, step, after=True)
    running = asyncio.create_task(run(mediator, request))
    await pause.reached.wait()
    change = asyncio.create_task(drop(mediator, shop))
    await eventually(lambda: is_held(mediator, shop, "users"))
    if step == "commit":
        pause.open.set()
    with pytest.raises(Conflict):
        await change
    pause.open.set()
    first = await running
    replayed = await run(mediator, request)
    assert [outcome.id for outcome in first] == [write.id for write in request.writes]
    assert [o.versions for o in replayed] == [o.versions for o in first]
    assert await logged_states(mediator, request.operation) == ["done"]
    for write in request.writes:
        assert await mediator.values(shop, write.class_name, write.id) == {"n": 1}


async def test_a_class_can_be_dropped_while_transactions_write_to_others(
    mediator: Service, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transactions, id_ = mediator.mediator.transactions, "users"  # the id equals the class's name
    step = drop_at(mediator, shop, transactions.log.commit, before=False)
    monkeypatch.setattr(transactions.log, "commit", step)
    request = CommitRequest(shop, unique("tx"), (), (put(shop, "carts", id_, n=1),), "f")
    await run(mediator, request)
    assert await mediator.values(shop, "carts", id_) == {"n": 1}
    with pytest.raises(NotFound, match="no class users"):
        await mediator.get(shop, "users", id_)


async def test_a_retry_returns_the_identical_response(mediator: Service, shop: str) -> None:
    write = put(shop, "pairs", unique(), title="a", hits=1, a_long_name="b")
    request = CommitRequest(shop, unique("tx"), (), (write,), fingerprint="f")
    [first] = await run(mediator, request)
    [replayed] = await run(mediator, request)
    assert list(replayed.versions.items()) == list(first.versions.items())
