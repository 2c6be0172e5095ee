"""The client's own writes, which its reads see."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from sketch.client import (
    NotFound,
    PreconditionFailed,
    Source,
    Unreachable,
)
from tests.process.caching.coherent_origin import Origin, SharedCache
from tests.process.caching.serving import until
from tests.process.caching.sketch_clients import OLD, connected, title


async def test_the_representation_of_a_write_is_cached_while_within_the_bound(
    origin: Origin,
) -> None:
    origin.shows_whole = True
    async with connected(origin) as client:
        await client.patch("articles", "a1", {"title": "mine"})
        origin.time.advance(9)
        read = await client.get("articles", "a1")
        assert (read.value, read.source) == (OLD | {"id": "a1", "title": "mine"}, Source.OWN)
        assert read.etag == origin.tag("articles", "a1")
        assert not origin.requests()
        origin.time.advance(2)
        assert await title(client) == ("mine", Source.ORIGIN)
    assert origin.requests()[-1].headers["if-none-match"] == read.etag


async def test_the_representation_of_a_write_is_as_old_as_its_request(origin: Origin) -> None:
    origin.shows_whole = True
    async with connected(origin) as client:
        pause = origin.hold("PATCH", "a1", "read")
        writing = asyncio.ensure_future(client.patch("articles", "a1", {"title": "mine"}))
        await pause.reached.wait()
        origin.time.advance(9)
        pause.open()
        await writing
        await origin.write("articles", "a1", {"title": "new"})
        assert await title(client) == ("mine", Source.OWN)
        origin.time.advance(1.1)
        assert await title(client) == ("new", Source.ORIGIN)


async def test_of_two_own_writes_the_later_one_is_kept_whichever_is_answered_last(
    origin: Origin,
) -> None:
    origin.shows_whole = True
    for method in ("PATCH", "PUT"):
        async with connected(origin) as client:
            pause = origin.hold(method, "a1")
            if method == "PATCH":
                write = client.patch("articles", "a1", {"title": "last"})
            else:
                write = client.put("articles", "a1", OLD | {"title": "last"})
            writing = asyncio.ensure_future(write)
            await pause.reached.wait()
            await client.patch("articles", "a1", {"title": "first"})
            assert await title(client) == ("first", Source.OWN)
            pause.open()
            await writing
            assert await title(client) == ("last", Source.OWN)


async def test_a_newer_read_during_an_own_write_is_not_hidden_by_its_response(
    origin: Origin,
) -> None:
    origin.shows_whole = True
    endpoint = origin.endpoint
    assert endpoint is not None
    async with connected(origin) as client:
        resume = asyncio.Event()

        async def late(scope: Any, receive: Any, send: Any) -> None:
            async def send_later(message: Any) -> None:
                if scope["method"] == "PATCH":
                    await resume.wait()
                await send(message)

            await origin(scope, receive, send_later)

        endpoint.app = late
        writing = asyncio.ensure_future(client.patch("articles", "a1", {"title": "mine"}))
        await until(lambda: origin.objects["articles", "a1"]["title"] == "mine")
        await origin.write("articles", "a1", {"title": "theirs"})
        assert await title(client, refresh=True) == ("theirs", Source.ORIGIN)
        resume.set()
        await writing
        assert await title(client) == ("theirs", Source.OWN)


async def test_a_read_requested_during_an_own_write_may_include_it(origin: Origin) -> None:
    origin.shows_whole = True
    async with connected(origin) as client:
        pause = origin.hold("GET", "a1")
        slow = asyncio.ensure_future(title(client, refresh=True))
        await pause.reached.wait()
        await client.patch("articles", "a1", {"title": "mine"})
        pause.open()
        assert await slow == ("mine", Source.ORIGIN)
        assert await title(client) == ("mine", Source.OWN)


async def test_a_write_to_an_uncached_class_is_not_cached(
    origin: Origin,
) -> None:
    origin.shows_whole = True
    origin.groups = {"notes": {"main": ["text"]}}
    async with connected(origin) as client:
        origin.groups = {"articles": {"main": ["text", "title", "hits"]}}
        await client.patch("articles", "a1", {"title": "mine"})
        assert await title(client) == ("mine", Source.ORIGIN)


async def test_a_copy_from_before_an_own_write_is_not_young_enough(origin: Origin) -> None:
    """Also when the filter contains the write, so that the client need not remember it."""
    async with connected(origin, mode="eager") as client:
        await title(client)
        origin.time.advance(8)
        await title(client, refresh=True)
        await client.patch("articles", "a1", {"title": "mine"})
        origin.time.advance(1.5)
        await until(lambda: client.statistics.filter_refreshes >= 2)
        assert await title(client) == ("mine", Source.ORIGIN)


async def test_a_client_sees_its_own_write_before_any_filter_does(origin: Origin) -> None:
    cache = SharedCache(origin)
    async with connected(origin, cache) as client:
        await title(client)
        written = await client.put("articles", "a1", OLD | {"title": "mine"})
        assert written.etag == origin.tag("articles", "a1")
        assert written.position == "p1"
        assert await title(client) == ("mine", Source.ORIGIN)
        assert await title(client) == ("mine", Source.OWN), "revalidated after the write"


async def test_own_writes_are_remembered_until_a_filter_requested_later(
    origin: Origin,
) -> None:
    cache = SharedCache(origin)
    async with connected(origin, cache, cache_bytes=0) as client:
        await title(client)
        stale = cache.cached["/v1/news/articles/a1"]
        pause = origin.hold("GET", "/sketch", "read")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await pause.reached.wait()
        await client.patch("articles", "a1", {"title": "mine"})
        pause.open()
        await refreshing
        assert (await title(client))[0] == "mine", "the filter is from before the write"
        cache.cached["/v1/news/articles/a1"] = stale
        await client.refresh_filter()
        assert (await title(client))[0] == "mine", "now the filter has it"
        origin.time.advance(61)
        await client.refresh_filter()
        await title(client)
    assert not origin.requests()[-1].forced


async def test_reads_during_an_own_write_may_come_before_it(origin: Origin) -> None:
    async with connected(origin) as client:
        await title(client)
        pause = origin.hold("PUT", "a1", "read")
        writing = asyncio.ensure_future(client.put("articles", "a1", OLD | {"title": "mine"}))
        await pause.reached.wait()
        assert await title(client) == ("old", Source.OWN)
        pause.open()
        await writing
        assert await title(client) == ("mine", Source.ORIGIN)


@pytest.mark.parametrize(
    "reason", ["the filter names it", "there is no filter", "the last read was uncacheable"]
)
async def test_a_read_after_an_own_write_joins_no_request_from_before_it(
    origin: Origin, reason: str
) -> None:
    async with connected(origin) as client:
        await title(client)
        if reason == "the filter names it":
            await origin.write("articles", "a1", {"title": "new"})
            await client.refresh_filter()
        elif reason == "there is no filter":
            origin.filter_status = 503
            origin.time.advance(11)
        else:
            await origin.write("articles", "a1", {"title": "new"})
            origin.ttl_s = 0.0
            await title(client, refresh=True)
        pause = origin.hold("GET", "a1", "read")
        slow = asyncio.ensure_future(title(client))
        await pause.reached.wait()
        await client.patch("articles", "a1", {"title": "mine"})
        assert await title(client) == ("mine", Source.ORIGIN)
        pause.open()
        await slow


async def test_a_write_whose_outcome_is_unknown_is_remembered(
    origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(origin) as client:
        await title(client)
        pause = origin.hold("PUT", "a1", "arrived")
        with monkeypatch.context() as patch:
            # Only for this write: the client's other requests are answered.
            timeouts = client._connection._extensions["timeout"]  # noqa: SLF001
            patch.setitem(timeouts, "read", 0.2)
            with pytest.raises(Unreachable):
                await client.put("articles", "a1", OLD | {"title": "mine"})
        await pause.reached.wait()
        pause.open()
        await until(lambda: origin.objects["articles", "a1"]["title"] == "mine")
        assert (await title(client))[0] == "mine"


async def test_a_write_is_seen_in_groups_that_it_does_not_name(origin: Origin) -> None:
    """The service can change them as well, for example the time of the last write."""
    async with connected(origin) as client:
        for number, write in enumerate(
            (
                partial(client.patch, "articles", "a1", {"title": "mine"}),
                partial(client.patch, "articles", "a1", {"title": {"set": "m"}}, form="update"),
                partial(client.put, "articles", "a1", {"title": "mine"}, fields=iter(["title"])),
            ),
            10,
        ):
            await client.get("articles", "a1", fields=["hits"])
            assert (await client.get("articles", "a1", fields="hits")).source is Source.OWN
            origin.sets = {"hits": number}
            await write()
            hits = await client.get("articles", "a1", fields=["hits"])
            assert (hits.value, hits.source) == ({"id": "a1", "hits": number}, Source.ORIGIN)
            assert (await client.get("articles", "a1", fields=["hits"])).source is Source.OWN


async def test_a_write_to_one_object_leaves_the_others_alone(origin: Origin) -> None:
    async with connected(origin) as client:
        await client.get("articles", "a1", fields=["title", "text"])
        await client.patch("articles", "a2", {"hits": 2})
        read = await client.get("articles", "a1", fields=("text", "title", "text"))
        assert (read.value, read.source) == ({"id": "a1", "title": "old", "text": "t"}, Source.OWN)
    assert origin.requests()[0].path.endswith("/a1?fields=text,title")


async def test_a_created_and_a_deleted_object_are_seen(origin: Origin) -> None:
    async with connected(origin) as client:
        missing = await client.get("notes", "n1", missing_ok=True)
        assert missing.value is None
        created = await client.post("notes", {"id": "n1", "text": "x"})
        assert created.location == "/v1/news/notes/n1"
        read = await client.get("notes", "n1")
        assert read.value == {"id": "n1", "text": "x"}
        with pytest.raises(PreconditionFailed):
            await client.delete("notes", "n1", if_match='"j1.main:9"')
        await client.delete("notes", "n1", if_match=read.etag)
        with pytest.raises(NotFound):
            await client.get("notes", "n1")
