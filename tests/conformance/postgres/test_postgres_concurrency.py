"""What concurrent writes of PostgreSQL come to, and in which order they are logged."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    Write,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import ADD, get, one, outbox, put, write


async def test_compare_and_set_by_32_tasks(store: PostgresStore, subject: Fragment) -> None:
    seen = (await put(store, subject, "x", n=0)).versions["main"]

    async def increment() -> None:
        version, value = seen, 0
        while True:
            call = write(
                subject, "x", WriteKind.UPDATE, values={"n": value + 1}, expect={"main": version}
            )
            result = await one(store, call)
            if result.status is Status.APPLIED:
                return
            assert result.status is Status.CONFLICT
            (record,) = await store.read([Read(subject, "x")])
            assert record is not None
            version, value = record.versions["main"], int(str(record.values["n"]))

    await asyncio.gather(*(increment() for _ in range(32)))
    assert await get(store, subject, "x") == {"n": 32}


async def test_counters_with_their_changes(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    await put(store, subject, "x", n=0)
    calls = [write(subject, "x", WriteKind.UPDATE, operators=(ADD,)) for _ in range(60)]
    alone, together = calls[:30], [calls[30:45], calls[45:]]
    await asyncio.gather(
        *(store.write([call]) for call in alone), *(store.write(batch) for batch in together)
    )
    assert await get(store, subject, "x") == {"n": 60}
    changes = [row for row in await outbox(admin, subject) if row["kind"] == "update"]
    assert sorted(row["change"] for row in changes) == sorted(f"{c.operation}:main" for c in calls)
    by_version = sorted(changes, key=lambda row: row["version"])
    steps = [(json.loads(r["before"])["n"], json.loads(r["after"])["n"]) for r in by_version]
    assert steps == [(n, n + 1) for n in range(60)]
    assert changes == by_version
    assert len({row["version"] for row in changes}) == 60


async def test_one_of_many_creations_wins(store: PostgresStore, subject: Fragment) -> None:
    for id_ in ("new", "deleted"):
        if id_ == "deleted":
            await put(store, subject, id_, n=0)
            await one(store, write(subject, id_, WriteKind.DELETE))
        calls = [write(subject, id_, WriteKind.CREATE, values={"n": n}) for n in range(16)]
        results = await asyncio.gather(*(one(store, call) for call in calls))
        summary = Counter(result.status for result in results)
        assert summary == {Status.APPLIED: 1, Status.EXISTS: 15}
        winner = next(i for i, r in enumerate(results) if r.status is Status.APPLIED)
        assert await get(store, subject, id_) == {"n": winner}


async def test_one_of_many_replacements_creates(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    results = await asyncio.gather(*(put(store, subject, "x", n=n) for n in range(16)))
    assert sum(result.created for result in results) == 1
    assert len({result.creation_version for result in results}) == 1
    changes = sorted(
        (row for row in await outbox(admin, subject) if row["group"] == "main"),
        key=lambda row: row["version"],
    )
    assert changes[0]["before"] is None
    assert [json.loads(r["before"]) for r in changes[1:]] == [
        json.loads(r["after"]) for r in changes[:-1]
    ]


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("kind", WriteKind)
async def test_one_operation_by_many_takes_effect_once(
    store: PostgresStore, subject: Fragment, admin: Any, kind: WriteKind, conditional: bool
) -> None:
    what: dict[str, Any] = {"operators": (ADD,)} if kind is WriteKind.UPDATE else {}
    if kind in (WriteKind.CREATE, WriteKind.REPLACE):
        what = {"values": {"n": 1}}
    if kind is not WriteKind.CREATE:
        versions = (await put(store, subject, "x", n=0)).versions
        what |= {"expect": versions} if conditional else {}
    call = write(subject, "x", kind, remember="f", returning=(), **what)
    results = await asyncio.gather(*(one(store, call) for _ in range(16)))
    assert Counter(r.status for r in results) == {Status.APPLIED: 1, Status.REPLAYED: 15}
    assert len({r.versions["main"] for r in results}) == 1
    assert [r.values for r in results] == [results[0].values] * 16
    mine = [r for r in await outbox(admin, subject) if r["change"] == f"{call.operation}:main"]
    assert len(mine) == 1


async def test_crossing_batches_keep_the_outbox_in_order(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    ids = [f"{i:02}" for i in range(20)]
    await store.write([write(subject, i, WriteKind.CREATE, values={"n": 0}) for i in ids])

    def batch(order: list[str]) -> list[Write]:
        adds = [write(subject, i, WriteKind.UPDATE, operators=(ADD,)) for i in order]
        sets = [write(subject, i, WriteKind.UPDATE, values={"s": i}, groups=("s",)) for i in order]
        return [call for pair in zip(adds, sets, strict=True) for call in pair]

    orders = [ids, ids[::-1], ids[10:] + ids[:10]] * 2
    results = await asyncio.gather(*(store.write(batch(order)) for order in orders))
    assert {r.status for batch_ in results for r in batch_} == {Status.APPLIED}
    assert [await get(store, subject, i) for i in ids] == [{"n": 6, "s": i} for i in ids]
    last: dict[tuple[str, str], int] = {}
    for row in await outbox(admin, subject):
        assert row["version"] > last.get((row["object"], row["group"]), 0)
        last[row["object"], row["group"]] = row["version"]
