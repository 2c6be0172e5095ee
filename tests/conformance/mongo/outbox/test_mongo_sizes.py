"""Records are bounded, so that MongoDB takes each of their documents and acknowledgements."""

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
from tests.conformance.mongo.outbox.relaying import increment, json_values, relayed
from tests.conformance.mongo.records import one, writing

SCALE = 16
"""The stand-in takes seconds for documents of 15 MiB: bounds are this much lower here."""

MIB = 2**20 // SCALE
MAX_VALUES_BYTES = sizes.MAX_VALUES_BYTES // SCALE
MAX_DOCUMENT_BYTES = sizes.MAX_DOCUMENT_BYTES // SCALE
SERVER_LIMIT_BYTES = sizes.SERVER_LIMIT_BYTES // SCALE

NEARLY = 8 * MIB - 2**12
"""Twice that is what MongoDB takes, and little more."""

BOOKKEEPING = 2**12
"""Bytes of a document of these tests that are not counted."""


@pytest.fixture(autouse=True)
def _low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bytes_ in (
        ("MAX_VALUES_BYTES", MAX_VALUES_BYTES),
        ("MAX_DOCUMENT_BYTES", MAX_DOCUMENT_BYTES),
        ("SERVER_LIMIT_BYTES", SERVER_LIMIT_BYTES),
    ):
        monkeypatch.setattr(sizes, name, bytes_)


def bounded(size: int) -> dict[str, Any]:
    """Return values of so many bytes, as BSON and as JSON."""
    return {"n": 0, "s": "x" * size}


def put(fragment: Fragment, id_: str, size: int, **what: Any) -> Write:
    return writing(fragment, WriteKind.REPLACE, id_, values=bounded(size), **what)


