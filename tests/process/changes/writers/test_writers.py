"""How far relays of records say that they are, with records in memory."""

from __future__ import annotations

import pytest

from mediator.base.observation import ChangesRelayed, FeedGapFound, FeedRollbackFound
from mediator.changes.writers import EXPIRED_S, LEASE_S
from mediator.coordination.writers import RECOVERED, WRITERS
from mediator.stores.port import StoreUnavailable
from tests.process.changes.writers.replicas import Bench


async def test_what_is_brought_is_told(bench: Bench) -> None:
    [one] = await bench.settled("one")
    before = await bench.feed.tick()
    ids = [bench.write(one, f"o{n % 5}") for n in range(1_500)]
    while not await bench.until_tick() > before:
        await one.run()
    assert await bench.ids() == ids
    assert sum(o.count for o in bench.observed if isinstance(o, ChangesRelayed)) == 1_500


async def test_nothing_is_complete_before_the_first_sweep(bench: Bench) -> None:
    """Nor before whoever may have been forgotten by the server holds no lease any more."""
    ids = [bench.write(bench.replica("dead"))]
    one = bench.replica("one")
    await one.run()
    assert await bench.until_tick() < 0
    bench.clock.at += EXPIRED_S + 1
    ids.append(bench.write(bench.replica("forgotten")))
    one.store.away = True
    with pytest.raises(StoreUnavailable):
        await one.run()
    assert await bench.until_tick() < 0
    one.store.away = False
    for _ in range(2):
        await one.run()
    assert await bench.ids() == ids
    assert await bench.until_tick() > 0


async def test_a_replica_that_lags_holds_the_time_back(bench: Bench) -> None:
    slow, quick = await bench.settled("slow", "quick")
    last = await bench.until_tick()
    bench.write(slow)
    for _ in range(3):
        await quick.run()
        await slow.writers.renew()
        bench.clock.at += LEASE_S - 1
    assert await bench.until_tick() <= last
    await slow.run()
    await quick.run()
    assert await bench.until_tick() > last


async def test_a_replica_that_died_is_swept_after_and_retired(bench: Bench) -> None:
    dead, one = await bench.settled("dead", "one")
    last, sweeps = await bench.until_tick(), one.store.sweeps
    ids = [bench.write(dead)]
    await one.run()
    bench.clock.at += LEASE_S
    await one.run()
    assert await bench.until_tick() <= last, "it may acknowledge to the end of its lease"
    bench.clock.at += EXPIRED_S
    for _ in range(3):
        await one.run()
    assert one.store.sweeps > sweeps
    assert await bench.ids() == ids
    assert await bench.until_tick() > last


async def test_a_replica_that_is_cut_off_acknowledges_no_more_than_others_wait_for(
    bench: Bench,
) -> None:
    """Whatever it acknowledged is below no tick that is told without it."""
    cut, one = await bench.settled("cut", "one")
    assert cut.writers.may_acknowledge(bench.system, bench.database)
    acknowledged: list[str] = []
    for _ in range(40):
        bench.clock.at += 0.5
        if cut.writers.may_acknowledge(bench.system, bench.database):
            acknowledged.append(bench.write(cut))
            last = await bench.feed.tick()
        await one.run()
        if await bench.until_tick() > last:
            assert await bench.ids() == acknowledged
    assert acknowledged
    assert await bench.until_tick() > last


async def test_a_replica_that_was_retired_and_lives_goes_on(bench: Bench) -> None:
    quiet, one = await bench.settled("quiet", "one")
    ids = [bench.write(quiet)]
    await quiet.run()
    await one.run()
    life = await bench.feed.generation(bench.database)
    for _ in range(2):
        bench.clock.at += EXPIRED_S + 1
        await one.run()
    assert not quiet.writers.may_acknowledge(bench.system, bench.database)
    await quiet.writers.renew()
    assert not quiet.writers.may_acknowledge(bench.system, bench.database), "no feed counts it"
    for _ in range(2):
        await quiet.run()
        assert quiet.writers.may_acknowledge(bench.system, bench.database)
        ids.append(bench.write(quiet))
        written = await bench.feed.tick()
        await one.run()
        assert await bench.until_tick() < written, "it is counted again"
    await quiet.run()
    assert await bench.ids() == ids
    assert FeedRollbackFound(bench.system) not in bench.observed
    assert await bench.feed.generation(bench.database) == life, "followers go on"


async def test_a_replica_that_ends_is_not_waited_for(bench: Bench) -> None:
    ends, other = await bench.settled("ends", "one")
    ids = [bench.write(ends)]
    await ends.relays.close()
    assert not ends.writers.may_acknowledge(bench.system, bench.database)
    assert await bench.ids() == ids
    last = await bench.until_tick()
    await other.run()
    assert await bench.until_tick() > last


async def test_another_run_of_the_server_is_waited_out(bench: Bench) -> None:
    """It may lack the registration of a replica that holds its lease, and is cut off."""
    forgotten, one = await bench.settled("forgotten", "one")
    await bench.redis.hdel(WRITERS, f"forgotten_{bench.database}")
    await bench.redis.hset(RECOVERED, bench.system, "the last run")
    last = await bench.until_tick()
    await one.run()
    ids = [bench.write(forgotten)]
    bench.clock.at += LEASE_S
    await one.run()
    assert await bench.until_tick() <= last
    bench.clock.at += EXPIRED_S
    for _ in range(2):
        await one.run()
    assert await bench.ids() == ids
    assert await bench.until_tick() > last


async def test_what_a_feed_has_lost_is_brought_before_anything_else(bench: Bench) -> None:
    [one] = await bench.settled("one")
    ids = [bench.write(one) for _ in range(3)]
    await one.run()
    keys = [key async for key in bench.redis.scan_iter(f"*{bench.database}*")]
    older = {key: await bench.redis.dump(key) or b"" for key in keys}
    ids += [bench.write(one) for _ in range(3)]
    await one.run()
    life = await bench.feed.generation(bench.database)
    for key in keys:
        await bench.redis.restore(key, 0, older[key], replace=True)
    ids += [bench.write(one) for _ in range(3)]
    await one.run()
    assert await bench.ids() == ids
    assert FeedRollbackFound(bench.system) in bench.observed
    # What is brought again may stand before positions that were given before.
    assert await bench.feed.generation(bench.database) != life
    assert not any(isinstance(o, FeedGapFound) for o in bench.observed)
    await one.run()
    assert bench.observed.count(FeedRollbackFound(bench.system)) == 1
