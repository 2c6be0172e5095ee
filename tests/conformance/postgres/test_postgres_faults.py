"""Faults: locks, cancelled calls, terminated sessions, invalid names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest

from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.stores.port import (
    Fragment,
    Read,
    Status,
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
    Write,
    WriteKind,
)
from mediator.stores.postgres import PostgresStore
from mediator.stores.postgres.connection import Pool, connect
from mediator.stores.postgres.write.writer import Writer
from tests.conformance.postgres.records import (
    ADD,
    NAMESPACE,
    fragment_of,
    get,
    make_write,
    put,
    table_of,
    write_one,
)
from tests.faults.conditions import eventually

T = TypeVar("T")

LONG_S = 60.0


async def test_a_lock_is_waited_for_until_the_deadline(
    config: SystemConfig, store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    hasty = PostgresStore(replace(config, deadline_s=0.2, pool_size=2))

    async def responds() -> bool:
        """Whether more calls succeed than the pool has connections."""
        try:
            await asyncio.gather(*(hasty.read([Read(subject, "x")]) for _ in range(8)))
        except (StoreTimeout, StoreUnavailable):
            return False  # its deadline is short, and the machine may be busy
        return True

    await eventually(responds)
    await put(store, subject, "x", n=0)
    async with admin.transaction():
        await admin.execute(f"SELECT * FROM {table_of(subject)} FOR UPDATE")
        calls = [make_write(subject, "x", WriteKind.UPDATE, operators=(ADD,)) for _ in range(5)]
        errors = await asyncio.gather(*(write_one(hasty, c) for c in calls), return_exceptions=True)
        await _wait_until_idle(admin)  # the server also gives up while the lock is held
    assert {type(error) for error in errors} == {StoreTimeout}
    await eventually(responds)  # the connections were given up, not leaked
    await hasty.close()
    assert await get(store, subject, "x") == {"n": 0}


async def test_a_cancelled_call_leaks_nothing(
    config: SystemConfig, store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    single = PostgresStore(replace(config, pool_size=1, deadline_s=LONG_S))
    await put(store, subject, "x", n=0)
    async with admin.transaction():
        await admin.execute(f"SELECT * FROM {table_of(subject)} FOR UPDATE")
        task = asyncio.create_task(
            write_one(single, make_write(subject, "x", WriteKind.UPDATE, operators=(ADD,)))
        )
        await _wait_for_blocked(admin)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await single.ping()
    await single.close()


async def _waiting_pid(admin: Any) -> int | None:
    """Return the process id of a session of Portolan that waits for a lock."""
    pid: int | None = await admin.fetchval(
        "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid)"
        " WHERE NOT granted AND application_name = 'portolan' AND query LIKE $1",
        f"%{NAMESPACE}%",
    )
    await admin.execute("SELECT pg_stat_clear_snapshot()")
    return pid


async def _wait_for_blocked(admin: Any) -> int:
    async with asyncio.timeout(LONG_S):
        while (pid := await _waiting_pid(admin)) is None:
            pass
    return pid


async def _wait_until_idle(admin: Any) -> None:
    """Wait until no statement runs on the tests' tables."""
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE application_name = 'portolan' AND state = 'active' AND query LIKE $1"
    )
    async with asyncio.timeout(LONG_S):
        while await admin.fetchval(query, f"%{NAMESPACE}%"):
            await admin.execute("SELECT pg_stat_clear_snapshot()")


