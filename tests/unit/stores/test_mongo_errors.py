"""Errors of the event loop that MongoDB's driver passes on."""

from __future__ import annotations

import asyncio

import pytest
import uvloop
from pymongo.errors import AutoReconnect, NetworkTimeout, NotPrimaryError, OperationFailure

from mediator.stores.mongo.errors import as_store_error, guarded
from mediator.stores.port import StoreError, StoreRefused, StoreTimeout, StoreUnavailable


async def _send_until_refused(port: int) -> None:
    """Act as the driver does: pause after a reply, write, resume reading."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
    transport.pause_reading()
    while True:
        transport.write(b"a command")
        transport.resume_reading()
        transport.pause_reading()
        await asyncio.sleep(0)


async def _use_a_closed_connection(*, writes: bool, expected: type[StoreError]) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(expected, match="closed the connection"):
            await guarded("mongo", 10.0, _send_until_refused(port), writes=writes)


@pytest.mark.parametrize(("writes", "expected"), [(False, StoreUnavailable), (True, StoreTimeout)])
def test_a_closed_connection_is_an_unavailable_system(
    writes: bool, expected: type[StoreError]
) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_use_a_closed_connection(writes=writes, expected=expected))


@pytest.mark.parametrize(
    ("error", "read_error"),
    [
        (AutoReconnect("connection closed"), StoreUnavailable),
        (NotPrimaryError("stepped down"), StoreUnavailable),
        (NetworkTimeout("late"), StoreTimeout),
        (OperationFailure("no", 1), StoreRefused),
    ],
)
def test_a_write_that_loses_its_connection_may_have_been_applied(
    error: Exception, read_error: type[StoreError]
) -> None:
    assert type(as_store_error("mongo", error)) is read_error
    write_error = as_store_error("mongo", error, writes=True)
    assert type(write_error) is (StoreTimeout if read_error is StoreUnavailable else read_error)


async def test_programming_errors_are_raised_unchanged() -> None:
    async def fail() -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        await guarded("mongo", 10.0, fail())
