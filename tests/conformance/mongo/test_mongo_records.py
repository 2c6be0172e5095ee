"""What a record of MongoDB keeps, in which order it is found, and what it refuses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.outbox.effect import Effect
from mediator.stores.mongo.outbox.entries import REMEMBERED
from mediator.stores.port import (
    RETENTION_S,
    Fragment,
    Ordered,
    Reapable,
    Status,
    StoreRefused,
    SystemConfig,
    WriteKind,
)
from tests.conformance.mongo.records import (
    SkewedClock,
    increment,
    one,
    opened,
    put,
    raw,
    values,
    writing,
)


def test_it_is_ordered_and_reapable(store: MongoStore) -> None:
    assert isinstance(store, Ordered)
    assert isinstance(store, Reapable)


async def test_facts_name_the_server(store: MongoStore) -> None:
    facts = await store.facts()
    assert facts.server in {"mongo-java-server", "MongoDB"}
    assert facts.durability_s is not None
    if facts.server == "mongo-java-server":
        assert facts.durability_s == 1.0  # as the embedded server says of itself


# Clocks


@pytest.mark.parametrize("skew_s", [-3600.0, -0.5, 0.0, 0.5, 3600.0])
async def test_versions_rise_between_skewed_clocks(
    config: SystemConfig, store: MongoStore, fragment: Fragment, skew_s: float
) -> None:
    moment = datetime.now(UTC) + timedelta(seconds=skew_s)
    last = (await put(store, fragment, n=0)).versions["main"]
    async with opened(config, SkewedClock(moment.timestamp())) as other:
        for writer in (other, other, store, other, store, store):
            result = await one(writer, increment(fragment))
            assert result.status is Status.APPLIED
            assert result.versions["main"] > last
            last = result.versions["main"]
        deleted = await one(other, writing(fragment, WriteKind.DELETE))
        made = await one(store, writing(fragment, WriteKind.CREATE, values={}))
    assert made.creation_version > deleted.creation_version > last


# What a record keeps


async def test_a_tombstone_keeps_memory_and_outbox(store: MongoStore, fragment: Fragment) -> None:
    await one(store, writing(fragment, WriteKind.CREATE, operation="made", remember="f"))
    await one(store, writing(fragment, WriteKind.DELETE, operation="gone"))
    document = await raw(store, fragment)
    assert "values" not in document
    assert [entry["op"] for entry in document["_ops"]] == ["made"]
    made, gone = map(Effect.read, document["_pending"])
    assert (made.operation, gone.operation) == ("made", "gone")
    assert gone.kind is WriteKind.DELETE


async def test_memories_of_a_record_are_bounded(store: MongoStore, fragment: Fragment) -> None:
    await put(store, fragment, n=0)
    await store.write([increment(fragment, remember="f") for _ in range(REMEMBERED + 5)])
    document = await raw(store, fragment)
    assert len(document["_ops"]) == REMEMBERED
    assert len(document["_pending"]) == REMEMBERED + 6


async def test_reaping_spares_what_is_young(
    config: SystemConfig, store: MongoStore, fragment: Fragment
) -> None:
    later = datetime.now(UTC).timestamp() + RETENTION_S + 60
    for id_ in ("a", "b", "c"):
        await put(store, fragment, id_, n=1)
    for id_ in ("a", "b"):
        await one(store, writing(fragment, WriteKind.DELETE, id_))
    assert await store.reap(100) == 0
    async with opened(config, SkewedClock(later)) as heir:
        assert await heir.reap(100) == 0, "their changes have not been relayed"
        await store.acknowledge(await store.pending(fragment, ["a", "b"]))
        assert await heir.reap(1) == 1
        assert await heir.reap(100) >= 1
        assert await heir.reap(100) == 0
    assert await values(store, fragment, "c") == {"n": 1}
    assert len((await raw(store, fragment, "c"))["_pending"]) == 1
    assert await store.count(fragment) == 1


# Hostile values


async def test_values_and_ids_are_never_operators(store: MongoStore, fragment: Fragment) -> None:
    document = {"$set": {"n": 1}, "a.b": {"$gt": ""}, "": [{"$where": "1"}], "%2E": 1, "_id": 2}
    for id_ in ('{"$gt": ""}', "$where", "a.b", "é\U0001f600\ue000"):
        await put(store, fragment, id_, doc=document, m={"$inc": 1, "x.y": 2, "": 3})
        assert await values(store, fragment, id_) == {
            "doc": document,
            "m": {"$inc": 1, "x.y": 2, "": 3},
        }
    assert await store.count(fragment) == 4


async def test_what_cannot_be_stored_is_refused(store: MongoStore, fragment: Fragment) -> None:
    for bad in ({"s": "\ud800"}, {"n": 2**63}, {"b": b"x" * (17 * 2**20)}):
        with pytest.raises(StoreRefused):
            await put(store, fragment, **bad)


# Order


async def test_doubles_are_ordered_where_the_stand_in_saturates(
    store: MongoStore, fragment: Fragment
) -> None:
    some = [1e22, 2.0**63, 2.0**62, 1.5, -0.0, 0.0, -(2.0**63), -1e22, 1e300, 1e22]
    for position, value in enumerate(some):
        await put(store, fragment, f"{position}", f=value)
    expected = sorted((value, f"{position}") for position, value in enumerate(some))
    for descending in (False, True):
        ids: list[str] = []
        after: Any = None
        while page := await store.ordered(
            fragment, "f", descending=descending, limit=3, after=after, fields=("f",)
        ):
            ids += [record.id for record in page]
            after = (page[-1].values["f"], page[-1].id)
        assert ids == [id_ for _, id_ in (expected[::-1] if descending else expected)]


async def test_binary_is_ordered_by_its_bytes(store: MongoStore, fragment: Fragment) -> None:
    some = [b"", b"\x00", b"\x00\x00", b"\x01", b"\x7f\xff", b"\x80", b"\xff"]
    await asyncio.gather(*(put(store, fragment, b.hex() or "empty", b=b) for b in some))
    found = await store.ordered(fragment, "b", descending=False, limit=10)
    assert [record.values["b"] for record in found] == some


async def test_only_indexed_fields_are_ordered(store: MongoStore, fragment: Fragment) -> None:
    with pytest.raises(StoreRefused):
        await store.ordered(fragment, "t", descending=False, limit=1)
