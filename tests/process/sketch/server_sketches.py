"""Limits, keys, a read and a write for the tests of both server sketches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sketch.protocol.port import SketchLimits
from tests.process.sketch.sketches import PARTITION, World

__all__ = ["LIMITS", "SATURATED_S", "A", "B", "Make", "cache", "write_keys"]

LIMITS = SketchLimits(max_ttl_s=100.0, margin_s=5.0, lease_s=30.0, purge_repeat_s=8.0)
SATURATED_S = 105.0
A, B = "articles/1#text", "articles/2#text"
Make = Callable[..., Awaitable[World]]


async def cache(world: World, *keys: str, ttl_s: float = 10.0) -> None:
    grant = await world.sketch.report_read(PARTITION, keys, ttl_s)
    assert grant.ttl_us == ttl_s * 1_000_000


async def write_keys(world: World, *keys: str, version: int | None = None) -> None:
    await world.sketch.begin(PARTITION, keys, "a write")
    versions = {} if version is None else dict.fromkeys(keys, version)
    await world.sketch.end(PARTITION, "a write", versions)
