"""The fast path of the sketch's script has the same effects as its general path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from sketch.protocol.keys import key_of_query
from sketch.protocol.port import (
    BeginResult,
    EndResult,
    ResultChanges,
    SketchLimits,
    SketchUnavailable,
)
from tests.process.sketch.sketches import PARTITION, RedisWorld, redis_world

LIMITS = SketchLimits(
    max_ttl_s=20.0, margin_s=2.0, layers=2, lease_s=6.0, purge_repeat_s=4.0, keys=3
)
KEYS = [f"articles/{number}#ü" for number in range(4)]
A, B, C, D = KEYS
QUERIES = [key_of_query("articles", f"title={title}") for title in "ab"]
TOKENS = ["t", "u"]
STEPS_S = [0.5, 1.0, 5.0, 12.0, 22.0]


@dataclass
class Variant:
    """A world, and its last token to fill in versions, which is random."""

    world: RedisWorld
    fill: str = ""
    lacking: Sequence[str] = ()


Step = Callable[[Variant], Awaitable[Any]]


@pytest.fixture
async def variants(redis_config: SystemConfig) -> AsyncIterator[tuple[Variant, Variant]]:
    """Two equal worlds, one of which always takes the general path."""
    both = await redis_world(redis_config.url, LIMITS)
    general = await redis_world(redis_config.url, LIMITS, way="general")
    yield Variant(both), Variant(general)
    await both.close()
    await general.close()


@pytest.mark.parametrize("seed", range(40))
async def test_fast_steps_do_what_the_general_path_does(
    variants: tuple[Variant, Variant], seed: int
) -> None:
    random = Random(seed)
    if seed % 2:  # the other worlds start as lost ones
        for variant in variants:
            await variant.world.sketch.create(PARTITION)
    for number in range(120):
        step = _random_step(random)
        result, general_result = [await step(variant) for variant in variants]
        assert result == general_result
        if not number % 10:
            bits, general_bits = [(await variant.world.snapshot()).bits for variant in variants]
            assert bits == general_bits
            contents, general_contents = [await variant.world.contents() for variant in variants]
            assert contents == general_contents


def _random_step(random: Random) -> Step:
    keys, token = random.sample(KEYS, random.choice([1, 1, 2])), random.choice(TOKENS)
    versions = {key: random.randrange(1, 50) for key in random.sample(KEYS, 2)}
    seconds, flags = random.choice(STEPS_S), [random.random() < 0.3 for _ in range(3)]
    queries = QUERIES[:1] if flags[1] else []

    async def begin(variant: Variant) -> Any:
        return await variant.world.sketch.begin(PARTITION, keys, token)

    async def close(variant: Variant) -> Any:
        sketch = variant.world.sketch
        sequence = (await sketch.registrations(PARTITION, 0)).sequence - flags[0]
        changes = ResultChanges(queries, sequence, exclusive=flags[2], pauses_registration=flags[1])
        return await sketch.end(PARTITION, token, versions, changes)

    async def end(variant: Variant) -> Any:
        return await variant.world.sketch.end(PARTITION, token, versions)

    async def read(variant: Variant) -> Any:
        ttl_s = 0.0 if flags[0] else seconds
        grant = await variant.world.sketch.report_read(PARTITION, keys, ttl_s)
        if grant.fill:
            variant.fill, variant.lacking = grant.fill, keys
        return replace(grant, fill="" if not grant.fill else "some")

    async def fill(variant: Variant) -> Any:
        read = {key: number for number, key in enumerate(variant.lacking, 7)}
        return await variant.world.sketch.fill(PARTITION, variant.fill, read)

    async def register(variant: Variant) -> Any:
        return await variant.world.sketch.report_query(PARTITION, QUERIES[flags[0]], 10.0)

    async def concurrently(variant: Variant) -> Any:
        steps = [read, begin, read, close, begin, read, fill]
        return await asyncio.gather(*(step(variant) for step in steps))

    async def wait(variant: Variant) -> Any:
        return await variant.world.advance(seconds)

    rare = [end, register, concurrently, wait]
    return random.choice([*rare, *[begin, close, read] * 3, *[fill] * 2])


@pytest.fixture
async def world(redis_config: SystemConfig) -> AsyncIterator[RedisWorld]:
    opened = await redis_world(redis_config.url, LIMITS)
    await opened.sketch.create(PARTITION)
    yield opened
    await opened.close()


async def test_plain_steps_take_the_fast_path(world: RedisWorld) -> None:
    sequence = (await world.sketch.registrations(PARTITION, 0)).sequence
    fast = world.other(LIMITS, way="fast")
    try:
        with pytest.raises(SketchUnavailable):
            await fast.begin(PARTITION, [A, B], "general")
        assert await fast.begin(PARTITION, [A], "t") == BeginResult(
            (), sequence, lease_cacheable=True
        )
        assert (
            await fast.end(PARTITION, "t", {A: 1}, ResultChanges((), sequence, exclusive=True))
            is EndResult.DONE
        )
        grant = await fast.report_read(PARTITION, [A], 5.0)
        assert grant.ttl_us == 5_000_000
        await fast.fill(PARTITION, grant.fill, {A: 1})
        assert (await fast.report_read(PARTITION, [A], 5.0)).versions == (1,)
    finally:
        await fast.close()


async def test_a_key_that_is_no_longer_cached_leaves_the_filter_when_its_write_ends(
    redis_config: SystemConfig,
) -> None:
    """It is still a member when its write starts, as others expire first, but no cache holds it."""
    limits = SketchLimits(max_ttl_s=20.0, margin_s=0.0, expired_at_once=1)
    world = await redis_world(redis_config.url, limits)
    try:
        await world.sketch.create(PARTITION)
        sequence = (await world.sketch.registrations(PARTITION, 0)).sequence
        for keys, ttl_s in (([B], 5.0), ([C], 5.0), ([D], 5.0), ([A], 10.0)):
            await world.sketch.report_read(PARTITION, keys, ttl_s)
            await world.sketch.begin(PARTITION, keys, "first")
            await world.sketch.end(PARTITION, "first", {}, ResultChanges((), sequence))
        for key in (B, C, D):
            await world.sketch.report_read(PARTITION, [key], 20.0)
        await world.advance(11.0)
        assert (await world.sketch.begin(PARTITION, [A], "late")).held == ()
        assert any((await world.snapshot()).bits)
        assert (
            await world.sketch.end(PARTITION, "late", {A: 2}, ResultChanges((), sequence))
            is EndResult.DONE
        )
        assert not any((await world.snapshot()).bits)
        assert await world.leaks() == []
    finally:
        await world.close()


async def test_reads_remove_expired_keys(world: RedisWorld) -> None:
    await world.sketch.report_read(PARTITION, [A], 5.0)
    await world.sketch.report_read(PARTITION, [B], 5.0)
    await world.advance(13.0)
    assert (await world.sketch.report_read(PARTITION, [C], 5.0)).ttl_us == 5_000_000
    assert [key for key, _ in (await world.contents())["copies"]] == [C.encode()]


async def test_no_version_is_kept_for_expired_keys_that_are_not_swept(
    redis_config: SystemConfig,
) -> None:
    """The key is still counted, but in no cache; several writes may share its pending write."""
    world = await redis_world(redis_config.url, SketchLimits(margin_s=0.0, expired_at_once=1))
    try:
        await world.sketch.create(PARTITION)
        sequence = (await world.sketch.registrations(PARTITION, 0)).sequence
        for number in range(20):
            await world.sketch.report_read(PARTITION, [f"articles/{number}#other"], 5.0)
        await world.sketch.report_read(PARTITION, [A], 6.0)
        await world.advance(10.0)
        assert (await world.sketch.begin(PARTITION, [A], "late")).held == ()
        assert (
            await world.sketch.end(PARTITION, "late", {A: 2}, ResultChanges((), sequence))
            is EndResult.DONE
        )
        assert (await world.sketch.report_read(PARTITION, [A], 5.0)).versions == (None,)
    finally:
        await world.close()
