"""The page of streams and standing queries, in Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from playwright.async_api import Browser, Page, expect

from tests.faults.conditions import eventually
from tests.pages.stage import HOSTILE, Stage

CLICKS = {"name": "clicks", "attributes": ["article", "reader"], "most_tuples": 1000}
QUERY = {
    "name": HOSTILE[:100],
    "relations": {"c": {"stream": "clicks"}, "o": {"stream": "orders"}},
    "predicates": [["c.reader", "o.reader"]],
    "window_s": 600,
    "max_lag": 50,
}


@dataclass
class Streams:
    stage: Stage
    query: str

    @property
    def path(self) -> str:
        return f"/streams?database={self.stage.database}"

    async def send(self, stream: str, count: int) -> None:
        tuples = [{"time_s": 1, "values": {"reader": f"r{index}"}} for index in range(count)]
        path = f"{self.stage.database}/event-streams/{stream}/tuples"
        answer = await self.stage.data.post(path, json={"tuples": tuples})
        assert answer.status_code == 200, answer.text

    async def is_ready(self) -> bool:
        path = f"{self.stage.database}/standing-queries/{self.query}"
        return bool((await self.stage.data.get(path)).json()["state"] == "ready")


@pytest.fixture
async def streams(stage: Stage) -> AsyncIterator[Streams]:
    """Two streams, and a query that joins them."""
    data, database = stage.data, stage.database
    for stream in (CLICKS, {**CLICKS, "name": "orders"}):
        answer = await data.post(f"{database}/event-streams", json=stream)
        assert answer.status_code == 201, answer.text
    answer = await data.post(f"{database}/standing-queries", json=QUERY)
    assert answer.status_code == 201, answer.text
    instance = Streams(stage, answer.json()["id"])
    await eventually(instance.is_ready)
    yield instance
    assert (await data.delete(f"{database}/standing-queries/{instance.query}")).status_code == 204
    for name in ("clicks", "orders"):
        answer = await data.delete(f"{database}/event-streams/{name}")
        assert answer.status_code == 204, answer.text


async def test_streams_queries_and_shared_stores_are_shown(page: Page, streams: Streams) -> None:
    await streams.send("clicks", 7)
    row = page.get_by_role("region", name="Event streams").get_by_role("row", name="clicks")

    async def has_consumer() -> bool:
        await page.goto(streams.path)
        return "standing-queries at 7, 0 behind" in await row.inner_text()

    # The holder reports its position every few seconds.
    await eventually(has_consumer)
    await expect(row.get_by_role("cell").first).to_have_text("7")
    queries = page.get_by_role("region", name="Standing queries")
    await expect(queries.get_by_role("row").nth(1)).to_contain_text("clicks, orders")
    await expect(queries.get_by_role("row").nth(1)).to_contain_text("ready")
    assert "owned" not in await page.title()
    stores = page.get_by_role("region", name="Stores")
    await expect(stores.get_by_role("row", name="clicks")).to_contain_text("<script>")
    drawing = page.get_by_role("img", name="Probe trees")
    await expect(drawing).to_be_visible()
    assert await drawing.evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 100


async def test_the_page_shows_the_same_without_scripts(
    browser: Browser, stage: Stage, streams: Streams
) -> None:
    await streams.send("orders", 3)
    base = str(stage.admin.base_url.join("/"))
    context = await browser.new_context(base_url=base, java_script_enabled=False)
    page = await context.new_page()
    await page.goto(streams.path)
    row = page.get_by_role("region", name="Event streams").get_by_role("row", name="orders")
    await expect(row.get_by_role("cell").first).to_have_text("3")
    await expect(page.get_by_role("img", name="Probe trees")).to_be_visible()
    await context.close()


async def test_an_empty_page_says_how_to_create_streams_and_queries(
    page: Page, stage: Stage
) -> None:
    await page.goto(f"/streams?database={stage.database}")
    main = page.get_by_role("main")
    await expect(main).to_contain_text(f"POST /v1/{stage.database}/event-streams")
    await expect(main).to_contain_text(f"POST /v1/{stage.database}/standing-queries")
    await expect(page.get_by_role("img", name="Probe trees")).to_have_count(0)
