"""Behaviour of Varnish alone, with the shipped VCL."""

from __future__ import annotations

import asyncio
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import pytest

from benchmarks.harness.varnish import Tags, Varnish, varnish
from sketch.protocol.keys import tag_of
from tests.faults.conditions import eventually
from tests.proxies.small_origin import Origin, tag_of_target

NO_CACHE = {"Cache-Control": "no-cache"}


async def purge(http: httpx.AsyncClient, url: str, **headers: str) -> int:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await http.request("PURGE", url, headers=fields)).status_code


async def test_varnish_passes_on_the_age_of_a_response(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    origin.extra = {"age": "7"}
    await http.get(varnish_cache.url + path)
    assert int((await http.get(varnish_cache.url + path)).headers["age"]) >= 7


async def test_two_lines_of_cache_control_are_read_as_one(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    lines = [("Cache-Control", "no-transform"), ("Cache-Control", "no-cache")]
    for _ in range(2):
        await http.get(varnish_cache.url + path, headers=lines)
    assert origin.reached(path) == 2


async def test_one_copy_of_each_coding_serves_all_clients(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    origin.compresses, origin.extra = True, {"content-type": "application/json"}
    for accept_encoding in (
        "gzip",
        "gzip, deflate",
        "GZIP",
        "br;q=0.5,gzip;q=0.1",
        "gzip, br, zstd",
    ):
        answer = await http.get(
            varnish_cache.url + path, headers={"Accept-Encoding": accept_encoding}
        )
        assert answer.headers["content-encoding"] == "gzip", accept_encoding
    for accept_encoding in (
        "",
        "br",
        "identity",
        "gzip;q=0",
        "gzip;q=0.00, br",
        "deflate, gzip; q=0",
        "xgzip",
    ):
        answer = await http.get(
            varnish_cache.url + path, headers={"Accept-Encoding": accept_encoding}
        )
        assert "content-encoding" not in answer.headers, accept_encoding
    assert origin.reached(path) == 2


async def test_plain_requests_wait_for_one_fill(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    asleep = await varnish_cache.asleep()
    barrier = origin.hold()
    first = asyncio.create_task(http.get(varnish_cache.url + path))
    await barrier.reached.wait()
    second = asyncio.create_task(http.get(varnish_cache.url + path))
    await eventually(lambda: varnish_cache.slept_since(asleep))
    barrier.opened.set()
    assert [(await request).text for request in (first, second)] == ["version 1"] * 2
    assert origin.reached(path) == 1


async def test_an_older_fill_that_ends_later_hides_a_newer_one(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    """This is why clients revalidate keys of their filter at the origin each time."""
    url = varnish_cache.url + path
    barrier = origin.hold()
    old = asyncio.create_task(http.get(url))
    await barrier.reached.wait()
    origin.write(path)
    assert (await http.get(url, headers=NO_CACHE)).text == "version 2"
    assert (await http.get(url)).text == "version 2"
    barrier.opened.set()
    assert (await old).text == "version 1"
    assert (await http.get(url)).text == "version 1"
    assert (await http.get(url, headers=NO_CACHE)).text == "version 2"


async def test_dated_answers_are_fetched_again_while_the_old_one_is_served(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    # An old answer may be served in the second half of the TTL: one request has to fall into that.
    origin.ttl_s, target = 6.0, f"{path}?max_age=6"
    url = varnish_cache.url + target
    assert (await http.get(url)).text == "version 1"
    origin.write(target)
    barrier = origin.hold()
    while not barrier.reached.is_set():
        assert (await http.get(url)).text == "version 1"
    assert (await http.get(url)).text == "version 1"
    assert origin.reached(target) == 2
    barrier.opened.set()

    async def is_new() -> bool:
        return (await http.get(url)).text == "version 2"

    await eventually(is_new)


async def test_dated_answers_are_kept_apart(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient
) -> None:
    await http.get(f"{varnish_cache.url}{path}?max_age=60")
    assert (await http.get(varnish_cache.url + path)).headers["cache-status"].endswith("fwd=miss")
    assert origin.reached(path) == 1


@pytest.mark.parametrize("early", [True, False], ids=["with it", "after it"])
async def test_nothing_follows_a_feed_past_the_rules(
    origin: Origin, path: str, varnish_cache: Varnish, *, early: bool
) -> None:
    """Varnish inspects no request on a piped connection."""
    cache = urlsplit(varnish_cache.url)
    reader, writer = await asyncio.open_connection(cache.hostname, cache.port)
    feed, other = (
        f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        for target in ("/v1/news/changes", path)
    )
    with closing(writer):
        writer.write(feed + other if early else feed)
        origin.events.put_nowait(b"data: 1\n\n")
        async with asyncio.timeout(60):
            await reader.readuntil(b"data: 1\n\n")
            origin.events.put_nowait(b"")
            writer.write(b"" if early else other)
            remaining = await _until_closed(reader)
    assert origin.requests[-1].headers["connection"] == "close"
    assert origin.reached(path) == 0
    assert b"HTTP/1.1" not in remaining


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:  # it was closed with the request unread
        return b""


@pytest.mark.parametrize("token", ["", "another"])
async def test_a_purge_without_the_token_is_refused(
    origin: Origin, path: str, varnish_cache: Varnish, http: httpx.AsyncClient, token: str
) -> None:
    url = varnish_cache.url + path
    await http.get(url)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    assert await purge(http, url, **headers) == 403
    assert await purge(http, url, Surrogate_Key=tag_of_target(path), **headers) == 403
    await http.get(url)
    assert origin.reached(path) == 1


async def test_purges_need_a_token_and_a_permitted_address(
    origin: Origin, path: str, http: httpx.AsyncClient
) -> None:
    async with varnish(origin.url, token="") as none_set:
        for headers in ({}, {"Authorization": "Bearer"}):
            assert await purge(http, none_set.url + path, **headers) == 403
    async with varnish(origin.url, purgers='"192.0.2.1";') as elsewhere:
        headers = {"Authorization": f"Bearer {elsewhere.token}"}
        assert await purge(http, elsewhere.url + path, **headers) == 403


HOSTILE = [
    ".*",
    "x || obj.status == 200",
    '" || obj.status == 200 || obj.http.xkey ~ "',
    "a" * 31,
    "a" * 33,
    "A" * 32,
    f"{'a' * 32}  {'b' * 32}",
    f"{'a' * 32},{'b' * 32}",
    f"{'a' * 32}|.*",
    " ".join(["a" * 32] * 100 + ["." * 32]),
]


@pytest.mark.parametrize("tags", ["xkey", "ban"])
async def test_tags(origin: Origin, http: httpx.AsyncClient, tags: Tags) -> None:
    async with varnish(origin.url, tags=tags) as cache:
        await _hostile_tags_purge_nothing(origin, http, cache)
        await _tags_purge_all_tagged_copies(origin, http, cache)
        await _a_batch_purges_all_its_tags(origin, http, cache)


async def _hostile_tags_purge_nothing(
    origin: Origin, http: httpx.AsyncClient, cache: Varnish
) -> None:
    target = f"/v1/news/articles/hostile-{cache.url[-5:]}"
    await http.get(cache.url + target)
    for hostile in HOSTILE:
        headers = {"Authorization": f"Bearer {cache.token}", "Surrogate_Key": hostile}
        assert await purge(http, cache.url, **headers) == 400, hostile
    await http.get(cache.url + target)
    assert origin.reached(target) == 1


async def _tags_purge_all_tagged_copies(
    origin: Origin, http: httpx.AsyncClient, cache: Varnish
) -> None:
    target = f"/v1/news/articles/tagged-{cache.url[-5:]}"
    tag = tag_of("news", "articles/x#main")
    origin.extra = {"xkey": f"{'0' * 32} {tag} {'f' * 32}"}
    targets = [target, f"{target}?fields=title", f"{target}x"]
    for variant in targets:
        await http.get(cache.url + variant)
    await http.get(cache.url + target, headers={"Prefer": "consistency=strong"})
    origin.extra = {"xkey": tag_of("news", "articles/y#main")}
    await http.get(f"{cache.url}{target}y")
    headers = {"Authorization": f"Bearer {cache.token}", "Surrogate_Key": tag}
    assert await purge(http, cache.url, **headers) == 200
    for variant in [*targets, f"{target}y"]:
        await http.get(cache.url + variant)
    await http.get(cache.url + target, headers={"Prefer": "consistency=strong"})
    assert [origin.reached(variant) for variant in targets] == [4, 2, 2]
    assert origin.reached(f"{target}y") == 1


async def _a_batch_purges_all_its_tags(
    origin: Origin, http: httpx.AsyncClient, cache: Varnish
) -> None:
    origin.extra = {}
    targets = [f"/v1/news/batch/{cache.url[-5:]}-{number}" for number in range(200)]
    for target in (targets[0], targets[99], targets[199]):
        await http.get(cache.url + target)
    tags = " ".join(map(tag_of_target, targets))
    headers = {"Authorization": f"Bearer {cache.token}", "Surrogate_Key": tags}
    assert await purge(http, cache.url, **headers) == 200
    for target in (targets[0], targets[99], targets[199]):
        await http.get(cache.url + target)
        assert origin.reached(target) == 2


async def test_a_batch_is_one_ban_that_the_lurker_can_test(origin: Origin) -> None:
    async with varnish(origin.url, tags="ban") as cache, httpx.AsyncClient(timeout=60.0) as http:
        before = await cache.admin("ban.list")
        tags = f"{'a' * 32} {'b' * 32}"
        headers = {"Authorization": f"Bearer {cache.token}", "Surrogate_Key": tags}
        assert await purge(http, cache.url, **headers) == 200
        bans = await cache.admin("ban.list")
        assert bans.count(" ~ ") == before.count(" ~ ") + 1
        assert "req." not in bans


async def test_a_restart_forgets_everything(origin: Origin, path: str) -> None:
    async with varnish(origin.url) as cache, httpx.AsyncClient(timeout=60.0) as http:
        await http.get(cache.url + path)
        await cache.restart()
        origin.write(path)
        assert (await http.get(cache.url + path)).text == "version 2"
