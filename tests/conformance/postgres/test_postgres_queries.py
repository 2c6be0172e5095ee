"""Searching in PostgreSQL: indexes, statements, deadlines, hostile constants."""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import asyncpg
import pytest

from mediator.model.filters import (
    ID,
    And,
    Between,
    Compare,
    Comparison,
    Contains,
    Exists,
    Filter,
    In,
    Like,
    Not,
    Or,
)
from mediator.model.query import Computation, Function, OrderBy, Position
from mediator.schema.tree import MISSING, Field
from mediator.schema.types import FieldType
from mediator.stores.conformance.samples import HOSTILE_TEXTS
from mediator.stores.port import (
    Access,
    Aggregating,
    Fragment,
    Queryable,
    Record,
    SearchRequest,
    StoreRefused,
    StoreTimeout,
    StoreTooCostly,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from mediator.stores.postgres.search import searcher
from mediator.stores.postgres.search.predicates import shaped_filter
from mediator.stores.postgres.search.statement import SearchShape, levels, ranks, values_named
from mediator.stores.postgres.statements import SEARCHES
from tests.faults.conditions import eventually

NAMESPACE = f"portolan_test_{uuid.uuid4().hex[:12]}"
COUNT = {"n": Computation(Function.COUNT)}
LONG = "x" * 600
MANY = 4_000

FIELDS = (
    Field("n", FieldType.INTEGER, index=True),
    Field("rare", FieldType.INTEGER, index=True),
    Field("name", FieldType.STRING, index=True, max_length=100),
    Field("text", FieldType.STRING, index=True),
    Field("blob", FieldType.BINARY, index=True),
    Field("plain", FieldType.INTEGER),
    Field("amount", FieldType.DECIMAL),
    Field("at", FieldType.TIMESTAMP),
    Field("tags", FieldType.LIST, items=FieldType.STRING),
    Field("doc", FieldType.DOCUMENT),
    Field("prices", FieldType.MAP, items=FieldType.DECIMAL),
)


def eq(name: str, value: Any) -> Compare:
    return Compare(Comparison.EQ, (name,), value)


def ge(name: str, value: Any) -> Compare:
    return Compare(Comparison.GE, (name,), value)


@pytest.fixture(scope="module")
async def config(postgresql_config: SystemConfig) -> AsyncIterator[SystemConfig]:
    yield replace(postgresql_config, namespace=NAMESPACE, deadline_s=10.0, durability="second")
    admin = await asyncpg.connect(postgresql_config.url)
    await admin.execute(f'DROP SCHEMA IF EXISTS "{NAMESPACE}" CASCADE')
    await admin.close()


@pytest.fixture(scope="module")
async def store(config: SystemConfig) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(config)
    await store.open()
    yield store
    await store.close()


@pytest.fixture(scope="module")
async def admin(config: SystemConfig) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(config.url)
    yield connection
    await connection.close()


def table_of(fragment: Fragment) -> str:
    return f'"{NAMESPACE}"."{fragment.database}.{fragment.class_name}"'


@pytest.fixture(scope="module")
async def many(store: PostgresStore, admin: Any) -> Fragment:
    """A class of a few thousand records, most of them without `rare`."""
    names = tuple(field.name for field in FIELDS)
    fragment = Fragment("postgres", "d", "many", {f.name: f for f in FIELDS}, {"main": names})
    await store.prepare(fragment)
    await admin.execute(
        f"INSERT INTO {table_of(fragment)}"
        " (id, _creation_version, _nulls, n, rare, name, text, blob, plain)"
        " SELECT 'id' || lpad(i::text, 5, '0'), 1, CASE WHEN i % 10 = 0 THEN '{rare}'::text[]"
        " ELSE '{}' END, i, CASE WHEN i % 100 = 1 THEN i END, 'name' || lpad(i::text, 5, '0'),"
        " lpad(i::text, 5, '0') || repeat('x', 600), int4send(i::int), i % 50"
        f" FROM generate_series(1, {MANY}) AS i"
    )
    await admin.execute(f"ANALYZE {table_of(fragment)}")
    return fragment


async def found(
    store: PostgresStore, fragment: Fragment, filter_: Filter | None, **what: Any
) -> list[Record]:
    find = SearchRequest(fragment, filter_, what.pop("order", ()), what.pop("limit", 100), **what)
    return list((await store.find(find)).records)


async def plan_of(
    store: PostgresStore,
    admin: Any,
    fragment: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...] = (),
    after: Position | None = None,
) -> str:
    """Let the server explain a search of ten records."""
    asked, chosen = shaped_filter(fragment, filter_), levels(fragment, order)
    assert asked is not None
    assert chosen is not None
    search = SearchShape(fragment, asked.shape, chosen, ranks(after), tuple(fragment.fields))
    statement = store._statements.search(search)
    constants = {f"p{i}": value for i, value in enumerate(asked.constants)}
    given = constants | values_named(after, search) | {"limit": 10}
    rows = await admin.fetch(f"EXPLAIN {statement.text}", *statement.arguments(given))
    return "\n".join(line for (line,) in rows)


