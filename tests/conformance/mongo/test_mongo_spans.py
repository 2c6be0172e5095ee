"""The number of documents that MongoDB examines, by its own count.

For background work it must not depend on the size of the class.
"""

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
from tests.conformance.real_stores import isolated_mongo

NAMESPACE = "mongo_spans"
RECORD_COUNT = 4_000
FIELDS = {"n": Field("n", FieldType.INTEGER)}


@pytest.fixture
async def store(mongodb_config: SystemConfig) -> AsyncIterator[MongoStore]:
    config = replace(mongodb_config, namespace=NAMESPACE, deadline_s=30.0)
    async with isolated_mongo(config) as store:
        yield store


async def create_class(store: MongoStore, documents: list[Document]) -> Fragment:
    """Create a class, and insert its documents directly, which is faster than the store."""
    fragment = Fragment("mongo", "d", f"c{uuid.uuid4().hex[:12]}", FIELDS, {"main": ("n",)})
    await store.prepare(fragment)
    await store.link.session.collection(layout_of(fragment)).insert_many(documents)
    return fragment


def record(number: int, **members: Any) -> Document:
    version = Int64(number + 1)
    return {
        "_id": f"o{number:06}",
        "creation_version": version,
        "versions": {"main": version},
        "values": {"n": Int64(number)},
        **members,
    }


async def scanned_count(store: MongoStore) -> int:
    """Return how many documents the server has scanned since it started."""
    status = await store.link.session.client.admin.command("serverStatus")
    return int(status["metrics"]["queryExecutor"]["scannedObjects"])


@pytest.mark.parametrize("number", [PAGE, RECORD_COUNT])
async def test_reaping_examines_one_page_of_tombstones_that_are_not_due(
    store: MongoStore, number: int
) -> None:
    await create_class(store, [record(i) for i in range(number)])
    before = await scanned_count(store)
    assert await store.reap(1_000) == 0
    assert await scanned_count(store) - before <= 4 * PAGE


async def test_reaping_resumes_where_it_stopped(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    young = Int64(SystemClock().now() * 1_000_000)
    first = {"_ops": [{"op": "a", "time": stale}, {"op": "b", "time": young}]}
    last = {
        "_ops": [{"op": "a", "time": stale}],
        "_fences": [{"token": "a", "time": stale}, {"token": "b", "time": young}],
    }
    special: dict[int, Document] = {
        0: first,
        RECORD_COUNT - 3: {"tombstone": stale},
        RECORD_COUNT - 1: last,
    }
    fragment = await create_class(
        store, [record(i, **special.get(i, {})) for i in range(RECORD_COUNT)]
    )
    rounds = [await store.reap(1_000) for _ in range(RECORD_COUNT // PAGE + 1)]
    assert (sum(rounds), rounds[0]) == (3, 1)
    collection = store.link.session.collection(layout_of(fragment))
    assert await collection.count_documents({}) == RECORD_COUNT - 1
    remaining = [
        await collection.find_one({"_id": record(i)["_id"]}) for i in (0, RECORD_COUNT - 1)
    ]
    assert [[entry["op"] for entry in document["_ops"]] for document in remaining if document] == [
        ["b"],
        [],
    ]
    assert [fence["token"] for fence in (remaining[1] or {})["_fences"]] == ["b"]


async def test_a_tombstone_stays_for_as_long_as_its_last_fence(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    fragment = await create_class(store, [record(i, tombstone=stale) for i in range(3)])
    await store.fence(fragment, record(0)["_id"], "late")
    old = {"$push": {"_fences": {"token": "late", "time": stale}}}
    collection = store.link.session.collection(layout_of(fragment))
    await collection.update_one({"_id": record(1)["_id"]}, old)
    assert await store.reap(1_000) == 3  # the third record, the old fence, then its record
    assert await store.reap(1_000) == 0
    assert [document["_id"] async for document in collection.find()] == [record(0)["_id"]]


async def test_reaping_removes_all_that_is_due(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    fragment = await create_class(store, [record(i, tombstone=stale) for i in range(3 * PAGE)])
    assert await store.reap(PAGE + 7) == PAGE + 7
    assert await store.reap(10 * PAGE) == 2 * PAGE - 7
    assert await _size(store, fragment) == 0


async def test_reaping_takes_turns_between_classes(store: MongoStore) -> None:
    stale = Int64((SystemClock().now() - RETENTION_S - 60) * 1_000_000)
    many = [record(i, tombstone=stale) for i in range(20)]
    classes = [await create_class(store, many) for _ in range(3)]
    for _ in classes:
        assert await store.reap(10) == 10
    remaining = [await _size(store, fragment) for fragment in classes]
    assert remaining == [10, 10, 10]


async def _size(store: MongoStore, fragment: Fragment) -> int:
    return await store.link.session.collection(layout_of(fragment)).count_documents({})


async def test_a_class_is_scanned_in_ranges_without_gaps(store: MongoStore) -> None:
    fragment = await create_class(store, [record(i) for i in range(RECORD_COUNT)])
    layout = layout_of(fragment)
    ids = []
    async for span in spans(store.link.session, layout):
        before = await scanned_count(store)
        ids += await _ids(store, layout, span)
        if store.link.session.is_stand_in:
            assert await scanned_count(store) - before <= 1_001
    assert ids == [record(i)["_id"] for i in range(RECORD_COUNT)]
    assert await store.count(fragment) == RECORD_COUNT


async def _ids(store: MongoStore, layout: Layout, span: Document) -> list[str]:
    collection = store.link.session.collection(layout)
    return [document["_id"] async for document in collection.find(span, sort={"_id": 1})]


async def test_a_sweep_finds_pending_records_in_any_range(store: MongoStore) -> None:
    pending = (5, 1_500, 1_501, 3_999)
    documents = [record(i, _pending=["e"] if i in pending else []) for i in range(RECORD_COUNT)]
    fragment = await create_class(store, documents)
    ids = [documents[i]["_id"] for i in pending]
    assert await store.sweep(fragment, None, 10) == ids
    assert await store.sweep(fragment, None, 2) == ids[:2]
    assert await store.sweep(fragment, ids[1], 10) == ids[2:]
    assert await store.sweep(fragment, ids[3], 10) == []


async def test_listing_a_page_scans_only_that_page(store: MongoStore) -> None:
    fragment = await create_class(store, [record(i) for i in range(RECORD_COUNT)])
    before = await scanned_count(store)
    records = await store.scan(fragment, record(1_999)["_id"], 50)
    assert [row.id for row in records] == [record(2_000 + i)["_id"] for i in range(50)]
    assert await scanned_count(store) - before <= 51


async def test_a_page_of_a_search_scans_only_its_range_of_ids(store: MongoStore) -> None:
    fragment = await create_class(store, [record(i) for i in range(RECORD_COUNT)])
    below = Compare(Comparison.LT, ("n",), RECORD_COUNT)
    first = await store.find(SearchRequest(fragment, below, (), 50))
    before = await scanned_count(store)
    second = await store.find(SearchRequest(fragment, below, (), 50, resume=first.resume))
    ids = [row.id for page in (first, second) for row in page.records]
    assert ids == [record(i)["_id"] for i in range(100)]
    assert await scanned_count(store) - before <= 51
