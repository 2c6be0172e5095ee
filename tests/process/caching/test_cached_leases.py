"""Cached write leases on a real sketch: what they save, and what releases them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from app.coherence.cached_leases import CachedLeases
from app.settings.main import CacheSettings
from mediator.model.guard import CacheKey
from mediator.stores.port import SystemConfig
from sketch.protocol.port import OnContention, Partition
from sketch.redis.server import RedisSketch
from tests.faults.conditions import eventually
from tests.process.caching.cached_paper import Paper, paper_on
from tests.process.service import unique


@dataclass
class Calls:
    """What a replica told the sketch of its writes."""

    begun: list[Sequence[str]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def of(self, paper: Paper, patched: pytest.MonkeyPatch) -> Calls:
        sketch = paper.caches.sketch
        begin, end = sketch.begin, sketch.end

        async def noted_begin(partition: Any, keys: Sequence[str], token: str) -> Any:
            self.begun.append(keys)
            return await begin(partition, keys, token)

        async def noted_end(partition: Any, token: str, *more: Any) -> Any:
            self.ended.append(token)
            return await end(partition, token, *more)

        patched.setattr(sketch, "begin", noted_begin)
        patched.setattr(sketch, "end", noted_end)
        return self


@pytest.fixture
async def fresh(
    system_configs: Sequence[SystemConfig], own_catalogue: str, redis_config: SystemConfig
) -> AsyncIterator[Paper]:
    """A database of which nobody has asked for results; for those who are patient."""
    async with paper_on(system_configs, own_catalogue, redis_config.url, CacheSettings()) as opened:
        opened.caches.leases.usable_s = 600.0
        yield opened


@pytest.fixture
def patient(paper: Paper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks are ended by nothing but what a test does."""
    monkeypatch.setattr(paper.caches.leases, "usable_s", 600.0)
    monkeypatch.setattr(CachedLeases, "idle_s", 600.0)
    monkeypatch.setattr(CachedLeases, "old_share", inf)


def cacheable(answer: httpx.Response) -> bool:
    assert answer.is_success, answer.text
    return "portolan-expires" in answer.headers


async def pending(paper: Paper) -> int:
    [state] = await paper.caches.sketch.states([paper.partition])
    return state.pending


async def made(paper: Paper) -> str:
    """Make an object, of which nothing is marked any more."""
    id_ = unique("a")
    await paper.put(id_)
    await paper.release_leases()
    return id_


