"""Records are bounded so that MongoDB accepts all their documents and acknowledgements."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from bson import encode

from mediator.model.operators import Operator, OperatorCall
from mediator.stores.mongo import MongoStore, sizes
from mediator.stores.mongo.layout import layout_of
from mediator.stores.port import Fragment, Status, StoreBusy, Write, WriteKind
from tests.conformance.mongo.outbox.relaying import increment, json_values, relay
from tests.conformance.mongo.records import make_write, write_one

SCALE = 16
"""The tests divide all bounds by this: the stand-in takes seconds for 15 MiB documents."""

MIB = 2**20 // SCALE
MAX_VALUES_BYTES = sizes.MAX_VALUES_BYTES // SCALE
MAX_DOCUMENT_BYTES = sizes.MAX_DOCUMENT_BYTES // SCALE
SERVER_LIMIT_BYTES = sizes.SERVER_LIMIT_BYTES // SCALE

NEARLY_HALF = 8 * MIB - 2**12
"""Twice this is nearly the size limit of MongoDB's documents."""

BOOKKEEPING_BYTES = 2**12
"""Bound of the uncounted bytes of a document in these tests."""


@pytest.fixture(autouse=True)
def _low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bytes_ in (
        ("MAX_VALUES_BYTES", MAX_VALUES_BYTES),
        ("MAX_DOCUMENT_BYTES", MAX_DOCUMENT_BYTES),
        ("SERVER_LIMIT_BYTES", SERVER_LIMIT_BYTES),
    ):
        monkeypatch.setattr(sizes, name, bytes_)


def values_of_size(size: int) -> dict[str, Any]:
    """Return values of `size` bytes in BSON and in JSON."""
    return {"n": 0, "s": "x" * size}


def put(fragment: Fragment, id_: str, size: int, **options: Any) -> Write:
    return make_write(fragment, WriteKind.REPLACE, id_, values=values_of_size(size), **options)


