"""PostgreSQL's change log: transactions that commit out of order, and locks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.scratch import Scratch, ScratchClass
from mediator.stores.port import Fragment, SystemConfig
from mediator.stores.postgres import PostgresStore, outbox, retention
from mediator.stores.postgres.outbox import LOG, TransactionSnapshot
from tests.conformance.real_stores import isolated_postgres

LONG_S: Final = 60.0
NAMESPACE: Final = f"changelog_{uuid.uuid4().hex[:12]}"


@pytest.fixture(scope="module")
async def store(postgresql_config: SystemConfig) -> AsyncIterator[PostgresStore]:
    config = replace(postgresql_config, namespace=NAMESPACE, deadline_s=30.0, durability="second")
    async with isolated_postgres(config) as store:
        yield store


@pytest.fixture
async def subject(store: PostgresStore) -> AsyncIterator[ScratchClass]:
    scratch = Scratch(store)
    yield await scratch.subject(Field("n", FieldType.INTEGER), Field("s", FieldType.STRING))
    await scratch.clear()


@pytest.fixture
async def other(store: PostgresStore) -> AsyncIterator[Any]:
    """A session of another client."""
    connection = await asyncpg.connect(store.config.url)
    yield connection
    await connection.close()


async def logged_ids(
    subject: ScratchClass, after: str | None = None, limit: int = 10_000
) -> list[str]:
    """Return the ids of the logged objects of the class, in the order of the log."""
    store: Any = subject.store
    entries = (await store.changes(LOG, after, limit, resolver_of(subject.fragment))).entries
    return [entry.change.object_id for entry in entries if entry.change is not None]


def resolver_of(fragment: Fragment) -> Any:
    return lambda _, class_name: fragment if class_name == fragment.class_name else None


INSERT_OPERATION = f"""
INSERT INTO "{NAMESPACE}"._operations
VALUES ($1, $2, $3, $4, '', false, 1, '{{}}', '{{}}', '{{}}', now())
"""


async def wait_for_blocked_writer(other: Any) -> None:
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    async with asyncio.timeout(LONG_S):
        while not await other.fetchval(query):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


async def test_changes_after_those_of_a_waiting_writer_are_withheld(
    subject: ScratchClass, other: Any, store: PostgresStore
) -> None:
    await subject.create("slow", {"n": 0})
    write = subject.change("slow", {"n": 1}, remember="f")
    await other.execute("BEGIN")
    names = (subject.fragment.database, subject.fragment.class_name, write.id)
    await other.execute(INSERT_OPERATION, write.operation, *names)
    slow = asyncio.create_task(subject.write(write))
    await wait_for_blocked_writer(other)
    for id_ in ("a", "b"):
        await subject.create(id_, {"n": 1})
    _, xmax = await store.horizon()
    for _ in range(3):
        assert await logged_ids(subject) == ["slow"]
        assert (await store.horizon())[0] < xmax
    await other.execute("ROLLBACK")
    await slow
    assert await logged_ids(subject) == ["slow", "slow", "a", "b"]
    assert (await store.horizon())[0] >= xmax


@pytest.mark.parametrize("statement", ["SELECT pg_current_xact_id()", "CREATE TABLE {}.foreign ()"])
async def test_writers_to_other_tables_do_not_delay_the_log(
    subject: ScratchClass, other: Any, store: PostgresStore, statement: str
) -> None:
    await other.execute("BEGIN")
    await other.execute(statement.format(NAMESPACE))
    await subject.create("x", {"n": 1})
    _, xmax = await store.horizon()
    await logged_ids(subject)  # running transactions are examined when seen a second time
    assert await logged_ids(subject) == ["x"]
    assert (await store.horizon())[0] >= xmax
    await other.execute("ROLLBACK")


async def test_changes_are_returned_after_an_earlier_writer_rolled_back(
    subject: ScratchClass, other: Any
) -> None:
    await other.execute("BEGIN")
    await other.execute(f'LOCK TABLE "{NAMESPACE}"._outbox IN ROW EXCLUSIVE MODE')
    await other.execute("SELECT pg_current_xact_id()")
    await subject.create("x", {"n": 1})
    assert await logged_ids(subject) == []
    assert await logged_ids(subject) == []
    await other.execute("ROLLBACK")
    assert await logged_ids(subject) == ["x"]


async def test_readers_neither_miss_nor_repeat_while_writers_write(subject: ScratchClass) -> None:
    store: Any = subject.store
    seen: list[str] = []
    writer_count, per_writer, after = 8, 25, await end_of(store)
    ids = [[f"{writer}.{n}" for n in range(per_writer)] for writer in range(writer_count)]

    async def write_batches(writer_ids: list[str]) -> None:
        for i in range(0, per_writer, 5):
            await subject.write_all(
                [subject.creation(id_, {"n": 1}) for id_ in writer_ids[i : i + 5]]
            )

    writes = asyncio.gather(*map(write_batches, ids))
    async with asyncio.timeout(LONG_S):
        while len(seen) < writer_count * per_writer:
            entries = (await store.changes(LOG, after, 17, resolver_of(subject.fragment))).entries
            after = entries[-1].position if entries else after
            seen += [entry.change.object_id for entry in entries if entry.change is not None]
            await asyncio.sleep(0)
    await writes
    assert sorted(seen) == sorted(id_ for writer_ids in ids for id_ in writer_ids)


async def end_of(store: Any) -> str | None:
    entries = (await store.changes(LOG, None, 1_000_000, lambda *_: None)).entries
    return entries[-1].position if entries else None


async def test_large_changes_are_read_in_small_portions(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = subject.store
    start = await end_of(store)
    limits: list[int] = []
    ordered = outbox.OutboxLog.ordered

    async def record_limit(log: Any, statement: str, *arguments: Any) -> list[Any]:
        if len(arguments) == 4:
            limits.append(arguments[3])
        return await ordered(log, statement, *arguments)

    monkeypatch.setattr(outbox.OutboxLog, "ordered", record_limit)
    large = "x" * 1_000_000
    for i in range(12):
        await subject.create(f"{i}", {"s": large})
    for _ in range(2):
        assert await logged_ids(subject, start) == [f"{i}" for i in range(12)]
    assert limits[-1] < 12
    assert limits[0] > 12


async def test_trimming_is_done_in_batches(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = subject.store
    await store.trim(LOG, await end_of(store) or "0-0", -60.0)
    monkeypatch.setattr(outbox, "TRIM_BATCH", 3)
    await subject.write_all([subject.creation(f"{i}", {"n": i}) for i in range(10)])
    entries = (await store.changes(LOG, None, 100, resolver_of(subject.fragment))).entries
    assert await store.trim(LOG, entries[7].position, 60.0) == 0
    assert await store.trim(LOG, entries[7].position, -60.0) == 8
    assert await logged_ids(subject) == ["8", "9"]
    assert await store.oldest(LOG) == entries[8].position


async def test_reaping_keeps_the_latest_changes_whatever_their_age(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = subject.store
    await store.trim(LOG, await end_of(store) or "0-0", -60.0)
    for i in range(6):
        await subject.create(f"{i}", {"n": i})
    monkeypatch.setattr(retention, "MAX_CHANGES", 2)
    assert await store.reap(3) == 3
    assert await logged_ids(subject) == ["3", "4", "5"]
    await store.reap(100)
    assert await logged_ids(subject) == ["4", "5"]


async def test_a_log_is_read_through_its_index(subject: ScratchClass, other: Any) -> None:
    await subject.create("x", {"n": 1})
    statement = outbox.BEYOND.format(outbox=f'"{NAMESPACE}"._outbox')
    await other.execute("SET enable_seqscan = off")
    await other.execute("SET enable_sort = off")
    await other.execute(f"PREPARE beyond AS {statement}")
    plan = await other.fetch("EXPLAIN EXECUTE beyond ('1', 0, '99999999', 10)")
    text = "\n".join(row[0] for row in plan)
    assert "Index Scan" in text
    assert "ROW(" in text.split("Index Cond")[1]
    assert "Sort" not in text


# Relevant transactions; ids exceed 32 bits because locks hold only their lower half.

HIGH: Final = 7 << 32


@given(
    running=st.sets(st.integers(HIGH + 1, HIGH + 40)),
    writers=st.sets(st.integers(HIGH + 1, HIGH + 40)),
)
def test_reading_ends_at_the_lowest_running_writer(running: set[int], writers: set[int]) -> None:
    snapshot = TransactionSnapshot(
        min(running, default=HIGH + 50), HIGH + 50, tuple(sorted(running))
    )
    locks: list[tuple[str, int | None]] = [(f"v{x}", x & 0xFFFFFFFF) for x in running | writers]
    locks += [(f"v{x}", None) for x in writers]
    assert snapshot.horizon(locks) == min(running & writers, default=HIGH + 50)


def test_a_running_transaction_without_a_lock_may_become_a_writer() -> None:
    snapshot = TransactionSnapshot(5, 10, (5, 7))
    assert snapshot.horizon([("other", 5)]) == 10
    assert snapshot.horizon([("other", 5), ("writer", None)]) == 7
    assert snapshot.horizon([("other", 5), ("writer", None), ("writer", 7)]) == 7
    assert snapshot.horizon([("other", 5), ("foreign", 7), ("writer", None), ("writer", 12)]) == 10


def test_snapshots_are_read_as_postgresql_writes_them() -> None:
    assert TransactionSnapshot.read("10:20:10,14") == TransactionSnapshot(10, 20, (10, 14))
    assert TransactionSnapshot.read("10:10:") == TransactionSnapshot(10, 10, ())