@pytest.mark.usefixtures("patient")
async def test_further_writes_do_not_ask_the_sketch(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await made(paper)
    calls = Calls().of(paper, monkeypatch)
    for _ in range(5):
        assert (await paper.inc(id_)).is_success
    assert calls.begun == [[f"articles/{id_}#hits"]]
    assert calls.ended == []
    assert await pending(paper) == 1
    assert (await paper.http.get(f"articles/{id_}")).json()["hits"] == 5
    assert await pending(paper) == 0


async def test_marks_that_are_used_no_more_are_ended(paper: Paper) -> None:
    id_ = await made(paper)
    await paper.inc(id_)
    assert await pending(paper) == 1

    async def none() -> bool:
        return await pending(paper) == 0

    await eventually(none)


@pytest.mark.usefixtures("patient")
async def test_what_a_cache_holds_is_ended_before_it_is_acknowledged(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await made(paper)
    assert cacheable(await paper.get(id_))
    calls = Calls().of(paper, monkeypatch)
    for number in (1, 2):
        await paper.inc(id_)
        assert len(calls.begun) == len(calls.ended) == number
    assert await pending(paper) == 0
    assert (await paper.filter()).contains(f"articles/{id_}#hits")


@pytest.mark.usefixtures("patient")
async def test_a_reader_of_the_same_replica_finds_the_record_cacheable(
    paper: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = await made(paper)
    await paper.inc(id_)
    assert cacheable(await paper.get(id_))
    calls = Calls().of(paper, monkeypatch)
    await paper.inc(id_)
    assert len(calls.begun) == len(calls.ended) == 1


@pytest.mark.usefixtures("patient")
async def test_a_reader_of_another_replica_finds_it_soon(paper: Paper, other: Paper) -> None:
    """However often the record is written: the writer hears of the reader at once."""
    await listened_to(paper, 2)
    id_ = await made(paper)
    await paper.inc(id_)
    assert not cacheable(await other.get(id_))

    async def found() -> bool:
        await paper.inc(id_)
        return cacheable(await other.get(id_))

    await eventually(found)

    async def avoided() -> bool:
        key, replicas = f"articles/{id_}#hits", (paper, other)
        return all(it.caches.leases.is_avoided(paper.partition, key) for it in replicas)

    await eventually(avoided)


@pytest.mark.usefixtures("patient")
async def test_a_mark_that_is_being_used_gives_way_after_its_last_write(
    paper: Paper, other: Paper, monkeypatch: pytest.MonkeyPatch
) -> None:
    await listened_to(paper, 2)
    id_ = await made(paper)
    await paper.inc(id_)
    leases, calls = paper.caches.leases, Calls().of(paper, monkeypatch)
    token = leases.acquire(paper.partition, f"articles/{id_}#hits", _route(paper))
    assert not cacheable(await other.get(id_))

    async def heard() -> bool:
        return leases.is_avoided(paper.partition, f"articles/{id_}#hits")

    await eventually(heard)
    assert calls.ended == []
    assert not cacheable(await other.get(id_)), "a write is under way"
    assert token is not None
    await leases.finish(token)
    assert calls.ended == [token.text]
    assert cacheable(await other.get(id_))


async def test_a_reader_of_whom_nobody_hears_finds_it_later(
    system_configs: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    paper: Paper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often the record is written: the mark is old some time, and not made again."""
    monkeypatch.setattr(RedisSketch, "listen", _deaf)
    settings = CacheSettings()
    async with paper_on(system_configs, own_catalogue, redis_config.url, settings, paper) as deaf:
        id_ = await made(deaf)
        await deaf.inc(id_)
        assert not cacheable(await paper.get(id_))

        async def found() -> bool:
            await deaf.inc(id_)
            return cacheable(await paper.get(id_))

        await eventually(found)


async def _deaf(_sketch: RedisSketch, _tell: OnContention) -> None:
    """Hear nothing."""


async def listened_to(paper: Paper, replicas: int) -> None:
    """Wait until so many replicas hear of what is wanted."""
    channel = f"{{{paper.namespace}:nobodys/class}}:pending"

    async def by_all() -> bool:
        return bool(await client.publish(channel, "nobodys/object#group") == replicas)

    async with Redis.from_url(paper.sketch_url) as client:
        await eventually(by_all)


@pytest.mark.usefixtures("patient")
async def test_a_result_is_not_kept_while_writes_may_be_acknowledged_that_do_not_know_of_it(
    system_configs: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    fresh: Paper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are ended by nothing here: this replica is told of those who ask, and hears nothing."""
    paper = fresh
    monkeypatch.setattr(paper.caches.leases, "release_class", _nothing)
    word, id_ = unique("w"), unique("n")
    for text in ("a", "b"):
        await paper.http.put(f"notes/{id_}", json={"text": text})
    query, settings = f"notes?text={word}", CacheSettings()
    async with paper_on(system_configs, own_catalogue, redis_config.url, settings, paper) as other:
        assert not cacheable(await other.http.get(query))
        await paper.http.put(f"notes/{id_}", json={"text": word})
        assert not cacheable(await other.http.get(query))
        await paper.release_leases()
        assert cacheable(await other.http.get(query))
        await paper.http.put(f"notes/{id_}", json={"text": "c"})
        assert (await paper.filter()).contains(f"notes//text={word}")
        assert (await other.http.get(query)).json()["items"] == []


@pytest.mark.usefixtures("patient")
async def test_who_asks_for_a_result_in_another_replica_waits_for_no_idle_mark(
    system_configs: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    fresh: Paper,
) -> None:
    paper, settings, id_ = fresh, CacheSettings(), unique("n")
    async with paper_on(system_configs, own_catalogue, redis_config.url, settings, paper) as other:
        await listened_to(paper, 2)
        for text in ("a", "b"):
            await paper.http.put(f"notes/{id_}", json={"text": text})
        assert not cacheable(await other.http.get("notes?text=b"))

        async def found() -> bool:
            return cacheable(await other.http.get("notes?text=b"))

        await eventually(found)


async def _nothing(_partition: Partition) -> None:
    """Let marks stay."""


@pytest.mark.usefixtures("patient")
async def test_who_asks_for_a_result_in_the_same_replica_need_not_wait(fresh: Paper) -> None:
    paper = fresh
    id_ = unique("n")
    for text in ("a", "b"):
        await paper.http.put(f"notes/{id_}", json={"text": text})
    assert cacheable(await paper.http.get("notes?text=b"))
    await paper.http.put(f"notes/{id_}", json={"text": "c"})
    assert (await paper.filter()).contains("notes//text=b")
    assert not paper.caches.leases.tokens


async def test_a_replica_that_stops_leaves_nothing_pending(
    system_configs: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    paper: Paper,
) -> None:
    settings = CacheSettings()
    async with paper_on(system_configs, own_catalogue, redis_config.url, settings, paper) as gone:
        for _ in range(20):
            await gone.put(unique("a"))
        assert await pending(paper) > 0
    assert await pending(paper) == 0


@pytest.mark.usefixtures("patient")
async def test_what_was_fenced_takes_no_more_writes(paper: Paper) -> None:
    """As if the replica had stood still for longer than the lease, and another one had settled."""
    id_ = await made(paper)
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


@pytest.mark.usefixtures("patient")
async def test_after_a_loss_nothing_is_kept_though_writes_go_on(
    fresh: Paper, redis_config: SystemConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    paper, id_ = fresh, await made(fresh)
    await paper.inc(id_)
    async with Redis.from_url(redis_config.url) as redis:
        keys = [key async for key in redis.scan_iter(f"*{paper.namespace}*", count=10_000)]
        await redis.delete(*keys)
    calls = Calls().of(paper, monkeypatch)
    assert (await paper.inc(id_)).is_success
    assert calls.begun == []
    assert not cacheable(await paper.get(id_))
    assert (await paper.inc(id_)).is_success
    assert (len(calls.begun), len(calls.ended)) == (1, 2), "what may be anywhere does not linger"


async def test_a_write_whose_end_nobody_knows_is_settled_by_another(
    system_configs: Sequence[SystemConfig],
    own_catalogue: str,
    redis_config: SystemConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mark of several writes, of which all but the last were acknowledged."""
    settings = CacheSettings(write_lease_s=2.0)
    async with paper_on(system_configs, own_catalogue, redis_config.url, settings) as paper:
        id_ = await made(paper)
        await paper.inc(id_)
        leases = paper.caches.leases
        token = leases.acquire(paper.partition, f"articles/{id_}#hits", _route(paper))
        assert token, "a write begins that never ends"

        async def settled() -> bool:
            return cacheable(await paper.get(id_))

        assert not await settled()
        await eventually(settled)
        assert (await paper.http.get(f"articles/{id_}")).json()["hits"] == 1


def _route(paper: Paper) -> object:
    return paper.running.mediator.data.model.databases[paper.database].classes["articles"]
