"""Behaviour of nginx alone, with the shipped configuration."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.proxies.nginx import Nginx, nginx
from tests.proxies.small_origin import Origin

NO_CACHE = {"Cache-Control": "no-cache"}


async def purge(http: httpx.AsyncClient, url: str, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return (await http.request("PURGE", url, headers=headers)).status_code


async def test_nginx_passes_on_the_expiry_time_and_no_age(
    origin: Origin, path: str, nginx_cache: Nginx, http: httpx.AsyncClient
) -> None:
    first = await http.get(nginx_cache.url + path)
    second = await http.get(nginx_cache.url + path)
    assert "age" not in second.headers
    assert first.headers["x-accel-expires"] == second.headers["x-accel-expires"]


async def test_plain_requests_do_not_wait_for_each_other(
    origin: Origin, path: str, nginx_cache: Nginx, http: httpx.AsyncClient
) -> None:
    barrier = origin.hold()
    first = asyncio.create_task(http.get(nginx_cache.url + path))
    await barrier.reached.wait()
    origin.write(path)
    assert (await http.get(nginx_cache.url + path)).text == "version 2"
    barrier.opened.set()
    assert (await first).text == "version 1"


async def test_an_older_fill_that_ends_later_replaces_a_newer_one(
    origin: Origin, path: str, nginx_cache: Nginx, http: httpx.AsyncClient
) -> None:
    """This is why clients revalidate keys of their filter at the origin each time."""
    url = nginx_cache.url + path
    barrier = origin.hold()
    old = asyncio.create_task(http.get(url))
    await barrier.reached.wait()
    origin.write(path)
    assert (await http.get(url, headers=NO_CACHE)).text == "version 2"
    barrier.opened.set()
    assert (await old).text == "version 1"
    assert (await http.get(url)).text == "version 1"
    assert (await http.get(url, headers=NO_CACHE)).text == "version 2"


async def test_a_variant_may_come_back_in_an_older_version(
    origin: Origin, path: str, nginx_cache: Nginx, http: httpx.AsyncClient
) -> None:
    """nginx caches the first variant under one key, and all others under another."""
    url, other = nginx_cache.url + path, {"Prefer": "consistency=strong"}
    await http.get(url)
    await http.get(url, headers=other)
    origin.write(path)
    assert (await http.get(url, headers=other | NO_CACHE)).text == "version 2"
    assert (await http.get(url, headers=other)).text == "version 2"
    assert (await http.get(url, headers=NO_CACHE)).text == "version 2"
    assert (await http.get(url, headers=other)).text == "version 1"
    assert (await http.get(url, headers=other | NO_CACHE)).text == "version 2"


async def test_a_restart_forgets_nothing(origin: Origin, path: str) -> None:
    async with nginx(origin.url) as cache, httpx.AsyncClient(timeout=60.0) as http:
        await http.get(cache.url + path)
        origin.write(path)
        await cache.restart()
        assert (await http.get(cache.url + path)).text == "version 1"
        assert (await http.get(cache.url + path, headers=NO_CACHE)).text == "version 2"
        assert await purge(http, cache.url + path, cache.token) == 200


async def test_a_purge_removes_one_url(
    origin: Origin, path: str, nginx_cache: Nginx, http: httpx.AsyncClient
) -> None:
    url, token = nginx_cache.url + path, nginx_cache.token
    assert await purge(http, url, token) == 404
    for target in (url, f"{url}?fields=title"):
        await http.get(target)
    assert await purge(http, url, token) == 200
    for target in (url, f"{url}?fields=title"):
        await http.get(target)
    assert origin.reached(path) == 2
    assert origin.reached(f"{path}?fields=title") == 1


@pytest.mark.parametrize("token", ["", "another"])
async def test_a_purge_without_the_token_is_refused(
    origin: Origin, path: str, nginx_cache: Nginx, http: httpx.AsyncClient, token: str
) -> None:
    await http.get(nginx_cache.url + path)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    answer = await http.request("PURGE", nginx_cache.url + path, headers=headers)
    assert answer.status_code == 405
    await http.get(nginx_cache.url + path)
    assert (origin.reached(path), origin.reached(path, "PURGE")) == (1, 0)
