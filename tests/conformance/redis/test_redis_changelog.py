"""Redis's change logs: streams, whole collections, entries of other programs."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
import redis.asyncio

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Fragment, LogEntry, LogPage, StoreTimeout, SystemConfig
from mediator.stores.redis import RedisStore, outbox, retention

Server: TypeAlias = Any
"""A client of the driver; its own types do not say what an asynchronous call returns."""

FIELDS = (
    Field("n", FieldType.INTEGER, index=True),
    Field("s", FieldType.STRING),
    Field("l", FieldType.LIST, items=FieldType.STRING),
    Field("t", FieldType.SET, items=FieldType.INTEGER, group="side"),
    Field("m", FieldType.MAP, items=FieldType.DECIMAL, group="side"),
)


@pytest.fixture(scope="module")
def config(redis_config: SystemConfig) -> SystemConfig:
    namespace = f"changelog_{uuid.uuid4().hex[:8]}"
    return replace(redis_config, namespace=namespace, deadline_s=20.0, partitions=1)


@pytest.fixture(scope="module")
async def server(config: SystemConfig) -> AsyncIterator[Server]:
    async with redis.asyncio.Redis.from_url(config.url, protocol=2) as client:
        yield client
        await client.delete(f"{{{config.namespace}:0}}:outbox")


@pytest.fixture(scope="module")
async def store(config: SystemConfig, server: Server) -> AsyncIterator[RedisStore]:
    store = RedisStore(config)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def subject(store: RedisStore, stream: str, server: Server) -> AsyncIterator[ScratchClass]:
    await server.delete(stream)
    scratch = Scratch(store)
    yield await scratch.subject(*FIELDS)
    await scratch.clear()


@pytest.fixture
def stream(config: SystemConfig) -> str:
    return f"{{{config.namespace}:0}}:outbox"


def resolver_of(fragment: Fragment) -> Any:
    return lambda _, class_name: fragment if class_name == fragment.class_name else None


async def entries(
    subject: ScratchClass, after: str | None = None, limit: int = 1_000
) -> list[LogEntry]:
    store: Any = subject.store
    page: LogPage = await store.changes("0", after, limit, resolver_of(subject.fragment))
    return [*page.entries]


async def test_each_partition_has_a_log_with_the_changes_of_its_objects(
    config: SystemConfig, server: Server
) -> None:
    store = RedisStore(replace(config, namespace=f"{config.namespace}p", partitions=3))
    await store.open()
    scratch = Scratch(store)
    subject = await scratch.subject(*FIELDS)
    for n in range(3):
        await subject.write_all([subject.replacement(f"{i}", {"n": n}) for i in range(30)])
    assert store.logs() == ("0", "1", "2")
    seen: list[str] = []
    for log in store.logs():
        page = await store.changes(log, None, 1_000, resolver_of(subject.fragment))
        by_object: dict[str, list[Any]] = {}
        for entry in page.entries:
            if entry.change is not None and entry.change.group == "main":
                by_object.setdefault(entry.change.object_id, []).append(entry.change.after)
        assert all(after == [{"n": 0}, {"n": 1}, {"n": 2}] for after in by_object.values())
        assert by_object
        seen += by_object
    assert sorted(seen) == sorted(f"{i}" for i in range(30))
    await scratch.clear()
    await store.close()
    await server.delete(*(f"{{{config.namespace}p:{p}}}:outbox" for p in range(3)))


async def test_entries_of_other_programs_are_skipped(
    subject: ScratchClass, server: Server, stream: str, caplog: pytest.LogCaptureFixture
) -> None:
    fragment = subject.fragment
    path = f"{fragment.database}/{fragment.class_name}/main/update"
    valid = {"what": path, "object": "x", "operation": "o", "version": "7"}
    await server.xadd(stream, {"secret": "of somebody"})
    await server.xadd(stream, valid | {"what": "one/two"})
    await server.xadd(stream, valid | {"version": "new"})
    await server.xadd(stream, valid | {"object": b"\xff"})
    await server.xadd(stream, valid | {"+n": "5x", "+s": b"s\xff", "+l": "L9:x", "-n": ""})
    await server.xadd(stream, valid | {"+n": "s5", "-n": "4", "+gone": "5", "+s": "sa"})
    log_entries = await entries(subject)
    assert [entry.change is None for entry in log_entries] == [True] * 4 + [False] * 2
    assert [(c.before, c.after) for e in log_entries if (c := e.change)] == [
        ({}, {}),
        ({"n": 4}, {"s": "a"}),
    ]
    assert [entry.position for entry in log_entries] == sorted(
        entry.position for entry in log_entries
    )
    assert caplog.records
    assert "somebody" not in caplog.text


async def test_a_broken_text_does_not_become_null(
    subject: ScratchClass, server: Server, stream: str
) -> None:
    fragment = subject.fragment
    path = f"{fragment.database}/{fragment.class_name}/main/update"
    entry = {"what": path, "object": "x", "operation": "o", "version": "7"}
    await server.xadd(stream, entry | {"-n": "nonsense", "+n": "n", "-s": "n", "+s": "n0"})
    changes = [e.change for e in await entries(subject) if e.change is not None]
    assert [(change.before, change.after) for change in changes] == [({"s": None}, {"n": None})]


async def test_stream_ids_of_any_length_keep_their_order(
    subject: ScratchClass, server: Server, stream: str
) -> None:
    max_number = 2**64 - 1
    ids = ["1-0", "1-9", "1-10", "9-1", "10-0", f"10-{max_number}", f"{max_number}-0"]
    for id_ in ids:
        await server.xadd(stream, {"other": "1"}, id=id_)
    positions = [entry.position for entry in await entries(subject)]
    assert positions == sorted(positions)
    assert len(set(map(len, positions))) == 1
    for number, position in enumerate(positions):
        remaining = await entries(subject, position)
        assert [entry.position for entry in remaining] == positions[number + 1 :]
    await server.delete(stream)


async def test_trimming_is_exact_and_stops_at_recent_entries(
    subject: ScratchClass, server: Server, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = subject.store
    monkeypatch.setattr(retention, "TRIM_BATCH", 100)
    seconds, _ = await server.time()
    old = (seconds - 100) * 1000
    for n in range(501):
        await server.xadd(stream, {"other": "1"}, id=f"{old}-{n + 1}")
    await subject.create("x", {"n": 1})
    log_entries = await entries(subject)
    assert await store.trim("0", log_entries[250].position, 200.0) == 0
    assert await store.trim("0", log_entries[250].position, 50.0) == 251
    assert await entries(subject) == log_entries[251:]
    assert await store.trim("0", log_entries[-1].position, 50.0) == 250
    assert await entries(subject) == log_entries[501:]
    assert await store.oldest("0") == log_entries[501].position
    assert await store.trim("0", log_entries[-1].position, -60.0) == 2
    assert await store.oldest("0") is None
    assert await entries(subject) == []


async def test_fewer_entries_are_requested_after_a_timeout(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    await subject.write_all([subject.creation(f"{i}", {"n": i}) for i in range(30)])
    store: Any = subject.store
    counts: list[int] = []
    read_entries = outbox.StreamLogs.entries

    async def read_slowly(logs: Any, name: str, after: str | None, count: int) -> Any:
        counts.append(count)
        if count > 2:
            raise StoreTimeout("too much")
        return await read_entries(logs, name, after, count)

    monkeypatch.setattr(outbox.StreamLogs, "entries", read_slowly)
    log_entries: Sequence[LogEntry] = []
    while not log_entries:
        try:
            log_entries = (await store.changes("0", None, 4, resolver_of(subject.fragment))).entries
        except StoreTimeout:
            assert len(counts) < 10
    assert len(log_entries) == 4
    assert min(counts) <= 2


async def test_large_entries_are_read_few_at_a_time(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(12):
        await subject.create(f"{i}", {"s": "x" * 1_000_000})
    counts: list[int] = []
    read_entries = outbox.StreamLogs.entries

    async def record_count(logs: Any, name: str, after: str | None, count: int) -> Any:
        counts.append(count)
        return await read_entries(logs, name, after, count)

    monkeypatch.setattr(outbox.StreamLogs, "entries", record_count)
    for _ in range(2):
        changes = [
            e.change for e in await entries(subject) if e.change and e.change.group == "main"
        ]
        assert [change.object_id for change in changes] == [f"{i}" for i in range(12)]
    assert counts[-1] < 12
