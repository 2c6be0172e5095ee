"""MongoDB's records: their bookkeeping, their order, and refused values."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mediator.model.filters import Compare, Comparison
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.codec import ordered_text
from mediator.stores.mongo.layout import layout_of
from mediator.stores.mongo.outbox.archive import archive_of
from mediator.stores.mongo.outbox.effect import OutboxEntry
from mediator.stores.mongo.outbox.entries import MAX_REMEMBERED
from mediator.stores.port import (
    RETENTION_S,
    Fragment,
    Reapable,
    SearchRequest,
    Status,
    StoreRefused,
    SystemConfig,
    WriteKind,
)
from tests.conformance.in_order import in_order
from tests.conformance.mongo.records import (
    SkewedClock,
    increment,
    make_write,
    opened,
    put,
    raw_document,
    read_values,
    write_one,
)


def test_the_store_is_reapable(store: MongoStore) -> None:
    assert isinstance(store, Reapable)


async def test_facts_name_the_server(store: MongoStore) -> None:
    facts = await store.facts()
    assert facts.server in {"mongo-java-server", "MongoDB"}
    assert facts.durability_s is not None
    if facts.server == "mongo-java-server":
        assert facts.durability_s == 1.0  # as the embedded server reports


# Clocks


@pytest.mark.parametrize("skew_s", [-3600.0, -0.5, 0.0, 0.5, 3600.0])
async def test_versions_rise_between_skewed_clocks(
    config: SystemConfig, store: MongoStore, fragment: Fragment, skew_s: float
) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=skew_s)
    last = (await put(store, fragment, n=0)).versions["main"]
    async with opened(config, SkewedClock(moment.timestamp())) as other:
        for writer in (other, other, store, other, store, store):
            result = await write_one(writer, increment(fragment))
            assert result.status is Status.APPLIED
            assert result.versions["main"] > last
            last = result.versions["main"]
        deleted = await write_one(other, make_write(fragment, WriteKind.DELETE))
        created = await write_one(store, make_write(fragment, WriteKind.CREATE, values={}))
    assert created.creation_version > deleted.creation_version > last


# Bookkeeping of a record


async def test_a_tombstone_keeps_memory_and_outbox(store: MongoStore, fragment: Fragment) -> None:
    await write_one(store, make_write(fragment, WriteKind.CREATE, operation="made", remember="f"))
    await write_one(store, make_write(fragment, WriteKind.DELETE, operation="gone"))
    document = await raw_document(store, fragment)
    assert "values" not in document
    assert [entry["op"] for entry in document["_ops"]] == ["made"]
    created, deleted = map(OutboxEntry.read, document["_pending"])
    assert (created.operation, deleted.operation) == ("made", "gone")
    assert deleted.kind is WriteKind.DELETE


async def test_memories_of_a_record_are_bounded(store: MongoStore, fragment: Fragment) -> None:
    await put(store, fragment, n=0)
    writes = [increment(fragment, remember="f") for _ in range(3 * MAX_REMEMBERED)]
    first = await store.write(writes)
    document = await raw_document(store, fragment)
    assert len(document["_ops"]) <= MAX_REMEMBERED
    assert len(document["_pending"]) == len(writes) + 1
    repeated = await store.write(writes)
    assert [result.status for result in repeated] == [Status.REPLAYED] * len(writes)
    assert [result.values for result in repeated] == [result.values for result in first]
    assert await read_values(store, fragment) == {"n": len(writes)}


async def test_a_write_without_changes_is_remembered_once_by_two_processes(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    """It raises no version that could show each process that the other was faster."""
    await put(store, fragment, n=0)
    options: dict[str, Any] = {"groups": (), "remember": "f", "returning": ()}
    writes = [make_write(fragment, WriteKind.UPDATE, **options) for _ in range(16)]
    async with opened(config) as other:
        results = await asyncio.gather(*(write_one(s, w) for w in writes for s in (store, other)))
    statuses = sorted(result.status.name for result in results)
    assert statuses == ["APPLIED"] * 16 + ["REPLAYED"] * 16
    assert len((await raw_document(store, fragment))["_ops"]) == 16


async def test_archived_operations_are_recalled_alone_and_in_bulk(
    store: MongoStore, fragment: Fragment
) -> None:
    await put(store, fragment, "é\ue000", n=0)
    writes = [increment(fragment, "é\ue000", remember="f") for _ in range(MAX_REMEMBERED + 1)]
    await store.write(writes)
    oldest = writes[0]
    assert oldest.operation not in [
        entry["op"]
        for entry in (await raw_document(store, fragment, ordered_text("é\ue000")))["_ops"]
    ]
    recalled = await store.recall(fragment, "é\ue000", oldest.operation)
    assert recalled is not None
    assert recalled.result.values == {"n": 1}
    other_writes = [
        make_write(fragment, WriteKind.REPLACE, f"{i}", remember="f") for i in range(10)
    ]
    results = await store.write([*other_writes, oldest])
    assert results[-1].status is Status.REPLAYED
    assert (await write_one(store, replace(oldest, remember="g"))).status is Status.REUSED
    assert await store.recall(fragment, "é\ue000", "unknown") is None


def cut_batches(store: MongoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the server end each batch after one document, as it does after 16 MB."""
    connections = store.link.session.connections
    commands = connections.commands

    async def send(database: str, documents: Sequence[Any]) -> list[dict[str, Any]]:
        limited = [
            document | {"batchSize": 1} if "batchSize" in document else document
            for document in documents
        ]
        return await commands(database, limited)

    monkeypatch.setattr(connections, "commands", send)


