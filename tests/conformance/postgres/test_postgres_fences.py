"""Fences in PostgreSQL: locks of other sessions force the order of a fence and a write."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import asyncpg
import pytest

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import (
    RETENTION_S,
    Record,
    Status,
    SystemConfig,
    Write,
    WriteKind,
    WriteResult,
)
from mediator.stores.postgres import PostgresStore, retention
from mediator.stores.postgres.write.prepared import shape_of
from tests.conformance.in_order import in_order
from tests.conformance.real_stores import isolated_postgres
from tests.faults.conditions import eventually

NAMESPACE: Final = f"fences_{uuid.uuid4().hex[:12]}"
LOST: Final = "lost"
"""The token of the writes that are fenced."""

INSERTING_KINDS: Final = (WriteKind.CREATE, WriteKind.REPLACE)
COUNT_WAITING: Final = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1
"""


@pytest.fixture(scope="module")
async def config(postgresql_config: SystemConfig) -> SystemConfig:
    return replace(postgresql_config, namespace=NAMESPACE, deadline_s=30.0, durability="second")


@pytest.fixture(scope="module")
async def store(config: SystemConfig) -> AsyncIterator[PostgresStore]:
    async with isolated_postgres(config) as store:
        yield store


@pytest.fixture
async def subject(store: PostgresStore) -> AsyncIterator[ScratchClass]:
    scratch = Scratch(store)
    yield await scratch.subject(
        Field("n", FieldType.INTEGER, index=True), Field("s", FieldType.STRING, group="side")
    )
    await scratch.clear()


@pytest.fixture
async def other(store: PostgresStore) -> AsyncIterator[Any]:
    """A session of another client."""
    connection = await asyncpg.connect(store.config.url)
    yield connection
    await connection.close()


def write_of(subject: ScratchClass, kind: WriteKind, remember: str | None = None) -> Write:
    options: dict[str, Any] = {} if kind is WriteKind.DELETE else {"values": {"n": 2}}
    return subject.writing(kind, "x", remember=remember, **options)


async def fenced_write(store: PostgresStore, write: Write) -> WriteResult:
    [result] = await store.write([write], LOST)
    return result


async def sql(
    store: PostgresStore, subject: ScratchClass, statement: str, *arguments: Any
) -> list[Any]:
    """Run a statement on the table of the class, in a session of another client."""
    text = statement.format(table=table_of(subject))
    rows: list[Any] = await store.use(lambda c: c.fetch(text, *arguments))
    return rows


def table_of(subject: ScratchClass) -> str:
    return f'"{NAMESPACE}"."{subject.fragment.database}.{subject.fragment.class_name}"'


async def set_up(subject: ScratchClass, state: str) -> dict[str, int]:
    """Put the record `x` into a state, and return its versions."""
    if state == "never":
        return {}
    result = await subject.create("x", {"n": 1})
    if state in ("deleted", "reaped"):
        result = await subject.delete("x")
    return dict(result.versions)


async def wait_for_blocked(store: PostgresStore, count: int) -> None:
    """Wait until `count` statements on the tests' tables wait for a lock."""

    async def are_blocked() -> bool:
        waiting_count = store.use(lambda c: c.fetchval(COUNT_WAITING, f"%{NAMESPACE}%"))
        return int(await waiting_count) >= count

    await eventually(are_blocked)


async def changes_after(store: PostgresStore, write: Write) -> list[Any]:
    """Return the rows of a write in the outbox and among the remembered operations."""
    outbox = f'SELECT FROM "{NAMESPACE}"._outbox WHERE change LIKE $1'
    operations = f'SELECT FROM "{NAMESPACE}"._operations WHERE operation = $1'
    changes = await store.use(lambda c: c.fetch(outbox, f"{write.operation}:%"))
    return [*changes, *await store.use(lambda c: c.fetch(operations, write.operation))]


# The fence comes first


@pytest.mark.parametrize("remember", [None, "f"])
@pytest.mark.parametrize(
    ("kind", "state"),
    [
        *((kind, state) for kind in WriteKind for state in ("live", "deleted", "reaped")),
        *((kind, "never") for kind in INSERTING_KINDS),  # others find no row to wait for
    ],
)
async def test_a_fence_younger_than_the_snapshot_of_the_write(
    store: PostgresStore,
    subject: ScratchClass,
    other: Any,
    kind: WriteKind,
    state: str,
    remember: str | None,
) -> None:
    versions = await set_up(subject, state)
    before, write = await subject.read("x"), write_of(subject, kind, remember)
    lock = store.statements.lock(subject.fragment)
    async with other.transaction():
        await other.fetch(lock.text, *lock.arguments({"ids": ["x"]}))
        write_task = asyncio.create_task(fenced_write(store, write))
        await wait_for_blocked(store, 1)
        if state == "reaped":
            await sql(store, subject, "DELETE FROM {table} WHERE _deleted IS NOT NULL")
            versions = {}
        assert await store.fence(subject.fragment, "x", LOST) == versions
    absent = state == "reaped" and kind not in INSERTING_KINDS
    assert (await write_task).status is (Status.MISSING if absent else Status.FENCED)
    assert await subject.read("x") == before
    assert await changes_after(store, write) == []


