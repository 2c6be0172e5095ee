"""The queues of purges in both server sketches."""

from __future__ import annotations

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
    World,
)


async def count_purges(world: World) -> int:
    """Return how many keys the queue holds."""
    (state,) = await world.sketch.states([PARTITION])
    return state.purges


async def test_purges_are_due_at_the_end_and_a_second_time(world: World) -> None:
    await cache(world, A, B, ttl_s=100.0)
    await world.sketch.begin(PARTITION, [A], "t")
    assert await world.sketch.take_purges([PARTITION], 10) == []
    await world.sketch.end(PARTITION, "t", {})
    await world.advance(0.001)
    purges = await world.sketch.take_purges([PARTITION], 10)
    assert [(purge.partition, purge.key) for purge in purges] == [(PARTITION, A)]
    assert await world.sketch.take_purges([PARTITION], 10) == []
    await world.sketch.acknowledge_purges(purges)
    await world.advance(7.999)
    assert await world.sketch.take_purges([PARTITION], 10) == []
    await world.advance(2.0)
    repeated = await world.sketch.take_purges([PARTITION], 10)
    assert [purge.key for purge in repeated] == [A]
    await world.sketch.acknowledge_purges(repeated)
    await world.advance(90.0)
    assert await world.sketch.take_purges([PARTITION], 10) == []


async def test_a_repeated_purge_is_not_put_off_by_later_writes(world: World) -> None:
    await cache(world, A, ttl_s=100.0)
    await write_keys(world, A)
    await world.advance(4.0)
    await write_keys(world, A)
    await world.advance(0.001)
    await world.sketch.acknowledge_purges(await world.sketch.take_purges([PARTITION], 10))
    await world.advance(6.0)  # the second purge of the first write is due 8 to 10 seconds after it
    first = await world.sketch.take_purges([PARTITION], 10)
    assert [purge.key for purge in first] == [A]
    await world.sketch.acknowledge_purges(first)
    await world.advance(4.0)
    assert [purge.key for purge in await world.sketch.take_purges([PARTITION], 10)] == [A]


async def test_unacknowledged_purges_are_handed_out_again(world: World) -> None:
    await cache(world, A, ttl_s=100.0)
    await write_keys(world, A)
    await world.advance(0.001)
    first = await world.sketch.take_purges([PARTITION], 10)
    await world.advance(10.0)
    second = await world.sketch.take_purges([PARTITION], 10)
    assert [p.key for p in second] == [A]
    await world.sketch.acknowledge_purges(second)
    await world.sketch.acknowledge_purges(first)
    await world.advance(90.0)
    assert await world.sketch.take_purges([PARTITION], 10) == []


async def test_a_purge_that_is_handed_out_again_keeps_its_ticket_until_it_is_due_again(
    make: Make,
) -> None:
    world = await make(SketchLimits(purge_repeat_s=100.0, purge_lease_s=10.0))
    await cache(world, A, ttl_s=600.0)
    await write_keys(world, A)
    await world.advance(0.001)
    first = await world.sketch.take_purges([PARTITION], 10)
    await world.advance(10.0)
    assert await world.sketch.take_purges([PARTITION], 10) == first
    await write_keys(world, A)
    await world.advance(10.0)
    second = await world.sketch.take_purges([PARTITION], 10)
    await world.advance(125.0)
    repeated = await world.sketch.take_purges([PARTITION], 10)
    assert [purge.key for purge in (*first, *second, *repeated)] == 3 * [A]
    assert len({*first, *second, *repeated}) == 3


async def test_purges_end_with_the_last_copy_of_their_key(world: World) -> None:
    await cache(world, A)
    await cache(world, B, ttl_s=20.0)
    await write_keys(world, A, B)
    await world.advance(14.9)
    purges = await world.sketch.take_purges([PARTITION], 10)
    assert {purge.key for purge in purges} == {A, B}
    await world.advance(0.1)
    await world.snapshot()
    assert await count_purges(world) == 1
    await world.advance(9.9)
    assert [purge.key for purge in await world.sketch.take_purges([PARTITION], 10)] == [B]


async def test_purges_are_kept_while_copies_from_before_a_loss_may_be_fresh(world: World) -> None:
    await cache(world, A)
    await write_keys(world, A)
    await world.sketch.invalidate(PARTITION)
    await world.advance(SATURATED_S - 0.001)
    assert [purge.key for purge in await world.sketch.take_purges([PARTITION], 10)] == [A]
    await world.advance(10.0)
    assert await world.sketch.take_purges([PARTITION], 10) == []
    assert await count_purges(world) == 0


async def test_an_acknowledgement_does_not_cover_later_purges(world: World) -> None:
    await cache(world, A)
    await write_keys(world, A)
    await world.advance(0.001)
    first = await world.sketch.take_purges([PARTITION], 10)
    await write_keys(world, A)
    await world.sketch.acknowledge_purges(first)
    await world.advance(0.001)
    assert [p.key for p in await world.sketch.take_purges([PARTITION], 10)] == [A]


async def test_purges_after_a_loss_do_not_end_with_the_copies_since_then(world: World) -> None:
    await world.sketch.invalidate(PARTITION)
    await world.advance(LIMITS.lease_s)
    await cache(world, A, ttl_s=1.0)
    await write_keys(world, A)
    await world.advance(10.0)
    await world.snapshot()
    assert [purge.key for purge in await world.sketch.take_purges([PARTITION], 10)] == [A]


async def test_purges_of_many_partitions_are_limited(world: World) -> None:
    partitions = [Partition("news", f"c{n}") for n in range(5)]
    for partition in partitions:
        await world.sketch.create(partition)
    for partition in partitions[3:]:
        keys = [f"k{n}" for n in range(6)]
        await world.sketch.report_read(partition, keys, 10.0)
        await world.sketch.begin(partition, keys, "t")
        await world.sketch.end(partition, "t", {})
    await world.advance(0.001)
    sizes = [len(await world.sketch.take_purges(partitions, limit)) for limit in (1, 8, 100)]
    assert sum(sizes) == 12
    assert sizes[0] == 1
    assert sizes[1] == 8


async def test_without_proxies_no_purges_are_kept(make: Make) -> None:
    world = await make(SketchLimits(purge_repeat_s=None))
    await cache(world, A)
    await write_keys(world, A)
    await world.advance(1.0)
    assert await world.sketch.take_purges([PARTITION], 10) == []
