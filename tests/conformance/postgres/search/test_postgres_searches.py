"""Searches in PostgreSQL: hostile constants, statements, deadlines, sums."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from mediator.base.bounded_cache import MAX_BYTES
from mediator.model.filters import (
    ID,
    And,
    Compare,
    Comparison,
    Contains,
    In,
    Like,
    Not,
    Or,
)
from mediator.model.query import Aggregate, Computation, Function
from mediator.stores.conformance.samples import HOSTILE_TEXTS
from mediator.stores.port import (
    Fragment,
    SearchRequest,
    StoreTimeout,
    StoreTooCostly,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from mediator.stores.postgres.search import searcher
from mediator.stores.postgres.search.searcher import STEP
from mediator.stores.postgres.statements import SEARCHES
from tests.conformance.postgres.search.searches import (
    COUNT,
    FIELDS,
    NAMESPACE,
    eq,
    find_records,
    table_of,
)
from tests.faults.conditions import eventually

# Constants of users


async def test_hostile_constants_stay_constants(
    store: PostgresStore, admin: Any, many: Fragment
) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    names = tuple(field.name for field in FIELDS)
    fragment = replace(many, class_name=name, stored_as=name, groups={"main": names})
    await store.prepare(fragment)
    values: list[dict[str, Any]] = [
        {"name": text, "tags": [text], "doc": {text: text}} for text in HOSTILE_TEXTS
    ]
    writes = [
        Write(fragment, f"{i:02}", WriteKind.CREATE, uuid.uuid4().hex, ("main",), v)
        for i, v in enumerate(values)
    ]
    await store.write(writes)
    for i, text in enumerate(HOSTILE_TEXTS):
        filter_ = And(
            (
                eq("name", text),
                In(("name",), (text,)),
                Contains(("tags",), text),
                Compare(Comparison.EQ, ("doc", text), text),
                Contains(("doc", text), text),
                Not(eq("name", text + "'")),
            )
        )
        assert [r.id for r in await find_records(store, fragment, filter_)] == [f"{i:02}"]
    assert len(store.statements.search) < len(HOSTILE_TEXTS)
    await store.drop(fragment)


async def test_searches_cannot_write(store: PostgresStore, many: Fragment) -> None:
    await find_records(store, many, eq("n", 1))
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await store.searcher.pool.use(lambda c: c.execute(f"DELETE FROM {table_of(many)}"))


# Statements


async def test_the_number_of_statements_is_bounded(store: PostgresStore, many: Fragment) -> None:
    for i in range(20):
        await find_records(store, many, And((eq("n", i), In(ID, tuple("abc"[: i % 4])))))
    before = len(store.statements.search)
    for i in range(300):
        await find_records(store, many, And((eq("n", i), In(ID, tuple("abc"[: i % 4])))))
    assert len(store.statements.search) == before
    for i in range(SEARCHES + 30):
        conditions = [eq(("n", "plain")[bit == "1"], 1) for bit in f"{i:b}"]
        await find_records(store, many, And(tuple(conditions)))
        assert len(store.statements.search) <= SEARCHES
    prepared = "SELECT count(*) FROM pg_prepared_statements"
    assert await store.searcher.pool.use(lambda c: c.fetchval(prepared)) <= 64


async def test_large_constants_are_kept_within_a_bound(
    store: PostgresStore, many: Fragment
) -> None:
    for number in range(100):
        await find_records(store, many, eq("name", f"{number:06}" * 15_000))
    constants = [instance.value for instance in gc.get_objects() if type(instance) is Compare]
    assert sum(len(text) for text in constants if isinstance(text, str)) <= MAX_BYTES


async def test_sessions_do_not_keep_large_statements(store: PostgresStore, many: Fragment) -> None:
    for number in range(8):
        conditions = [eq(("n", "plain")[bit == "1"], 1) for bit in f"{number:0200b}"]
        await find_records(store, many, And(tuple(conditions)))
    max_length = "SELECT max(length(statement)) FROM pg_prepared_statements"
    assert await store.searcher.pool.use(lambda c: c.fetchval(max_length)) <= 2**14


async def test_a_page_of_large_values_ends_early_and_resumes(
    store: PostgresStore, many: Fragment
) -> None:
    search = SearchRequest(many, None, (), 1_000, fields=("text",))
    [full, short] = [
        await store.find(replace(search, max_bytes=max_bytes)) for max_bytes in (2**30, 1)
    ]
    assert (len(full.records), len(short.records)) == (1_000, STEP)
    last, projection = full.records[STEP - 1], ("text",)
    page = await store.documents(replace(search, max_bytes=1), projection, ())
    assert [document["id"] for document in page.documents] == [r.id for r in short.records]
    assert page.last is not None
    assert page.last.id == last.id
    next_page = await store.find(replace(search, resume=short.resume))
    assert next_page.records[: 1_000 - STEP] == full.records[STEP:]
    bounded = await store.find(replace(search, fields=("n",), max_bytes=1))
    assert len(bounded.records) == 1_000


# Deadlines


@pytest.fixture
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the end of a statement to the server: a stalled machine reports it late."""
    monkeypatch.setattr(searcher, "GRACE_S", 60.0)