def test_optional_protocols(store: PostgresStore) -> None:
    assert isinstance(store, Queryable)
    assert isinstance(store, Aggregating)


# What is pushed


EXACT: tuple[Filter, ...] = (
    eq("n", 2**63 - 1),
    eq("text", None),
    eq("tags", None),
    Compare(Comparison.NE, ("doc",), None),
    Between(("amount",), Decimal(-1), Decimal("9" * 34)),
    In(("at",), (datetime(9999, 12, 31, tzinfo=UTC), None)),
    Like(("text",), r"50\%_%"),
    Like(ID, "%"),
    Contains(("tags",), "x"),
    Contains(("text",), ""),
    Exists(("prices", "k")),
    Compare(Comparison.EQ, ("doc", "a", "b"), 1.5),
    Compare(Comparison.LT, ("doc", "a.b"), "x"),
    Contains(("doc", "a"), "x"),
    Like(("doc", "a"), "x%"),
    Not(Or((Not(ge("n", 1)), And((eq("name", "x"), Exists(("doc", "k"))))))),
)

INEXACT: tuple[Filter, ...] = (
    eq("tags", ["x"]),
    eq("doc", {"a": 1}),
    Compare(Comparison.EQ, ("doc", "a"), [1]),
    Compare(Comparison.EQ, ("doc", "a"), 2**63),
    Compare(Comparison.LT, ("doc", "a"), True),
    Compare(Comparison.GT, ("prices", "k"), Decimal(1)),
    Like(("text",), "a\0b"),
    Contains(("text",), "\ud800"),
    eq("n", 1.0),
    eq("n", 2**63),
    Not(eq("tags", ["x"])),
)


@pytest.mark.parametrize("filter_", EXACT, ids=repr)
def test_what_is_exact_is_pushed(store: PostgresStore, many: Fragment, filter_: Filter) -> None:
    assert store.pushdown(many, filter_, ()).residual is None
    assert store.aggregates(many, filter_, (("n",), ID), COUNT)


@pytest.mark.parametrize("filter_", INEXACT, ids=repr)
def test_what_is_not_exact_is_left(store: PostgresStore, many: Fragment, filter_: Filter) -> None:
    assert store.pushdown(many, filter_, ()).pushed is None
    assert not store.aggregates(many, filter_, (), COUNT)
    split = store.pushdown(many, And((eq("n", 1), filter_)), ())
    assert (split.pushed, split.residual) == (eq("n", 1), filter_)


async def test_what_was_not_pushed_is_refused(store: PostgresStore, many: Fragment) -> None:
    with pytest.raises(StoreRefused):
        await found(store, many, INEXACT[0])
    with pytest.raises(StoreRefused):
        await found(store, many, None, order=(OrderBy(("doc", "a")),))
    with pytest.raises(StoreRefused):
        await found(store, many, None, fields=("absent",))


@pytest.mark.parametrize(
    ("filter_", "order", "access"),
    [
        (And((eq("plain", 1), In(ID, ("a", "b")))), (), Access.KEYS),
        (Compare(Comparison.EQ, ID, "a"), (), Access.KEYS),
        (And((eq("plain", 1), eq("n", 1))), (), Access.INDEX),
        (Like(("name",), "name0%"), (), Access.INDEX),
        (eq("rare", None), (), Access.INDEX),
        (None, (), Access.INDEX),
        (None, (OrderBy(ID, True),), Access.INDEX),
        (eq("plain", 1), (OrderBy(("n",), True),), Access.INDEX),
        (Like(("name",), "%0"), (), Access.SERVER_SCAN),
        (Not(eq("n", 1)), (), Access.SERVER_SCAN),
        (Or((eq("n", 1), eq("plain", 1))), (), Access.SERVER_SCAN),
        (eq("plain", 1), (OrderBy(ID),), Access.SERVER_SCAN),
        (None, (OrderBy(("plain",)),), Access.SERVER_SCAN),
    ],
)
def test_access_is_told(
    store: PostgresStore,
    many: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    access: Access,
) -> None:
    assert store.pushdown(many, filter_, order).access is access


def test_orders_within_documents_are_left(store: PostgresStore, many: Fragment) -> None:
    assert not store.pushdown(many, None, (OrderBy(("n",)), OrderBy(("doc", "a")))).ordered
    assert store.pushdown(many, None, (OrderBy(("n",)), OrderBy(("plain",), True))).ordered


