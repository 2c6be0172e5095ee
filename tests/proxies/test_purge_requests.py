"""The requests of purgers to caches, and the secrets that they never show."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from app.coherence.caches import make_purgers
from app.settings.purge import PurgeTarget
from sketch.purging.port import CachedKey, PurgeFailed
from sketch.purging.purgers import (
    TagApi,
    TagPurger,
    UrlPurger,
    cloudflare,
    fastly,
    target_of,
    varnish,
)

KEYS = [CachedKey("news", "articles/a1#main"), CachedKey("news", "articles/a2#hits")]
TAGS = [key.tag for key in KEYS]
SECRET = "s3cr3t-k3y"


class Api(httpx.AsyncBaseTransport):
    """Records requests, and gives each the same answer."""

    def __init__(self, answer: int | Callable[[], httpx.Response] = 200) -> None:
        self.answer = answer
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self.answer) if isinstance(self.answer, int) else self.answer()


async def send(api: TagApi) -> httpx.Request:
    transport = Api()
    purger = TagPurger(api, transport)
    await purger.purge(KEYS)
    await purger.close()
    (request,) = transport.requests
    return request


async def test_varnish_gets_tags_in_a_header_field() -> None:
    request = await send(varnish("edge", "http://127.0.0.1:6081", SECRET))
    assert (request.method, str(request.url)) == ("PURGE", "http://127.0.0.1:6081")
    assert request.headers["surrogate-key"] == " ".join(TAGS)
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.content == b""


async def test_fastly_gets_tags_in_a_body() -> None:
    request = await send(fastly("cdn", "svc1", SECRET))
    assert (request.method, request.url.path) == ("POST", "/service/svc1/purge")
    assert request.headers["fastly-key"] == SECRET
    assert json.loads(request.content) == {"surrogate_keys": TAGS}


async def test_cloudflare_gets_few_tags_at_a_time() -> None:
    request = await send(cloudflare("cdn", "zone1", SECRET))
    assert request.url.path == "/client/v4/zones/zone1/purge_cache"
    assert json.loads(request.content) == {"tags": TAGS}
    assert TagPurger(cloudflare("cdn", "zone1", SECRET), Api()).max_keys == 30


async def test_any_other_api_is_described_in_the_settings() -> None:
    body: Any = {"objects": [{"type": "tag", "values": "{tags}"}], "soft": False, "why": "a write"}
    headers = {"X-Key": "k={secret}", "X-Tags": "t:{tags}"}
    template = {"method": "PUT", "headers": headers, "body": body, "separator": ","}
    address = {"name": "any", "at": "https://cache.example/p", "token": SECRET}
    target = PurgeTarget.model_validate({**address, "kind": "tags", "request": template})
    transport = Api()
    (purger,) = make_purgers([target], lambda: transport)
    await purger.purge(KEYS)
    await purger.close()
    (request,) = transport.requests
    assert request.method == "PUT"
    assert request.headers["x-key"] == f"k={SECRET}"
    assert request.headers["x-tags"] == f"t:{','.join(TAGS)}"
    assert json.loads(request.content)["objects"] == [{"type": "tag", "values": TAGS}]
    assert json.loads(request.content)["soft"] is False


@pytest.mark.parametrize(("kind", "request_"), [("tags", None), ("varnish", {})])
def test_only_a_cache_of_any_kind_needs_its_request_described(kind: str, request_: Any) -> None:
    address = {"name": "any", "at": "https://cache.example/p", "token": SECRET}
    with pytest.raises(ValidationError):
        PurgeTarget.model_validate({**address, "kind": kind, "request": request_})


@pytest.mark.parametrize("status", [199 + 101, 301, 400, 403, 404, 429, 503])
async def test_a_purge_without_success_is_not_confirmed(status: int) -> None:
    purger = TagPurger(varnish("edge", "http://127.0.0.1:6081", SECRET), Api(status))
    with pytest.raises(PurgeFailed) as caught:
        await purger.purge(KEYS)
    assert (caught.value.reason, caught.value.status) == ("refused", status)


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("no"),
        httpx.ReadError("no"),
        httpx.RemoteProtocolError("no"),
        ConnectionResetError("no"),
    ],
)
async def test_a_purge_without_a_response_fails(error: Exception) -> None:
    def fail() -> httpx.Response:
        raise error

    for purger in (
        TagPurger(varnish("edge", "http://127.0.0.1:6081", SECRET), Api(fail)),
        UrlPurger("edge", "http://127.0.0.1:6081", SECRET, transport=Api(fail)),
    ):
        with pytest.raises(PurgeFailed) as caught:
            await purger.purge(KEYS)
        assert (caught.value.reason, caught.value.status) == ("unreachable", None)


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("articles/a1#main", "/v1/news/articles/a1"),
        ("articles/a#b#main", "/v1/news/articles/a%23b"),
        ("articles/ä ?&=%#main", "/v1/news/articles/%C3%A4%20%3F%26%3D%25"),
        ("articles//order=-hits&title=a%20b", "/v1/news/articles?order=-hits&title=a%20b"),
        ("articles//", "/v1/news/articles"),
    ],
)
def test_a_key_has_the_target_of_its_object(key: str, target: str) -> None:
    assert target_of(CachedKey("news", key)) == target


async def test_urls_are_purged_once_each_and_an_uncached_one_counts_as_purged() -> None:
    api = Api(404)
    purger = UrlPurger("nginx", "http://127.0.0.1:80", SECRET, transport=api)
    await purger.purge([*KEYS, CachedKey("news", "articles/a1#hits")])
    assert sorted(request.url.path for request in api.requests) == [
        "/v1/news/articles/a1",
        "/v1/news/articles/a2",
    ]
    assert {request.method for request in api.requests} == {"PURGE"}


@pytest.mark.parametrize("status", [403, 405, 500])
async def test_a_url_that_may_not_be_purged_is_reported(status: int) -> None:
    purger = UrlPurger("nginx", "http://127.0.0.1:80", SECRET, transport=Api(status))
    with pytest.raises(PurgeFailed, match=f"nginx: refused with status {status}"):
        await purger.purge(KEYS)


@pytest.mark.parametrize("secret", ["a\nb", "a\r\nX: y", "ä", " a", "a ", "a\x00"])
def test_a_secret_that_cannot_be_sent_is_refused_unseen(secret: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as caught:
        TagPurger(varnish("edge", "http://127.0.0.1", secret))
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://u:s3cr3t-k3y@127.0.0.1", "127.0.0.1", "ftp://127.0.0.1", "http://", "\x00"]
)
def test_an_address_that_cannot_be_used_is_refused_unseen(url: str) -> None:
    with pytest.raises(ValueError, match="address of a cache") as caught:
        UrlPurger("edge", url, SECRET)
    assert SECRET not in str(caught.value)


async def test_a_secret_is_shown_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    api = fastly("cdn", "svc1", SECRET, "http://127.0.0.1:9")
    purger = TagPurger(api)
    with pytest.raises(PurgeFailed) as caught:
        await purger.purge(KEYS)
    await purger.close()
    assert SECRET not in repr(api) + str(caught.value) + caplog.text
    assert SECRET not in repr(caught.value.__cause__)
