"""Query results in both server sketches, one rule at a time (docs/query-caching.md)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mediator.stores.port import SystemConfig
from sketch.protocol.keys import canonical_query, key_of_query, query_of_key
from sketch.protocol.port import EndResult, ResultChanges, SketchLimits
from tests.process.sketch.sketches import PARTITION, World, bits_of, has, memory_world, redis_world

LIMITS = SketchLimits(max_ttl_s=100.0, margin_s=5.0, lease_s=30.0, queries=3, purge_repeat_s=8.0)
TTL_S = 15.0
A = "articles/1#text"
Q, R = (key_of_query("articles", f"title={letter}") for letter in "qr")


@pytest.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest, redis_config: SystemConfig) -> AsyncIterator[World]:
    if request.param == "memory":
        opened = await memory_world(LIMITS)
    else:
        opened = await redis_world(redis_config.url, LIMITS)
    await opened.sketch.create(PARTITION)
    yield opened
    assert await opened.leaks() == []
    await opened.close()


async def register(world: World, *keys: str) -> None:
    for key in keys:
        assert (await world.sketch.report_query(PARTITION, key, 10.0)).ttl_us == 10_000_000


async def registered_keys(world: World, since: int = 0) -> set[str]:
    return set((await world.sketch.registrations(PARTITION, since)).numbers)


async def sequence_of(world: World) -> int:
    return (await world.sketch.registrations(PARTITION, 0)).sequence


async def test_a_query_is_registered_as_long_as_a_copy_may_be_alive(world: World) -> None:
    before = await sequence_of(world)
    await register(world, Q)
    await world.advance(5.0)
    await register(world, Q, R)
    registrations = await world.sketch.registrations(PARTITION, before)
    assert registrations.count == 2
    assert not registrations.complete
    assert sorted(registrations.numbers, key=lambda key: registrations.numbers[key]) == [Q, R]
    assert max(registrations.numbers.values()) == registrations.sequence
    assert await registered_keys(world, registrations.sequence) == set()
    assert await registered_keys(world, registrations.numbers[Q]) == {R}
    await world.advance(TTL_S)
    await world.snapshot()
    assert await registered_keys(world) == set()


async def test_a_changed_result_is_in_the_filter_until_its_last_copy_expires(world: World) -> None:
    await register(world, Q, R)
    await world.sketch.invalidate_results(PARTITION, [Q, key_of_query("articles", "never=asked")])
    assert bits_of([Q]) == (await world.snapshot()).bits
    assert await registered_keys(world) == {R}
    purges = await world.sketch.take_purges([PARTITION], 10)
    await world.advance(1.0)
    purges += await world.sketch.take_purges([PARTITION], 10)
    assert {purge.key for purge in purges} == {Q}
    await register(world, Q)  # later copies are new
    assert await registered_keys(world) == {Q, R}
    await world.advance(TTL_S - 1.0)
    assert not has(await world.snapshot(), Q)
    assert await registered_keys(world) == {Q}


async def test_a_write_ends_only_if_its_writer_knows_every_query(world: World) -> None:
    await register(world, R)  # from now on no write lease may be cached
    await world.sketch.begin(PARTITION, [A], "t")
    behind = ResultChanges((), await sequence_of(world))
    await register(world, Q)
    assert await world.sketch.end(PARTITION, "t", {}, behind) is EndResult.BEHIND
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).ttl_us == 0
    up_to_date = ResultChanges((Q,), await sequence_of(world))
    assert await world.sketch.end(PARTITION, "t", {A: 7}, up_to_date) is EndResult.CONTENDED
    assert has(await world.snapshot(), Q)
    assert (await world.sketch.report_read(PARTITION, [A], 10.0)).ttl_us
    assert (
        await world.sketch.end(PARTITION, "t", {}, behind) is EndResult.DONE
    )  # it has ended already


async def test_no_query_is_registered_while_write_leases_may_be_cached(
    redis_config: SystemConfig,
) -> None:
    """The first request waits for writes that started before; later leases are not cached."""
    world = await redis_world(redis_config.url, LIMITS)
    sketch = world.sketch
    await sketch.create(PARTITION)
    for token, keys in (("s", [A]), ("t", ["articles/2#text", "articles/3#text"])):
        assert (await sketch.begin(PARTITION, keys, token)).lease_cacheable
    await sketch.report_read(PARTITION, ["articles/4#text"], 10.0)
    assert not (await sketch.begin(PARTITION, ["articles/4#text"], "held")).lease_cacheable
    assert (await sketch.report_query(PARTITION, Q, 10.0)).ttl_us == 0
    await world.advance(1.0)
    assert not (await sketch.begin(PARTITION, ["articles/5#text"], "later")).lease_cacheable
    assert not (
        await sketch.begin(PARTITION, ["articles/8#text", "articles/9#text"], "two")
    ).lease_cacheable
    for token in ("s", "held", "t"):
        assert (await sketch.report_query(PARTITION, Q, 10.0)).ttl_us == 0
        await sketch.end(PARTITION, token, {})
    await register(world, Q)
    await world.advance(59.9)
    assert not (await sketch.begin(PARTITION, ["articles/6#text"], "u")).lease_cacheable
    await world.advance(0.2)
    assert (await sketch.begin(PARTITION, ["articles/7#text"], "v")).lease_cacheable
    assert (await sketch.report_query(PARTITION, R, 10.0)).ttl_us == 0
    await world.close()


async def test_no_write_lease_is_cached_as_long_as_a_result_may_be_alive(
    redis_config: SystemConfig,
) -> None:
    world = await redis_world(redis_config.url, LIMITS)
    await world.sketch.create(PARTITION)
    await world.sketch.report_query(PARTITION, Q, 100.0)
    await world.advance(104.9)
    assert not (await world.sketch.begin(PARTITION, [A], "s")).lease_cacheable
    await world.advance(0.2)
    assert (await world.sketch.begin(PARTITION, ["articles/2#text"], "t")).lease_cacheable
    await world.close()


async def test_a_writer_that_pauses_registration_is_up_to_date_next_time(world: World) -> None:
    await register(world, Q)
    await world.sketch.begin(PARTITION, [A], "t")
    assert (
        await world.sketch.end(PARTITION, "t", {}, ResultChanges((), 1, pauses_registration=True))
        is EndResult.BEHIND
    )
    assert (await world.sketch.report_query(PARTITION, R, 10.0)).ttl_us == 0
    await register(world, Q)  # it is registered already
    await world.advance(0.2)
    await register(world, R)


@pytest.mark.parametrize("first_ends", [True, False])
async def test_concurrent_writers_of_a_key_are_reported(world: World, first_ends: bool) -> None:
    exclusive_changes = ResultChanges((), await sequence_of(world), exclusive=True)
    await world.sketch.begin(PARTITION, [A], "t")
    await world.sketch.begin(PARTITION, [A], "u")
    if first_ends:
        assert await world.sketch.end(PARTITION, "t", {}) is EndResult.DONE
    assert await world.sketch.end(PARTITION, "u", {}, exclusive_changes) is EndResult.CONCURRENT
    assert (
        await world.sketch.end(PARTITION, "u", {}, ResultChanges((), exclusive_changes.sequence))
        is EndResult.DONE
    )
    await world.sketch.end(PARTITION, "t", {})
    await world.sketch.begin(PARTITION, [A], "v")
    assert await world.sketch.end(PARTITION, "v", {}, exclusive_changes) is EndResult.DONE


async def test_the_number_of_registered_queries_is_bounded(world: World) -> None:
    keys = [key_of_query("articles", f"limit={number}") for number in range(4)]
    await register(world, *keys[:3])
    assert (await world.sketch.report_query(PARTITION, keys[3], 10.0)).ttl_us == 0
    await register(world, keys[0])
    await world.sketch.invalidate_results(PARTITION, [keys[1]])
    await register(world, keys[3])


@pytest.mark.parametrize("everything", [True, False])
async def test_after_a_loss_all_replicas_read_the_registrations_again(
    world: World, everything: bool
) -> None:
    await register(world, Q)
    old = await sequence_of(world)
    await world.advance(1.0)
    await world.lose(everything=everything)
    assert (await world.sketch.report_query(PARTITION, Q, 10.0)).ttl_us == 0
    await world.advance(106.0)
    await world.snapshot()
    await register(world, R)
    await world.sketch.begin(PARTITION, [A], "t")
    assert await world.sketch.end(PARTITION, "t", {}, ResultChanges((), old)) is EndResult.BEHIND
    assert await registered_keys(world, old) == {R}


def test_canonical_queries_are_sorted_and_escaped_and_have_other_keys_than_objects() -> None:
    assert (
        canonical_query([("b", "x,y"), ("a.ge", "ä &=+"), ("a", "1")])
        == "a.ge=%C3%A4%20%26%3D%2B&a=1&b=x,y"
    )
    assert query_of_key("articles/a?b#main") is None
    assert query_of_key(key_of_query("articles", "")) == ""
