"""Transactions that meet other writes: they wait, or one of them restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from mediator.base.errors import (
    Locked,
    TransactionAborted,
    Unavailable,
)
from mediator.model.operations import (
    Outcome,
)
from mediator.stores.port import RecordKey
from mediator.transactions import coordinator
from mediator.transactions.log import TransactionEntry
from tests.faults.conditions import eventually
from tests.process.service import Service, unique
from tests.process.transactions.committing.shop import (
    SINGLE,
    read_of,
    run,
    transaction,
    update,
    values,
)


async def test_single_writes_wait_for_an_intent_and_then_report_locked(
    mediator: Service,
    shop: str,
    trio: Mapping[str, Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data, intents = mediator.mediator.data, mediator.mediator.transactions.resolver.intents
    log = mediator.mediator.transactions.log

    async def check_intent(name: str) -> tuple[RecordKey, str]:
        id_, intent = trio[name].id, unique("intent")
        [fragment] = (await data.route(shop, name)).fragments
        await log.begin(TransactionEntry(intent, shop, [[name, id_]]), 600.0)
        await intents.lock([(fragment, id_)], intent)
        with pytest.raises(Locked):
            await data.write(update(shop, name, id_, n=1))
        with pytest.raises(TransactionAborted, match="hold the same objects"):
            await run(mediator, transaction(shop, update(shop, name, id_, n=1)))
        with pytest.raises(TransactionAborted, match="hold the same objects"):
            await run(mediator, transaction(shop, reads=[read_of(name, trio[name])]))
        return (fragment, id_), intent

    async def check_end(name: str, key: RecordKey, intent: str) -> None:
        writing = asyncio.create_task(data.write(update(shop, name, key[1], n=1)))
        await asyncio.sleep(0)
        await intents.unlock([key], intent)
        assert (await writing).versions != trio[name].versions
        await log.remove([intent])

    locked = await asyncio.gather(*(check_intent(name) for name in SINGLE))
    monkeypatch.setattr("mediator.operations.backoff.MAX_WAIT_S", 60.0)
    pairs = zip(SINGLE, locked, strict=True)
    await asyncio.gather(*(check_end(name, *key_and_intent) for name, key_and_intent in pairs))


async def test_an_intent_without_a_log_entry_blocks_no_write(
    mediator: Service, shop: str, trio: Mapping[str, Outcome]
) -> None:
    """It was set late, after the end of its transaction."""
    data, intents = mediator.mediator.data, mediator.mediator.transactions.resolver.intents
    for name in SINGLE:
        [fragment] = (await data.route(shop, name)).fragments
        await intents.lock([(fragment, trio[name].id)], unique("intent"))
        await run(mediator, transaction(shop, reads=[read_of(name, trio[name])]))
        await intents.lock([(fragment, trio[name].id)], unique("intent"))
        await data.write(update(shop, name, trio[name].id, n=1))


async def test_write_skew_is_prevented(mediator: Service, shop: str) -> None:
    """Each reads what the other writes: one of them must not see the old value."""
    for first, second in (("users", "carts"), ("carts", "notes"), ("notes", "users")):
        for _ in range(5):
            one = await mediator.create(shop, first, unique(), n=0)
            two = await mediator.create(shop, second, unique(), n=0)
            requests = (
                transaction(shop, update(shop, first, one.id, n=1), reads=[read_of(second, two)]),
                transaction(shop, update(shop, second, two.id, n=1), reads=[read_of(first, one)]),
            )
            results = await asyncio.gather(
                *(run(mediator, request) for request in requests), return_exceptions=True
            )
            assert sum(isinstance(result, TransactionAborted) for result in results) >= 1


async def test_transactions_and_split_writes_do_not_mix(mediator: Service, shop: str) -> None:
    """Both write two groups of one object: the result is that of one write, never a mixture."""
    data = mediator.mediator.data
    for round_ in range(10):
        object_ = await mediator.create(shop, "pairs", unique(), title="0", hits=0)
        writes = [update(shop, "pairs", object_.id, title=str(i), hits=i) for i in range(1, 5)]
        results = await asyncio.gather(
            *(data.write(write) for write in writes[:2]),
            *(run(mediator, transaction(shop, write)) for write in writes[2:]),
            return_exceptions=True,
        )
        failures = [result for result in results if isinstance(result, BaseException)]
        assert all(isinstance(result, Unavailable | TransactionAborted) for result in failures)
        assert len(failures) < len(writes)  # they can have waited long enough for each other
        after = await values(mediator, shop, "pairs", object_.id)
        assert after["title"] == str(after["hits"]), round_


async def test_a_write_over_several_systems_is_waited_for(
    mediator: Service, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one of its steps is pending, no read may report the object as whole."""
    monkeypatch.setattr(coordinator, "MAX_WAIT_S", 0.1)
    object_ = await mediator.create(shop, "pairs", unique(), title="0", hits=0)
    redis = mediator.mediator.systems.get("redis").store
    send, resume, reached = redis.write, asyncio.Event(), asyncio.Event()

    async def delay(*args: Any) -> Any:
        if args[0][0].id == object_.id:
            reached.set()
            await resume.wait()
        return await send(*args)

    monkeypatch.setattr(redis, "write", delay)
    split = update(shop, "pairs", object_.id, title="1", hits=1)
    writing = asyncio.create_task(mediator.mediator.data.write(split))
    await reached.wait()

    async def is_half_written() -> bool:  # PostgreSQL's step is sent while that of Redis is delayed
        read = await mediator.get(shop, "pairs", object_.id)
        return read.values == {"title": "1", "hits": 0}

    await eventually(is_half_written)
    half = await mediator.get(shop, "pairs", object_.id)
    for request in (
        transaction(shop, reads=[read_of("pairs", half)]),
        transaction(shop, update(shop, "pairs", object_.id, title="2", hits=2)),
    ):
        with pytest.raises(TransactionAborted, match="hold the same objects"):
            await run(mediator, request)
    resume.set()
    await writing
    with pytest.raises(TransactionAborted, match="was changed meanwhile"):
        await run(mediator, transaction(shop, reads=[read_of("pairs", half)]))
    await run(mediator, transaction(shop, update(shop, "pairs", object_.id, title="2", hits=2)))
    assert await values(mediator, shop, "pairs", object_.id) == {"title": "2", "hits": 2}
