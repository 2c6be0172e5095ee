"""Backlogs from a time without batches: no tuple of them is late or waits for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import Any

import pytest

from mediator.base.lease import Lease
from mediator.changes.position import FeedPosition
from mediator.standing import class_intake
from mediator.standing.class_intake import ClassIntake
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, unique
from tests.process.standing.bench import Bench, bench_on

CLASSES: dict[str, Any] = {
    name: {"fields": {"name": field_on("postgres")}} for name in ("customers", "others")
}
LARGE: dict[str, Any] = {
    "relations": ["large", "small"],
    "predicates": [["large.k", "small.k"]],
    "window_s": 1,
}
VISITS: dict[str, Any] = {
    "relations": {"visit": {"stream": "s"}, "customer": {"class": "customers"}},
    "predicates": [["visit.b", "customer.name"]],
    "window_s": 600,
}


@pytest.fixture
async def shop(started: Service) -> AsyncIterator[Bench]:
    async with bench_on(started, CLASSES) as opened:
        yield opened


@asynccontextmanager
async def nobody_takes_batches(bench: Bench) -> AsyncIterator[None]:
    """Hold the lease of the database's queries, as a hung holder would."""
    shared = bench.service.mediator.coordination
    assert shared is not None
    lease = Lease(f"standing:{bench.id}", unique())

    async def has_lease() -> bool:
        await shared.redis.delete(lease.key)
        return await shared.leases.acquire(lease.name, lease.token, 600.0)

    await eventually(has_lease)
    yield
    await shared.leases.release(lease.name, lease.token)


async def test_tuples_behind_a_page_of_large_ones_are_not_late(bench: Bench) -> None:
    """A page of large tuples ends after 1 MiB, when the stream of small ones is read already."""
    await bench.declare("large", ["k", "text"])
    await bench.declare("small", ["k"])
    query = await bench.ready(LARGE)
    async with nobody_takes_batches(bench):
        for first in range(0, 1_000, 200):
            large = [(float(n), {"k": n, "text": "x" * 4_096}) for n in range(first, first + 200)]
            await bench.send("large", *large)
        await bench.send("small", *((float(n), {"k": n}) for n in range(0, 1_000, 10)))
    await bench.wait_until_taken()
    keys = sorted(result["tuples"]["small"]["k"] for result in await bench.results(query))
    assert keys == list(range(0, 1_000, 10))


@pytest.mark.parametrize("taken_bytes", [class_intake.TAKEN_BYTES, 1], ids=["at once", "a few"])
async def test_an_object_behind_the_changes_of_others_is_not_late(
    shop: Bench, monkeypatch: pytest.MonkeyPatch, taken_bytes: int
) -> None:
    monkeypatch.setattr(class_intake, "TAKEN_BYTES", taken_bytes)
    query = await shop.ready(VISITS)
    async with nobody_takes_batches(shop):
        creating = (shop.service.create(shop.database, "others", f"o{n}") for n in range(600))
        await asyncio.gather(*creating)
        await shop.write("c1", name="n1")
        await eventually(lambda: shop.has_changes("c1", 1))
        await shop.send("s", (time() + 100, {"b": "n1"}))
    await shop.expect_results(query, {"visit": {"b": "n1"}, "customer": {"id": "c1", "name": "n1"}})


async def test_a_stream_waits_for_a_feed_that_goes_on_up_to_where_it_was(
    shop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no further: its tuple is an hour ahead, which changes do not reach meanwhile."""
    query = await shop.ready(VISITS | {"window_s": 3_600})
    await shop.write("c1", name="n1")
    await shop.wait_for_objects("customers", 1)
    subscriptions = shop.service.mediator.changes.subscriptions
    assert subscriptions is not None
    now = subscriptions.now

    async def now_of_a_busy_feed(database: str) -> FeedPosition:
        """Return a later end of the feed at every call."""
        id_ = unique()
        await shop.service.create(shop.database, "others", id_)
        await eventually(lambda: shop.has_changes(id_, 1))
        return await now(database)

    monkeypatch.setattr(subscriptions, "now", now_of_a_busy_feed)
    await shop.send("s", (time() + 3_000, {"b": "n1"}))
    await shop.expect_results(query, {"visit": {"b": "n1"}, "customer": {"id": "c1", "name": "n1"}})


async def test_a_holder_with_smaller_reads_than_its_predecessor_holds_streams_back(
    shop: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its tuples would seem late, and no stream would wait for the remaining ones."""
    monkeypatch.setattr(class_intake, "TAKEN_BYTES", 1)
    mediator = shop.service.mediator
    subscriptions = mediator.changes.subscriptions
    assert subscriptions is not None
    beginning = (await subscriptions.beginning(shop.id)).text
    await asyncio.gather(*(shop.write(f"c{n}", name="n1") for n in range(200)))
    await eventually(lambda: shop.has_changes("c199", 1))
    route = mediator.data.model.databases[shop.database]
    classes = frozenset({"customers"})
    intake = ClassIntake(mediator.data, subscriptions, route, classes, {"class:customers": 0})
    taken_s = time() + 1_000
    await intake.open(beginning, taken_s)
    try:
        page = await intake.read(500)
    finally:
        intake.close()
    assert 0 < len(page.tuples) < 200
    assert page.until_s == taken_s
