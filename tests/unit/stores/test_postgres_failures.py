"""Errors are raised as the port's, and contain neither values nor passwords."""

from __future__ import annotations

import asyncpg
import pytest

from mediator.stores.port import (
    StoreError,
    StoreRefused,
    StoreTimeout,
    StoreUnavailable,
    SystemConfig,
)
from mediator.stores.postgres import PostgresStore
from mediator.stores.postgres.errors import FAILURES, as_store_error

SECRET = "s3cr3t"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError(), StoreTimeout),
        (asyncpg.QueryCanceledError("x"), StoreTimeout),
        (asyncpg.LockNotAvailableError("x"), StoreTimeout),
        (ConnectionRefusedError(111, "refused"), StoreUnavailable),
        (asyncpg.AdminShutdownError("x"), StoreUnavailable),
        (asyncpg.CannotConnectNowError("x"), StoreUnavailable),
        (asyncpg.TooManyConnectionsError("x"), StoreUnavailable),
        (asyncpg.ConnectionDoesNotExistError("x"), StoreUnavailable),
        (asyncpg.InterfaceError("connection is closed"), StoreUnavailable),
        (asyncpg.InternalClientError(f"cannot switch to state 11 {SECRET}"), StoreUnavailable),
        (asyncpg.InvalidPasswordError("x"), StoreRefused),
        (asyncpg.DiskFullError("x"), StoreRefused),
        (asyncpg.UndefinedTableError("x"), StoreRefused),
        (ValueError(f"invalid DSN: {SECRET}"), StoreRefused),
        (asyncpg.DataError(f"invalid input: {SECRET}"), StoreRefused),
    ],
)
def test_each_failure_has_its_kind(error: Exception, expected: type[StoreError]) -> None:
    assert isinstance(error, FAILURES), "the store would not catch it"
    store_error = as_store_error("pg", error)
    assert type(store_error) is expected
    assert SECRET not in str(store_error)
    write_error = as_store_error("pg", error, writes=True)
    # A write that lost its connection may have been committed.
    assert type(write_error) is (StoreTimeout if expected is StoreUnavailable else expected)
    assert SECRET not in str(write_error)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:1/db",
        f"postgresql://user:{SECRET}@nowhere.invalid/db",
        f"postgresql://user:{SECRET}@127.0.0.1:notaport/db",
        f"mysql://user:{SECRET}@127.0.0.1/db",
        f"postgresql://user:{SECRET}@/db?host=/nonexistent",
    ],
)
async def test_an_unreachable_server_fails_without_its_password(url: str) -> None:
    store = PostgresStore(SystemConfig("pg", "postgresql", url, deadline_s=1.0))
    with pytest.raises(StoreError) as caught:
        await store.open()
    assert SECRET not in repr(caught.value)
    assert caught.value.__cause__ is None
    await store.close()
