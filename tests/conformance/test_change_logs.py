"""Change logs of real stores as logs: their positions, large pages, and trimming."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import pytest

from mediator.model.change import Change
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.kinds import make_store
from mediator.stores.port import (
    Fragment,
    LogEntry,
    LogPage,
    Status,
    Store,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)

FIELDS = {
    "n": Field("n", FieldType.INTEGER),
    "doc": Field("doc", FieldType.DOCUMENT),
    "hits": Field("hits", FieldType.INTEGER),
}
GROUPS = {"main": ("n", "doc"), "hits": ("hits",)}


class Harness:
    """A store with one class."""

    def __init__(self, store: Any, database: str) -> None:
        self.store: Any = store
        system = store.config.name
        self.fragment = Fragment(system, database, "c", FIELDS, GROUPS)

    def fragment_of(self, database: str, class_name: str) -> Fragment | None:
        own = (self.fragment.database, self.fragment.class_name)
        return self.fragment if (database, class_name) == own else None

    async def write(self, kind: WriteKind, id_: str = "x", **members: Any) -> None:
        call = Write(self.fragment, id_, kind, uuid.uuid4().hex, tuple(GROUPS), **members)
        [result] = await self.store.write([call])
        assert result.status is Status.APPLIED

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


async def test_a_log_of_an_unreachable_server_is_unavailable(redis_config: SystemConfig) -> None:
    away = replace(redis_config, url="redis://127.0.0.1:1/0", deadline_s=1.0)
    store: Any = make_store(away)
    with pytest.raises(StoreUnavailable):
        await store.changes(store.logs()[0], None, 1, lambda *_: None)
