"""The behaviour of both proxies with the shipped configurations."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest

from app.http.cors import CrossOrigin
from benchmarks.harness.varnish import Varnish, varnish
from tests.proxies.nginx import Nginx, nginx
from tests.proxies.small_origin import Origin

PUBLIC = "public, max-age=0, s-maxage=60"


@pytest.fixture(params=["varnish", "nginx"])
def cache(request: pytest.FixtureRequest, varnish_cache: Varnish, nginx_cache: Nginx) -> str:
    """The address of the proxy under test."""
    return varnish_cache.url if request.param == "varnish" else nginx_cache.url


Read = Callable[..., Coroutine[Any, Any, httpx.Response]]


@pytest.fixture
def read(cache: str, http: httpx.AsyncClient) -> Read:
    """Read a target through the proxy."""

    async def get(target: str, **headers: str) -> httpx.Response:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return await http.get(cache + target, headers=fields)

    return get


async def test_a_public_answer_is_cached(origin: Origin, path: str, read: Read) -> None:
    first, second = await read(path), await read(path)
    assert first.text == second.text == "version 1"
    assert origin.reached(path) == 1
    assert second.headers["cache-status"].endswith("; hit")
    assert second.headers["portolan-expires"] == first.headers["portolan-expires"]
    assert second.headers["etag"] == first.headers["etag"] == '"j1.main:1"'


@pytest.mark.parametrize(
    "directives",
    ["no-cache", "max-age=0", "no-store", "No-Cache", "no-transform, no-cache", "max-age=0,foo"],
)
async def test_a_client_forces_its_request_to_the_origin(
    origin: Origin, path: str, read: Read, directives: str
) -> None:
    await read(path)
    origin.write(path)
    assert (await read(path)).text == "version 1"
    assert (await read(path, Cache_Control=directives)).text == "version 2"
    assert (await read(path)).text == "version 2"
    assert origin.reached(path) == 2


@pytest.mark.parametrize("directives", ["max-age=10", "no-cached", "only-if-cached", "max-age=01"])
async def test_other_directives_force_nothing(
    origin: Origin, path: str, read: Read, directives: str
) -> None:
    await read(path)
    await read(path, Cache_Control=directives)
    assert origin.reached(path) == 1


async def test_a_forced_request_carries_its_condition_and_no_304_is_cached(
    origin: Origin, path: str, read: Read
) -> None:
    before = await read(path)
    confirmed = await read(path, Cache_Control="no-cache", If_None_Match=before.headers["etag"])
    assert confirmed.status_code == 304
    assert confirmed.headers["portolan-expires"] > before.headers["portolan-expires"]
    assert origin.requests[-1].headers["if-none-match"] == before.headers["etag"]
    assert origin.requests[-1].headers["cache-control"] == "no-cache"
    plain = await read(path)
    assert (plain.status_code, plain.text) == (200, "version 1")


async def test_a_condition_that_fails_gets_the_new_version(
    origin: Origin, path: str, read: Read
) -> None:
    tag = (await read(path)).headers["etag"]
    origin.write(path)
    changed = await read(path, Cache_Control="no-cache", If_None_Match=tag)
    assert (changed.status_code, changed.text) == (200, "version 2")


async def test_an_unforced_condition_is_answered_from_the_cache(
    origin: Origin, path: str, read: Read
) -> None:
    first = await read(path, If_None_Match='"other"')
    assert first.status_code == 200
    assert (await read(path, If_None_Match=first.headers["etag"])).status_code == 304
    assert origin.reached(path) == 1


async def test_a_condition_does_not_keep_the_cache_from_being_filled(
    origin: Origin, path: str, read: Read
) -> None:
    assert (await read(path, If_None_Match='"j1.main:1"')).status_code == 304
    assert (await read(path)).text == "version 1"
    assert origin.reached(path) == 1


@pytest.mark.parametrize("condition", [{}, {"If_None_Match": '"j1.main:1"'}])
async def test_a_forced_request_does_not_join_an_older_fill(
    origin: Origin, path: str, read: Read, condition: dict[str, str]
) -> None:
    barrier = origin.hold()
    old = asyncio.create_task(read(path))
    await barrier.reached.wait()
    origin.write(path)
    forced = await read(path, Cache_Control="no-cache", **condition)
    assert forced.text == "version 2"
    assert not old.done()
    barrier.opened.set()
    assert (await old).text == "version 1"


@pytest.mark.parametrize(
    "headers",
    [
        {"cache-control": "no-store"},
        {"cache-control": "private, max-age=0, must-revalidate"},
        {"cache-control": "max-age=0, s-maxage=60"},
        {"cache-control": f"{PUBLIC}, no-store"},
        {"cache-control": f"{PUBLIC}, private"},
        {"cache-control": f"no-cache, {PUBLIC}"},
        {"cache-control": "publicity, s-maxage=60"},
        {"cache-control": None},
        {"portolan-expires": None, "x-accel-expires": None},
        {"set-cookie": "a=b"},
        {"vary": "*"},
        {"portolan-expires": "1000000000000000", "x-accel-expires": "@1000000000"},
    ],
    ids=str,
)
async def test_responses_that_are_not_public_are_not_cached(
    origin: Origin, path: str, read: Read, headers: dict[str, str | None]
) -> None:
    origin.extra = headers
    for _ in range(3):
        assert (await read(path)).text == "version 1"
    assert origin.reached(path) == 3


@pytest.mark.parametrize(("status", "reached"), [(404, 1), (500, 2), (410, 2), (503, 2)])
async def test_404_is_the_only_cached_error(
    origin: Origin, path: str, read: Read, status: int, reached: int
) -> None:
    origin.status = status
    for _ in range(2):
        assert (await read(path)).status_code == status
    assert origin.reached(path) == reached


async def test_an_answer_is_cached_after_an_uncacheable_one(
    origin: Origin, path: str, read: Read
) -> None:
    origin.extra = {"cache-control": "no-store"}
    await read(path)
    origin.extra = {}
    await read(path)
    await read(path)
    assert origin.reached(path) == 2


async def test_a_no_store_answer_to_a_forced_request_is_not_cached(
    origin: Origin, path: str, read: Read
) -> None:
    await read(path)
    origin.write(path)
    origin.extra = {"cache-control": "no-store", "x-accel-expires": None, "portolan-expires": None}
    assert (await read(path, Cache_Control="no-cache")).text == "version 2"
    origin.write(path)
    assert (await read(path, Cache_Control="no-cache")).text == "version 3"


@pytest.mark.parametrize("ends", ["everywhere", "absolutely"])
async def test_nothing_is_served_beyond_its_end(
    origin: Origin, path: str, read: Read, ends: str
) -> None:
    # nginx counts in whole seconds, and the second of the end counts.
    origin.ttl_s = 1.0
    if ends == "absolutely":
        origin.extra = {"cache-control": f"{PUBLIC}, must-revalidate, stale-while-revalidate=0"}
    first = await read(path)
    end_s = int(first.headers["portolan-expires"]) / 1_000_000 + 1
    origin.status = 503
    while True:
        sent_s = time.time()
        if (await read(path)).status_code == 503:
            break
        assert sent_s < end_s
        await asyncio.sleep(0.05)


async def test_an_origin_that_is_gone_is_reported_and_nothing_old_is_served(
    origin: Origin, path: str, http: httpx.AsyncClient
) -> None:
    gone = "http://127.0.0.1:9"
    async with varnish(gone) as one, nginx(gone) as other:
        for url in (one.url, other.url):
            answer = await http.get(url + path)
            assert answer.status_code in (502, 503)
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.headers["cache-control"] == "no-store"
            assert answer.json()["status"] == answer.status_code


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_writes_are_forwarded_with_headers_and_body(
    origin: Origin, path: str, cache: str, http: httpx.AsyncClient, method: str
) -> None:
    headers = {"If-Match": '"j1.main:1"', "If-None-Match": "*", "Idempotency-Key": "k1"}
    for _ in range(2):
        await http.request(method, cache + path, headers=headers, content=b"x" * 2_000_000)
    assert origin.reached(path, method) == 2
    request = origin.requests[-1]
    assert {name: request.headers[name.lower()] for name in headers} == headers
    assert len(request.body) == 2_000_000
    await http.get(cache + path)
    assert origin.reached(path) == 1


@pytest.mark.parametrize("method", ["TRACE", "FOO", "PROPFIND"])
async def test_other_methods_do_not_reach_the_origin(
    origin: Origin, path: str, cache: str, http: httpx.AsyncClient, method: str
) -> None:
    assert (await http.request(method, cache + path)).status_code == 405
    assert origin.reached(path, method) == 0


async def test_cookies_are_dropped_and_do_not_prevent_caching(
    origin: Origin, path: str, read: Read
) -> None:
    await read(path, Cookie="a=1")
    await read(path, Cookie="a=2")
    assert origin.reached(path) == 1
    assert "cookie" not in origin.requests[-1].headers


async def test_credentials_reach_the_origin_and_their_answers_are_not_cached(
    origin: Origin, path: str, read: Read
) -> None:
    await read(path, Authorization="Bearer one")
    await read(path, Authorization="Bearer two")
    assert origin.reached(path) == 2
    assert origin.requests[-1].headers["authorization"] == "Bearer two"
    await read(path)
    assert origin.reached(path) == 3


async def test_a_filter_is_never_cached(origin: Origin, read: Read) -> None:
    before = origin.reached("/v1/news/sketch?class=articles")
    for _ in range(2):
        await read("/v1/news/sketch?class=articles")
    assert origin.reached("/v1/news/sketch?class=articles") == before + 2


async def test_events_arrive_when_they_are_sent(
    origin: Origin, cache: str, http: httpx.AsyncClient
) -> None:
    async with http.stream("GET", f"{cache}/v1/news/changes") as stream:
        chunks = stream.aiter_raw()
        for event in (b"data: 1\n\n", b"data: 2\n\n"):
            origin.events.put_nowait(event)
            assert await anext(chunks) == event
        origin.events.put_nowait(b"")
        assert [chunk async for chunk in chunks] == []


async def test_targets_are_compared_and_passed_on_byte_by_byte(
    origin: Origin, path: str, read: Read
) -> None:
    forms = (
        "X",
        "x",
        "%78",
        "%2fx",
        "x?fields=a,b",
        "x?fields=a%2Cb",
        "%2e%2e",
        "x%23%20%C3%A4",
    )
    targets = [path + form for form in forms]
    for _ in range(2):
        for target in targets:
            await read(target)
    assert [origin.reached(target) for target in targets] == [1] * len(targets)


async def test_variants_are_kept_apart(origin: Origin, path: str, read: Read) -> None:
    for _ in range(2):
        await read(path)
        await read(path, Prefer="consistency=strong")
    assert origin.reached(path) == 2
    assert origin.requests[-1].headers["prefer"] == "consistency=strong"


async def test_a_head_request_fills_and_reads_the_cache(
    origin: Origin, path: str, cache: str, http: httpx.AsyncClient
) -> None:
    head = await http.head(cache + path)
    get = await http.get(cache + path)
    assert head.headers["etag"] == get.headers["etag"]
    assert get.text == "version 1"
    assert origin.reached(path) + origin.reached(path, "HEAD") == 1


async def test_hosts_share_one_copy(origin: Origin, path: str, read: Read) -> None:
    await read(path, Host="one.example")
    await read(path, Host="two.example")
    assert origin.reached(path) == 1


async def test_responses_outside_the_data_api_are_not_cached(origin: Origin, read: Read) -> None:
    before = origin.reached("/openapi.json")
    for _ in range(2):
        await read("/openapi.json")
    assert origin.reached("/openapi.json") == before + 2


async def test_copies_for_one_origin_are_not_served_to_another(
    origin: Origin, path: str, read: Read
) -> None:
    """Fetch, section 3.2: Vary has Origin in its first line, the only one that nginx reads."""
    for name in ("https://a.example", "https://b.example"):
        cors = CrossOrigin({"news": ("https://a.example", "https://b.example")})
        fields = dict(cors.headers("news", name))
        origin.extra = {key.decode(): value.decode() for key, value in fields.items()}
        origin.extra["vary"] = "Accept, Prefer, Origin"
        for _ in range(2):
            assert (await read(path, Origin=name)).headers["access-control-allow-origin"] == name
    assert origin.reached(path) == 2


async def test_each_client_receives_a_coding_that_it_accepts(
    origin: Origin, path: str, read: Read
) -> None:
    """RFC 9110, section 8.8.3.3: the copies have their own tags, and are kept apart."""
    origin.compresses, origin.extra = True, {"content-type": "application/json"}
    codings = {"gzip": "gzip", "identity": None, "br, gzip;q=0.8": "gzip", "gzip;q=0": None}
    for _ in range(2):
        for accept_encoding, coding in codings.items():
            answer = await read(path, Accept_Encoding=accept_encoding)
            assert (answer.text, answer.headers.get("content-encoding")) == ("version 1", coding)
            assert answer.headers["etag"] == ('"j1.main:1-gzip"' if coding else '"j1.main:1"')
    assert answer.headers["cache-status"].endswith("; hit")
    origin.write(path)
    for accept_encoding, coding in codings.items():
        answer = await read(path, Accept_Encoding=accept_encoding, Cache_Control="no-cache")
        assert (answer.text, answer.headers.get("content-encoding")) == ("version 2", coding)