# Indexes


@pytest.mark.parametrize(
    ("filter_", "index"),
    [
        (eq("n", 7), "d.many~n"),
        (Between(("n",), 7, 9), "d.many~n"),
        (And((Compare(Comparison.LT, ("n",), 9), ge("plain", 3))), "d.many~n"),
        (In(("n",), (7, 8, 9)), "d.many~n"),
        (eq("rare", 101), "d.many~rare"),
        (eq("name", "name00007"), "d.many~name"),
        (Like(("name",), "name0000%"), "d.many~name"),
        (Like(("name",), "%0007"), None),
        (eq("text", f"00007{LONG}"), "d.many~text~"),
        (In(("text",), ("y", "z")), "d.many~text~"),
        (Like(("text",), "0000%"), "d.many~text~"),
        (ge("blob", b"\x00\x00\x0f\x9f"), "d.many~blob~"),
        (Compare(Comparison.EQ, ID, "id00007"), "d.many_pkey"),
        (In(ID, ("id00007", "id00009")), "d.many_pkey"),
    ],
)
async def test_indexes_serve_filters(
    store: PostgresStore, admin: Any, many: Fragment, filter_: Filter, index: str | None
) -> None:
    plan = await plan_of(store, admin, many, filter_, (OrderBy(("plain",)),))
    if index is None:
        assert "Index" not in plan
    else:
        assert f'"{index}"' in plan
        assert "Seq Scan" not in plan


UP, DOWN = (OrderBy(("n",)),), (OrderBy(("n",), True),)
RARE = (OrderBy(("rare",)),)


@pytest.mark.parametrize(
    ("filter_", "order", "after"),
    [
        (None, UP, None),
        (None, DOWN, None),
        (eq("plain", 3), DOWN, None),
        (None, UP, Position((2000,), "id02000")),
        (None, DOWN, Position((2000,), "id02000")),
        (None, RARE, Position((MISSING,), "id02000")),
        (None, RARE, Position((None,), "id02000")),
        (None, (OrderBy(("rare",), True),), Position((None,), "id02000")),
        (None, (OrderBy(("text",)),), Position((f"02000{LONG}",), "id02000")),
        (None, (), Position((), "id02000")),
        (None, (OrderBy(ID, True),), None),
    ],
)
async def test_indexes_serve_orders(
    store: PostgresStore,
    admin: Any,
    many: Fragment,
    filter_: Filter | None,
    order: tuple[OrderBy, ...],
    after: Position | None,
) -> None:
    plan = await plan_of(store, admin, many, filter_, order, after)
    assert "Seq Scan" not in plan
    # Parts that were limited one by one may be put in order together.
    assert "->  Sort " not in plan or plan.count("Limit  ") == 1 + plan.count("Index Scan"), plan
    assert after is None or "Index Cond" in plan


async def test_positions_among_nulls_are_sought(
    store: PostgresStore, admin: Any, many: Fragment
) -> None:
    """The index leads to the id itself, not to the first of all nulls."""
    plan = await plan_of(store, admin, many, None, RARE, Position((MISSING,), "id02000"))
    conditions = [line for line in plan.splitlines() if "Index Cond" in line]
    assert any("id" in line.split("IS NULL", 1)[-1] for line in conditions), plan


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
        assert [r.id for r in await found(store, fragment, filter_)] == [f"{i:02}"]
    assert store._statements.search.cache_info().currsize < len(HOSTILE_TEXTS)
    await store.drop(fragment)


async def test_searches_cannot_write(store: PostgresStore, many: Fragment) -> None:
    await found(store, many, eq("n", 1))
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await store._searcher._pool.use(lambda c: c.execute(f"DELETE FROM {table_of(many)}"))


# Statements


async def test_statements_do_not_grow_with_what_users_ask(
    store: PostgresStore, many: Fragment
) -> None:
    for i in range(20):
        await found(store, many, And((eq("n", i), In(ID, tuple("abc"[: i % 4])))))
    before = store._statements.search.cache_info().currsize
    for i in range(300):
        await found(store, many, And((eq("n", i), In(ID, tuple("abc"[: i % 4])))))
    assert store._statements.search.cache_info().currsize == before
    for i in range(SEARCHES + 30):
        parts = [eq(("n", "plain")[bit == "1"], 1) for bit in f"{i:b}"]
        await found(store, many, And(tuple(parts)))
    assert store._statements.search.cache_info().currsize == SEARCHES
    prepared = "SELECT count(*) FROM pg_prepared_statements"
    assert await store._searcher._pool.use(lambda c: c.fetchval(prepared)) <= 64


# Deadlines


