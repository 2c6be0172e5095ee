"""Filters of both server sketches from one generation to the next, and after a loss."""

from __future__ import annotations

import pytest

from mediator.stores.port import SystemConfig
from sketch.filter.shape import FilterShape
from sketch.protocol.port import Partition, SketchLimits
from tests.process.sketch.server_sketches import (
    LIMITS,
    SATURATED_S,
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
    has,
    redis_world,
)


async def test_revisions_order_the_filters_of_a_generation(world: World) -> None:
    await cache(world, A)
    empty = await world.snapshot()
    await cache(world, A)
    assert await world.snapshot() == empty
    await write_keys(world, A)
    full = await world.snapshot()
    await world.advance(20.0)
    after = await world.snapshot()
    assert empty.revision < full.revision < after.revision
    assert empty.generation == full.generation == after.generation


async def test_a_union_has_the_keys_of_all_partitions(world: World) -> None:
    other = Partition("news", "authors")
    await world.sketch.create(other)
    await cache(world, A)
    await write_keys(world, A)
    await world.sketch.report_read(other, ["authors/1#g"], 10.0)
    before = await world.sketch.snapshot([PARTITION, other])
    await world.sketch.begin(other, ["authors/1#g"], "t")
    union = await world.sketch.snapshot([PARTITION, other])
    assert has(union, A)
    assert has(union, "authors/1#g")
    assert not has(before, "authors/1#g")
    assert union.revision != before.revision
    assert union.generation == before.generation
    none = await world.sketch.snapshot([])
    assert not any(none.bits)


@pytest.mark.parametrize("kind", ["everything", "a part", "renewed"])
async def test_a_lost_sketch_has_everything_revalidated(world: World, kind: str) -> None:
    await cache(world, A)
    before = await world.snapshot()
    if kind == "renewed":
        await world.sketch.invalidate(PARTITION)
    else:
        await world.lose(everything=kind == "everything")
    lost = await world.snapshot()
    assert lost.revalidate_all
    assert set(lost.bits) == {0xFF}
    assert lost.generation != before.generation
    assert (await world.sketch.begin(PARTITION, [B], "t")).held == (B,)
    await world.sketch.end(PARTITION, "t", {B: 4})
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).ttl_us == 0
    await world.advance(30.0)
    await cache(world, A)
    await world.advance(SATURATED_S - 30.0 - 1e-6)
    assert (await world.snapshot()).revalidate_all
    await world.advance(1e-6)
    after = await world.snapshot()
    assert not any(after.bits)
    assert after.generation == lost.generation
    assert after.revision != lost.revision


async def test_writes_that_survive_a_loss_stay_pending(redis_config: SystemConfig) -> None:
    world = await redis_world(redis_config.url, LIMITS)
    try:
        await world.sketch.create(PARTITION)
        await world.sketch.begin(PARTITION, [A], "t")
        assert await world.lose(everything=False)
        await world.snapshot()
        await world.advance(30.0)
        assert (await world.sketch.report_read(PARTITION, [A], 10.0)).ttl_us == 0
        assert [o.token for o in await world.sketch.orphans([PARTITION], 10)] == ["t"]
        await world.sketch.end(PARTITION, "t", {})
        await cache(world, A)
    finally:
        await world.close()


async def test_a_union_with_a_lost_partition_has_everything_revalidated(world: World) -> None:
    union = await world.sketch.snapshot([PARTITION, Partition("news", "unheard_of")])
    assert union.revalidate_all
    assert set(union.bits) == {0xFF}


async def test_writes_since_a_loss_are_in_the_filter_when_it_recovers(world: World) -> None:
    await world.lose(everything=True)
    await world.sketch.report_read(PARTITION, [A], 100.0)
    await world.advance(31.0)
    await cache(world, A, ttl_s=100.0)
    await write_keys(world, A)
    await world.advance(SATURATED_S - 31.0)
    snapshot = await world.snapshot()
    assert not snapshot.revalidate_all
    assert has(snapshot, A)


async def test_a_partition_that_was_never_created_counts_as_lost(make: Make) -> None:
    world = await make(created=False)
    assert (await world.snapshot()).revalidate_all
    await world.sketch.create(PARTITION)
    assert (await world.snapshot()).revalidate_all


async def test_another_shape_invalidates_the_partitions(redis_config: SystemConfig) -> None:
    world = await redis_world(redis_config.url, LIMITS)
    wider = FilterShape(SHAPE.bits * 2, SHAPE.hashes, SHAPE.seed)
    try:
        await world.sketch.create(PARTITION)
        before = await world.snapshot()
        other = world.other(LIMITS, wider)
        after = await other.snapshot([PARTITION])
        await other.close()
        assert after.revalidate_all
        assert len(after.bits) == 2 * len(before.bits)
    finally:
        await world.close()


async def test_ttls_of_former_settings_are_waited_for_after_a_loss(
    redis_config: SystemConfig,
) -> None:
    world = await redis_world(redis_config.url, LIMITS)
    shorter = world.other(SketchLimits(max_ttl_s=1.0), SHAPE)
    try:
        await lose_a_cached_key(world)
        assert (await shorter.snapshot([PARTITION])).revalidate_all
        await world.advance(SATURATED_S - 1e-6)
        assert (await shorter.snapshot([PARTITION])).revalidate_all
        await world.advance(1e-6)
        assert not (await shorter.snapshot([PARTITION])).revalidate_all
    finally:
        await shorter.close()
        await world.close()


async def test_ttls_of_former_settings_that_a_sketch_has_lost_are_waited_for(
    make: Make,
) -> None:
    world = await make(SketchLimits(max_ttl_s=1.0, earlier_lifetime_s=SATURATED_S))
    await world.lose(everything=True)
    assert (await world.snapshot()).revalidate_all
    await world.advance(SATURATED_S - 1e-6)
    assert (await world.snapshot()).revalidate_all
    await world.advance(1e-6)
    assert not (await world.snapshot()).revalidate_all


async def lose_a_cached_key(world: World) -> None:
    await world.sketch.create(PARTITION)
    await cache(world, A, ttl_s=100.0)
    await world.lose(everything=False)