def adding(fragment: Fragment, id_: str, key: str, size: int) -> Write:
    call = OperatorCall("m", Operator.PUT, {key: b"x" * (size // 4 * 3)})  # base64
    return writing(fragment, WriteKind.UPDATE, id_, groups=("main",), operators=(call,))


async def document_of(store: MongoStore, fragment: Fragment, id_: str) -> dict[str, Any]:
    collection = store.link.session.collection(layout_of(fragment))
    document = await collection.find_one({"_id": id_})
    assert document is not None
    return document


async def check(store: MongoStore, fragment: Fragment, id_: str) -> int:
    """See that a document is small enough, and has no more bytes than were counted."""
    document = await document_of(store, fragment, id_)
    size = len(encode(document))
    assert size <= MAX_DOCUMENT_BYTES + BOOKKEEPING
    assert size <= document["_bytes"] + BOOKKEEPING
    return size


# Refusals


@pytest.mark.parametrize("kind", [WriteKind.CREATE, WriteKind.REPLACE])
async def test_a_record_that_would_be_too_large_is_refused(
    store: MongoStore, fragment: Fragment, id_: str, kind: WriteKind
) -> None:
    large = writing(fragment, kind, id_, values=bounded(MAX_VALUES_BYTES + 4096))
    assert (await one(store, large)).status is Status.TOO_LARGE
    assert await json_values(store, fragment, id_) is None
    fitting = writing(fragment, kind, id_, values=bounded(MAX_VALUES_BYTES - 4096))
    assert (await one(store, fitting)).status is Status.APPLIED
    assert await relayed(store, fragment, id_)
    await check(store, fragment, id_)


async def test_a_text_is_measured_as_json_too(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    """A control character has one byte in BSON, and six in JSON."""
    for size, status in ((MIB, Status.TOO_LARGE), (MIB * 3 // 4, Status.APPLIED)):
        values = {"s": "\x01" * size}
        write = writing(fragment, WriteKind.CREATE, id_, values=values)
        assert (await one(store, write)).status is status


async def test_updates_make_a_record_no_larger_than_it_may_be(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await one(store, writing(fragment, WriteKind.CREATE, id_, values={"n": 0}))
    statuses = []
    for key in "abc":
        statuses.append((await one(store, adding(fragment, id_, key, 2 * MIB))).status)
        await relayed(store, fragment, id_)
    assert statuses == [Status.APPLIED, Status.APPLIED, Status.TOO_LARGE]
    text = writing(fragment, WriteKind.UPDATE, id_, values={"s": "x" * 2 * MIB})
    assert (await one(store, text)).status is Status.TOO_LARGE
    assert (await one(store, increment(fragment, id_))).status is Status.APPLIED
    removal = OperatorCall("m", Operator.REMOVE, "a")
    less = writing(fragment, WriteKind.UPDATE, id_, groups=("main",), operators=(removal,))
    assert (await one(store, less)).status is Status.APPLIED
    await relayed(store, fragment, id_)
    assert (await one(store, text)).status is Status.APPLIED
    await relayed(store, fragment, id_)
    await check(store, fragment, id_)


async def test_of_many_writes_only_those_that_are_too_large_are_refused(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    sizes = [1024] * 7 + [MAX_VALUES_BYTES + 4096]
    writes = [put(fragment, f"{id_}{n}", size) for n, size in enumerate(sizes)]
    writes += [adding(fragment, f"{id_}0", key, 2 * MIB) for key in "abc"]
    results = await store.write(writes)
    applied, refused = Status.APPLIED, Status.TOO_LARGE
    assert [each.status for each in results] == [*[applied] * 7, refused, applied, applied, refused]
    await relayed(store, fragment, *(f"{id_}{n}" for n in range(7)))
    await check(store, fragment, f"{id_}0")


async def test_updates_that_are_folded_count_one_by_one(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await one(store, put(fragment, id_, 3 * MIB))
    await relayed(store, fragment, id_)
    results = await store.write([adding(fragment, id_, key, MIB // 2) for key in "abc"])
    assert {each.status for each in results} == {Status.APPLIED}
    await check(store, fragment, id_)


async def test_what_is_remembered_of_writes_takes_no_room_for_ever(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    """Every result has the whole record once more."""
    await one(store, put(fragment, id_, 4 * MIB))
    await relayed(store, fragment, id_)
    writes = [
        increment(fragment, id_, remember="same", returning=(), operation=f"{id_}{n}")
        for n in range(2)
    ]
    for write in writes:
        assert (await one(store, write)).status is Status.APPLIED
        await check(store, fragment, id_)
        await relayed(store, fragment, id_)
    for n, write in enumerate(writes, 1):
        result = await one(store, write)
        assert (result.status, result.values["n"]) == (Status.REPLAYED, n)


# The protocol


async def is_full(store: MongoStore, write: Write) -> bool:
    """Write; return whether the record has no room until its changes are relayed."""
    try:
        result = await one(store, write)
    except StoreBusy:
        return True
    assert result.status in (Status.APPLIED, Status.TOO_LARGE)
    return False


async def test_a_record_of_the_largest_size_is_replaced_once_its_changes_are_relayed(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    writes = [put(fragment, id_, MAX_VALUES_BYTES - 4096) for _ in range(4)]
    for write in writes[:2]:
        assert not await is_full(store, write)
    for write in writes[2:]:
        assert await is_full(store, write)
        await relayed(store, fragment, id_)
        assert not await is_full(store, write)
        assert await check(store, fragment, id_) > MAX_DOCUMENT_BYTES - MIB


def drawn(chance: random.Random, fragment: Fragment, id_: str) -> Write:
    size = chance.choice(
        [200, MIB, 2 * MIB, 3 * MIB, MAX_VALUES_BYTES - 4096, MAX_VALUES_BYTES + 4096]
    )
    kind = chance.choice(["put", "add", "inc", "delete"])
    if kind == "put":
        return put(fragment, id_, size)
    if kind == "add":
        return adding(fragment, id_, chance.choice("ab"), size)
    if kind == "inc":
        return increment(fragment, id_, remember=chance.choice(["r", None]), returning=())
    return writing(fragment, WriteKind.DELETE, id_)


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_is_written_can_be_acknowledged(
    store: MongoStore, fragment: Fragment, id_: str, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(12):
        write = drawn(chance, fragment, id_)
        if await json_values(store, fragment, id_) is None:
            write = put(fragment, id_, 200)
        full = await is_full(store, write)
        await check(store, fragment, id_)
        if full or chance.random() < 0.3:
            await relayed(store, fragment, id_)
            await check(store, fragment, id_)
        assert not full or not await is_full(store, write), "there is room by now"


# Records that no write has made so large, as copies of those of another system


async def grow(store: MongoStore, fragment: Fragment, id_: str, size: int) -> None:
    """Make a record larger than writes may make it, which has counted no bytes."""
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


@pytest.mark.parametrize("size", [7 * MIB, NEARLY])
async def test_a_relay_gets_past_a_record_that_is_too_large(
    store: MongoStore, fragment: Fragment, id_: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    await grow(store, fragment, id_, size)
    [change] = [each for each in await relayed(store, fragment, id_) if each.group == "main"]
    assert change.kind == "create"
    document = await document_of(store, fragment, id_)
    assert not document["_pending"]
    assert ("_base" in document) == (size < NEARLY)
    assert ("is too large to keep" in caplog.text) == (size == NEARLY)
    assert (await one(store, increment(fragment, id_))).status is Status.TOO_LARGE
    assert (await one(store, put(fragment, id_, 200))).status is Status.APPLIED
    assert await relayed(store, fragment, id_)
    await check(store, fragment, id_)


async def test_a_record_that_has_counted_nothing_is_measured(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await grow(store, fragment, id_, 2 * MIB)
    assert (await one(store, increment(fragment, id_))).status is Status.APPLIED
    assert await check(store, fragment, id_) >= 4 * MIB


async def test_what_was_erased_is_not_kept_for_the_next_change(
    store: MongoStore, fragment: Fragment, id_: str
) -> None:
    await one(store, put(fragment, id_, 2 * MIB))
    await relayed(store, fragment, id_)
    fields = {name: field for name, field in fragment.fields.items() if name != "s"}
    groups = {**fragment.groups, "side": ()}
    without = replace(fragment, fields=fields, groups=groups)
    after: str | None = ""
    while after is not None:
        after = await store.erase(without, ["s"], after or None, 100)
    await one(store, increment(without, id_))
    await relayed(store, without, id_)
    document = await document_of(store, fragment, id_)
    assert document["_base"] == '{"n":1}'
