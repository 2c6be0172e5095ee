"""What is particular to Redis's change logs: streams, whole collections, entries of others."""

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


def of(fragment: Fragment) -> Any:
    return lambda _, class_name: fragment if class_name == fragment.class_name else None


async def entries(
    subject: ScratchClass, after: str | None = None, limit: int = 1_000
) -> list[LogEntry]:
    store: Any = subject.store
    page: LogPage = await store.changes("0", after, limit, of(subject.fragment))
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
        summary = await store.changes(log, None, 1_000, of(subject.fragment))
        by_object: dict[str, list[Any]] = {}
        for entry in summary.entries:
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
    own = subject.fragment
    what = f"{own.database}/{own.class_name}/main/update"
    whole = {"what": what, "object": "x", "operation": "o", "version": "7"}
    await server.xadd(stream, {"secret": "of somebody"})
    await server.xadd(stream, whole | {"what": "one/two"})
    await server.xadd(stream, whole | {"version": "new"})
    await server.xadd(stream, whole | {"object": b"\xff"})
    await server.xadd(stream, whole | {"+n": "5x", "+s": b"s\xff", "+l": "L9:x", "-n": ""})
    await server.xadd(stream, whole | {"+n": "s5", "-n": "4", "+gone": "5", "+s": "sa"})
    summary = await entries(subject)
    assert [entry.change is None for entry in summary] == [True] * 4 + [False] * 2
    assert [(c.before, c.after) for e in summary if (c := e.change)] == [
        ({}, {}),
        ({"n": 4}, {"s": "a"}),
    ]
    assert [entry.position for entry in summary] == sorted(entry.position for entry in summary)
    assert caplog.records
    assert "somebody" not in caplog.text


async def test_a_broken_text_does_not_become_null(
    subject: ScratchClass, server: Server, stream: str
) -> None:
    own = subject.fragment
    what = f"{own.database}/{own.class_name}/main/update"
    entry = {"what": what, "object": "x", "operation": "o", "version": "7"}
    await server.xadd(stream, entry | {"-n": "nonsense", "+n": "n", "-s": "n", "+s": "n0"})
    summary = [e.change for e in await entries(subject) if e.change is not None]
    assert [(change.before, change.after) for change in summary] == [({"s": None}, {"n": None})]


async def test_stream_ids_of_any_length_keep_their_order(
    subject: ScratchClass, server: Server, stream: str
) -> None:
    largest = 2**64 - 1
    ids = ["1-0", "1-9", "1-10", "9-1", "10-0", f"10-{largest}", f"{largest}-0"]
    for id_ in ids:
        await server.xadd(stream, {"other": "1"}, id=id_)
    whole = [entry.position for entry in await entries(subject)]
    assert whole == sorted(whole)
    assert len(set(map(len, whole))) == 1
    for number, position in enumerate(whole):
        rest = await entries(subject, position)
        assert [entry.position for entry in rest] == whole[number + 1 :]
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
    whole = await entries(subject)
    assert await store.trim("0", whole[250].position, 200.0) == 0
    assert await store.trim("0", whole[250].position, 50.0) == 251
    assert await entries(subject) == whole[251:]
    assert await store.trim("0", whole[-1].position, 50.0) == 250
    assert await entries(subject) == whole[501:]
    assert await store.oldest("0") == whole[501].position
    assert await store.trim("0", whole[-1].position, -60.0) == 2
    assert await store.oldest("0") is None
    assert await entries(subject) == []


async def test_after_an_answer_that_took_too_long_less_is_requested(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    await subject.write_all([subject.creation(f"{i}", {"n": i}) for i in range(30)])
    store: Any = subject.store
    counts: list[int] = []
    ranged = outbox.StreamLogs.entries

    async def slow(logs: Any, name: str, after: str | None, count: int) -> Any:
        counts.append(count)
        if count > 2:
            raise StoreTimeout("too much")
        return await ranged(logs, name, after, count)

    monkeypatch.setattr(outbox.StreamLogs, "entries", slow)
    summary: Sequence[LogEntry] = []
    while not summary:
        try:
            summary = (await store.changes("0", None, 4, of(subject.fragment))).entries
        except StoreTimeout:
            assert len(counts) < 10
    assert len(summary) == 4
    assert min(counts) <= 2


async def test_large_entries_come_few_at_a_time(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(12):
        await subject.create(f"{i}", {"s": "x" * 1_000_000})
    counts: list[int] = []
    ranged = outbox.StreamLogs.entries

    async def recording(logs: Any, name: str, after: str | None, count: int) -> Any:
        counts.append(count)
        return await ranged(logs, name, after, count)

    monkeypatch.setattr(outbox.StreamLogs, "entries", recording)
    for _ in range(2):
        summary = [
            e.change for e in await entries(subject) if e.change and e.change.group == "main"
        ]
        assert [change.object_id for change in summary] == [f"{i}" for i in range(12)]
    assert counts[-1] < 12
