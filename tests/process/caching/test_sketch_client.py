"""The Python client against an origin over HTTP, in exact schedules and virtual time."""

from __future__ import annotations

import ast
import asyncio
import re
from typing import Any

import pytest

from sketch.client import (
    Closed,
    NotFound,
    Source,
)
from tests.process.caching.coherent_origin import Origin
from tests.process.caching.serving import Endpoint
from tests.process.caching.sketch_clients import OLD, PAGE, connected, title


async def test_a_copy_is_reused_until_its_end_though_its_max_age_is_zero(origin: Origin) -> None:
    async with connected(origin, delta_s=500.0) as client:
        assert await title(client) == ("old", Source.ORIGIN)
        origin.time.advance(9)
        assert await title(client) == ("old", Source.OWN)
    assert len(origin.requests()) == 1
    assert client.statistics.hits == 1


async def test_a_copy_ends_when_the_sketchs_clock_may_have_passed_its_end(origin: Origin) -> None:
    origin.ttl_s = 5.0
    async with connected(origin) as client:
        await title(client)
        origin.time.advance(4.9)
        assert await title(client) == ("old", Source.OWN)
        origin.time.advance(0.1)
        assert await title(client) == ("old", Source.ORIGIN)
    assert [e.status for e in origin.requests()] == [200, 304]


async def test_the_sketchs_clock_is_estimated_from_the_request_of_the_filter(
    origin: Origin,
) -> None:
    """The filter has the time of its snapshot, which may be just after its request."""
    origin.ttl_s = 5.0
    async with connected(origin) as client:
        pause = origin.hold("GET", "/sketch", "read")
        refreshing = asyncio.ensure_future(client.refresh_filter())
        await pause.reached.wait()
        origin.time.advance(3)
        pause.open()
        await refreshing
        await title(client)
        origin.time.advance(5)
        assert await title(client) == ("old", Source.ORIGIN)


async def test_a_no_store_response_is_not_cached(origin: Origin) -> None:
    origin.ttl_s = 0.0
    async with connected(origin) as client:
        assert await title(client) == ("old", Source.ORIGIN)
        assert await title(client) == ("old", Source.ORIGIN)
    assert [e.status for e in origin.requests()] == [200, 200]


async def test_a_no_cache_response_is_revalidated_by_its_etag(origin: Origin) -> None:
    """Classes without caching answer with `no-cache`."""
    origin.ttl_s = 0.0
    async with connected(origin) as client:
        origin.extra = {"cache-control": "no-cache"}
        for _ in range(2):
            assert await title(client) == ("old", Source.ORIGIN)
    assert [e.status for e in origin.requests()] == [200, 304]


async def test_an_object_of_a_private_class_is_reused_by_its_client(origin: Origin) -> None:
    origin.visibility = "private"
    async with connected(origin) as client:
        await title(client)
        assert await title(client) == ("old", Source.OWN)


async def test_a_missing_object_is_cached_as_missing_until_it_is_created(origin: Origin) -> None:
    async with connected(origin) as client:
        for _ in range(2):
            with pytest.raises(NotFound) as caught:
                await client.get("articles", "new")
            assert caught.value.kind == "not-found"
        assert len(origin.requests()) == 1
        missing = await client.get("articles", "new", missing_ok=True)
        assert (missing.value, missing.source) == (None, Source.OWN)
        await origin.write("articles", "new", {"title": "here"})
        await client.refresh_filter()
        assert (await client.get("articles", "new")).value == {"id": "new", "title": "here"}


async def test_changing_a_returned_value_does_not_change_the_copy(origin: Origin) -> None:
    async with connected(origin) as client:
        first = await client.get("articles", "a1")
        assert first.value is not None
        first.value["title"] = "scribbled"
        assert await title(client) == ("old", Source.OWN)


async def test_the_cache_stays_within_its_size(origin: Origin) -> None:
    for number in range(5):
        origin.objects["articles", f"b{number}"] = {"text": "x" * 1000}
    async with connected(origin, cache_bytes=4000) as client:
        for _ in range(2):
            for number in range(5):
                await client.get("articles", f"b{number}")
    assert client.statistics.evictions == 8
    assert client.statistics.hits == 0


async def test_a_cancelled_reader_does_not_cancel_others(origin: Origin) -> None:
    async with connected(origin) as client:
        pause = origin.hold("GET", "a1")
        first, second = (asyncio.ensure_future(title(client)) for _ in range(2))
        await pause.reached.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        pause.open()
        assert await second == ("old", Source.ORIGIN)


async def test_a_request_cancelled_by_all_its_readers_is_not_joined(origin: Origin) -> None:
    async with connected(origin) as client:
        pause = origin.hold("GET", "a1")
        reading = asyncio.ensure_future(title(client))
        await pause.reached.wait()
        reading.cancel()
        await asyncio.wait([reading])
        assert await title(client) == ("old", Source.ORIGIN)
        pause.open()


async def test_closing_ends_the_reads_under_way(origin: Origin) -> None:
    async with connected(origin, mode="eager") as client:
        pause = origin.hold("GET", "a1")
        reading = asyncio.ensure_future(title(client))
        await pause.reached.wait()
        await client.close()
        with pytest.raises(Closed):
            await reading
        with pytest.raises(Closed):
            await title(client)
        pause.open()


@pytest.mark.parametrize("id_", ["query", "ä/#?% +", "!'()*~", "%41", "日本"])
async def test_any_id_is_found_at_its_address_and_by_its_key(origin: Origin, id_: str) -> None:
    async with connected(origin) as client:
        origin.objects["articles", id_] = dict(OLD)
        await client.get("articles", id_)
        await origin.write("articles", id_, {"title": "new"})
        await client.refresh_filter()
        read = await client.get("articles", id_)
        assert read.value == OLD | {"title": "new", "id": id_}
    assert not origin.requests()[-1].path.endswith("/query")


async def test_the_example_of_the_page_runs_in_ten_lines(
    origin: Origin, endpoint: Endpoint, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint.app = origin
    match = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    text = match[1].replace("https://cache.example", endpoint.url)
    assert len([line for line in text.splitlines() if line]) <= 10
    namespace: dict[str, Any] = {}
    await eval(compile(text, "page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), namespace)
    assert capsys.readouterr().out == "old own\n"
    assert namespace["changed"].value["title"] == namespace["exact"].value["title"] == "New"
    assert namespace["teaser"].value == {"id": "a1", "title": "New"}