async def test_searches_end_in_time(
    store: PostgresStore, admin: Any, config: SystemConfig, many: Fragment
) -> None:
    locker = await asyncpg.connect(config.url)
    try:
        async with locker.transaction():
            await locker.execute(f"LOCK TABLE {table_of(many)} IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreTooCostly):
                await found(store, many, eq("n", 1), deadline_s=0.1)
            with pytest.raises(StoreTooCostly):
                await store.aggregate(many, None, (), COUNT, limit=1, deadline_s=0.1)
            waiting = "SELECT count(*) FROM pg_locks WHERE relation = $1::regclass AND NOT granted"
            assert await admin.fetchval(waiting, table_of(many)) == 0
    finally:
        await locker.close()
    assert [r.id for r in await found(store, many, eq("n", 1), deadline_s=5.0)] == ["id00001"]


async def test_the_server_stops_what_takes_too_long(
    store: PostgresStore, admin: Any, many: Fragment
) -> None:
    cross = Like(("text",), "%" + "x%" * 300 + "y")
    filter_ = Or(tuple(Like(("text",), cross.pattern + "z" * i) for i in range(40)))
    with pytest.raises(StoreTooCostly):
        await found(store, many, filter_, deadline_s=0.05)
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1"
    assert await admin.fetchval(running, f'%{NAMESPACE}"."d.many%LIKE%') == 0


async def test_waiting_for_a_connection_counts(config: SystemConfig, many: Fragment) -> None:
    store = PostgresStore(replace(config, pool_size=2))
    await store.open()
    taken, release = asyncio.Barrier(3), asyncio.Event()

    async def hold(_: Any) -> None:
        await taken.wait()
        await release.wait()

    holders = [asyncio.create_task(store._searcher._pool.use(hold)) for _ in range(2)]
    await taken.wait()
    with pytest.raises(StoreTooCostly):
        await found(store, many, eq("n", 1), deadline_s=0.05)
    release.set()
    await asyncio.gather(*holders)
    assert len(await found(store, many, eq("n", 1))) == 1
    await store.close()


async def test_a_server_that_falls_silent_is_given_up(
    config: SystemConfig, many: Fragment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not end a statement in its time, either, is not waited for."""
    store = PostgresStore(config)
    await store.open()
    pool = store._searcher._pool
    assert len(await found(store, many, eq("n", 1), deadline_s=5.0)) == 1
    monkeypatch.setattr(searcher, "_GRACE_S", 0.1)
    backend = await pool.use(lambda c: c.fetchval("SELECT pg_backend_pid()"))
    os.kill(backend, signal.SIGSTOP)
    try:
        # The session knows its limit already: only our own patience ends this.
        with pytest.raises(StoreTimeout):
            await found(store, many, eq("n", 1), deadline_s=4.9)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert await pool.use(lambda c: c.fetchval("SELECT pg_backend_pid()")) != backend
    await store.close()


async def test_a_dead_server_is_unavailable(config: SystemConfig, many: Fragment) -> None:
    store = PostgresStore(replace(config, url="postgresql://nobody:secret@127.0.0.1:1/x"))
    with pytest.raises(StoreUnavailable) as raised:
        await found(store, many, eq("n", 1))
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
    (group,) = await store.aggregate(fragment, None, (), compute, limit=1, deadline_s=5)
    assert group == (
        (),
        {
            "n": 2**64 - 2,
            "mean": float(2**63 - 1),
            "amount": Decimal("9" * 34 + ".00000000000000000001"),
            "middle": Decimal("5E+33"),
        },
    )
    assert not store.aggregates(fragment, None, (), {"m": Computation(Function.MIN, ("blob",))})
    assert not store.aggregates(fragment, None, (("tags",),), COUNT)
    assert not store.aggregates(fragment, None, (("doc", "a"),), COUNT)
    assert not store.aggregates(fragment, None, (), {"s": Computation(Function.SUM, ("name",))})
    await store.drop(fragment)


async def test_a_statement_ends_with_the_search_that_was_given_up(
    store: PostgresStore, admin: Any, many: Fragment
) -> None:
    """That its client has gone a server notices only once it answers."""

    async def waiting() -> bool:
        waits = "SELECT count(*) > 0 FROM pg_locks WHERE relation = $1::regclass AND NOT granted"
        return bool(await admin.fetchval(waits, table_of(many)))

    async def ended() -> bool:
        return not await waiting()

    async with admin.transaction():
        await admin.execute(f"LOCK TABLE {table_of(many)} IN ACCESS EXCLUSIVE MODE")
        search = asyncio.create_task(found(store, many, eq("n", 1), deadline_s=600.0))
        await eventually(waiting)
        search.cancel()
        with pytest.raises(asyncio.CancelledError):
            await search
        await eventually(ended)
