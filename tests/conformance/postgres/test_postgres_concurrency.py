"""The results of concurrent writes to PostgreSQL, and the order of their changes."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from mediator.stores.port import (
    Fragment,
    Status,
    Write,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from tests.conformance.postgres.records import ADD, get, make_write, outbox, put, write_one


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
async def test_an_operation_sent_concurrently_takes_effect_once(
    store: PostgresStore, subject: Fragment, admin: Any, kind: WriteKind, conditional: bool
) -> None:
    options: dict[str, Any] = {"operators": (ADD,)} if kind is WriteKind.UPDATE else {}
    if kind in (WriteKind.CREATE, WriteKind.REPLACE):
        options = {"values": {"n": 1}}
    if kind is not WriteKind.CREATE:
        versions = (await put(store, subject, "x", n=0)).versions
        options |= {"expect": versions} if conditional else {}
    call = make_write(subject, "x", kind, remember="f", returning=(), **options)
    results = await asyncio.gather(*(write_one(store, call) for _ in range(16)))
    assert Counter(r.status for r in results) == {Status.APPLIED: 1, Status.REPLAYED: 15}
    assert len({r.versions["main"] for r in results}) == 1
    assert [r.values for r in results] == [results[0].values] * 16
    changes = [r for r in await outbox(admin, subject) if r["change"] == f"{call.operation}:main"]
    assert len(changes) == 1


async def test_crossing_batches_keep_the_outbox_in_order(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    ids = [f"{i:02}" for i in range(20)]
    await store.write([make_write(subject, i, WriteKind.CREATE, values={"n": 0}) for i in ids])

    def batch(order: list[str]) -> list[Write]:
        adds = [make_write(subject, i, WriteKind.UPDATE, operators=(ADD,)) for i in order]
        sets = [
            make_write(subject, i, WriteKind.UPDATE, values={"s": i}, groups=("s",)) for i in order
        ]
        return [call for pair in zip(adds, sets, strict=True) for call in pair]

    orders = [ids, ids[::-1], ids[10:] + ids[:10]] * 2
    results = await asyncio.gather(*(store.write(batch(order)) for order in orders))
    assert {r.status for batch_ in results for r in batch_} == {Status.APPLIED}
    assert [await get(store, subject, i) for i in ids] == [{"n": 6, "s": i} for i in ids]
    last: dict[tuple[str, str], int] = {}
    for row in await outbox(admin, subject):
        assert row["version"] > last.get((row["object"], row["group"]), 0)
        last[row["object"], row["group"]] = row["version"]
