"""Errors of the event loop that the driver of MongoDB passes on."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from mediator.stores.mongo.errors import guarded
from mediator.stores.port import StoreUnavailable


async def _send_until_refused(port: int) -> None:
    """Do what the driver does: pause after an answer, write, go on reading."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
    transport.pause_reading()
    while True:
        transport.write(b"a command")
        transport.resume_reading()
        transport.pause_reading()
        await asyncio.sleep(0)


async def _use_a_closed_connection() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(StoreUnavailable, match="closed the connection"):
            await guarded("mongo", 10.0, _send_until_refused(port))


def test_a_closed_connection_is_an_unavailable_system() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_use_a_closed_connection())


async def test_own_mistakes_are_raised_unchanged() -> None:
    async def mistaken() -> None:
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        await guarded("mongo", 10.0, mistaken())
