"""Cached write leases on a real sketch: the calls they save, and their release."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from redis.asyncio import Redis

from app.coherence.cached_leases import CachedLeases
from app.settings.main import CacheSettings
from mediator.model.guard import CacheKey
from mediator.stores.port import SystemConfig
from sketch.protocol.port import OnContention, SketchUnavailable
from sketch.redis.server import RedisSketch
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper, cacheable, paper_on, wait_for_listeners
from tests.process.service import unique

IDLE_S, OLD_SHARE = CachedLeases.idle_s, CachedLeases.old_share


@dataclass
class Calls:
    """The calls of the sketch for a replica's writes."""

    started: list[Sequence[str]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def record(self, paper: Paper, patch: pytest.MonkeyPatch) -> Calls:
        sketch = paper.caches.sketch
        begin, end = sketch.begin, sketch.end

        async def recorded_begin(partition: Any, keys: Sequence[str], token: str) -> Any:
            self.started.append(keys)
            return await begin(partition, keys, token)

        async def recorded_end(partition: Any, token: str, *args: Any) -> Any:
            self.ended.append(token)
            return await end(partition, token, *args)

        patch.setattr(sketch, "begin", recorded_begin)
        patch.setattr(sketch, "end", recorded_end)
        return self


async def pending(paper: Paper) -> int:
    [state] = await paper.caches.sketch.states([paper.partition])
    return state.pending


async def create_object(paper: Paper) -> str:
    """Create an object without pending writes."""
    id_ = unique("a")
    await paper.put(id_)
    await paper.release_leases()
    return id_


@pytest.mark.usefixtures("long_leases")
async def test_further_writes_reuse_the_cached_lease(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create_object(paper)
    calls = Calls().record(paper, monkeypatch)
    for _ in range(5):
        assert (await paper.inc(id_)).is_success
    assert calls.started == [[f"articles/{id_}#hits"]]
    assert calls.ended == []
    assert await pending(paper) == 1
    assert (await paper.http.get(f"articles/{id_}")).json()["hits"] == 5
    assert await pending(paper) == 0


@pytest.mark.usefixtures("long_leases")
async def test_idle_leases_are_ended(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    id_ = await create_object(paper)
    await paper.inc(id_)
    assert await pending(paper) == 1
    monkeypatch.setattr(CachedLeases, "idle_s", IDLE_S)

    async def nothing_is_pending() -> bool:
        return await pending(paper) == 0

    await eventually(nothing_is_pending)


@pytest.mark.usefixtures("long_leases")
async def test_a_write_to_a_cached_key_ends_before_it_is_acknowledged(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create_object(paper)
    assert cacheable(await paper.get(id_))
    calls = Calls().record(paper, monkeypatch)
    for number in (1, 2):
        await paper.inc(id_)
        assert len(calls.started) == len(calls.ended) == number
    assert await pending(paper) == 0
    assert (await paper.filter()).contains(f"articles/{id_}#hits")


@pytest.mark.usefixtures("long_leases")
async def test_a_read_at_the_same_replica_releases_the_lease_at_once(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create_object(paper)
    await paper.inc(id_)
    assert cacheable(await paper.get(id_))
    calls = Calls().record(paper, monkeypatch)
    await paper.inc(id_)
    assert len(calls.started) == len(calls.ended) == 1


@pytest.mark.usefixtures("long_leases")
async def test_a_read_at_another_replica_releases_the_lease(paper: Paper, other: Paper) -> None:
    """The writer is notified of the reader at once, however often it writes."""
    await wait_for_listeners(paper, 2)
    id_ = await create_object(paper)
    await paper.inc(id_)
    assert not cacheable(await other.get(id_))

    async def is_cacheable() -> bool:
        await paper.inc(id_)
        return cacheable(await other.get(id_))

    await eventually(is_cacheable)

    async def is_avoided() -> bool:
        key, replicas = f"articles/{id_}#hits", (paper, other)
        return all(replica.caches.leases.is_avoided(paper.partition, key) for replica in replicas)

    await eventually(is_avoided)


@pytest.mark.usefixtures("long_leases")
async def test_a_lease_that_is_being_used_is_released_after_its_last_write(
    paper: Paper, other: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wait_for_listeners(paper, 2)
    id_ = await create_object(paper)
    await paper.inc(id_)
    leases, calls = paper.caches.leases, Calls().record(paper, monkeypatch)
    token = leases.acquire(paper.partition, f"articles/{id_}#hits", _route(paper))
    assert not cacheable(await other.get(id_))

    async def is_released() -> bool:
        return leases.is_avoided(paper.partition, f"articles/{id_}#hits")

    await eventually(is_released)
    assert calls.ended == []
    assert not cacheable(await other.get(id_)), "a write is under way"
    assert token is not None
    await leases.finish(token)
    assert calls.ended == [token.text]
    assert cacheable(await other.get(id_))


@pytest.mark.usefixtures("long_leases")
async def test_a_lease_that_is_being_ended_is_not_ended_by_a_round_as_well(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create_object(paper)
    await paper.inc(id_)
    leases, calls = paper.caches.leases, Calls().record(paper, monkeypatch)
    sketch, end = paper.caches.sketch, paper.caches.sketch.end

    async def end_during_a_round(*args: Any) -> Any:
        monkeypatch.setattr(sketch, "end", end)
        await leases.release_due()
        return await end(*args)

    monkeypatch.setattr(sketch, "end", end_during_a_round)
    await leases.release(paper.partition, [f"articles/{id_}#hits"])
    assert len(calls.ended) == 1
    assert leases.tokens == ()


@pytest.mark.usefixtures("long_leases")
async def test_a_lease_that_is_about_to_be_ended_is_not_ended_by_a_round_as_well(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await create_object(paper)
    await paper.inc(id_)
    leases, calls = paper.caches.leases, Calls().record(paper, monkeypatch)
    keys = [f"articles/{id_}#hits"]
    await asyncio.gather(leases.release(paper.partition, keys), leases.release_due())
    assert len(calls.ended) == 1
    assert leases.tokens == ()


@pytest.mark.usefixtures("long_leases")
async def test_a_lease_is_not_ended_again_because_another_one_could_not_be(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await create_object(paper) for _ in range(2)]
    for id_ in ids:
        await paper.inc(id_)
    leases, calls = paper.caches.leases, Calls().record(paper, monkeypatch)
    sketch, end = paper.caches.sketch, paper.caches.sketch.end
    tokens: list[str] = []
    failed, resume = asyncio.Event(), asyncio.Event()

    async def fail_first(partition: Any, token: str, *args: Any) -> Any:
        tokens.append(token)
        if len(tokens) == 1:
            failed.set()
            raise SketchUnavailable
        await resume.wait()
        return await end(partition, token, *args)

    monkeypatch.setattr(sketch, "end", fail_first)
    keys = [f"articles/{id_}#hits" for id_ in ids]
    releasing = asyncio.create_task(leases.release(paper.partition, keys))
    await failed.wait()
    for _ in range(10):  # a release that does not wait for the other one is over by then
        await asyncio.sleep(0)
    round_ = asyncio.create_task(leases.release_due())
    await asyncio.sleep(0)
    resume.set()
    await asyncio.gather(releasing, round_)
    assert tokens[1] not in tokens[2:]
    monkeypatch.setattr(sketch, "end", end)
    await leases.release_due()
    assert calls.ended.count(tokens[1]) == 1
    assert leases.tokens == ()


@pytest.mark.usefixtures("long_leases")
async def test_a_record_becomes_cacheable_when_the_replica_does_not_listen(
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    paper: Paper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lease becomes too old, however often the record is written, and is not renewed."""
    monkeypatch.setattr(RedisSketch, "listen", _never_listen)
    settings = CacheSettings()
    async with paper_on(own_systems, own_catalogue, redis_config.url, settings, paper) as isolated:
        id_ = await create_object(isolated)
        await isolated.inc(id_)
        assert not cacheable(await paper.get(id_))
        monkeypatch.setattr(CachedLeases, "old_share", OLD_SHARE)

        async def is_cacheable() -> bool:
            await isolated.inc(id_)
            return cacheable(await paper.get(id_))

        await eventually(is_cacheable)


async def _never_listen(_sketch: RedisSketch, _on_contention: OnContention) -> None:
    """Receive no notification."""


@pytest.mark.usefixtures("long_leases")
async def test_a_replica_that_stops_leaves_nothing_pending(
    own_systems: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    paper: Paper,
) -> None:
    settings = CacheSettings()
    async with paper_on(own_systems, own_catalogue, redis_config.url, settings, paper) as stopping:
        for _ in range(20):
            await stopping.put(unique("a"))
        assert await pending(paper) > 0
    assert await pending(paper) == 0


@pytest.mark.usefixtures("long_leases")
async def test_a_fenced_lease_takes_no_further_writes(paper: Paper) -> None:
    """As if the replica had stalled for longer than the lease, and another one had recovered it."""
    id_ = await create_object(paper)
    await paper.inc(id_)
    [token] = paper.caches.leases.tokens
    key = CacheKey("articles", id_, "hits")
    await paper.running.mediator.orphan_resolver.resolve(paper.database, [key], token.text)
    await paper.caches.sketch.end(paper.partition, token.text, {})
    late = await paper.inc(id_)
    assert late.status_code == 503
    assert "too late" in late.json()["detail"]
    answer = await paper.get(id_)
    assert cacheable(answer)
    assert answer.json()["hits"] == 1


@pytest.mark.usefixtures("long_leases")
async def test_after_a_loss_nothing_is_cacheable_though_writes_continue(
    fresh: Paper, redis_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper, id_ = fresh, await create_object(fresh)
    await paper.inc(id_)
    async with Redis.from_url(redis_config.url) as redis:
        keys = [key async for key in redis.scan_iter(f"*{paper.namespace}*", count=10_000)]
        await redis.delete(*keys)
    calls = Calls().record(paper, monkeypatch)
    assert (await paper.inc(id_)).is_success
    assert calls.started == []
    assert not cacheable(await paper.get(id_))
    assert (await paper.inc(id_)).is_success
    assert (len(calls.started), len(calls.ended)) == (1, 2), "no lease is cached after a loss"


@pytest.mark.usefixtures("long_leases")
async def test_a_lease_that_never_ends_is_recovered_by_another_replica(paper: Paper) -> None:
    """Several writes share a pending write; all but the last were acknowledged."""
    id_ = await create_object(paper)
    await paper.inc(id_)
    leases = paper.caches.leases
    token = leases.acquire(paper.partition, f"articles/{id_}#hits", _route(paper))
    assert token, "a write starts that never ends"

    async def recovered() -> bool:
        return cacheable(await paper.get(id_))

    assert not await recovered()
    await paper.end_lease(token)
    await eventually(recovered)
    assert (await paper.http.get(f"articles/{id_}")).json()["hits"] == 1


def _route(paper: Paper) -> object:
    return paper.running.mediator.data.model.databases[paper.database].classes["articles"]
