"""Publications in Redis: atomic, by the holder only, and once, however often they are sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from mediator.base.lease import Lease, LeaseLost
from mediator.changes.feed import PositionGone
from mediator.coordination.leases import Leases
from mediator.coordination.view_results import RedisViewResults
from mediator.stores.port import SystemConfig
from mediator.views import results as port
from mediator.views.parser import parse_view
from mediator.views.results import READY, Publication, ViewKey, ViewState
from tests.faults.conditions import eventually
from tests.process.redis_keys import go_back, keys_under
from tests.process.service import unique
from tests.unit.views.shop import SCHEMA

VIEW = parse_view({"class": "customers"}, SCHEMA)
ONE, TWO = b'{"id":"a"}', b'{"id":"b"}'
FIRST = Publication(ViewState(READY), [(ONE, 2, 2)], is_first=True)


class Published:
    """A database with one view, and the lease of its holder.

    Attributes:
        redis: The Redis of the database.
    """

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.results = RedisViewResults(redis)
        self.leases = Leases(redis)
        self.key = ViewKey(unique(), unique())
        self.lease = Lease(f"views:{self.key.database}", unique())

    async def publish(
        self, sequence: int, publication: Publication, position: str = "p", view: str = ""
    ) -> None:
        publications = {view or self.key.view: publication}
        database = self.key.database
        await self.results.publish(database, self.lease, sequence, position, publications)


@pytest.fixture
async def published(redis_config: SystemConfig) -> AsyncIterator[Published]:
    async with Redis.from_url(redis_config.url) as redis:
        new_published = Published(redis)
        await new_published.results.put_view(new_published.key, VIEW, 1)
        assert await new_published.leases.acquire(
            new_published.lease.name, new_published.lease.token, 60
        )
        yield new_published
        await new_published.results.clear(new_published.key.database)
        assert not [
            k async for k in redis.scan_iter(match=f"*views:{new_published.key.database}*:*")
        ]


async def test_rows_and_deltas_are_published_with_their_position(published: Published) -> None:
    results, key = published.results, published.key
    assert await results.result(key) is None
    await published.publish(0, FIRST, "p1")
    first = await results.last_delta(key)
    assert first is not None
    await published.publish(1, Publication(None, [(ONE, -2, 0), (TWO, 1, 1)]), "p2")
    result = await results.result(key)
    assert result is not None
    assert (result.rows, result.position) == ({TWO: 1}, "p2")
    assert result.delta == await results.last_delta(key)
    [delta] = await results.deltas(key, first, 10, 0)
    assert (delta.id, delta.position) == (result.delta, "p2")
    assert delta.rows == b'[{"row":{"id":"a"},"count":-2},{"row":{"id":"b"},"count":1}]'


async def test_a_publication_that_is_sent_twice_has_one_effect(published: Published) -> None:
    for _ in range(2):
        await published.publish(0, FIRST)
    last = await published.results.last_delta(published.key)
    assert last is not None
    assert await published.results.deltas(published.key, last, 10, 0) == []
    assert (await published.results.published(published.key.database)).sequence == 1


@pytest.mark.parametrize("sequence", [1, 7])
async def test_a_holder_that_does_not_know_the_last_publication_is_refused(
    published: Published, sequence: int
) -> None:
    with pytest.raises(LeaseLost):
        await published.publish(sequence, FIRST)
    assert await published.results.result(published.key) is None


async def test_only_the_holder_of_the_lease_publishes(published: Published) -> None:
    await published.leases.release(published.lease.name, published.lease.token)
    with pytest.raises(LeaseLost):
        await published.publish(0, FIRST)
    await published.leases.acquire(published.lease.name, "another", 60)
    with pytest.raises(LeaseLost):
        await published.publish(0, FIRST)
    assert await published.results.result(published.key) is None


async def test_nothing_is_left_of_a_view_that_was_dropped_before(published: Published) -> None:
    assert await published.results.drop_view(published.key)
    await published.publish(0, FIRST)
    assert await published.results.result(published.key) is None
    assert await published.results.rows(published.key) == {}


async def test_without_a_position_the_former_one_stays(published: Published) -> None:
    await published.publish(0, FIRST, "p1")
    await published.publish(1, Publication(ViewState("stopped", "why"), []), "")
    result = await published.results.result(published.key)
    stored = await published.results.view(published.key)
    assert result is not None
    assert stored is not None
    assert (result.position, stored.state) == ("p1", ViewState("stopped", "why"))


async def test_the_oldest_deltas_are_not_kept(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.coordination.view_results.MAX_DELTAS", 2)
    await published.publish(0, FIRST)
    first = await published.results.last_delta(published.key)
    assert first is not None
    for sequence in (1, 2):
        await published.publish(sequence, Publication(None, [(ONE, 1, 2 + sequence)]))
    with pytest.raises(PositionGone):
        await published.results.deltas(published.key, first, 10, 0)
    assert port.MAX_DELTAS == 1_000


def large(sequence: int) -> Publication:
    return Publication(None, [(b'"%b"' % (b"%d" % sequence * 1_000), 1, 1)])


async def test_the_oldest_bytes_of_deltas_are_not_kept(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.coordination.view_results.MAX_DELTA_BYTES", 3_500)
    await published.publish(0, FIRST)
    first = await published.results.last_delta(published.key)
    assert first is not None
    for sequence in (1, 2, 3):
        await published.publish(sequence, large(sequence))
    newer = await published.results.deltas(published.key, first, 10, 0)
    assert len(newer) == 3
    for sequence in (4, 5, 6):  # removed deltas no longer count
        await published.publish(sequence, large(sequence))
        with pytest.raises(PositionGone):
            await published.results.deltas(published.key, first, 10, 0)
        first, newer = newer[0].id, newer[1:]
        newer += await published.results.deltas(published.key, newer[-1].id, 10, 0)
        assert len(newer) == 3


async def test_the_last_delta_is_kept_however_large_it_is(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.coordination.view_results.MAX_DELTA_BYTES", 10)
    for sequence in (0, 1):
        await published.publish(sequence, large(sequence))
        last = await published.results.last_delta(published.key)
        assert last is not None
        assert await published.results.deltas(published.key, last, 10, 0) == []


async def test_a_page_of_large_deltas_ends_before_its_limit(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mediator.coordination.view_results.BYTES_AT_ONCE", 2_500)
    await published.publish(0, FIRST)
    after = await published.results.last_delta(published.key)
    assert after is not None
    for sequence in range(1, 8):
        await published.publish(sequence, large(sequence))
    sizes, all_rows = [], []
    while page := await published.results.deltas(published.key, after, 10, 0):
        sizes.append(len(page))
        all_rows += [delta.rows for delta in page]
        after = page[-1].id
    assert sizes == [3, 3, 1]
    assert [b"%d" % n * 1_000 in rows for n, rows in enumerate(all_rows, 1)] == [True] * 7


def key_prefix(published: Published) -> str:
    """Return the prefix of the keys of the database."""
    return f"{{portolan:views:{published.key.database}}}:"


async def publish_ahead(published: Published) -> str:
    """Publish a result as by a clock that is ahead, and return the id of its delta."""
    await published.publish(0, FIRST)
    (stream,) = [key async for key in published.redis.scan_iter(f"*:deltas:{published.key.view}")]
    seconds, _ = await published.redis.time()
    id_: Any = await published.redis.xadd(
        stream, {"position": "p", "rows": "[]"}, f"{(seconds + 60) * 1000}-1"
    )
    return str(id_.decode())


ADDED = Publication(None, [(TWO, 1, 1)])


async def test_a_lost_delta_is_not_confused_with_its_replacement(
    published: Published,
) -> None:
    first = await publish_ahead(published)
    state = await keys_under(published.redis, key_prefix(published))
    await published.publish(1, ADDED)
    [lost] = await published.results.deltas(published.key, first, 10, 0)
    await go_back(published.redis, key_prefix(published), state)
    await published.publish(1, ADDED)
    [delta] = await published.results.deltas(published.key, first, 10, 0)
    assert delta.id != lost.id
    with pytest.raises(PositionGone):
        await published.results.deltas(published.key, lost.id, 10, 0)


async def test_a_follower_that_waits_while_its_delta_is_lost_is_refused(
    published: Published, redis_config: SystemConfig
) -> None:
    first = await publish_ahead(published)
    state = await keys_under(published.redis, key_prefix(published))
    await published.publish(1, ADDED)
    [lost] = await published.results.deltas(published.key, first, 10, 0)
    name = unique()
    async with Redis.from_url(redis_config.url, client_name=name) as redis:
        following = RedisViewResults(redis).deltas(published.key, lost.id, 10, 60)
        waiting = asyncio.create_task(following)

        async def is_blocked() -> bool:
            clients = await published.redis.client_list()
            return any(client["name"] == name and "b" in client["flags"] for client in clients)

        await eventually(is_blocked)
        await go_back(published.redis, key_prefix(published), state)
        for sequence in (1, 2):
            await published.publish(sequence, ADDED)
        with pytest.raises(PositionGone):
            await waiting


async def test_the_views_of_a_database_are_limited(published: Published) -> None:
    other = ViewKey(published.key.database, unique())
    assert not await published.results.put_view(other, VIEW, 1)
    assert await published.results.put_view(other, VIEW, 2)
    assert await published.results.ids(other.database) == {published.key.view, other.view}


async def test_no_more_than_the_bound_are_created_at_once(published: Published) -> None:
    keys = [ViewKey(published.key.database, unique()) for _ in range(20)]
    outcomes = await asyncio.gather(*(published.results.put_view(key, VIEW, 5) for key in keys))
    assert sum(outcomes) == 4  # there is one already
    assert len(await published.results.ids(published.key.database)) == 5
