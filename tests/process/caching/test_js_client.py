"""The JavaScript client: in Node, and in Chromium against a real origin."""

from __future__ import annotations

import asyncio
import gzip
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

from tests.faults.conditions import WITHIN_S
from tests.process.caching.coherent_origin import Origin, SharedCache, VirtualTime
from tests.process.caching.serving import Endpoint, Reply, send_reply, served

TESTS = Path(__file__).parent / "js"
CLIENT = Path(__file__).parents[3] / "sketch" / "js" / "portolan.mjs"
CHROMIUM = shutil.which("chromium")
NODE = shutil.which("node")
PAGE = Path(__file__).parents[3] / "docs" / "caching-clients.md"
MAX_BYTES = 6 * 1024


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
async def test_in_node() -> None:
    assert NODE is not None
    node = await asyncio.create_subprocess_exec(
        NODE,
        "--test",
        *map(str, sorted(TESTS.glob("*.test.mjs"))),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await node.communicate()
    assert node.returncode == 0, output.decode()


def test_the_compressed_client_is_small() -> None:
    """The shipped file, with comments and types, compressed as any server sends it."""
    assert len(gzip.compress(CLIENT.read_bytes(), 9)) < MAX_BYTES


def test_the_client_has_no_imports() -> None:
    assert "import " not in CLIENT.read_text()


class Site:
    """Serves a page, the client's module, and the origin behind a cache.

    Attributes:
        reads: The header fields of the reads that the browser sent.
    """

    def __init__(self, cache: SharedCache) -> None:
        self.cache = cache
        self.reads: list[dict[str, str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path.endswith("/a1"):
            self.reads.append({name.decode(): value.decode() for name, value in scope["headers"]})
        if path.startswith("/v1/"):
            await self.cache(scope, receive, send)
        elif path == "/portolan.mjs":
            headers = {"content-type": "text/javascript"}
            await send_reply(Reply(200, CLIENT.read_bytes(), headers), send)
        else:
            headers = {"content-type": "text/html"}
            await send_reply(Reply(200, b"<!doctype html><title>t</title>", headers), send)


@pytest.fixture(scope="module")
async def endpoint() -> AsyncIterator[Endpoint]:
    endpoint = Endpoint()
    async with served(endpoint) as endpoint.url:
        yield endpoint


@pytest.fixture(scope="module")
async def page(endpoint: Endpoint) -> AsyncIterator[Page]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu"],
            timeout=WITHIN_S * 1000,
        )
        page = await browser.new_page()
        page.set_default_timeout(WITHIN_S * 1000)
        yield page
        await browser.close()


@pytest.fixture
def site(endpoint: Endpoint) -> Site:
    site = Site(SharedCache(Origin(VirtualTime())))
    endpoint.app = site
    return site


@pytest.fixture
async def origin(page: Page, endpoint: Endpoint, site: Site) -> Origin:
    """The origin, once a page has a client for it."""
    origin = site.cache.origin
    origin.objects["articles", "a1"] = {"title": "old", "text": "t", "hits": 1}
    await page.goto(endpoint.url)
    await page.evaluate(
        """async () => {
          const { connect } = await import("/portolan.mjs");
          globalThis.time = 100;
          globalThis.client = await connect(location.origin, "news",
            { deltaS: 10, mode: "lazy", clock: () => globalThis.time });
          globalThis.title = async (how) => {
            const { value, source } = await client.get("articles", "a1", how);
            return [value.title, source];
          };
        }"""
    )
    return origin


async def title(page: Page, options: str = "{}") -> list[str]:
    answer: list[str] = await page.evaluate(f"title({options})")
    return answer


async def test_in_chromium_a_copy_is_reused_without_a_request(page: Page, origin: Origin) -> None:
    assert await title(page) == ["old", "origin"]
    assert await title(page) == ["old", "own"]
    assert len(origin.requests()) == 1


async def test_in_chromium_plain_requests_may_be_answered_by_caches(
    page: Page, origin: Origin, site: Site
) -> None:
    """Except for its own tag the browser adds nothing that makes caches go to the origin."""
    await title(page)
    origin.time.advance(61)
    await page.evaluate("globalThis.time += 61; client.refreshFilter()")
    assert await title(page) == ["old", "origin"]
    assert len(site.reads) == 2
    for headers in site.reads:
        assert "cache-control" not in headers
        assert "pragma" not in headers
    assert site.reads[1]["if-none-match"] == origin.tag("articles", "a1")


async def test_in_chromium_a_key_in_the_filter_is_revalidated_at_the_origin(
    page: Page, origin: Origin, site: Site
) -> None:
    await title(page)
    await origin.write("articles", "a1", {"title": "new"})
    assert await title(page) == ["old", "own"]
    await page.evaluate("client.refreshFilter()")
    assert await title(page) == ["new", "origin"]
    assert origin.requests()[-1].forced
    await page.evaluate("client.refreshFilter()")
    assert await title(page) == ["new", "origin"]
    assert site.reads[-1]["if-none-match"] == origin.tag("articles", "a1")
    assert await title(page, "{refresh: true}") == ["new", "origin"]
    assert [headers.get("cache-control") for headers in site.reads] == [None, *["no-cache"] * 3]


async def test_in_chromium_the_browsers_own_cache_never_answers_for_the_origin(
    page: Page, origin: Origin
) -> None:
    """The filter overrules even an answer that the browser may cache."""
    origin.extra = {"cache-control": "public, max-age=60, s-maxage=60"}
    await title(page)
    await origin.write("articles", "a1", {"title": "new"})
    await page.evaluate("client.refreshFilter()")
    assert await title(page) == ["new", "origin"]


async def test_in_chromium_filters_are_renewed_by_their_tag(page: Page, origin: Origin) -> None:
    await page.evaluate("client.refreshFilter()")
    assert [exchange.status for exchange in origin.filters()] == [200, 304]


async def test_in_chromium_own_writes_are_seen(page: Page, origin: Origin) -> None:
    await title(page)
    etag = await page.evaluate(
        """client.put("articles", "a1", {title: "mine", text: "", hits: 1})
          .then(({etag}) => etag)"""
    )
    assert etag == origin.tag("articles", "a1")
    assert await title(page) == ["mine", "origin"]
    error = await page.evaluate(
        """client.patch("articles", "a1", {title: "no"}, {ifMatch: '"x"'})
          .catch(({status, kind}) => [status, kind])"""
    )
    assert error == [412, "precondition-failed"]


async def test_in_chromium_the_representation_of_a_write_is_reused(
    page: Page, origin: Origin, site: Site
) -> None:
    origin.shows_whole = True
    await page.evaluate("""client.patch("articles", "a1", {title: "mine"})""")
    assert await title(page) == ["mine", "own"]
    assert not origin.requests()
    await page.evaluate("globalThis.time += 10.1")
    assert await title(page) == ["mine", "origin"]
    assert site.reads[-1]["if-none-match"] == origin.tag("articles", "a1")


async def test_in_chromium_time_passes_by_its_own_clock(page: Page, origin: Origin) -> None:
    assert (
        await page.evaluate(
            """async () => {
          const { connect } = await import("/portolan.mjs");
          const other = await connect(location.origin, "news", { deltaS: 60 });
          await other.get("articles", "a1");
          const { source } = await other.get("articles", "a1");
          other.close();
          return source;
        }"""
        )
        == "own"
    )


async def test_the_example_of_the_page_runs_in_ten_lines(page: Page, origin: Origin) -> None:
    match = re.search(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    text = match[1]
    assert len([line for line in text.splitlines() if line]) <= 10
    text = text.replace('import { connect } from "./portolan.mjs"', "").replace(
        '"https://cache.example"', "location.origin"
    )
    result = await page.evaluate(
        f"""(async () => {{
          const connect = (await import("/portolan.mjs")).connect;
          {text}
          return [again.source, changed.value.title, exact.value.title, teaser.value];
        }})()"""
    )
    assert result == ["own", "New", "New", {"id": "a1", "title": "New"}]
