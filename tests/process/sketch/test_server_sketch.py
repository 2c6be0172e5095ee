"""The rules of both server sketches, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.protocol.port import SketchLimits, SketchUnavailable
from sketch.redis.server import RedisSketch
from tests.process.sketch.server_sketches import (
    LIMITS,
    A,
    B,
    Make,
    cache,
    write_keys,
)
from tests.process.sketch.sketches import (
    PARTITION,
    SHAPE,
    World,
    bits_of,
    has,
    redis_world,
)


async def test_a_write_to_an_uncached_key_leaves_the_filter_empty(world: World) -> None:
    write = await world.sketch.begin(PARTITION, [A], "t")
    assert write.held == ()
    assert not any((await world.snapshot()).bits)
    await world.sketch.end(PARTITION, "t", {A: 5})
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).versions == (None,)


async def test_a_write_to_a_cached_key_adds_it_to_the_filter(world: World) -> None:
    await cache(world, A, B)
    assert (await world.sketch.begin(PARTITION, [A], "t")).held == (A,)
    await world.sketch.end(PARTITION, "t", {})
    snapshot = await world.snapshot()
    assert has(snapshot, A)
    assert not has(snapshot, B)
    assert snapshot.time_us == world.now_us


async def test_a_key_leaves_the_filter_when_its_last_copy_expires(world: World) -> None:
    await cache(world, A)
    await write_keys(world, A)
    await world.advance(15.0 - 1e-6)
    assert has(await world.snapshot(), A)
    await world.advance(1e-6)
    assert not any((await world.snapshot()).bits)


async def test_a_key_is_held_until_the_last_instant_of_its_copies(world: World) -> None:
    await cache(world, A, B)
    await world.advance(15.0 - 1e-6)
    assert (await world.sketch.begin(PARTITION, [A], "t")).held == (A,)
    await world.advance(1e-6)
    assert (await world.sketch.begin(PARTITION, [B], "u")).held == ()


async def test_expired_copies_that_are_not_swept_keep_no_key(make: Make) -> None:
    world = await make(SketchLimits(expired_at_once=1))
    keys = [f"articles/{n}#g" for n in range(10)]
    for key in keys:
        await cache(world, key)
    await world.advance(15.0)
    assert (await world.sketch.begin(PARTITION, [keys[9]], "t")).held == ()
    assert not any((await world.snapshot()).bits)


async def test_removing_a_key_keeps_the_bits_of_others(make: Make) -> None:
    world = await make(shape=FilterShape(bits=64, hashes=4))
    short, long = ([f"{kind}/{n}#g" for n in range(5)] for kind in ("short", "long"))
    await cache(world, *short, ttl_s=10.0)
    await cache(world, *long, ttl_s=20.0)
    await write_keys(world, *short, *long)
    await world.advance(15.0)
    snapshot = await world.snapshot()
    assert snapshot.bits == bits_of(long, snapshot.shape)
    await world.advance(10.0)
    assert not any((await world.snapshot()).bits)


async def test_ttls_of_cache_layers_add_up(make: Make) -> None:
    world = await make(SketchLimits(margin_s=5.0, layers=3))
    await cache(world, A, ttl_s=10.0)
    await write_keys(world, A)
    await world.advance(35.0 - 1e-6)
    assert has(await world.snapshot(), A)
    await world.advance(1e-6)
    assert not has(await world.snapshot(), A)


async def test_a_shorter_ttl_granted_later_does_not_shorten_earlier_ones(world: World) -> None:
    await cache(world, A, ttl_s=50.0)
    await cache(world, A, ttl_s=1.0)
    await write_keys(world, A)
    await world.advance(50.0)
    assert has(await world.snapshot(), A)


async def test_reads_of_the_new_version_do_not_keep_a_key_in_the_filter(world: World) -> None:
    await cache(world, A)
    await write_keys(world, A)
    await world.advance(10.0)
    await cache(world, A, ttl_s=100.0)
    await world.advance(5.0)
    assert not has(await world.snapshot(), A)
    assert (await world.sketch.begin(PARTITION, [A], "t2")).held == (A,)


async def test_no_ttl_is_granted_while_a_write_is_pending(world: World) -> None:
    await world.sketch.begin(PARTITION, [A], "t")
    refused = await world.sketch.report_read(PARTITION, [A, B], 10.0)
    assert (refused.ttl_us, refused.fill, refused.now_us) == (0, "", world.now_us)
    await world.sketch.end(PARTITION, "t", {})
    assert (await world.sketch.begin(PARTITION, [A, B], "u")).held == ()


async def test_a_key_stays_while_a_write_is_pending_however_long(world: World) -> None:
    await cache(world, A)
    await world.sketch.begin(PARTITION, [A], "t")
    await world.advance(1000.0)
    assert has(await world.snapshot(), A)
    await world.sketch.end(PARTITION, "t", {})
    assert not any((await world.snapshot()).bits)


async def test_a_key_stays_until_the_last_of_several_writes_has_ended(world: World) -> None:
    await cache(world, A)
    await world.sketch.begin(PARTITION, [A], "t")
    await world.sketch.begin(PARTITION, [A], "u")
    await world.advance(1000.0)
    await world.sketch.end(PARTITION, "t", {})
    assert has(await world.snapshot(), A)
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).ttl_us == 0
    await world.sketch.end(PARTITION, "u", {})
    assert not any((await world.snapshot()).bits)
    await cache(world, A)


async def test_beginning_and_ending_twice_counts_once(world: World) -> None:
    await cache(world, A)
    first = await world.sketch.begin(PARTITION, [A, A], "t")
    assert await world.sketch.begin(PARTITION, [A], "t") == first
    assert (await world.sketch.begin(PARTITION, [A, B], "t")).held == (A,)
    for _ in range(2):
        await world.sketch.end(PARTITION, "t", {})
    await world.sketch.end(PARTITION, "never begun", {A: 3})
    await cache(world, A, B)
    await world.advance(15.0)
    assert not any((await world.snapshot()).bits)


async def test_versions_are_known_from_writes_while_caches_may_hold_the_key(world: World) -> None:
    await cache(world, A)
    await write_keys(world, A, version=5)
    assert (await world.sketch.report_read(PARTITION, [A, B], 10.0)).versions == (5, None)
    await world.sketch.begin(PARTITION, [A], "t")
    assert (await world.sketch.report_read(PARTITION, [A, B], 10.0)).versions == (None, None)
    await world.sketch.end(PARTITION, "t", {A: 7})
    assert (await world.sketch.report_read(PARTITION, [A], 1.0)).versions == (7,)
    await world.advance(20.0)
    assert (await world.sketch.report_read(PARTITION, [A], 1.0)).versions == (None,)


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(9, 8, 9), (8, 9, 9), (None, 8, None), (8, None, None)]
)
async def test_the_write_that_ends_last_need_not_be_the_last(
    world: World, first: int | None, second: int | None, expected: int | None
) -> None:
    await cache(world, A)
    await world.sketch.begin(PARTITION, [A], "t")
    await world.sketch.begin(PARTITION, [A], "u")
    for token, version in (("t", first), ("u", second)):
        assert (await world.sketch.report_read(PARTITION, [A], 1.0)).versions == (None,)
        await world.sketch.end(PARTITION, token, {} if version is None else {A: version})
    assert (await world.sketch.report_read(PARTITION, [A], 1.0)).versions == (expected,)


async def test_readers_fill_in_versions(world: World) -> None:
    first = await world.sketch.report_read(PARTITION, [A], 10.0)
    second = await world.sketch.report_read(PARTITION, [A, B], 10.0)
    await world.sketch.fill(PARTITION, "not a token", {A: 3})
    await world.sketch.fill(PARTITION, first.fill, {A: 4, B: 4})
    await world.sketch.fill(PARTITION, second.fill, {B: 6})
    grant = await world.sketch.report_read(PARTITION, [A, B], 10.0)
    assert (grant.versions, grant.fill) == ((4, 6), "")


async def test_a_fill_is_ignored_if_a_write_came_between(world: World) -> None:
    read = await world.sketch.report_read(PARTITION, [A], 10.0)
    await world.sketch.begin(PARTITION, [A], "t")
    await world.sketch.fill(PARTITION, read.fill, {A: 4})
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).versions == (None,)
    await world.sketch.end(PARTITION, "t", {})
    await world.sketch.report_read(PARTITION, [A], 10.0)
    await world.sketch.fill(PARTITION, read.fill, {A: 4})
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).versions == (None,)


@pytest.mark.parametrize("ttl_s", [0.0, -1.0, float("nan"), float("inf"), 1e-9])
async def test_an_invalid_ttl_is_not_granted(world: World, ttl_s: float) -> None:
    assert (await world.sketch.report_read(PARTITION, [A], ttl_s)).ttl_us == 0
    assert (await world.sketch.begin(PARTITION, [A], "t")).held == ()


async def test_no_granted_ttl_exceeds_the_maximum(world: World) -> None:
    assert (await world.sketch.report_read(PARTITION, [A], 1e6)).ttl_us == 100_000_000
    assert (await world.sketch.report_read(PARTITION, [], 10.0)).ttl_us == 0


async def test_the_number_of_cacheable_keys_is_bounded(make: Make) -> None:
    world = await make(SketchLimits(keys=2, margin_s=0.0))
    await cache(world, A, ttl_s=10.0)
    assert (await world.sketch.report_read(PARTITION, [A, B, "c"], 10.0)).ttl_us == 0
    await cache(world, A, B)
    assert (await world.sketch.report_read(PARTITION, ["c"], 10.0)).ttl_us == 0
    await cache(world, B)
    await world.advance(11.0)
    await cache(world, "c", "d")


async def test_expired_keys_are_removed_by_other_calls(make: Make) -> None:
    world = await make(SketchLimits(expired_at_once=2, margin_s=0.0))
    keys = [f"articles/{n}#g" for n in range(40)]
    await cache(world, *keys, ttl_s=10.0)
    await write_keys(world, *keys)
    await world.advance(11.0)
    for _ in range(25):
        await world.sketch.report_read(PARTITION, [A], 0.0)
    (state,) = await world.sketch.states([PARTITION])
    assert (state.keys, state.handed_out) == (0, 0)
    assert not any((await world.snapshot()).bits)


async def test_a_pending_write_is_an_orphan_once_its_lease_has_ended(world: World) -> None:
    await cache(world, A)
    await world.sketch.begin(PARTITION, [A, B], "t")
    await world.advance(20.0)
    await world.sketch.begin(PARTITION, [B], "u")
    await world.sketch.begin(PARTITION, [A, B], "t")  # renews nothing
    assert await world.sketch.orphans([PARTITION], 10) == []
    await world.advance(10.0)
    (orphan,) = await world.sketch.orphans([PARTITION], 10)
    assert (orphan.partition, orphan.token, set(orphan.keys)) == (PARTITION, "t", {A, B})
    assert await world.sketch.orphans([PARTITION], 10) == [orphan]
    assert await world.sketch.orphans([PARTITION], 0) == []
    await world.sketch.end(PARTITION, orphan.token, {})
    await world.advance(20.0)
    assert [o.token for o in await world.sketch.orphans([PARTITION], 10)] == ["u"]


@pytest.mark.parametrize("keys", [["k"] * 5_001, ["k" * 5_000], ["\ud800"]])
async def test_too_many_or_too_long_keys_are_refused(world: World, keys: list[str]) -> None:
    with pytest.raises(SketchUnavailable):
        await world.sketch.begin(PARTITION, keys, "t")
    with pytest.raises(SketchUnavailable):
        await world.sketch.report_read(PARTITION, keys, 10.0)
    with pytest.raises(SketchUnavailable):
        await world.sketch.end(
            PARTITION, "t", dict.fromkeys(keys + [f"{n}" for n in range(5001)], 1)
        )


async def test_thousands_of_keys_at_once_are_one_step(world: World) -> None:
    keys = [f"articles/{n}#ü {{}}\r\n" for n in range(4_000)]
    assert (await world.sketch.report_read(PARTITION, keys, 10.0)).ttl_us
    assert (await world.sketch.begin(PARTITION, keys, "t")).held == tuple(keys)
    snapshot = await world.snapshot()
    assert all(has(snapshot, key) for key in keys)
    await world.sketch.end(PARTITION, "t", dict.fromkeys(keys, 2**53 - 1))
    grant = await world.sketch.report_read(PARTITION, keys, 10.0)
    assert set(grant.versions) == {2**53 - 1}


async def test_versions_beyond_exact_numbers_count_as_unknown(world: World) -> None:
    await cache(world, A)
    await write_keys(world, A, version=2**53)
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).versions == (None,)


async def test_concurrent_calls_have_the_results_of_sequential_ones(world: World) -> None:
    keys = [f"articles/{n}#g" for n in range(300)]
    grants = await asyncio.gather(*(world.sketch.report_read(PARTITION, [k], 10.0) for k in keys))
    assert all(grant.ttl_us for grant in grants)
    writes = await asyncio.gather(*(world.sketch.begin(PARTITION, [k], f"t{k}") for k in keys))
    assert [b.held for b in writes] == [(k,) for k in keys]
    calls: list[Awaitable[Any]] = [world.sketch.end(PARTITION, f"t{k}", {k: 1}) for k in keys]
    await asyncio.gather(*calls, world.sketch.snapshot([PARTITION]))
    grant = await world.sketch.report_read(PARTITION, keys, 10.0)
    assert set(grant.versions) == {1}


@pytest.mark.parametrize("namespace", ["{x", "x}"])
def test_a_namespace_with_a_brace_is_refused(namespace: str) -> None:
    with pytest.raises(ValueError, match="brace"):
        RedisSketch("redis://localhost", LIMITS, SHAPE, namespace)


def test_a_filter_in_redis_has_a_size_that_its_counts_fit_in() -> None:
    with pytest.raises(ValueError, match="bits"):
        RedisSketch("redis://localhost", LIMITS, FilterShape(2**31))


async def test_without_redis_the_sketch_is_unavailable() -> None:
    sketch = RedisSketch("redis://127.0.0.1:1", LIMITS, SHAPE)
    with pytest.raises(SketchUnavailable):
        await sketch.begin(PARTITION, [A], "t")
    with pytest.raises(SketchUnavailable):
        await sketch.create(PARTITION)
    await sketch.close()


async def test_a_script_that_the_server_forgot_is_loaded_again(redis_config: SystemConfig) -> None:
    world = await redis_world(redis_config.url, LIMITS)
    try:
        await world.sketch.create(PARTITION)
        await world.forget_scripts()
        await cache(world, A)
    finally:
        await world.close()
