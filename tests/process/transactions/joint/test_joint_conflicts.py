"""Joint writes that meet others: writers, readers, queries and batches."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.base.errors import (
    Locked,
)
from mediator.model.operations import (
    Delete,
    Get,
    Outcome,
    Put,
    WriteOperation,
)
from mediator.model.query import Query
from mediator.operations.intents import ForeignIntents
from mediator.routing.freshness import ReadPreference
from mediator.transactions.log import TransactionEntry
from tests.process.service import Service, inc, unique
from tests.process.transactions.joint.pairs import (
    AFTER,
    KINDS,
    OLD,
    check_nothing_is_undone,
    state,
    write_of,
)
from tests.process.transactions.open_writes import all_over, expire


async def test_writes_that_meet_a_committed_one_roll_it_forward_first(
    mediator: Service, pairs: str, committed: str
) -> None:
    await check_nothing_is_undone(mediator, pairs, committed)


async def test_writes_that_meet_a_half_applied_one_roll_it_forward_first(
    mediator: Service, pairs: str, half: str
) -> None:
    await check_nothing_is_undone(mediator, pairs, half)


@pytest.mark.parametrize("kind", KINDS[1:])
async def test_joint_writes_that_meet_a_committed_one_roll_it_forward_first(
    mediator: Service, pairs: str, half: str, kind: str
) -> None:
    await mediator.mediator.data.write(write_of(kind, pairs, half))
    after = {
        **AFTER,
        "update": {"title": "new", "hits": 1},
        "read_modify_write": {"title": "new", "hits": 1},
    }
    assert await state(mediator, pairs, half) == after[kind]
    await expire(mediator)
    assert await state(mediator, pairs, half) == after[kind]


async def test_a_reader_gets_a_partial_object_or_waits(
    mediator: Service, pairs: str, half: str
) -> None:
    outcome = await mediator.get(pairs, "pairs", half)
    assert (outcome.values, outcome.partial) == ({"title": "put", "hits": 10}, ("hits",))
    query = Query(pairs, "pairs", limit=1000)
    result = await mediator.mediator.data.query(query)
    [listed] = [item.outcome for item in result.items if item.outcome.id == half]
    assert listed.partial == ("hits",)
    [batched] = await mediator.mediator.data.batch([Get(pairs, "pairs", half)])
    assert isinstance(batched, Outcome)
    assert batched.partial == ("hits",)
    strong = await mediator.mediator.data.read(
        Get(pairs, "pairs", half), ReadPreference("strong", whole=True)
    )
    assert (strong.values, strong.partial) == ({"title": "put", "hits": 0}, ())
    assert (await mediator.get(pairs, "pairs", half)).partial == ()


async def test_a_strong_read_returns_the_resolved_object_however_long_that_took(
    mediator: Service, pairs: str, half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.operations.torn_reads.RESOLVED_WITHIN_S", 0.2)
    resolver = mediator.mediator.transactions.resolver
    resolve = resolver.resolve

    async def resolve_slowly(intents: ForeignIntents) -> None:
        await resolve(intents)
        await all_over(mediator)
        await asyncio.sleep(0.3)

    monkeypatch.setattr(resolver, "resolve", resolve_slowly)
    strong = await mediator.mediator.data.read(
        Get(pairs, "pairs", half), ReadPreference("strong", whole=True)
    )
    assert (strong.values, strong.partial) == ({"title": "put", "hits": 0}, ())


async def test_strong_reads_of_a_batch_see_a_whole_object(
    mediator: Service, pairs: str, half: str
) -> None:
    get = Get(pairs, "pairs", half)
    [batched] = await mediator.mediator.data.batch([get], whole=True)
    assert isinstance(batched, Outcome)
    assert (batched.values, batched.partial) == ({"title": "put", "hits": 0}, ())


async def test_a_strong_query_resolves_the_intents_it_finds(
    mediator: Service, pairs: str, half: str
) -> None:
    query, strong = Query(pairs, "pairs", limit=1000), ReadPreference("strong", whole=True)
    result = await mediator.mediator.data.query(query, strong)
    [listed] = [item.outcome for item in result.items if item.outcome.id == half]
    assert (listed.values, listed.partial) == ({"title": "put", "hits": 0}, ())


async def test_a_running_write_is_waited_for_and_then_reported_as_locked(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.transactions.joint.MAX_WAIT_S", 0.05)
    monkeypatch.setattr("mediator.operations.backoff.MAX_WAIT_S", 0.05)
    data, id_, intent = mediator.mediator.data, unique(), unique("intent")
    await mediator.create(pairs, "pairs", id_, **OLD)
    route = await data.route(pairs, "pairs")
    transactions = mediator.mediator.transactions
    keys = [(fragment, id_) for fragment in route.fragments]
    await transactions.log.begin(TransactionEntry(intent, pairs, [["pairs", id_]]), 600.0)
    await transactions.resolver.intents.lock(keys, intent)
    for operation in (write_of("put", pairs, id_), inc(pairs, "pairs", id_)):
        with pytest.raises(Locked):
            await data.write(operation)
    assert (await mediator.get(pairs, "pairs", id_)).values == OLD
    await transactions.resolver.intents.unlock(keys, intent)
    await transactions.log.remove([intent])
    await data.write(inc(pairs, "pairs", id_))
    assert await state(mediator, pairs, id_) == {"title": "old", "hits": 11}


async def test_an_unlogged_intent_is_refused_before_it_is_removed(
    mediator: Service, pairs: str
) -> None:
    """It can have arrived before its entry, which cannot arrive from then on."""
    id_, intent = unique(), unique("intent")
    await mediator.create(pairs, "pairs", id_, **OLD)
    transactions = mediator.mediator.transactions
    route = await mediator.mediator.data.route(pairs, "pairs")
    await transactions.resolver.intents.lock([(route.anchor, id_)], intent)
    await mediator.mediator.data.write(write_of("update", pairs, id_))
    assert await state(mediator, pairs, id_) == AFTER["update"]
    assert not await transactions.log.begin(TransactionEntry(intent, pairs, [["pairs", id_]]), 60.0)
    assert not await transactions.log.commit(intent, [])


async def test_a_write_that_was_aborted_meanwhile_is_retried(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = unique()
    await mediator.create(pairs, "pairs", id_, **OLD)
    log: Any = mediator.mediator.transactions.log
    commit = log.commit
    aborted: list[str] = []

    async def abort_then_commit(intent: str, redo: Any) -> Any:
        if not aborted:
            aborted.append(intent)
            await log.abort(intent)
        return await commit(intent, redo)

    monkeypatch.setattr(log, "commit", abort_then_commit)
    await mediator.mediator.data.write(write_of("update", pairs, id_))
    assert aborted
    assert await state(mediator, pairs, id_) == AFTER["update"]


async def test_concurrent_writes_to_one_object_leave_the_result_of_one(
    mediator: Service, pairs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.transactions.joint.MAX_WAIT_S", 60.0)
    for _ in range(5):
        id_ = unique()
        await mediator.create(pairs, "pairs", id_, title="old", hits=0)
        writes: list[WriteOperation] = [
            Put(pairs, "pairs", id_, unique(), values={"title": str(n), "hits": n})
            for n in range(6)
        ]
        writes.insert(3, Delete(pairs, "pairs", id_, unique()))
        await asyncio.gather(*map(mediator.mediator.data.write, writes))
        values = await state(mediator, pairs, id_)
        assert values is None or values["title"] == str(values["hits"])


async def test_a_locked_object_does_not_delay_its_batch(mediator: Service, pairs: str) -> None:
    """An object with an open joint write drops out of the batch, and is retried alone."""
    ids, intent = [unique() for _ in range(6)], unique("intent")
    for id_ in ids:
        await mediator.create(pairs, "pairs", id_, **OLD)
    route = await mediator.mediator.data.route(pairs, "pairs")
    intents = mediator.mediator.transactions.resolver.intents
    await intents.lock([(route.fragments[1], ids[2])], intent)
    results = await mediator.mediator.data.batch([write_of("update", pairs, i) for i in ids])
    assert all(isinstance(result, Outcome) for result in results)
    for id_ in ids:
        assert await state(mediator, pairs, id_) == AFTER["update"]
