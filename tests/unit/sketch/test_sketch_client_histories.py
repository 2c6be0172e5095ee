"""Random histories of clients, caches and writers, in virtual time: no read beyond the bound."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest import mock

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketch.client import CoherentClient, renewing
from tests.conformance.virtual_time import run_virtually
from tests.process.caching.coherent_origin import Origin, SharedCache, VirtualTime

IDS = ("a1", "a2", "a3")
DELTA_S = 1.0


class LoopTime(VirtualTime):
    """The loop's time."""

    @property
    def now(self) -> float:
        return 100.0 + asyncio.get_running_loop().time()


class Network(httpx.AsyncBaseTransport):
    """Delivers requests to an application with random delays."""

    def __init__(self, app: Callable[..., Awaitable[None]], rng: random.Random) -> None:
        self._app = httpx.ASGITransport(app)
        self._rng = rng

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(self._latency())
        response = await self._app.handle_async_request(request)
        await response.aread()
        await asyncio.sleep(self._latency())
        return response

    def _latency(self) -> float:
        return self._rng.choice([0.001, 0.02, 0.3, 2.0 * self._rng.random()])


class SlowOrigin(Origin):
    """An origin that is slow at every stage, and whose clock is set now and then.

    Attributes:
        rng: The source of randomness.
        reading: The replica's last reading of the sketch's clock, with its time.
    """

    rng: random.Random
    reading = (-math.inf, 0)

    def date_us(self) -> int:
        """Date by a reading of the clock that is 2 s old at most."""
        now = self.time.now
        if now - self.reading[0] > 2 * self.rng.random():
            self.reading = now, self.clock_us()
        return self.reading[1] + int((now - self.reading[0]) * 1_000_000)

    async def set_clock(self) -> None:
        """Set it forward, which restarts the sketch, or back."""
        for _ in range(2):
            await asyncio.sleep(12 * self.rng.random())
            by_s = self.rng.choice([-20.0, -0.9, -0.3, 0.6, 5.0])
            self.set_us += round(by_s * 1_000_000)
            if by_s > 0:
                self.fresh = False
                self.restart_sketch(fresh=False)

    async def _pass(self, stage: Any, exchange: Any) -> None:
        await asyncio.sleep(self.rng.random() ** 4)
        await super()._pass(stage, exchange)


@dataclass
class History:
    """The versions written and read of each object, with their times."""

    acknowledged: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    seen: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    reads: int = 0
    by_source: dict[str, int] = field(default_factory=dict)

    def due(self, id_: str, before: float) -> int:
        """Return the latest version acknowledged, or seen by anyone, until a time."""
        versions = [*self.acknowledged.get(id_, ()), *self.seen.get(id_, ())]
        return max((version for at, version in versions if at <= before), default=0)


async def reader(
    client: CoherentClient, history: History, rng: random.Random, own: dict[str, int]
) -> None:
    last: dict[str, int] = {}
    for _ in range(40):
        await asyncio.sleep(rng.random() ** 2)
        id_ = rng.choice(IDS)
        refresh = rng.random() < 0.1
        now = asyncio.get_running_loop().time
        started, own_version, last_version = now(), own.get(id_, 0), last.get(id_, 0)
        due = history.due(id_, started if refresh else started - DELTA_S)
        read = await client.get("articles", id_, refresh=refresh)
        assert read.value is not None
        version = read.value["hits"]
        assert version >= due, f"{id_}: {version} read at {started}, {due} was due"
        assert version >= own_version, (
            f"{id_}: {version} read, {own_version} was written by this client"
        )
        assert version >= last_version, f"{id_}: {version} read after {last_version}"
        last[id_] = max(version, last.get(id_, 0))
        history.seen.setdefault(id_, []).append((now(), version))
        history.reads += 1
        history.by_source[read.source] = history.by_source.get(read.source, 0) + 1


async def writer(
    client: CoherentClient, history: History, rng: random.Random, own: dict[str, int], id_: str
) -> None:
    for version in range(1, 8):
        await asyncio.sleep(rng.random() * 2)
        await client.put("articles", id_, {"title": "t", "text": "", "hits": version})
        own[id_] = version
        history.acknowledged.setdefault(id_, []).append(
            (asyncio.get_running_loop().time(), version)
        )


async def run(seed: int, mode: Literal["eager", "lazy"]) -> History:
    rng = random.Random(seed)
    origin = SlowOrigin(LoopTime())
    origin.rng = rng
    origin.ttl_s = rng.choice([0.3, 1.0, 3.0, 10.0])
    origin.shows_whole = rng.random() < 0.7
    for id_ in IDS:
        origin.objects["articles", id_] = {"title": "t", "text": "", "hits": 0}
    caches = [SharedCache(origin) for _ in range(2)]
    history = History()
    async with asyncio.TaskGroup() as work:
        if rng.random() < 0.5:
            work.create_task(origin.set_clock())
        for number in range(4):
            client = CoherentClient(
                "http://origin",
                "news",
                delta_s=DELTA_S,
                mode=mode,
                transport=Network(caches[number % 2], rng),
                clock=origin.time,
            )
            own: dict[str, int] = {}
            work.create_task(session(client, history, rng, own, IDS[number : number + 1]))
    return history


async def session(
    client: CoherentClient,
    history: History,
    rng: random.Random,
    own: dict[str, int],
    writes: tuple[str, ...],
) -> None:
    async with client, asyncio.TaskGroup() as work:
        for _ in range(2):
            work.create_task(reader(client, history, rng, own))
        for id_ in writes:
            work.create_task(writer(client, history, rng, own, id_))


def simulate_history(seed: int, mode: Literal["eager", "lazy"]) -> History:
    few = mock.patch.object(renewing, "MAX_SINGLE", seed % 2)  # there are not many objects
    with few:
        return run_virtually(run(seed, mode))


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.sampled_from(["eager", "lazy"]))
def test_no_read_is_beyond_the_bound(seed: int, mode: Literal["eager", "lazy"]) -> None:
    assert simulate_history(seed, mode).reads == 320


def test_every_kind_of_answer_occurs() -> None:
    sources = {source for seed in range(5) for source in simulate_history(seed, "eager").by_source}
    assert sources == {"own", "shared", "origin"}


@pytest.mark.parametrize("seed", [1079, 2059, 3021])
def test_no_read_returns_an_older_version_when_responses_are_reordered(seed: int) -> None:
    """Regressions: such a read joined a request from before an answer that had arrived."""
    assert simulate_history(seed, "eager").reads == 320
