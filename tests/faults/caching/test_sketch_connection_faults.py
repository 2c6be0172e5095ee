"""Misbehaving servers: the sketch is unavailable, and recovers with the next connection."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from uuid import uuid4

import pytest
from redis.asyncio.connection import parse_url

from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.protocol.port import Partition, SketchLimits, SketchUnavailable
from sketch.redis.server import RedisSketch

PARTITION = Partition("press", "articles")

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def misbehaving_server(
    behaviours: list[Behaviour], timeout_s: float = 60.0
) -> AsyncIterator[RedisSketch]:
    """Run a server that applies the next behaviour to each connection, and repeats the last."""
    tasks: set[asyncio.Task[object]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        behaviour = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        try:
            await behaviour(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    limits, shape = SketchLimits(), FilterShape(bits=8192)
    sketch = RedisSketch(f"redis://127.0.0.1:{port}", limits, shape, "test:wire", timeout_s)
    try:
        yield sketch
    finally:
        await sketch.close()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def unsolicited_replies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"+OK\r\n" * 100)
    await reader.read()


async def truncated_reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"$100\r\nhalf of it")
    await writer.drain()


def forward_to(config: SystemConfig, cut_after: int | None = None) -> Behaviour:
    """Forward everything to a real server; disconnect within a reply after `cut_after` reads."""
    address = parse_url(config.url)

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "path" in address:
            from_server, to_server = await asyncio.open_unix_connection(address["path"])
        else:
            from_server, to_server = await asyncio.open_connection(
                address["host"], address.get("port", 6379)
            )

        async def forward() -> None:
            while data := await reader.read(65_536):
                to_server.write(data)

        task, remaining = asyncio.create_task(forward()), cut_after
        try:
            while data := await from_server.read(65_536):
                if remaining is not None and (remaining := remaining - 1) < 0:
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    return
                writer.write(data)
        finally:
            task.cancel()
            to_server.close()

    return behaviour


@pytest.mark.parametrize("behaviour", [garbage, unsolicited_replies, truncated_reply])
async def test_a_server_that_misbehaves_is_unavailable(behaviour: Behaviour) -> None:
    async with misbehaving_server([behaviour], timeout_s=0.5) as sketch:
        for _ in range(2):
            with pytest.raises(SketchUnavailable):
                await sketch.begin(PARTITION, ["articles/a#main"], "token")


async def test_calls_continue_over_a_new_connection(redis_config: SystemConfig) -> None:
    for cut_after in range(6):
        servers = [forward_to(redis_config, cut_after), forward_to(redis_config)]
        async with misbehaving_server(servers) as sketch:
            for number in range(4):
                token = f"wire-{cut_after}-{number}"
                await _retry_once(partial(sketch.begin, PARTITION, ["articles/a#main"], token))
                await _retry_once(partial(sketch.end, PARTITION, token, {}))
            assert await sketch.orphans([PARTITION], 10) == []


async def _retry_once(call: Callable[[], Awaitable[object]]) -> None:
    try:
        await call()
    except SketchUnavailable:  # during its first connection
        await call()


async def test_a_locked_step_waits_for_steps_sent_before_it(redis_config: SystemConfig) -> None:
    """Single steps are sent without the lock; a step that takes the lock must not interleave."""
    name = f"test:{uuid4().hex}"
    sketch = RedisSketch(redis_config.url, SketchLimits(), FilterShape(bits=8192), name, 60.0)
    try:
        await sketch.create(PARTITION)
        for number in range(50):
            first = asyncio.create_task(sketch.begin(PARTITION, [f"k{number}"], f"t{number}"))
            await asyncio.sleep(0)
            # This step is sent once the first is answered, after the steps that held the lock.
            second = sketch.begin(PARTITION, [f"l{number}"], f"u{number}")
            await asyncio.gather(first, sketch.create(PARTITION), second, sketch.snapshot([]))
    finally:
        await sketch.close()