def addition(fragment: Fragment, id_: str, key: str, size: int) -> Write:
    call = OperatorCall("m", Operator.PUT, {key: b"x" * (size // 4 * 3)})  # base64
    return make_write(fragment, WriteKind.UPDATE, id_, groups=("main",), operators=(call,))


async def document_of(store: MongoStore, fragment: Fragment, id_: str) -> dict[str, Any]:
    collection = store.link.session.collection(layout_of(fragment))
    document = await collection.find_one({"_id": id_})
    assert document is not None
    return document


async def check(store: MongoStore, fragment: Fragment, id_: str) -> int:
    """Check that a document is within its limit and no larger than its byte count."""
    document = await document_of(store, fragment, id_)
    size = len(encode(document))
    assert size <= MAX_DOCUMENT_BYTES + BOOKKEEPING_BYTES
    assert size <= document["_bytes"] + BOOKKEEPING_BYTES
    return size


# Refusals


@pytest.mark.parametrize("kind", [WriteKind.CREATE, WriteKind.REPLACE])
async def test_a_record_that_would_be_too_large_is_refused(
    store: MongoStore, fragment: Fragment, id_: str, kind: WriteKind
) -> None:
    large = make_write(fragment, kind, id_, values=values_of_size(MAX_VALUES_BYTES + 4096))
    assert (await write_one(store, large)).status is Status.TOO_LARGE
    assert await json_values(store, fragment, id_) is None
    fitting = make_write(fragment, kind, id_, values=values_of_size(MAX_VALUES_BYTES - 4096))
    assert (await write_one(store, fitting)).status is Status.APPLIED
    assert await relay(store, fragment, id_)
    await check(store, fragment, id_)


async def test_the_json_size_of_a_text_is_bounded(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    """A control character has one byte in BSON, and six in JSON."""
    for size, status in ((MIB, Status.TOO_LARGE), (MIB * 3 // 4, Status.APPLIED)):
        values = {"s": "\x01" * size}
        write = make_write(fragment, WriteKind.CREATE, id_, values=values)
        assert (await write_one(store, write)).status is status


async def test_updates_that_would_make_a_record_too_large_are_refused(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, make_write(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    statuses = []
    for key in "abc":
        statuses.append((await write_one(store, addition(fragment, id_, key, 2 * MIB))).status)
        await relay(store, fragment, id_)
    assert statuses == [Status.APPLIED, Status.APPLIED, Status.TOO_LARGE]
    text = make_write(fragment, WriteKind.UPDATE, id_, values={"s": "x" * 2 * MIB})
    assert (await write_one(store, text)).status is Status.TOO_LARGE
    assert (await write_one(store, increment(fragment, id_))).status is Status.APPLIED
    removal = OperatorCall("m", Operator.REMOVE, "a")
    removing = make_write(fragment, WriteKind.UPDATE, id_, groups=("main",), operators=(removal,))
    assert (await write_one(store, removing)).status is Status.APPLIED
    await relay(store, fragment, id_)
    assert (await write_one(store, text)).status is Status.APPLIED
    await relay(store, fragment, id_)
    await check(store, fragment, id_)


async def test_only_the_oversized_writes_of_a_batch_are_refused(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    sizes = [1024] * 7 + [MAX_VALUES_BYTES + 4096]
    writes = [put(fragment, f"{id_}{n}", size) for n, size in enumerate(sizes)]
    writes += [addition(fragment, f"{id_}0", key, 2 * MIB) for key in "abc"]
    results = await store.write(writes)
    applied, refused = Status.APPLIED, Status.TOO_LARGE
    assert [result.status for result in results] == [
        *[applied] * 7,
        refused,
        applied,
        applied,
        refused,
    ]
    await relay(store, fragment, *(f"{id_}{n}" for n in range(7)))
    await check(store, fragment, f"{id_}0")


async def test_folded_updates_are_counted_one_by_one(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, put(fragment, id_, 3 * MIB))
    await relay(store, fragment, id_)
    results = await store.write([addition(fragment, id_, key, MIB // 2) for key in "abc"])
    assert {result.status for result in results} == {Status.APPLIED}
    await check(store, fragment, id_)


async def test_remembered_results_do_not_take_space_for_ever(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    """Each result repeats the whole record."""
    await write_one(store, put(fragment, id_, 4 * MIB))
    await relay(store, fragment, id_)
    writes = [
        increment(fragment, id_, remember="same", returning=(), operation=f"{id_}{n}")
        for n in range(2)
    ]
    for write in writes:
        assert (await write_one(store, write)).status is Status.APPLIED
        await check(store, fragment, id_)
        await relay(store, fragment, id_)
    for n, write in enumerate(writes, 1):
        result = await write_one(store, write)
        assert (result.status, result.values["n"]) == (Status.REPLAYED, n)


# The protocol


async def is_full(store: MongoStore, write: Write) -> bool:
    """Try a write; return whether the record is full until its changes are relayed."""
    try:
        result = await write_one(store, write)
    except StoreBusy:
        return True
    assert result.status in (Status.APPLIED, Status.TOO_LARGE)
    return False


async def test_a_record_of_maximum_size_can_be_replaced_after_its_changes_are_relayed(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    writes = [put(fragment, id_, MAX_VALUES_BYTES - 4096) for _ in range(4)]
    for write in writes[:2]:
        assert not await is_full(store, write)
    for write in writes[2:]:
        assert await is_full(store, write)
        await relay(store, fragment, id_)
        assert not await is_full(store, write)
        assert await check(store, fragment, id_) > MAX_DOCUMENT_BYTES - MIB


def draw_write(rng: random.Random, fragment: Fragment, id_: str) -> Write:
    size = rng.choice(
        [200, MIB, 2 * MIB, 3 * MIB, MAX_VALUES_BYTES - 4096, MAX_VALUES_BYTES + 4096]
    )
    kind = rng.choice(["put", "add", "inc", "delete"])
    if kind == "put":
        return put(fragment, id_, size)
    if kind == "add":
        return addition(fragment, id_, rng.choice("ab"), size)
    if kind == "inc":
        return increment(fragment, id_, remember=rng.choice(["r", None]), returning=())
    return make_write(fragment, WriteKind.DELETE, id_)


@pytest.mark.parametrize("seed", range(2))
async def test_all_accepted_writes_can_be_acknowledged(
    store: MongoStore, fragment: Fragment, id_: str, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(12):
        write = draw_write(rng, fragment, id_)
        if await json_values(store, fragment, id_) is None:
            write = put(fragment, id_, 200)
        full = await is_full(store, write)
        await check(store, fragment, id_)
        if full or rng.random() < 0.3:
            await relay(store, fragment, id_)
            await check(store, fragment, id_)
        assert not full or not await is_full(store, write), "the relay has freed space"


# Records larger than any write allows, such as copies from another system


async def insert_large(store: MongoStore, fragment: Fragment, id_: str, size: int) -> None:
    """Insert a record that is larger than writes allow and has no byte count."""
    layout = layout_of(fragment)
    write = put(fragment, id_, size)
    versions = dict.fromkeys(write.groups, 1)
    document = {
        **layout.key(id_),
        "values": layout.encode_all(write.values),
        "versions": layout.encode_versions(versions),
        "creation_version": 1,
        "_pending": [layout.effects.text(write, versions, 1)],
    }
    await store.link.session.collection(layout).insert_one(document)


@pytest.mark.parametrize("size", [7 * MIB, NEARLY_HALF])
async def test_a_relay_gets_past_a_record_that_is_too_large(
    store: MongoStore, fragment: Fragment, id_: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    await insert_large(store, fragment, id_, size)
    [change] = [c for c in await relay(store, fragment, id_) if c.group == "main"]
    assert change.kind == "create"
    document = await document_of(store, fragment, id_)
    assert not document["_pending"]
    assert ("_base" in document) == (size < NEARLY_HALF)
    assert ("is too large to keep" in caplog.text) == (size == NEARLY_HALF)
    assert (await write_one(store, increment(fragment, id_))).status is Status.TOO_LARGE
    assert (await write_one(store, put(fragment, id_, 200))).status is Status.APPLIED
    assert await relay(store, fragment, id_)
    await check(store, fragment, id_)


async def test_a_record_without_a_byte_count_is_measured(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await insert_large(store, fragment, id_, 2 * MIB)
    assert (await write_one(store, increment(fragment, id_))).status is Status.APPLIED
    assert await check(store, fragment, id_) >= 4 * MIB


async def test_erased_values_are_not_kept_for_the_next_change(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await write_one(store, put(fragment, id_, 2 * MIB))
    await relay(store, fragment, id_)
    fields = {name: field for name, field in fragment.fields.items() if name != "s"}
    groups = {**fragment.groups, "side": ()}
    reduced = replace(fragment, fields=fields, groups=groups)
    after: str | None = ""
    while after is not None:
        after = await store.erase(reduced, ["s"], after or None, 100)
    await write_one(store, increment(reduced, id_))
    await relay(store, reduced, id_)
    document = await document_of(store, fragment, id_)
    assert document["_base"] == '{"n":1}'
