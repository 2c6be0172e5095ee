"""Chained caches: TTLs do not add up, and a forced request passes all caches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest

from benchmarks.harness.varnish import varnish
from tests.proxies.nginx import nginx
from tests.proxies.small_origin import Origin

CHAINS = ["nginx nginx", "varnish nginx", "nginx varnish"]
PUBLIC = "public, max-age=0, s-maxage=60, must-revalidate, stale-while-revalidate=0"


@pytest.fixture(scope="session", params=CHAINS)
async def chain(request: pytest.FixtureRequest, origin_of_all: Origin) -> AsyncIterator[list[str]]:
    """The addresses of two caches, the outer one first."""
    async with AsyncExitStack() as stack:
        urls = [origin_of_all.url]
        for name in reversed(request.param.split()):
            if name == "nginx":
                urls.append((await stack.enter_async_context(nginx(urls[-1]))).url)
            else:
                urls.append((await stack.enter_async_context(varnish(urls[-1]))).url)
        yield urls[:0:-1]


async def test_a_copy_expires_at_the_origins_time_in_every_cache(
    origin: Origin, path: str, chain: list[str], http: httpx.AsyncClient
) -> None:
    """The outer cache gets its copy from the inner one, shortly before that copy expires."""
    outer, inner = chain
    origin.ttl_s = 2.0
    origin.extra = {"cache-control": PUBLIC}
    first = await http.get(inner + path)
    end_s = int(first.headers["portolan-expires"]) / 1_000_000
    origin.write(path)
    await asyncio.sleep(max(0.0, end_s - 0.5 - time.time()))
    text = (await http.get(outer + path)).text
    while text == "version 1":
        sent_s = time.time()
        text = (await http.get(outer + path)).text
        assert text == "version 2" or sent_s < end_s + 1
        await asyncio.sleep(0.05)


async def test_both_caches_store_public_responses(
    origin: Origin, path: str, chain: list[str], http: httpx.AsyncClient
) -> None:
    outer, inner = chain
    for url in (outer, inner, outer):
        answer = await http.get(url + path)
        assert answer.text == "version 1"
    assert origin.reached(path) == 1
    assert answer.headers["cache-status"].endswith("; hit")


@pytest.mark.parametrize("condition", [{}, {"If-None-Match": '"j1.main:1"'}])
async def test_a_forced_request_passes_both_caches(
    origin: Origin, path: str, chain: list[str], http: httpx.AsyncClient, condition: dict[str, str]
) -> None:
    outer, inner = chain
    for url in (outer, inner):
        await http.get(url + path)
    forced = {"Cache-Control": "no-cache"} | condition
    if condition:
        assert (await http.get(outer + path, headers=forced)).status_code == 304
    origin.write(path)
    assert (await http.get(outer + path, headers=forced)).text == "version 2"


async def test_a_forced_request_joins_no_older_one_in_either_cache(
    origin: Origin, path: str, chain: list[str], http: httpx.AsyncClient
) -> None:
    outer, inner = chain
    barriers = []
    fills = []
    for url in (outer, inner):
        barriers.append(origin.hold())
        fills.append(asyncio.create_task(http.get(url + path)))
        if url == outer:
            await barriers[0].reached.wait()
    origin.waiting.clear()
    origin.write(path)
    forced = await http.get(outer + path, headers={"Cache-Control": "no-cache"})
    assert forced.text == "version 2"
    for barrier in barriers:
        barrier.opened.set()
    await asyncio.gather(*fills)
