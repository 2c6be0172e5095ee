"""A stale store as the origin of a coherent cache: when it adds how much to the bound."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest

from sketch.client import CoherentClient
from tests.conformance.stale_store import Constant, Replicas
from tests.process.caching.coherent_origin import Exchange, Origin, SharedCache, VirtualTime
from tests.process.caching.serving import Reply

DELTA_S, WINDOW_S, TTL_S = 1.0, 5.0, 20.0
STEP_S, STEPS = 0.5, 100


class StoreTime:
    """The store's clock, which is the test's."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time

    def now(self) -> float:
        return self._time.now

    def monotonic(self) -> float:
        return self._time.now


class StaleObjects(dict[tuple[str, str], dict[str, Any]]):
    """Objects as a replica with a known staleness window shows them."""

    def __init__(self, time: VirtualTime, window_s: float) -> None:
        super().__init__()
        self._replicas: Replicas[Any, Any] = Replicas(["B"], Constant(window_s), StoreTime(time))

    def __setitem__(self, key: tuple[str, str], value: dict[str, Any]) -> None:
        super().__setitem__(key, value)
        self._replicas.write(key, value)

    def get(self, key: Any, default: Any = None) -> Any:
        return self._replicas.read(key, "B") or default


class StaleOrigin(Origin):
    """An origin whose reads are stale; caches may store them if they are `cacheable`."""

    def __init__(self, time: VirtualTime, window_s: float, *, cacheable: bool) -> None:
        super().__init__(time)
        self.ttl_s = TTL_S
        self.objects = StaleObjects(time, window_s)
        self.cacheable = cacheable

    def _store(self, method: str, class_name: str, id_: str, value: Any) -> None:
        self.objects[class_name, id_] = self.objects[class_name, id_] | value

    async def _read(self, exchange: Exchange, class_name: str, id_: str) -> Reply:
        reply = await super()._read(exchange, class_name, id_)
        if not self.cacheable:
            reply.headers["cache-control"] = "no-store"
            reply.headers.pop("portolan-expires", None)
        return reply


async def oldest_read_s(window_s: float, *, cacheable: bool) -> float:
    """Return how long an overwritten value was still read, in seconds."""
    time = VirtualTime()
    origin = StaleOrigin(time, window_s, cacheable=cacheable)
    origin.objects["articles", "a"] = {"title": "old"}
    time.advance(window_s)
    transport = httpx.ASGITransport(cast("Any", SharedCache(origin)))
    async with CoherentClient(
        "http://origin", "news", delta_s=DELTA_S, transport=transport, clock=time
    ) as client:
        await client.get("articles", "a")
        time.advance(TTL_S - 1.0)  # the first copy is about to end, so the filter soon forgets it
        await origin.write("articles", "a", {"title": "new"})
        written_s, oldest_s = time.now, 0.0
        for _ in range(STEPS):
            read = await client.get("articles", "a")
            assert read.value is not None
            if read.value["title"] == "old":
                oldest_s = time.now - written_s
            time.advance(STEP_S)
    return oldest_s


async def test_a_fresh_origin_keeps_the_bound() -> None:
    assert await oldest_read_s(0.0, cacheable=True) <= DELTA_S


async def test_without_caching_answers_are_as_stale_as_the_store() -> None:
    assert await oldest_read_s(WINDOW_S, cacheable=False) <= DELTA_S + WINDOW_S


async def test_cached_answers_of_a_stale_store_are_older_than_both_together() -> None:
    """Answers of a lagging copy are not cacheable, because a TTL would start with an old value."""
    assert await oldest_read_s(WINDOW_S, cacheable=True) > DELTA_S + WINDOW_S


@pytest.mark.parametrize("window_s", [0.5, 2.0])
async def test_the_instrument_distinguishes_windows(window_s: float) -> None:
    oldest_s = await oldest_read_s(window_s, cacheable=False)
    assert window_s - STEP_S <= oldest_s <= window_s + DELTA_S