@pytest.mark.usefixtures("_patient")
async def test_searches_end_in_time(
    store: PostgresStore, admin: Any, config: SystemConfig, many: Fragment
) -> None:
    locker = await asyncpg.connect(config.url)
    try:
        async with locker.transaction():
            await locker.execute(f"LOCK TABLE {table_of(many)} IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreTooCostly):
                await find_records(store, many, eq("n", 1), deadline_s=0.1)
            with pytest.raises(StoreTooCostly):
                await store.aggregate(many, None, Aggregate((), COUNT), limit=1, deadline_s=0.1)
            query = "SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted"
            assert await admin.fetchval(query, table_of(many)) == 0
    finally:
        await locker.close()
    assert [r.id for r in await find_records(store, many, eq("n", 1), deadline_s=60.0)] == [
        "id00001"
    ]


@pytest.mark.usefixtures("_patient")
async def test_the_server_stops_searches_that_take_too_long(
    store: PostgresStore, admin: Any, many: Fragment
) -> None:
    costly = Like(("text",), "%" + "x%" * 300 + "y")
    filter_ = Or(tuple(Like(("text",), costly.pattern + "z" * i) for i in range(40)))
    with pytest.raises(StoreTooCostly):
        await find_records(store, many, filter_, deadline_s=0.05)
    query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1"
    assert await admin.fetchval(query, f'%{NAMESPACE}"."d.many%LIKE%') == 0


async def test_waiting_for_a_connection_counts(config: SystemConfig, many: Fragment) -> None:
    store = PostgresStore(replace(config, pool_size=2))
    await store.open()
    acquired, release = asyncio.Barrier(3), asyncio.Event()

    async def hold(_: Any) -> None:
        await acquired.wait()
        await release.wait()

    holders = [asyncio.create_task(store.searcher.pool.use(hold)) for _ in range(2)]
    await acquired.wait()
    with pytest.raises(StoreTooCostly):
        await find_records(store, many, eq("n", 1), deadline_s=0.05)
    release.set()
    await asyncio.gather(*holders)
    assert len(await find_records(store, many, eq("n", 1))) == 1
    await store.close()


async def test_a_silent_server_is_given_up(
    config: SystemConfig, many: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store does not wait for a server that fails to end a statement in time."""
    store = PostgresStore(config)
    await store.open()
    pool = store.searcher.pool
    assert len(await find_records(store, many, eq("n", 1), deadline_s=5.0)) == 1
    monkeypatch.setattr(searcher, "GRACE_S", 0.1)
    backend = await pool.use(lambda c: c.fetchval("SELECT pg_backend_pid()"))
    os.kill(backend, signal.SIGSTOP)
    try:
        # The session already has its limit: only the client's deadline ends this.
        with pytest.raises(StoreTimeout):
            await find_records(store, many, eq("n", 1), deadline_s=4.9)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert await pool.use(lambda c: c.fetchval("SELECT pg_backend_pid()")) != backend
    await store.close()


async def test_an_unreachable_server_is_unavailable(config: SystemConfig, many: Fragment) -> None:
    store = PostgresStore(replace(config, url="postgresql://nobody:secret@127.0.0.1:1/x"))
    with pytest.raises(StoreUnavailable) as raised:
        await find_records(store, many, eq("n", 1))
    assert "secret" not in str(raised.value)


# Computing


async def test_sums_are_exact_beyond_every_type(store: PostgresStore, many: Fragment) -> None:
    name = f"c{uuid.uuid4().hex[:12]}"
    fragment = replace(many, class_name=name, stored_as=name)
    await store.prepare(fragment)
    rows: list[dict[str, Any]] = [
        {"n": 2**63 - 1, "amount": Decimal("9" * 34)},
        {"n": 2**63 - 1, "amount": Decimal("1E-20")},
        {"n": None},
        {},
    ]
    await store.write(
        [
            Write(fragment, str(i), WriteKind.CREATE, uuid.uuid4().hex, ("main",), row)
            for i, row in enumerate(rows)
        ]
    )
    compute = {
        "n": Computation(Function.SUM, ("n",)),
        "mean": Computation(Function.AVG, ("n",)),
        "amount": Computation(Function.SUM, ("amount",)),
        "middle": Computation(Function.AVG, ("amount",)),
    }
    (group,) = await store.aggregate(fragment, None, Aggregate((), compute), limit=1, deadline_s=5)
    assert group == (
        (),
        {
            "n": 2**64 - 2,
            "mean": float(2**63 - 1),
            "amount": Decimal("9" * 34 + ".00000000000000000001"),
            "middle": Decimal("5E+33"),
        },
    )
    for aggregate in (
        Aggregate((), {"m": Computation(Function.MIN, ("blob",))}),
        Aggregate((("tags",),), COUNT),
        Aggregate((("doc", "a"),), COUNT),
        Aggregate((), {"s": Computation(Function.SUM, ("name",))}),
    ):
        assert not store.aggregates(fragment, None, aggregate)
    await store.drop(fragment)


async def test_a_cancelled_search_ends_its_statement(
    store: PostgresStore, admin: Any, many: Fragment
) -> None:
    """Only when it replies does a server notice that its client has disconnected."""

    async def is_waiting() -> bool:
        query = "SELECT count(*) > 0 FROM pg_locks WHERE relation = $1::regclass AND NOT granted"
        return bool(await admin.fetchval(query, table_of(many)))

    async def has_ended() -> bool:
        return not await is_waiting()

    async with admin.transaction():
        await admin.execute(f"LOCK TABLE {table_of(many)} IN ACCESS EXCLUSIVE MODE")
        search = asyncio.create_task(find_records(store, many, eq("n", 1), deadline_s=600.0))
        await eventually(is_waiting)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        await eventually(has_ended)
