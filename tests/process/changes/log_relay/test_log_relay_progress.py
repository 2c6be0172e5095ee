"""Up to when a relay of logs says that the feed is complete, and appends in parts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import pytest

from mediator.base.lease import Lease
from mediator.changes.feed import Feed, FeedRolledBack, LogBatch
from mediator.changes.log_relay import RelayResult
from mediator.coordination.scripts import TICKS
from tests.faults.conditions import eventually
from tests.process.changes.log_relay.logs import (
    EAGER,
    IDLE,
    OURS,
    Bench,
    Failing,
    LateLog,
    drain,
    is_beyond,
    place_of,
)


async def test_a_feed_whose_clock_was_set_back_is_told_all_the_same(bench: Bench) -> None:
    one, two = bench.databases
    relay = await bench.relay(pace_us=OURS)
    await drain(relay)
    await bench.feed.tick()
    # As if the clock had been an hour ahead until now.
    await bench.redis.hincrby(TICKS, "number", 3600 * 1_000_000)
    change = bench.log.write(one)

    async def is_told() -> bool:
        await relay.relay()
        return (await bench.feed.cursors(two, bench.system)).get("0") == place_of(change)

    await eventually(is_told)
    tick = await bench.feed.tick()
    await eventually(partial(is_beyond, bench, relay, two, tick))


async def test_what_is_withheld_is_not_called_complete(bench: Bench) -> None:
    log = bench.log = LateLog()
    database = bench.databases[0]
    relay = await bench.relay()
    log.numbers = (5, 7)
    await relay.relay()
    assert await bench.feed.relayed_until(database) == {}
    before = await bench.feed.tick()
    log.numbers = (6, 9)
    await relay.relay()
    assert await bench.feed.relayed_until(database) == {}
    log.numbers = (7, 9)
    await relay.relay()
    until_tick = (await bench.feed.relayed_until(database))[bench.system]
    assert until_tick < before, "what was acknowledged since may be withheld"
    log.numbers = (9, 9)
    await relay.relay()
    assert (await bench.feed.relayed_until(database))[bench.system] > before


@pytest.mark.parametrize("pace_us", [EAGER, IDLE], ids=["eager", "idle"])
async def test_what_is_not_drained_is_not_called_complete(bench: Bench, pace_us: int) -> None:
    """As soon as it is, that is told of all to which something was appended meanwhile."""
    database = bench.databases[0]
    relay = await bench.relay(pace_us=pace_us)
    await drain(relay)
    until = await bench.feed.relayed_until(database)
    for _ in range(1_000):
        bench.log.write(database)
    assert not (await relay.relay()).drained
    assert await bench.feed.relayed_until(database) == until
    assert await relay.relay() == RelayResult(0, 0, drained=True)
    assert (await bench.feed.relayed_until(database))[bench.system] > until[bench.system]


async def test_what_comes_while_a_log_is_read_is_not_called_complete(bench: Bench) -> None:
    database = bench.databases[0]
    relay = await bench.relay()
    acknowledged: list[int] = []

    async def write() -> None:
        bench.log.write(database)
        acknowledged.append(await bench.feed.tick())

    bench.log.pause = write
    assert (await relay.relay()).drained
    assert (await bench.feed.relayed_until(database))[bench.system] <= min(acknowledged)


async def test_much_is_appended_in_parcels_and_complete_with_the_last(bench: Bench) -> None:
    database = bench.databases[0]
    told: list[tuple[int, bool]] = []

    class Noting:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.feed, name)

        async def append(
            self, name: str, brought: Sequence[LogBatch], lease: Lease, until_tick: int | None
        ) -> int:
            if name == database:
                told.append((sum(len(each.entries) for each in brought), until_tick is not None))
            return await bench.feed.append(name, brought, lease, until_tick)

    expected = [bench.log.write(database, f"o{n % 2}", log="01"[n % 2]).id for n in range(1_800)]
    done = await (await bench.relay(feed=cast(Feed, Noting()))).relay()
    assert (done.appended, done.drained) == (1_800, True)
    assert told == [(900, False), (900, True)]
    assert await bench.ids(database) == expected


async def test_a_relay_that_dies_between_parcels_loses_and_doubles_nothing(bench: Bench) -> None:
    database = bench.databases[0]
    expected = [bench.log.write(database, f"o{n % 2}", log="01"[n % 2]).id for n in range(1_800)]
    dying = await bench.relay(feed=Failing(bench.feed, "append", 1, after=True))
    with pytest.raises(ConnectionError):
        await dying.relay()
    assert len(await bench.ids(database)) == 900
    assert await bench.feed.relayed_until(database) == {}
    await drain(await bench.relay("two"))
    assert await bench.ids(database) == expected


async def test_a_cursor_that_is_beyond_what_was_read_stays_there(bench: Bench) -> None:
    """A successor begins at the least cursor, and takes more than one round to the others."""
    one, two = bench.databases
    relay = await bench.relay(pace_us=IDLE)
    await drain(relay)
    expected = [bench.log.write(one).id for _ in range(1_500)]
    await drain(relay)
    cursors = [(await bench.feed.cursors(name, bench.system))["0"] for name in (one, two)]
    assert cursors[1] < cursors[0]
    successor = await bench.relay("next")
    assert not (await successor.relay()).drained
    between = f"{1_200:020d}"
    await bench.redis.hset(f"{{portolan:feed:{one}}}:cursors", f"{bench.system}/0", between)
    with pytest.raises(FeedRolledBack):
        await drain(successor)
    successor.forget(reached=True)
    await bench.redis.hset(f"{{portolan:feed:{one}}}:cursors", f"{bench.system}/0", cursors[0])
    await drain(successor)
    assert await bench.ids(one) == expected
