"""Pages while the service fails, answers late, or has something else to show."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.pages.stage import Stage
from tests.process.service import unique

ANY_URL = re.compile(r".*")
SECOND_MS = 1_000
pytestmark = pytest.mark.usefixtures("failures")


@asynccontextmanager
async def failing(page: Page, status: int | None) -> AsyncIterator[None]:
    """Answer requests of scripts with a status; None: the service is unreachable."""

    async def fail(route: Route) -> None:
        if route.request.resource_type != "fetch":
            await route.continue_()
        elif status is None:
            await route.abort("connectionrefused")
        else:
            await route.fulfill(status=status, content_type="text/html", body="<p>no</p>")

    await page.route(ANY_URL, fail)
    try:
        yield
    finally:
        await page.unroute(ANY_URL, fail)


@pytest.mark.parametrize("status", [503, 429, None])
async def test_the_feed_goes_on_where_it_was_after_a_failure(
    page: Page, stage: Stage, status: int | None
) -> None:
    person = f"{stage.database}/people/{unique('person')}"
    await page.goto(f"/feed?database={stage.database}&class=people")
    changes = page.locator("#changes li")
    await stage.data.put(person, json={"name": "First"})
    await expect(changes).to_have_count(1)
    async with failing(page, status):
        await expect(page.locator("#stale")).to_contain_text("Not up to date since")
        await stage.data.put(person, json={"name": "Second"})
        await expect(changes).to_have_count(1)
    await expect(changes).to_have_count(2)
    await expect(changes.first).to_contain_text('"First" → "Second"')
    await expect(page.locator("#stale")).to_be_empty()


async def test_the_feed_says_that_it_has_ended_and_keeps_what_is_listed(
    page: Page, stage: Stage
) -> None:
    await page.goto(f"/feed?database={stage.database}&class=people")
    changes = page.locator("#changes li")
    await stage.data.put(f"{stage.database}/people/{unique('person')}", json={"name": "Kept"})
    await expect(changes).to_have_count(1)
    async with failing(page, 410):
        await expect(page.locator("#follow")).to_contain_text("not followed any more")
    await expect(changes).to_have_count(1)
    await expect(page.get_by_role("button", name="Pause")).to_be_hidden()


@pytest.mark.parametrize(
    ("status", "reason"),
    [(500, "answered with 500"), (403, "answered with 403"), (None, "cannot be reached")],
)
async def test_a_stale_page_says_so(page: Page, status: int | None, reason: str) -> None:
    await page.goto("/")
    glance, line = page.locator("#glance"), page.locator("#stale")
    await expect(line).to_be_empty()
    async with failing(page, status):
        await expect(line).to_contain_text(re.compile(f"Not up to date since .*{reason}"))
        await expect(glance).to_have_attribute("data-stale", "")
        await expect(glance).to_contain_text("every system answers")
    await expect(line).to_be_empty()
    await expect(glance).not_to_have_attribute("data-stale", "")


async def test_a_page_waits_for_one_answer_at_a_time_and_not_for_ever(
    browser: Browser, stage: Stage
) -> None:
    context = await browser.new_context(base_url=str(stage.admin.base_url.join("/")))
    page = await context.new_page()
    await page.clock.install()
    await page.goto("/")
    routes: list[Route] = []
    requested = asyncio.Event()

    async def hold(route: Route) -> None:
        if route.request.resource_type != "fetch":  # the icon follows the page
            await route.continue_()
            return
        routes.append(route)
        requested.set()

    await page.route(ANY_URL, hold)
    await page.clock.run_for(3 * SECOND_MS)
    await requested.wait()
    await page.clock.run_for(9 * SECOND_MS)
    assert len(routes) == 1
    await page.clock.run_for(2 * SECOND_MS)
    await expect(page.locator("#stale")).to_contain_text("did not answer within 10 s")
    await page.unroute(ANY_URL, hold)
    await page.clock.resume()
    await expect(page.locator("#stale")).to_be_empty()
    await context.close()


async def test_an_answer_that_comes_after_a_later_one_is_dropped(page: Page) -> None:
    """The page aborts its request, so no answer can arrive."""
    await page.goto("/what-if")
    slider_url, requested = re.compile(r"=-6(&|$)"), asyncio.Event()

    async def hold(_: Route) -> None:
        requested.set()

    slider = page.locator("fieldset", has_text="redis").get_by_label("write throughput, measured")
    await page.route(slider_url, hold)
    async with page.expect_event(
        "requestfailed", lambda request: bool(slider_url.search(request.url))
    ):
        await slider.fill("-6")
        await requested.wait()
        await slider.fill("0")
    decision = page.locator("#decision")
    await expect(decision).to_contain_text("Nothing would move")
    await expect(page.locator("#stale")).to_be_empty()
    await page.unroute(slider_url, hold)


async def test_ttls_stay_those_of_their_class(page: Page, stage: Stage) -> None:
    await stage.data.get(f"{stage.database}/articles/a1")
    await page.goto("/coherence")
    table = page.locator(f"#ttls-{stage.database}-articles")
    counts = "(region) => [...region.querySelectorAll('td')].map((cell) => cell.textContent)"
    before = await table.evaluate(counts)
    database = unique("aaa")
    schema = {"classes": {"notes": {"fields": {"title": {"type": "string"}}}}}
    assert (await stage.admin.put(f"schemas/{database}", json=schema)).is_success
    await stage.data.put(f"{database}/notes/n", json={"title": "The first in the list"})
    for _ in range(1 + sum(map(int, before))):
        assert (await stage.data.get(f"{database}/notes/n")).is_success
    await table.evaluate("(region) => region.append('to be replaced')")
    await expect(table).not_to_contain_text("to be replaced")
    assert await table.evaluate(counts) == before


async def test_runs_are_followed_after_a_refused_submission(page: Page, stage: Stage) -> None:
    await page.goto(f"/jobs?database={stage.database}")
    await page.get_by_role("textbox", name="Job (JSON)").fill('{"kind": "nothing"}')
    await page.get_by_role("button", name="Start it").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    run = await stage.submit()
    await expect(page.locator(f'a[href$="{run}"]')).to_be_visible()
    await stage.end(await stage.take(), "done")


async def test_focus_does_not_go_to_another_button(page: Page, stage: Stage) -> None:
    run = await stage.submit()
    await page.goto(f"/jobs/{stage.database}/{run}")
    await page.get_by_role("button", name="Cancel this run").focus()
    await stage.data.delete(f"{stage.database}/jobs/{run}")
    await expect(page.locator("#state-heading")).to_have_text("State: cancelled")
    resume = page.get_by_role("button", name="Resume this run")
    await expect(resume).to_be_visible()
    await expect(resume).not_to_be_focused()


async def test_a_log_stays_open_and_keeps_its_scroll_position(page: Page, stage: Stage) -> None:
    run = await stage.submit()
    taken_run = await stage.take()
    lines = [f"line {number}" for number in range(200)]
    await stage.report(taken_run, log=lines)
    await page.goto(f"/jobs/{stage.database}/{run}")
    await page.get_by_text("Log", exact=True).click()
    log = page.locator("pre.log")
    await log.evaluate("(log) => { log.scrollTop = 300; log.focus(); }")
    await stage.report(taken_run, log=[*lines, "the last line"])
    await expect(log).to_contain_text("the last line")
    await expect(log).to_be_focused()
    assert await log.evaluate("(log) => log.scrollTop") == 300
    await stage.end(taken_run, "done")