@pytest.mark.parametrize("state", ["live", "deleted"])
@pytest.mark.parametrize("kind", WriteKind)
async def test_a_fence_ahead_of_the_write_in_the_queue_for_the_row(
    store: PostgresStore, subject: ScratchClass, other: Any, kind: WriteKind, state: str
) -> None:
    versions = await set_up(subject, state)
    before, write = await subject.read("x"), write_of(subject, kind)
    async with other.transaction():
        await other.execute(f"SELECT FROM {table_of(subject)} FOR UPDATE")
        fence_task = asyncio.create_task(store.fence(subject.fragment, "x", LOST))
        await wait_for_blocked(store, 1)
        write_task = asyncio.create_task(fenced_write(store, write))
        await wait_for_blocked(store, 2)
    assert await fence_task == versions
    assert (await write_task).status is Status.FENCED
    assert await subject.read("x") == before
    assert await changes_after(store, write) == []


@pytest.mark.parametrize("kind", INSERTING_KINDS)
async def test_an_insertion_that_meets_a_fence_not_yet_committed(
    store: PostgresStore, subject: ScratchClass, other: Any, kind: WriteKind
) -> None:
    async with other.transaction():
        await other.fetch(store.statements.fence(subject.fragment), "x", LOST)
        write_task = asyncio.create_task(fenced_write(store, write_of(subject, kind)))
        await wait_for_blocked(store, 1)
    assert (await write_task).status is Status.FENCED
    assert await subject.read("x") is None


@pytest.mark.parametrize("kind", WriteKind)
async def test_writes_that_come_after_the_fence_of_an_absent_record(
    store: PostgresStore, subject: ScratchClass, kind: WriteKind
) -> None:
    assert await store.fence(subject.fragment, "x", LOST) == {}
    assert (await fenced_write(store, write_of(subject, kind))).status is Status.FENCED
    assert await subject.read("x") is None
    result = await subject.write(write_of(subject, kind))
    assert result.status is (Status.APPLIED if kind in INSERTING_KINDS else Status.MISSING)
    assert result.created is (kind in INSERTING_KINDS)


# The write comes first


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize(
    ("kind", "state"),
    [
        *((kind, "live") for kind in WriteKind if kind is not WriteKind.CREATE),
        *((kind, state) for kind in INSERTING_KINDS for state in ("deleted", "never")),
    ],
)
async def test_a_fence_that_waits_for_the_write(
    store: PostgresStore,
    subject: ScratchClass,
    other: Any,
    kind: WriteKind,
    state: str,
    committed: bool,
) -> None:
    versions, write = await set_up(subject, state), write_of(subject, kind)
    before, plan = await subject.read("x"), store.statements.write(shape_of(write, LOST))
    transaction = other.transaction()
    await transaction.start()
    [row] = await other.fetch(plan.statement.text, *plan.arguments(write, LOST))
    result = plan.result(row, write)
    assert result is not None
    assert result.status is Status.APPLIED
    fence_task = asyncio.create_task(store.fence(subject.fragment, "x", LOST))
    await wait_for_blocked(store, 1)
    assert not fence_task.done()
    await (transaction.commit() if committed else transaction.rollback())
    assert await fence_task == (result.versions if committed else versions)
    assert (await subject.read("x") == before) is not committed
    assert (await fenced_write(store, write_of(subject, WriteKind.REPLACE))).status is Status.FENCED


# The lifetime of fences