async def test_archived_operations_beyond_one_batch_are_not_applied_twice(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"{number}" for number in range(6)]
    await store.write([make_write(fragment, WriteKind.REPLACE, i, values={"n": 0}) for i in ids])
    oldest, *later = [
        [increment(fragment, id_, remember="f") for id_ in ids] for _ in range(MAX_REMEMBERED + 1)
    ]
    for writes in (oldest, *later):
        await store.write(writes)
    cut_batches(store, monkeypatch)
    assert {result.status for result in await store.write(oldest)} == {Status.REPLAYED}
    assert await read_values(store, fragment, "5") == {"n": MAX_REMEMBERED + 1}


async def test_states_beyond_one_batch_are_all_read(
    store: MongoStore, fragment: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [(fragment, f"{number}") for number in range(5)]
    cut_batches(store, monkeypatch)
    locked = await store.lock(keys, "m", "a redo record")
    assert [state.intent for state in locked] == ["m"] * len(keys)
    states = await store.record_states(keys, redo=True)
    assert [state.redo for state in states] == ["a redo record"] * len(keys)


async def test_an_operation_that_is_archived_twice_is_remembered(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    """It happens if a process ends in between, or if two find no space concurrently."""
    await put(store, fragment, n=0)
    writes = [increment(fragment, remember="f") for _ in range(MAX_REMEMBERED)]
    await store.write(writes)
    full = await raw_document(store, fragment)
    async with opened(config) as other:
        increments = [increment(fragment, remember="f") for _ in range(2)]
        await asyncio.gather(write_one(store, increments[0]), write_one(other, increments[1]))
        collection = store.link.session.collection(layout_of(fragment))
        lists = {"$set": {"_ops": full["_ops"]}, "$unset": {"_archived": ""}}
        await collection.update_one({"_id": "x"}, lists)
        results = await store.write([*writes, increment(fragment, remember="f"), *writes])
    assert [r.status for r in results].count(Status.APPLIED) == 1
    assert await read_values(store, fragment) == {"n": MAX_REMEMBERED + 3}


async def test_archived_operations_are_removed_when_old_or_with_their_class(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    await put(store, fragment, n=0)
    await store.write([increment(fragment, remember="f") for _ in range(MAX_REMEMBERED + 1)])
    archive = store.link.session.collection(archive_of(layout_of(fragment)))
    assert await store.reap(1_000) == 0
    number = await archive.count_documents({})
    assert number > 0
    later = datetime.now(UTC).timestamp() + RETENTION_S + 60
    async with opened(config, SkewedClock(later)) as later_store:
        assert await later_store.reap(1_000) >= number
    assert await archive.count_documents({}) == 0
    await store.write([increment(fragment, remember="f") for _ in range(MAX_REMEMBERED + 1)])
    assert await archive.count_documents({}) > 0
    await store.drop(fragment)
    assert await archive.count_documents({}) == 0


async def test_reaping_spares_recent_and_pending_tombstones(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    later = datetime.now(UTC).timestamp() + RETENTION_S + 60
    for id_ in ("a", "b", "c"):
        await put(store, fragment, id_, n=1)
    for id_ in ("a", "b"):
        await write_one(store, make_write(fragment, WriteKind.DELETE, id_))
    assert await store.reap(100) == 0
    async with opened(config, SkewedClock(later)) as later_store:
        assert await later_store.reap(100) == 0, "their changes have not been relayed"
        await store.acknowledge(await store.pending(fragment, ["a", "b"]))
        assert await later_store.reap(1) == 1
        assert await later_store.reap(100) >= 1
        assert await later_store.reap(100) == 0
    assert await read_values(store, fragment, "c") == {"n": 1}
    assert len((await raw_document(store, fragment, "c"))["_pending"]) == 1
    assert await store.count(fragment) == 1


# Hostile values


async def test_values_and_ids_are_never_operators(store: MongoStore, fragment: Fragment) -> None:
    document = {"$set": {"n": 1}, "a.b": {"$gt": ""}, "": [{"$where": "1"}], "%2E": 1, "_id": 2}
    for id_ in ('{"$gt": ""}', "$where", "a.b", "é\U0001f600\ue000"):
        await put(store, fragment, id_, doc=document, m={"$inc": 1, "x.y": 2, "": 3})
        assert await read_values(store, fragment, id_) == {
            "doc": document,
            "m": {"$inc": 1, "x.y": 2, "": 3},
        }
    assert await store.count(fragment) == 4


async def test_values_that_cannot_be_stored_are_refused(
    store: MongoStore, fragment: Fragment
) -> None:
    for bad in ({"s": "\ud800"}, {"n": 2**63}):
        with pytest.raises(StoreRefused):
            await put(store, fragment, **bad)


# Order


async def test_doubles_are_ordered_where_the_stand_in_saturates(
    store: MongoStore, fragment: Fragment
) -> None:
    samples = [1e22, 2.0**63, 2.0**62, 1.5, -0.0, 0.0, -(2.0**63), -1e22, 1e300, 1e22]
    for position, value in enumerate(samples):
        await put(store, fragment, f"{position}", f=value)
    expected = sorted((value, f"{position}") for position, value in enumerate(samples))
    for descending in (False, True):
        ids: list[str] = []
        after: Any = None
        while page := await in_order(
            store, fragment, "f", descending=descending, limit=3, after=after, fields=("f",)
        ):
            ids += [record.id for record in page]
            after = (page[-1].values["f"], page[-1].id)
        assert ids == [id_ for _, id_ in (expected[::-1] if descending else expected)]


async def test_binary_is_found_but_orders_nothing(store: MongoStore, fragment: Fragment) -> None:
    samples = [b"", b"\x00", b"\x00\x00", b"\x01", b"\x7f\xff", b"\x80", b"\xff"]
    for value in samples:
        id_ = value.hex() or "empty"
        await put(store, fragment, id_, b=value)
        equal = Compare(Comparison.EQ, ("b",), value)
        page = await store.find(SearchRequest(fragment, equal, (), 10))
        assert {record.id: record.values["b"] for record in page.records} == {id_: value}
    with pytest.raises(StoreRefused):
        await in_order(store, fragment, "b")
