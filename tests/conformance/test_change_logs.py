"""Change logs of real stores: complete, in order, with whole images, whatever commits when."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from mediator.model.change import Change
from mediator.model.operators import Operator, OperatorCall
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.kinds import make_store
from mediator.stores.port import (
    ChangeLog,
    Fragment,
    LogEntry,
    LogPage,
    Read,
    Status,
    Store,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)

FIELDS = {
    "n": Field("n", FieldType.INTEGER),
    "text": Field("text", FieldType.STRING, index=True),
    "price": Field("price", FieldType.DECIMAL),
    "at": Field("at", FieldType.TIMESTAMP),
    "raw": Field("raw", FieldType.BINARY),
    "ratio": Field("ratio", FieldType.FLOAT),
    "doc": Field("doc", FieldType.DOCUMENT),
    "tags": Field("tags", FieldType.SET, items=FieldType.STRING),
    "steps": Field("steps", FieldType.LIST, items=FieldType.DECIMAL),
    "map": Field("map", FieldType.MAP, items=FieldType.INTEGER),
    "hits": Field("hits", FieldType.INTEGER),
}
GROUPS = {"main": tuple(name for name in FIELDS if name != "hits"), "hits": ("hits",)}
VALUES: dict[str, Any] = {
    "n": 2**62,
    "text": "ü\U0001f600",
    "price": Decimal("1.50"),
    "at": datetime(2024, 2, 29, 1, 2, 3, 4, UTC),
    "raw": b"\x00\xff",
    "ratio": 1e300,
    "doc": {"a": [1, {"b": None}], "c": []},
    "tags": ["x", "y"],
    "steps": [Decimal("2.0"), Decimal(-1)],
    "map": {"k": 1},
}
DOCUMENT: dict[str, Any] = {
    "n": 2**62,
    "text": "ü\U0001f600",
    "price": "1.5",
    "at": "2024-02-29T01:02:03.000004Z",
    "raw": "AP8=",
    "ratio": 1e300,
    "doc": {"a": [1, {"b": None}], "c": []},
    "tags": ["x", "y"],
    "steps": ["2", "-1"],
    "map": {"k": 1},
}


class Harness:
    """A store with one class."""

    def __init__(self, store: Any, database: str) -> None:
        self.store: Any = store
        system = store.config.name
        self.fragment = Fragment(system, database, "c", FIELDS, GROUPS)

    def fragment_of(self, database: str, class_name: str) -> Fragment | None:
        own = (self.fragment.database, self.fragment.class_name)
        return self.fragment if (database, class_name) == own else None

    async def write(self, kind: WriteKind, id_: str = "x", **members: Any) -> str:
        operation = uuid.uuid4().hex
        groups = members.pop("groups", tuple(GROUPS))
        call = Write(self.fragment, id_, kind, operation, groups, **members)
        [result] = await self.store.write([call])
        assert result.status is Status.APPLIED
        return operation

    async def logged(self, limit: int = 1000) -> list[LogEntry]:
        """Read all logs, page by page."""
        entries: list[LogEntry] = []
        for log in self.store.logs():
            after = None
            while page := await self.page(log, after, limit):
                after = page[-1].position
                entries += page
        return entries

    async def page(self, log: str, after: str | None, limit: int) -> list[LogEntry]:
        page: LogPage = await self.store.changes(log, after, limit, self.fragment_of)
        return [*page.entries]

    async def changes(self, limit: int = 1000) -> list[Change]:
        return [entry.change for entry in await self.logged(limit) if entry.change is not None]


@pytest.fixture(params=["redis", "postgresql"])
async def harness(
    request: pytest.FixtureRequest, redis_config: SystemConfig, postgresql_config: SystemConfig
) -> AsyncIterator[Harness]:
    config = {"redis": redis_config, "postgresql": postgresql_config}[request.param]
    namespace = f"log{uuid.uuid4().hex[:10]}"
    store: Store = make_store(replace(config, namespace=namespace, deadline_s=30.0))
    await store.open()
    harness = Harness(store, f"d{namespace}")
    await store.prepare(harness.fragment)
    yield harness
    await store.drop(harness.fragment)
    await _remove(store.config, namespace)
    await store.close()


async def _remove(config: SystemConfig, namespace: str) -> None:
    if config.kind != "postgresql":
        return
    connection = await asyncpg.connect(config.url)
    await connection.execute(f"DROP SCHEMA {namespace} CASCADE")
    await connection.close()


async def test_stores_keep_logs(harness: Harness) -> None:
    assert isinstance(harness.store, ChangeLog)


async def test_images_are_whole(harness: Harness) -> None:
    await harness.write(WriteKind.CREATE, values=VALUES)
    await harness.write(WriteKind.UPDATE, values={"tags": ["z"], "text": None}, groups=("main",))
    push = OperatorCall("steps", Operator.PUSH, Decimal("7.5"))
    await harness.write(WriteKind.UPDATE, operators=(push,), unset=("map",), groups=("main",))
    await harness.write(WriteKind.REPLACE, values={"tags": [], "hits": 1})
    await harness.write(WriteKind.DELETE)
    changes = [c for c in await harness.changes() if c.group == "main"]
    create, update, pushed, replace_, delete = changes
    assert (create.before, create.after) == (None, DOCUMENT)
    assert update.before == {"tags": ["x", "y"], "text": DOCUMENT["text"]}
    assert update.after == {"tags": ["z"], "text": None}
    assert pushed.before == {"steps": ["2", "-1"], "map": {"k": 1}}
    assert pushed.after == {"steps": ["2", "-1", "7.5"]}
    rest = {**DOCUMENT, "tags": ["z"], "text": None, "steps": ["2", "-1", "7.5"]}
    del rest["map"]
    assert replace_.before == rest
    assert replace_.after == {"tags": []}
    assert (delete.before, delete.after) == ({"tags": []}, None)
    assert [c.kind for c in changes] == ["create", "update", "update", "replace", "delete"]


async def test_a_replace_records_whether_the_object_existed(harness: Harness) -> None:
    await harness.write(WriteKind.REPLACE, "fresh", values={"n": 1})
    await harness.write(WriteKind.REPLACE, "fresh", values={"n": 2})
    before = {(c.group, c.version): c.before for c in await harness.changes()}
    ordered = [before[key] for key in sorted(before)]
    assert ordered == [None, {}, None, {"n": 1}]


async def test_each_group_has_a_change_of_its_own(harness: Harness) -> None:
    operation = await harness.write(WriteKind.CREATE, values={"n": 1, "hits": 2})
    changes = {c.group: c for c in await harness.changes()}
    assert {c.id for c in changes.values()} == {f"{operation}:main", f"{operation}:hits"}
    assert changes["hits"].after == {"hits": 2}
    record = await _record(harness, "x")
    assert {group: c.version for group, c in changes.items()} == dict(record.versions)
    assert {c.database for c in changes.values()} == {harness.fragment.database}


async def _record(harness: Harness, id_: str) -> Any:
    [record] = await harness.store.read([Read(harness.fragment, id_)])
    return record


async def test_positions_are_text_in_their_order(harness: Harness) -> None:
    ids = [f"o{n}" for n in range(40)]
    await asyncio.gather(*(harness.write(WriteKind.CREATE, i, values={"n": 0}) for i in ids))
    whole = await harness.logged()
    assert await harness.logged(limit=7) == whole
    for log in harness.store.logs():
        positions = [entry.position for entry in await harness.page(log, None, 1000)]
        assert positions == sorted(set(positions))
        assert len({len(p) for p in positions}) <= 1
        oldest = await harness.store.oldest(log)
        assert oldest == (positions[0] if positions else None)


async def test_a_page_of_large_entries_ends_before_its_limit(harness: Harness) -> None:
    """A relay has such a page in memory, with those of other logs."""
    for _ in range(14):  # each with the image before, of one megabyte as well
        await harness.write(WriteKind.REPLACE, values={"doc": {"a": "x" * 2**20}})
    sizes, is_last, after = [], False, None
    [log] = [log for log in harness.store.logs() if await harness.page(log, None, 1)]
    while not is_last:
        page = await harness.store.changes(log, after, 1_000, harness.fragment_of)
        sizes.append(sum(entry.size for entry in page.entries))
        after, is_last = page.entries[-1].position, page.is_last
    assert len(sizes) > 1
    assert max(sizes) < 2**24 + 2**22 + 2**21
    versions = [change.version for change in await harness.changes() if change.group == "main"]
    assert len(versions) == 14


async def test_changes_of_a_class_that_is_gone_keep_their_positions(harness: Harness) -> None:
    await harness.write(WriteKind.CREATE, values={"n": 0}, groups=tuple(GROUPS))
    for log in harness.store.logs():
        page = await harness.store.changes(log, None, 10, lambda *_: None)
        assert all(entry.change is None for entry in page.entries)
    assert await harness.changes()


async def test_trimming_keeps_recent_and_later_entries(harness: Harness) -> None:
    for n in range(6):
        await harness.write(WriteKind.CREATE, f"{n}", values={"n": n})
    for log in harness.store.logs():
        entries = await harness.page(log, None, 100)
        if len(entries) < 2:
            continue
        middle = entries[len(entries) // 2 - 1].position
        assert await harness.store.trim(log, middle, 3600.0) == 0
        assert await harness.store.trim(log, middle, -5.0) == len(entries) // 2
        rest = await harness.page(log, None, 100)
        assert rest == entries[len(entries) // 2 :]
        assert await harness.store.oldest(log) == rest[0].position


async def test_transactions_that_commit_out_of_order_are_returned_in_order(
    postgresql_config: SystemConfig,
) -> None:
    """A row with a lower number that is still to be committed holds back those after it."""
    namespace = f"log{uuid.uuid4().hex[:10]}"
    store: Any = make_store(replace(postgresql_config, namespace=namespace, deadline_s=30.0))
    await store.open()
    harness = Harness(store, f"d{namespace}")
    await store.prepare(harness.fragment)
    slow = await asyncpg.connect(postgresql_config.url)
    try:
        await slow.execute("BEGIN")
        await slow.fetch("SELECT pg_current_xact_id()")
        await slow.execute(
            f'INSERT INTO {namespace}._outbox (change, database, class, object, "group",'
            " version, kind, at) VALUES ('slow:main', $1, 'c', 'slow', 'main', 1, 'update', now())",
            harness.fragment.database,
        )
        await harness.write(WriteKind.CREATE, values={"n": 1})
        _, awaited = await store.horizon()
        assert await harness.changes() == []
        await slow.execute("COMMIT")
        assert [c.object_id for c in await harness.changes()] == ["slow", "x", "x"]
        reached, _ = await store.horizon()
        assert reached >= awaited
    finally:
        await slow.close()
        await store.drop(harness.fragment)
        await _remove(store.config, namespace)
        await store.close()


async def test_a_log_of_an_unreachable_server_is_unavailable(redis_config: SystemConfig) -> None:
    away = replace(redis_config, url="redis://127.0.0.1:1/0", deadline_s=1.0)
    store: Any = make_store(away)
    with pytest.raises(StoreUnavailable):
        await store.changes(store.logs()[0], None, 1, lambda *_: None)