async def test_no_write_removes_fences(store: PostgresStore, subject: ScratchClass) -> None:
    fragment = subject.fragment
    await subject.create("x", {"n": 1})
    await store.fence(fragment, "x", LOST)

    async def check_fenced(after: str) -> None:
        for kind in WriteKind:
            result = await fenced_write(store, write_of(subject, kind))
            assert result.status is Status.FENCED, (after, kind)

    for write in (
        subject.change("x", {"n": 2}),
        subject.replacement("x", {"n": 3}),
        subject.deletion("x"),
        subject.replacement("x", {"n": 4}),
        subject.deletion("x"),
        subject.creation("x", {"n": 5}),
    ):
        for token in ("", "another"):
            [result] = await store.write([replace(write, operation=uuid.uuid4().hex)], token)
        assert result.status in (Status.APPLIED, Status.EXISTS, Status.MISSING)
        await check_fenced(write.kind.name)
    assert (await store.lock([(fragment, "x")], "intent"))[0].intent == "intent"
    await check_fenced("lock")
    await subject.update("x", {"n": 6}, intent="intent")
    await check_fenced("a write with an intent")
    await store.lock([(fragment, "x")], "intent")
    await store.unlock([(fragment, "x")], "intent")
    await check_fenced("unlock")
    creation_version = 2**60
    copy = Record(
        "x", creation_version, {"main": creation_version, "side": creation_version}, {"n": 7}
    )
    assert await store.absorb(fragment, [copy]) == [True]
    await check_fenced("absorb")
    await store.forget(fragment, [("x", creation_version)])
    await check_fenced("forget")
    later = replace(copy, creation_version=creation_version + 1)
    assert await store.absorb(fragment, [later]) == [True]
    assert await store.replace_copies(fragment, [later], [copy]) == 1
    await check_fenced("replace")


async def test_a_fence_of_an_absent_record_is_not_read_as_a_record(
    store: PostgresStore, subject: ScratchClass
) -> None:
    for id_ in ("a", "b", "c"):
        await subject.create(id_, {"n": 1})
    await subject.delete("b")
    records = [await subject.read(id_) for id_ in ("a", "c")]
    for id_ in ("a", "b", "x"):
        await store.fence(subject.fragment, id_, LOST)
    assert await store.count(subject.fragment) == 2
    assert await store.scan(subject.fragment, None, 10) == records
    assert await in_order(store, subject.fragment, "n") == records
    assert await subject.read_all(["b", "x"]) == [None, None]
    assert await subject.read("a") == records[0]
    assert (await store.record_states([(subject.fragment, "x")]))[0].creation_version is None


async def test_the_next_fence_removes_fences_past_their_retention(
    store: PostgresStore, subject: ScratchClass
) -> None:
    fragment, now = subject.fragment, time.time()
    await subject.create("x", {"n": 1})
    times = {"old": now - RETENTION_S - 60, "young": now - RETENTION_S + 60, "again": now - 3600}
    for token, at in times.items():
        await store.fence(fragment, "x", token)
        age = "UPDATE {table} SET _fences = _fences || jsonb_build_object($1::text, $2::float8)"
        await sql(store, subject, age, token, at)
    for token in ("new", "again"):
        await store.fence(fragment, "x", token)
    query = "SELECT key, value::float8 FROM {table}, jsonb_each(_fences)"
    fences = dict(await sql(store, subject, query))
    assert fences.keys() == {"young", "new", "again"}
    assert fences["young"] == times["young"]
    assert fences["again"] >= now - 60, "a repeated fence starts its retention anew"


async def test_a_fenced_tombstone_is_reaped_with_its_last_fence(
    store: PostgresStore, subject: ScratchClass
) -> None:
    await set_up(subject, "deleted")
    await sql(store, subject, "UPDATE {table} SET _deleted = _deleted - interval '1 week'")
    for id_ in ("x", "y"):
        await store.fence(subject.fragment, id_, LOST)
    await subject.create("z", {"n": 1})
    await store.fence(subject.fragment, "z", LOST)
    assert await _reap(store, time.time() + RETENTION_S - 60) == 0
    for id_ in ("x", "y"):
        assert (await fenced_write(store, subject.creation(id_, {"n": 2}))).status is Status.FENCED
    assert await _reap(store, time.time() + RETENTION_S + 60) == 2
    assert [id_ for (id_,) in await sql(store, subject, "SELECT id FROM {table}")] == ["z"]


async def _reap(store: PostgresStore, now_s: float) -> int:
    return await store.use(lambda c: retention.reap(c, NAMESPACE, now_s, 1000))


async def test_a_fence_races_with_the_reaper(
    store: PostgresStore, subject: ScratchClass, other: Any
) -> None:
    await set_up(subject, "deleted")
    age = "UPDATE {table} SET _deleted = _deleted - interval '1 week'"
    await sql(store, subject, age)
    async with other.transaction():
        assert await retention.reap(other, NAMESPACE, time.time(), 1000) == 1
        fence_task = asyncio.create_task(store.fence(subject.fragment, "x", LOST))
        await wait_for_blocked(store, 1)
    assert await fence_task == {}
    assert (await fenced_write(store, subject.creation("x", {"n": 2}))).status is Status.FENCED
    await sql(store, subject, age)
    async with other.transaction():
        await other.fetch(store.statements.fence(subject.fragment), "x", "another")
        assert await _reap(store, time.time()) == 0
    assert await _reap(store, time.time()) == 0
