"""Servers that do not behave: the sketch is unavailable, and goes on with the next connection."""

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
async def behaving(
    behaviours: list[Behaviour], timeout_s: float = 60.0
) -> AsyncIterator[RedisSketch]:
    """Run a server that applies the next behaviour to each connection; the last one stays."""
    held: set[asyncio.Task[object]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        held.add(task)
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
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await reader.read()


async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"+OK\r\n" * 100)
    await reader.read()


async def hanging_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"$100\r\nhalf of it")
    await writer.drain()


def through(config: SystemConfig, cut_after: int | None = None) -> Behaviour:
    """Hand everything to a real server; hang up in the answer of a call, counted in reads."""
    at = parse_url(config.url)

    async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "path" in at:
            from_server, to_server = await asyncio.open_unix_connection(at["path"])
        else:
            from_server, to_server = await asyncio.open_connection(at["host"], at.get("port", 6379))

        async def forward() -> None:
            while data := await reader.read(65_536):
                to_server.write(data)

        forwarding, left = asyncio.create_task(forward()), cut_after
        try:
            while data := await from_server.read(65_536):
                if left is not None and (left := left - 1) < 0:
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    return
                writer.write(data)
        finally:
            forwarding.cancel()
            to_server.close()

    return behaviour


@pytest.mark.parametrize("behaviour", [garbage, talkative, hanging_up])
async def test_a_server_that_misbehaves_is_unavailable(behaviour: Behaviour) -> None:
    async with behaving([behaviour], timeout_s=0.5) as sketch:
        for _ in range(2):
            with pytest.raises(SketchUnavailable):
                await sketch.begin(PARTITION, ["articles/a#main"], "token")


async def test_calls_go_on_over_another_connection(redis_config: SystemConfig) -> None:
    for cut_after in range(6):
        servers = [through(redis_config, cut_after), through(redis_config)]
        async with behaving(servers) as sketch:
            for number in range(4):
                token = f"wire-{cut_after}-{number}"
                await _or_again(partial(sketch.begin, PARTITION, ["articles/a#main"], token))
                await _or_again(partial(sketch.end, PARTITION, token, {}))
            assert await sketch.orphans([PARTITION], 10) == []


async def _or_again(call: Callable[[], Awaitable[object]]) -> None:
    try:
        await call()
    except SketchUnavailable:  # while it connected for the first time
        await call()


async def test_a_locked_step_waits_for_steps_sent_before_it(redis_config: SystemConfig) -> None:
    """Single steps are sent without the lock; a step that takes the lock must not interleave."""
    name = f"test:{uuid4().hex}"
    sketch = RedisSketch(redis_config.url, SketchLimits(), FilterShape(bits=8192), name, 60.0)
    try:
        await sketch.create(PARTITION)
        for number in range(50):
            posted = asyncio.create_task(sketch.begin(PARTITION, [f"k{number}"], f"t{number}"))
            await asyncio.sleep(0)
            # This one is sent when the first is answered: not before those that held the lock.
            later = sketch.begin(PARTITION, [f"l{number}"], f"u{number}")
            await asyncio.gather(posted, sketch.create(PARTITION), later, sketch.snapshot([]))
    finally:
        await sketch.close()
