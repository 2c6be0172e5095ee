"""The pages, used in a browser that runs no script."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from tests.pages.stage import Stage
from tests.process.service import unique


@pytest.fixture(scope="module")
async def plain(browser: Browser, stage: Stage) -> AsyncIterator[Page]:
    """A tab that runs no script."""
    base = str(stage.admin.base_url.join("/"))
    context = await browser.new_context(base_url=base, java_script_enabled=False)
    yield await context.new_page()
    await context.close()


async def test_a_schema_is_tried_and_applied(plain: Page, stage: Stage) -> None:
    database = unique("plain")
    await plain.goto("/schema?new=true")
    await plain.get_by_label("Name of the database").fill(database)
    await plain.get_by_role("button", name="Dry run").click()
    await expect(plain.locator("#tried")).to_contain_text("products added")
    await plain.get_by_role("button", name="Apply").click()
    assert (await stage.admin.get(f"schemas/{database}")).json()["version"] == 1


async def test_objects_are_found_by_conditions(plain: Page) -> None:
    await plain.goto("/data?class=articles")
    await plain.get_by_label("Field").fill("hits")
    await plain.get_by_label("Operator").select_option("ge")
    await plain.get_by_label("Value").fill("99")
    await plain.get_by_role("button", name="Show and explain").click()
    region = plain.get_by_role("region", name="Objects", exact=True)
    await expect(region.locator("tbody th")).to_have_text(["hostile"])


async def test_the_feed_is_read_page_by_page(plain: Page) -> None:
    await plain.goto("/feed?class=articles")
    await expect(plain.get_by_role("button", name="Pause")).to_be_hidden()
    await plain.get_by_role("button", name="From the beginning").click()
    await expect(plain.locator("#changes li")).to_have_count(50)
    await plain.get_by_role("link", name="Further changes").click()
    await expect(plain.locator("#changes li").first).to_be_visible()
