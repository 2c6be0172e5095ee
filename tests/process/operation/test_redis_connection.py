"""The connection to Redis that stores, feed and sketch share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic
from typing import Any

import pytest
from redis.asyncio.connection import Connection as DriverConnection
from redis.asyncio.connection import parse_url

from mediator.stores.port import SystemConfig
from redis_connection.commands import command
from redis_connection.connection import (
    Connection,
    ConnectionLost,
    ReplyTimeout,
    open_connection,
)

BLOCKING = command("BLPOP", "nothing-is-pushed-here", "0")


@pytest.fixture
async def connection(redis_config: SystemConfig) -> AsyncIterator[Connection]:
    options: dict[str, Any] = dict(parse_url(redis_config.url))
    connection_class = options.pop("connection_class", DriverConnection)
    instance = await open_connection(connection_class(**options, protocol=2), RuntimeError)
    yield instance
    instance.close()


async def test_replies_go_to_their_requests_in_order(connection: Connection) -> None:
    deadline = monotonic() + 20
    first = connection.request([command("ECHO", "a"), command("NO SUCH")], deadline)
    dropped = connection.request([command("ECHO", "b")], deadline)
    last = connection.request([command("ECHO", "c")], deadline)
    dropped.cancel()
    text, error = await first
    assert text == b"a"
    assert isinstance(error, RuntimeError)
    assert await last == [b"c"]
    assert connection.idle


async def test_an_overdue_request_fails_all_requests_queued_after_it(
    connection: Connection,
) -> None:
    overdue = connection.request([BLOCKING], monotonic())
    queued = connection.request([command("PING")], monotonic() + 20)
    with pytest.raises(ReplyTimeout) as raised:
        await overdue
    assert raised.value.sent
    with pytest.raises(ReplyTimeout):
        await queued
    with pytest.raises(ConnectionLost) as refused:
        connection.request([command("PING")], monotonic() + 20)
    assert not refused.value.sent


async def test_an_unsent_request_is_reported_as_unsent(connection: Connection) -> None:
    sent = connection.request([BLOCKING], monotonic() + 20)
    unsent = connection.request([command("PING")], monotonic() + 20)
    connection.close()
    failures = await asyncio.gather(sent, unsent, return_exceptions=True)
    assert [failure.sent for failure in failures if isinstance(failure, ConnectionLost)] == [
        True,
        False,
    ]


async def test_an_unexpected_reply_ends_the_connection(connection: Connection) -> None:
    connection.data_received(b"+OK\r\n")
    assert connection.lost


def test_the_driver_has_the_private_names_that_the_connection_uses() -> None:
    driver = DriverConnection()
    assert driver._writer is None  # noqa: SLF001
    assert callable(driver._close)  # noqa: SLF001