async def test_a_partly_applied_batch_is_not_reported_as_unapplied(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    """The batch is several transactions, and the session of the second one is terminated."""
    ids = [f"{number:03}" for number in range(200)]
    await store.write([make_write(subject, id_, WriteKind.REPLACE, values={"n": 0}) for id_ in ids])
    calls = [make_write(subject, id_, WriteKind.UPDATE, operators=(ADD,)) for id_ in ids]
    async with admin.transaction():
        await admin.execute(f"SELECT * FROM {table_of(subject)} WHERE id = '199' FOR UPDATE")
        task = asyncio.create_task(store.write(calls))
        await admin.execute("SELECT pg_terminate_backend($1)", await _wait_for_blocked(admin))
        with pytest.raises(StoreTimeout, match="may or may not"):
            await task
    assert (await get(store, subject, "000"), await get(store, subject, "199")) == (
        {"n": 1},
        {"n": 0},
    )


class LosingPool(Pool):
    """A pool that is unavailable after a number of uses."""

    def __init__(self, config: SystemConfig, remaining: int) -> None:
        super().__init__(partial(connect, config), 8)
        self._remaining = remaining

    async def use(self, work: Callable[[Any], Awaitable[T]], within_s: float | None = None) -> T:
        if not self._remaining:
            raise StoreUnavailable("it is unreachable")
        self._remaining -= 1
        return await super().use(work, within_s)


@asynccontextmanager
async def losing_writer(store: PostgresStore, remaining: int) -> AsyncIterator[Writer]:
    pool = LosingPool(store.config, remaining)
    yield Writer("postgres", store.statements, pool, store.read)
    await pool.close()


@pytest.mark.parametrize(("remaining", "error"), [(0, StoreUnavailable), (1, StoreTimeout)])
async def test_a_batch_is_unavailable_only_if_no_write_was_applied(
    store: PostgresStore, subject: Fragment, remaining: int, error: type[StoreError]
) -> None:
    """The batch is two transactions."""
    ids = [f"{number:03}" for number in range(200)]
    async with losing_writer(store, remaining) as writer:
        with pytest.raises(StoreError) as raised:
            await writer.write(
                [make_write(subject, id_, WriteKind.REPLACE, values={"n": 0}) for id_ in ids], ""
            )
    assert raised.type is error
    assert (await get(store, subject, "000") is None) is (error is StoreUnavailable)


async def test_one_concurrent_write_without_a_connection_does_not_stand_for_the_batch(
    store: PostgresStore,
) -> None:
    """One write claims a taken value, so each runs separately; the last has no connection."""
    fragment = replace(fragment_of(Field("s", FieldType.STRING)), unique=(("s",),))
    await store.prepare(fragment)

    def creation(id_: str, value: str) -> Write:
        options: dict[str, Any] = {"values": {"s": value}, "claims": {"s": value}}
        return make_write(fragment, id_, WriteKind.CREATE, **options)

    await write_one(store, creation("taken", "a"))
    async with losing_writer(store, remaining=3) as writer:
        with pytest.raises(StoreTimeout):
            await writer.write([creation(v, v) for v in "cbad"], "")
    assert await get(store, fragment, "c") == {"s": "c"}
    await store.drop(fragment)


@pytest.mark.parametrize("number", [1, 3])
async def test_writes_to_an_unreachable_server_are_not_applied(
    config: SystemConfig, subject: Fragment, number: int
) -> None:
    unreachable = PostgresStore(replace(config, url="postgresql://nobody@127.0.0.1:1/x"))
    with pytest.raises(StoreUnavailable):
        await unreachable.write(
            [make_write(subject, f"{n}", WriteKind.REPLACE) for n in range(number)]
        )
    await unreachable.close()


async def test_a_terminated_session_is_reported_and_replaced(
    store: PostgresStore, subject: Fragment, admin: Any
) -> None:
    await put(store, subject, "x", n=0)
    call = make_write(subject, "x", WriteKind.UPDATE, operators=(ADD,))
    async with admin.transaction():
        await admin.execute(f"SELECT * FROM {table_of(subject)} FOR UPDATE")
        task = asyncio.create_task(write_one(store, call))
        await admin.execute("SELECT pg_terminate_backend($1)", await _wait_for_blocked(admin))
        with pytest.raises(StoreTimeout, match="may or may not"):
            await task
    assert await get(store, subject, "x") == {"n": 0}
    assert (await write_one(store, call)).status is Status.APPLIED


async def test_idle_sessions_that_were_terminated_are_not_used(
    config: SystemConfig, admin: Any
) -> None:
    other = PostgresStore(config)
    pid = await other.use(lambda c: c.fetchval("SELECT pg_backend_pid()"))
    await admin.execute("SELECT pg_terminate_backend($1, 60000)", pid)
    async with asyncio.timeout(LONG_S):
        while not other.pool.idle[0].is_closed():
            await admin.execute("SELECT 1")
    await other.ping()
    await other.close()


async def test_a_class_that_was_never_prepared_is_refused(store: PostgresStore) -> None:
    fragment = fragment_of(Field("n", FieldType.INTEGER))
    with pytest.raises(StoreRefused):
        await get(store, fragment, "x")
    with pytest.raises(StoreRefused):
        await put(store, fragment, "x", n=1)


async def test_names_that_the_fragment_lacks_are_refused(
    store: PostgresStore, subject: Fragment
) -> None:
    bad = 'n" = 1; DROP TABLE x; --'
    calls: list[dict[str, Any]] = [
        {"values": {bad: 1}},
        {"unset": (bad,)},
        {"returning": (bad,)},
        {"groups": (bad,)},
        {"expect": {bad: 1}},
    ]
    for options in calls:
        with pytest.raises(StoreRefused):
            await write_one(store, make_write(subject, "x", WriteKind.UPDATE, **options))
    for call in (
        make_write(subject, "x", WriteKind.REPLACE, values={bad: 1}),
        make_write(subject, "x", WriteKind.UPDATE, values={"n": 2**63}),
        make_write(subject, "x\0", WriteKind.UPDATE, values={"n": 1}),
        make_write(subject, "x", WriteKind.UPDATE, values={"s": "\ud800"}),
    ):
        with pytest.raises(StoreRefused):
            await write_one(store, call)
    with pytest.raises(StoreRefused):
        await store.read([Read(subject, "x", (bad,))])
