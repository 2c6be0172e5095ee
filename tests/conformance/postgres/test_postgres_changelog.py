"""What is particular to PostgreSQL's change log: transactions that commit out of order, locks."""

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


async def summary(
    subject: ScratchClass, after: str | None = None, limit: int = 10_000
) -> list[str]:
    """Return the objects of the class in the order of the log."""
    store: Any = subject.store
    entries = (await store.changes(LOG, after, limit, of(subject.fragment))).entries
    return [entry.change.object_id for entry in entries if entry.change is not None]


def of(fragment: Fragment) -> Any:
    return lambda _, class_name: fragment if class_name == fragment.class_name else None


REMEMBERED = f"""
INSERT INTO "{NAMESPACE}"._operations
VALUES ($1, $2, $3, $4, '', false, 1, '{{}}', '{{}}', '{{}}', now())
"""


async def waits_for_another(other: Any) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    async with asyncio.timeout(LONG_S):
        while not await other.fetchval(waiting):  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)


async def test_changes_after_those_of_a_waiting_writer_are_withheld(
    subject: ScratchClass, other: Any, store: PostgresStore
) -> None:
    await subject.create("slow", {"n": 0})
    write = subject.change("slow", {"n": 1}, remember="f")
    await other.execute("BEGIN")
    names = (subject.fragment.database, subject.fragment.class_name, write.id)
    await other.execute(REMEMBERED, write.operation, *names)
    slow = asyncio.create_task(subject.write(write))
    await waits_for_another(other)
    for id_ in ("a", "b"):
        await subject.create(id_, {"n": 1})
    _, awaited = await store.horizon()
    for _ in range(3):
        assert await summary(subject) == ["slow"]
        assert (await store.horizon())[0] < awaited
    await other.execute("ROLLBACK")
    await slow
    assert await summary(subject) == ["slow", "slow", "a", "b"]
    assert (await store.horizon())[0] >= awaited


@pytest.mark.parametrize("work", ["SELECT pg_current_xact_id()", "CREATE TABLE {}.foreign ()"])
async def test_writers_to_other_tables_do_not_delay_the_log(
    subject: ScratchClass, other: Any, store: PostgresStore, work: str
) -> None:
    await other.execute("BEGIN")
    await other.execute(work.format(NAMESPACE))
    await subject.create("x", {"n": 1})
    _, awaited = await store.horizon()
    await summary(subject)  # running transactions are examined when they are seen again
    assert await summary(subject) == ["x"]
    assert (await store.horizon())[0] >= awaited
    await other.execute("ROLLBACK")


async def test_changes_are_returned_after_an_earlier_writer_rolled_back(
    subject: ScratchClass, other: Any
) -> None:
    await other.execute("BEGIN")
    await other.execute(f'LOCK TABLE "{NAMESPACE}"._outbox IN ROW EXCLUSIVE MODE')
    await other.execute("SELECT pg_current_xact_id()")
    await subject.create("x", {"n": 1})
    assert await summary(subject) == []
    assert await summary(subject) == []
    await other.execute("ROLLBACK")
    assert await summary(subject) == ["x"]


async def test_readers_neither_miss_nor_repeat_while_writers_write(subject: ScratchClass) -> None:
    store: Any = subject.store
    seen: list[str] = []
    writers, each, after = 8, 25, await end_of(store)
    ids = [[f"{writer}.{n}" for n in range(each)] for writer in range(writers)]

    async def work(own: list[str]) -> None:
        for i in range(0, each, 5):
            await subject.write_all([subject.creation(id_, {"n": 1}) for id_ in own[i : i + 5]])

    working = asyncio.gather(*map(work, ids))
    async with asyncio.timeout(LONG_S):
        while len(seen) < writers * each:
            some = (await store.changes(LOG, after, 17, of(subject.fragment))).entries
            after = some[-1].position if some else after
            seen += [entry.change.object_id for entry in some if entry.change is not None]
            await asyncio.sleep(0)
    await working
    assert sorted(seen) == sorted(id_ for own in ids for id_ in own)


async def end_of(store: Any) -> str | None:
    entries = (await store.changes(LOG, None, 1_000_000, lambda *_: None)).entries
    return entries[-1].position if entries else None


async def test_large_changes_come_in_small_portions(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = subject.store
    start = await end_of(store)
    limits: list[int] = []
    ordered = outbox.OutboxLog.ordered

    async def recording(log: Any, statement: str, *arguments: Any) -> list[Any]:
        if len(arguments) == 4:
            limits.append(arguments[3])
        return await ordered(log, statement, *arguments)

    monkeypatch.setattr(outbox.OutboxLog, "ordered", recording)
    large = "x" * 1_000_000
    for i in range(12):
        await subject.create(f"{i}", {"s": large})
    for _ in range(2):
        assert await summary(subject, start) == [f"{i}" for i in range(12)]
    assert limits[-1] < 12
    assert limits[0] > 12


async def test_trimming_is_done_in_batches(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = subject.store
    await store.trim(LOG, await end_of(store) or "0-0", -60.0)
    monkeypatch.setattr(outbox, "TRIM_BATCH", 3)
    await subject.write_all([subject.creation(f"{i}", {"n": i}) for i in range(10)])
    entries = (await store.changes(LOG, None, 100, of(subject.fragment))).entries
    assert await store.trim(LOG, entries[7].position, 60.0) == 0
    assert await store.trim(LOG, entries[7].position, -60.0) == 8
    assert await summary(subject) == ["8", "9"]
    assert await store.oldest(LOG) == entries[8].position


async def test_reaping_leaves_the_last_changes_whatever_their_age(
    subject: ScratchClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Any = subject.store
    await store.trim(LOG, await end_of(store) or "0-0", -60.0)
    for i in range(6):
        await subject.create(f"{i}", {"n": i})
    monkeypatch.setattr(retention, "MAX_CHANGES", 2)
    assert await store.reap(3) == 3
    assert await summary(subject) == ["3", "4", "5"]
    await store.reap(100)
    assert await summary(subject) == ["4", "5"]


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


# Which transactions matter; numbers beyond 32 bits, as locks name them by their lower half.

HIGH: Final = 7 << 32


@given(
    running=st.sets(st.integers(HIGH + 1, HIGH + 40)),
    writing=st.sets(st.integers(HIGH + 1, HIGH + 40)),
)
def test_the_lowest_running_writer_is_where_reading_ends(
    running: set[int], writing: set[int]
) -> None:
    snapshot = TransactionSnapshot(
        min(running, default=HIGH + 50), HIGH + 50, tuple(sorted(running))
    )
    locks: list[tuple[str, int | None]] = [(f"v{x}", x & 0xFFFFFFFF) for x in running | writing]
    locks += [(f"v{x}", None) for x in writing]
    assert snapshot.horizon(locks) == min(running & writing, default=HIGH + 50)


def test_a_running_transaction_without_a_lock_may_be_a_writer_s_that_has_none_yet() -> None:
    snapshot = TransactionSnapshot(5, 10, (5, 7))
    assert snapshot.horizon([("other", 5)]) == 10
    assert snapshot.horizon([("other", 5), ("writer", None)]) == 7
    assert snapshot.horizon([("other", 5), ("writer", None), ("writer", 7)]) == 7
    assert snapshot.horizon([("other", 5), ("foreign", 7), ("writer", None), ("writer", 12)]) == 10


def test_snapshots_are_read_as_postgresql_writes_them() -> None:
    assert TransactionSnapshot.read("10:20:10,14") == TransactionSnapshot(10, 20, (10, 14))
    assert TransactionSnapshot.read("10:10:") == TransactionSnapshot(10, 10, ())
