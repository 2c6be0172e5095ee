"""How many documents MongoDB examines, by its own count: for work in the background
it must not depend on how many there are."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from bson.int64 import Int64

from mediator.base.clock import SystemClock
from mediator.model.filters import Compare, Comparison
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.mongo import MongoStore
from mediator.stores.mongo.layout import Document, Layout, layout_of
from mediator.stores.mongo.read.spans import spans
from mediator.stores.mongo.retention import PAGE
from mediator.stores.port import RETENTION_S, Fragment, SearchRequest, SystemConfig
from tests.conformance.real_stores import mongo_apart

NAMESPACE = "mongo_spans"
MANY = 4_000
FIELDS = {"n": Field("n", FieldType.INTEGER)}


@pytest.fixture
async def store(mongodb_config: SystemConfig) -> AsyncIterator[MongoStore]:
    config = replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0)
    async with mongo_apart(config) as store:
        yield store


async def make(store: MongoStore, documents: list[Document]) -> Fragment:
    """Make a class, and put documents into it past the store: it would take long."""
    fragment = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, {"main": ("n",)})
    await store.prepare(fragment)
    await store.link.session.collection(layout_of(fragment)).insert_many(documents)
    return fragment


def record(number: int, **more: Any) -> Document:
    version = Int64(number + 1)
    return {
        "_id": f"o{number:06}",
        "creation_version": version,
        "versions": {"main": version},
        "values": {"n": Int64(number)},
        **more,
    }


async def looked_at(store: MongoStore) -> int:
    """Return how many documents the server has looked at since it started."""
    status = await store.link.session.client.admin.command("serverStatus")
    return int(status["metrics"]["queryExecutor"]["scannedObjects"])


@pytest.mark.parametrize("number", [PAGE, MANY])
async def test_reaping_examines_one_page_of_tombstones_that_are_not_due(
    store: MongoStore, number: int
) -> None:
    await make(store, [record(i) for i in range(number)])
    before = await looked_at(store)
    assert await store.reap(1_000) == 0
    assert await looked_at(store) - before <= 4 * PAGE


async def test_reaping_goes_on_where_it_stopped(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    young = Int64(SystemClock().now() * 1_000_000)
    first = {"_ops": [{"op": "a", "time": stale}, {"op": "b", "time": young}]}
    last = {
        "_ops": [{"op": "a", "time": stale}],
        "_fences": [{"token": "a", "time": stale}, {"token": "b", "time": young}],
    }
    odd: dict[int, Document] = {0: first, MANY - 3: {"tombstone": stale}, MANY - 1: last}
    fragment = await make(store, [record(i, **odd.get(i, {})) for i in range(MANY)])
    rounds = [await store.reap(1_000) for _ in range(MANY // PAGE + 1)]
    assert (sum(rounds), rounds[0]) == (3, 1)
    collection = store.link.session.collection(layout_of(fragment))
    assert await collection.count_documents({}) == MANY - 1
    left = [await collection.find_one({"_id": record(i)["_id"]}) for i in (0, MANY - 1)]
    assert [[one["op"] for one in document["_ops"]] for document in left if document] == [["b"], []]
    assert [fence["token"] for fence in (left[1] or {})["_fences"]] == ["b"]


async def test_a_tombstone_stays_for_as_long_as_its_last_fence(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    fragment = await make(store, [record(i, tombstone=stale) for i in range(3)])
    await store.fence(fragment, record(0)["_id"], "late")
    old = {"$push": {"_fences": {"token": "late", "time": stale}}}
    collection = store.link.session.collection(layout_of(fragment))
    await collection.update_one({"_id": record(1)["_id"]}, old)
    assert await store.reap(1_000) == 3  # the third record, the old fence, and then what had it
    assert await store.reap(1_000) == 0
    assert [each["_id"] async for each in collection.find()] == [record(0)["_id"]]


async def test_reaping_follows_quickly_where_much_is_due(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    fragment = await make(store, [record(i, tombstone=stale) for i in range(3 * PAGE)])
    assert await store.reap(PAGE + 7) == PAGE + 7
    assert await store.reap(10 * PAGE) == 2 * PAGE - 7
    assert await _size(store, fragment) == 0


async def test_reaping_takes_turns_between_classes(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    many = [record(i, tombstone=stale) for i in range(20)]
    classes = [await make(store, many) for _ in range(3)]
    for _ in classes:
        assert await store.reap(10) == 10
    left = [await _size(store, fragment) for fragment in classes]
    assert left == [10, 10, 10]


async def _size(store: MongoStore, fragment: Fragment) -> int:
    return await store.link.session.collection(layout_of(fragment)).count_documents({})


async def test_a_class_is_scanned_in_ranges_without_gaps(store: MongoStore) -> None:
    fragment = await make(store, [record(i) for i in range(MANY)])
    layout = layout_of(fragment)
    found = []
    async for span in spans(store.link.session, layout):
        before = await looked_at(store)
        found += await _ids(store, layout, span)
        if store.link.session.is_stand_in:
            assert await looked_at(store) - before <= 1_001
    assert found == [record(i)["_id"] for i in range(MANY)]
    assert await store.count(fragment) == MANY


async def _ids(store: MongoStore, layout: Layout, span: Document) -> list[str]:
    collection = store.link.session.collection(layout)
    return [document["_id"] async for document in collection.find(span, sort={"_id": 1})]


async def test_a_sweep_finds_pending_records_in_any_range(store: MongoStore) -> None:
    waiting = (5, 1_500, 1_501, 3_999)
    documents = [record(i, _pending=["e"] if i in waiting else []) for i in range(MANY)]
    fragment = await make(store, documents)
    ids = [documents[i]["_id"] for i in waiting]
    assert await store.sweep(fragment, None, 10) == ids
    assert await store.sweep(fragment, None, 2) == ids[:2]
    assert await store.sweep(fragment, ids[1], 10) == ids[2:]
    assert await store.sweep(fragment, ids[3], 10) == []


async def test_a_page_of_a_listing_is_all_that_is_looked_at(store: MongoStore) -> None:
    fragment = await make(store, [record(i) for i in range(MANY)])
    before = await looked_at(store)
    records = await store.scan(fragment, record(1_999)["_id"], 50)
    assert [one.id for one in records] == [record(2_000 + i)["_id"] for i in range(50)]
    assert await looked_at(store) - before <= 51


async def test_a_page_of_a_search_is_looked_for_in_its_range_of_ids(store: MongoStore) -> None:
    fragment = await make(store, [record(i) for i in range(MANY)])
    below = Compare(Comparison.LT, ("n",), MANY)
    first = await store.find(SearchRequest(fragment, below, (), 50))
    before = await looked_at(store)
    second = await store.find(SearchRequest(fragment, below, (), 50, resume=first.resume))
    found = [one.id for page in (first, second) for one in page.records]
    assert found == [record(i)["_id"] for i in range(100)]
    assert await looked_at(store) - before <= 51
