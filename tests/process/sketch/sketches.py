"""Both server sketches under a clock that the test moves, with the loss of their data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt
from redis.asyncio import Redis

from redis_connection.scripts import Script
from sketch.filter.hashing import positions
from sketch.filter.shape import FilterShape
from sketch.memory.server import MemorySketch
from sketch.protocol.port import (
    FilterSnapshot,
    Partition,
    ServerSketch,
    SketchLimits,
)
from sketch.redis.server import RedisSketch

__all__ = [
    "PARTITION",
    "RedisWorld",
    "Way",
    "World",
    "bits_of",
    "has",
    "memory_world",
    "redis_world",
]

PARTITION = Partition("news", "articles")
START_US = 1_700_000_000_000_000
SHAPE = FilterShape(bits=8192, hashes=4, seed=7)
_ALL = 10_000


Way: TypeAlias = Literal["both", "general", "fast"]
"""Which paths the script takes; with ``fast`` it refuses calls that need the general path."""

_REPLACED: Final[dict[Way, list[tuple[str, str]]]] = {
    "both": [],
    "general": [("while ARGV[at] and known_run == run_id do", "while false do")],
    "fast": [("expire(ARGV[4])\n", "assert(false)\n")],
}


class World:
    """A sketch, its clock, and a way to lose its data.

    Attributes:
        limits: The sketch's limits.
        sketch: The sketch.
        now_us: The sketch's time.
    """

    def __init__(self, limits: SketchLimits) -> None:
        self.limits = limits
        self.now_us = START_US
        self.sketch: ServerSketch

    async def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now_us += round(seconds * 1_000_000)

    async def lose(self, *, everything: bool) -> bool:
        """Lose all data of the sketch, or the data that an end of the server can lose.

        Returns:
            Whether pending writes and owed purges are still known.
        """
        raise NotImplementedError

    async def leaks(self, partition: Partition = PARTITION) -> list[int]:
        """Return the positions whose counts differ from the number of their keys in the filter."""
        raise NotImplementedError

    async def snapshot(self, partition: Partition = PARTITION) -> FilterSnapshot:
        """Return the filter of a partition without expired keys.

        A snapshot in Redis removes up to a thousand expired keys, more than any test has.
        """
        return await self.sketch.snapshot([partition])

    async def close(self) -> None:
        """Close the sketch, and remove its data."""
        await self.sketch.close()


class _MemoryWorld(World):
    def __init__(self, limits: SketchLimits, shape: FilterShape) -> None:
        super().__init__(limits)
        self._shape = shape
        self.sketch = MemorySketch(limits, shape, lambda: self.now_us, fresh=False)

    async def lose(self, *, everything: bool) -> bool:
        self.sketch = MemorySketch(self.limits, self._shape, lambda: self.now_us)
        return False

    async def snapshot(self, partition: Partition = PARTITION) -> FilterSnapshot:
        assert isinstance(self.sketch, MemorySketch)
        self.sketch.partition(partition).expire(self.now_us, _ALL)
        return await super().snapshot(partition)

    async def leaks(self, partition: Partition = PARTITION) -> list[int]:
        assert isinstance(self.sketch, MemorySketch)
        filter_ = self.sketch.partition(partition).filter
        return _leaks(filter_.keys, filter_.counts, self._shape)


class _ClockedSketch(RedisSketch):
    """A sketch whose clock is a key of the server, so that tests can move it."""

    def __init__(
        self, url: str, limits: SketchLimits, shape: FilterShape, namespace: str, way: Way
    ) -> None:
        self._clock = f"{namespace}:clock"
        self._way = way
        super().__init__(url, limits, shape, namespace, timeout_s=30.0)

    def _script(self) -> Script:
        script, clock = super()._script().text, f"call('HMGET', '{self._clock}', 's', 'us')"
        for old, new in (("call('TIME')", clock), *_REPLACED[self._way]):
            assert script.count(old) == 1
            script = script.replace(old, new)
        return Script(script)


class RedisWorld(World):
    def __init__(self, url: str, limits: SketchLimits, shape: FilterShape, way: Way) -> None:
        super().__init__(limits)
        self._namespace = f"test:{uuid4().hex}"
        self._shape = shape
        self._url = url
        self._redis = Redis.from_url(url)
        self.sketch = self.other(limits, shape, way)

    async def advance(self, seconds: float) -> None:
        await super().advance(seconds)
        whole_s, micros = divmod(self.now_us, 1_000_000)
        await self._redis.hset(f"{self._namespace}:clock", mapping={"s": whole_s, "us": micros})

    async def lose(self, *, everything: bool) -> bool:
        for key in await self._keys():
            if everything:
                await self._redis.delete(key)
            elif key.endswith(b":meta"):
                await self._redis.hset(key.decode(), "run_id", "another server's")
        return not everything

    async def close(self) -> None:
        await self.sketch.close()
        await self._redis.delete(f"{self._namespace}:clock", *await self._keys())
        await self._redis.aclose()

    def other(
        self, limits: SketchLimits, shape: FilterShape = SHAPE, way: Way = "both"
    ) -> RedisSketch:
        """Return another sketch on the same keys, as a replica with other settings would."""
        return _ClockedSketch(self._url, limits, shape, self._namespace, way)

    async def contents(self, partition: Partition = PARTITION) -> dict[str, Any]:
        """Return the data of a partition, without random ids."""
        tag = f"{{{self._namespace}:{partition.database}/{partition.class_name}}}:"
        redis: Any = self._redis
        data: dict[str, Any] = {}
        for key in await self._keys():
            name = key.decode().removeprefix(tag)
            kind = await redis.type(key)
            if kind == b"hash":
                data[name] = await redis.hgetall(key)
            elif kind == b"zset":
                data[name] = await redis.zrange(key, 0, -1, withscores=True)
            elif kind == b"string":
                data[name] = await redis.get(key)
        for random_field in (b"generation", b"revision"):
            data["meta"].pop(random_field)
        versions = data.get("versions", {})
        data["versions"] = {k: v if v[:1] == b"v" else v[:1] for k, v in versions.items()}
        return data

    async def names(self, partition: Partition = PARTITION) -> list[bytes]:
        """Return the names of all keys of a partition that the server has."""
        tag = f"{{{self._namespace}:{partition.database}/{partition.class_name}}}:".encode()
        return [key for key in await self._keys() if key.startswith(tag)]

    async def forget_scripts(self) -> None:
        """Let the server forget every script."""
        await self._redis.script_flush()

    async def leaks(self, partition: Partition = PARTITION) -> list[int]:
        tag = f"{{{self._namespace}:{partition.database}/{partition.class_name}}}"
        redis: Any = self._redis
        members: list[bytes] = await redis.hkeys(f"{tag}:members")
        packed: bytes = await redis.get(f"{tag}:counts") or b""
        counts = np.frombuffer(packed.ljust(4 * self._shape.bits, b"\0"), dtype=">u4")
        return _leaks([member.decode() for member in members], counts, self._shape)

    async def _keys(self) -> list[bytes]:
        return [key async for key in self._redis.scan_iter(f"{{{self._namespace}:*", count=10_000)]


async def memory_world(limits: SketchLimits, shape: FilterShape = SHAPE) -> World:
    """Return a world of a sketch in memory."""
    return _MemoryWorld(limits, shape)


async def redis_world(
    url: str, limits: SketchLimits, shape: FilterShape = SHAPE, way: Way = "both"
) -> RedisWorld:
    """Return a world of a sketch in Redis."""
    world = RedisWorld(url, limits, shape, way)
    await world.advance(0)
    return world


def has(snapshot: FilterSnapshot, key: str) -> bool:
    """Return whether a key is in a filter."""
    indices = positions(key, snapshot.shape)
    return all(snapshot.bits[index >> 3] & 0x80 >> (index & 7) for index in indices)


def bits_of(keys: Iterable[str], shape: FilterShape = SHAPE) -> bytes:
    """Return the filter that has exactly these keys."""
    bits = bytearray(shape.bits // 8)
    for index in (index for key in keys for index in positions(key, shape)):
        bits[index >> 3] |= 0x80 >> (index & 7)
    return bytes(bits)


def _leaks(members: Iterable[str], counts: npt.ArrayLike, shape: FilterShape) -> list[int]:
    expected = np.zeros(shape.bits, dtype=np.uint32)
    for key in members:
        np.add.at(expected, list(positions(key, shape)), 1)
    return [int(index) for index in np.flatnonzero(expected != np.asarray(counts))]
