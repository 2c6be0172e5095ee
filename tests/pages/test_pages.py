"""The admin pages in Chromium, against a running service."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from playwright.async_api import Locator, Page, ViewportSize, expect

from tests.faults.conditions import eventually
from tests.pages.stage import HOSTILE, HOSTILE_ID, Stage

PATHS = [
    "/",
    "/systems",
    "/map",
    "/schema",
    "/what-if",
    "/data",
    "/queries",
    "/feed",
    "/coherence",
    "/jobs",
    "/admission",
    "/keys",
]
PHONE: ViewportSize = {"width": 360, "height": 740}

UNLABELLED = """(all) => all.filter((e) => e.type !== "hidden" && !e.labels?.length)
  .map((e) => e.outerHTML)"""

CONTRASTS = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = (c) => rgb(c).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor;
      if (rgb(colour)[3] !== 0) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll("body *")]
    .filter((e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .filter((e) => e.checkVisibility())
    .map((e) => {
      const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
      return [e.outerHTML.slice(0, 80), (a + 0.05) / (b + 0.05)];
    })
    .filter(([, contrast]) => contrast < 4.5);
}"""
"""Text with a contrast of less than 4.5 (WCAG 2.2, 1.4.3), and its contrast."""


TALL = """() => [...document.querySelectorAll("table:not(.stack) tbody tr")]
  .map((row) => [row.outerHTML.slice(0, 80), row.getBoundingClientRect().height])
  .filter(([, height]) => height > 160)"""
"""Rows that narrow columns make tall, on a phone: such a table has to become cards."""


def system_of(row: Locator) -> Locator:
    return row.locator(".system")


@pytest.mark.parametrize("path", PATHS)
async def test_every_page_is_accessible(page: Page, path: str) -> None:
    """Named, marked in the menu, readable in both themes, and no wider than a phone."""
    answer = await page.goto(path)
    assert answer is not None
    assert answer.status == 200
    assert_strict(answer.headers["content-security-policy"], await answer.text())
    await expect(page.locator("h1")).to_have_count(1)
    await expect(page.locator("nav [aria-current=page]")).to_have_count(1)
    assert (
        await page.eval_on_selector_all("main input, main select, main textarea", UNLABELLED) == []
    )
    await expect(page.locator("thead th:not([scope])")).to_have_count(0)
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        assert await page.evaluate(CONTRASTS) == []
    await page.set_viewport_size(PHONE)

    await eventually(partial(_fits, page))  # charts follow once they are notified
    assert await page.evaluate(TALL) == []


def assert_strict(policy: str, text: str) -> None:
    """Nothing is inline, and the policy forbids it."""
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert re.findall(r"<style|<script>|<[^>]*\s(?:style|on\w+)=", text) == []


async def test_the_overview_shows_which_system_serves_which_class(page: Page, stage: Stage) -> None:
    await page.goto("/")
    systems = page.get_by_role("region", name="Systems")
    row = systems.get_by_role("row", name="redis")
    await expect(row).to_contain_text(f"{stage.database}.articles")
    advice = page.get_by_role("region", name="Scaling advice")
    await expect(advice.get_by_role("row")).to_have_count(5)
    await expect(advice.get_by_role("row", name="the service")).to_contain_text("is known.")
    await expect(page.get_by_role("list").filter(has_text="was placed on")).to_be_visible()


async def test_the_overview_is_kept_up_to_date(page: Page, stage: Stage) -> None:
    await page.goto("/")
    before = int(await page.locator("#requests").get_attribute("data-total") or "0")
    for number in range(5):
        await stage.data.get(f"{stage.database}/articles/a{number}")
    await page.wait_for_function(
        "before => Number(document.getElementById('requests').dataset.total) >= before + 5",
        arg=before,
    )
    chart = page.get_by_role("img", name="Requests per second", exact=True)
    await expect(chart.locator("canvas")).to_be_visible()
    await page.set_viewport_size(PHONE)
    await eventually(partial(_fits, page))


async def _fits(page: Page) -> bool:
    width: int = await page.evaluate("document.documentElement.scrollWidth")
    return width <= PHONE["width"]


async def test_the_map_explains_why_hits_are_on_redis(page: Page) -> None:
    await page.goto("/map")
    why = page.locator("#why")
    await expect(why.locator("h2")).to_have_text(re.compile(r"articles\.hits is on redis"))
    await expect(why.locator(".lead")).to_contain_text(
        "redis writes 5 times as fast as postgres (40,000/s, 8,000/s),"
        " and write throughput is 75 % of the score"
    )
    await expect(why).to_contain_text("redis has 40,000/s, 4 times the goal")
    await expect(why).to_contain_text("postgres has 8,000/s, 0.8 times the goal")
    await expect(why).to_contain_text("the write throughput of redis fell to 8,000/s")
    for system in ("redis", "postgres"):
        await expect(why.get_by_role("row", name=system).locator(".bar rect")).to_be_visible()


async def test_the_map_links_fields_to_their_explanation(page: Page) -> None:
    await page.goto("/map")
    group = page.locator(".group", has_text="group hits")
    await expect(system_of(group).first).to_have_text("redis")
    await page.get_by_role("link", name="body").click()
    why = page.locator("#why")
    await expect(why).to_contain_text("full text search")
    await expect(why).to_contain_text("redis lacks full_text_search")


async def test_a_slider_moves_hits_and_nothing_else_changes(page: Page, stage: Stage) -> None:
    await page.goto("/what-if")
    decision = page.locator("#decision")
    await expect(decision).to_contain_text("Nothing would move")
    slider = page.locator("fieldset", has_text="redis").get_by_label("write throughput, measured")
    await slider.focus()
    for _ in range(12):
        await page.keyboard.press("ArrowLeft")
    await expect(decision).to_contain_text("articles.hits redis → postgres")
    await expect(page.locator("tr.moved", has_text="articles.hits")).to_be_visible()
    assert "redis+write_throughput" in page.url
    await page.reload()
    await expect(decision).to_contain_text("articles.hits redis → postgres")
    path = f"placements/{stage.database}/articles/hits"
    assert (await stage.admin.get(path)).json()["system"] == "redis"


async def test_weights_and_goals_change_the_scores(page: Page, stage: Stage) -> None:
    base = "/classes/articles/fields/hits/annotations"
    await page.goto(f"/what-if?database={stage.database}&weight {base}/2=-6&goal {base}/2=6")
    await expect(page.locator("#outcome")).to_contain_text(re.compile(r"redis 3\.25 → 0\.958"))


async def test_programs_can_ask_what_if(stage: Stage) -> None:
    path = f"what-if/{stage.database}"
    slower = {"metrics": {"redis": {"write_throughput": 4_000}}}  # mongo stays third, or is out
    answer = await stage.admin.post(path, json=slower)
    assert answer.is_success, answer.text
    (move,) = answer.json()["moves"]
    assert move.pop("why").startswith(
        "cache group articles#hits requires atomic_updates and sorting: postgres writes twice as"
        " fast as redis (8,000/s, 4,000/s), and write throughput is 75 % of the score"
    )
    assert move == {"node": "articles.hits", "from": "redis", "to": "postgres"}
    refused = await stage.admin.post(path, json={"metrics": {"nobody": {}}})
    assert refused.json()["errors"][0]["pointer"] == "/metrics/nobody"
    assert (await stage.admin.post("what-if/nothing", json={})).status_code == 404


@pytest.mark.parametrize("query", ["x=7", "x=nan", "x=much"])
async def test_an_invalid_position_of_a_slider_is_a_problem(stage: Stage, query: str) -> None:
    answer = await stage.admin.get(stage.admin.base_url.join(f"/what-if?{query}"))
    assert answer.status_code == 400
    assert "A slider has no such position." in answer.text


async def test_staleness_is_measured_from_the_page(page: Page, stage: Stage) -> None:
    await page.goto("/coherence")
    await expect(page.get_by_role("row", name=f"{stage.database}/articles")).to_be_visible()
    await page.get_by_label("Class").select_option(f"{stage.database}/people")
    await page.get_by_label("Measurements").fill("5")
    await page.get_by_role("button", name="Measure").click()
    state = page.locator("#probe-state")
    await expect(state).to_contain_text(f"{stage.database}/people, fresh: done")
    await expect(state).to_contain_text("No read of 5 was surely older than the bound of 0 s")


async def test_a_probe_is_stopped_from_the_page(page: Page, stage: Stage) -> None:
    await page.goto("/coherence")
    await page.get_by_label("Class").select_option(f"{stage.database}/people")
    await page.get_by_label("Measurements").fill("200")
    await page.get_by_label("Per second").fill("1")
    await page.get_by_role("button", name="Measure").click()
    await page.get_by_role("button", name="Stop the probe").click()
    await expect(page.locator("#probe-state")).to_contain_text("stopped")


async def test_ttls_are_drawn_and_listed(page: Page, stage: Stage) -> None:
    await stage.data.get(f"{stage.database}/articles/a1")
    await page.goto("/coherence")
    table = page.locator(f"#ttls-{stage.database}-articles")
    chart = page.get_by_role("img", name=f"TTLs granted for {stage.database}/articles")
    await expect(chart.locator("canvas")).to_be_visible()
    await page.locator("details", has=table).get_by_text("As a table").click()
    await expect(table.locator("tbody tr").first).to_be_visible()


async def test_a_run_is_followed_to_its_result(page: Page, stage: Stage) -> None:
    run = await stage.submit()
    taken_run = await stage.take()
    await page.goto("/jobs")
    await page.locator(f'a[href$="{run}"]').click()
    count = {"name": "count", "state": "running", "done": 3, "total": 9, "rows": 7, "seconds": 1.5}
    await stage.report(taken_run, stages=[count], counters={"pairs": 4}, elapsed_s=2.0, eta_s=4.0)
    stages = page.get_by_role("region", name="Stages")
    await expect(stages.get_by_role("progressbar")).to_have_attribute("value", "3")
    await expect(page.locator("#run")).to_contain_text("about 4 s to go")
    await expect(page.locator("#state-heading")).to_have_text("State: running")
    await stage.end(taken_run, "done")
    await expect(page.locator("#state-heading")).to_have_text("State: done")
    cells = page.locator("#run table td")
    assert await cells.nth(0).inner_text() == HOSTILE
    assert (await cells.nth(2).inner_text()).endswith("… (1,000 characters)")
    assert await page.title() == "Jobs · Portolan"


async def test_a_job_is_forecast_and_then_started(page: Page, stage: Stage) -> None:
    await stage.heartbeat()
    await page.goto("/jobs")
    editor = page.get_by_role("textbox", name="Job (JSON)")
    await page.get_by_role("combobox", name="Kind").select_option("linkage.open")
    await page.get_by_role("button", name="Show an example").click()
    await expect(page.get_by_role("textbox", name="Job (JSON)")).to_have_value(
        re.compile('"zero_config"')
    )
    job = '{"kind": "example.count", "spec": {"records": {"class": "articles"}, "field": "title"}}'
    await editor.fill(job)
    await page.get_by_role("button", name="Forecast the cost").click()
    await expect(page.locator("#state-heading")).to_have_text("State: queued")
    forecast_run = await stage.take()
    assert forecast_run.dry_run
    await stage.end(forecast_run, "done", forecast={"pairs": 0, "rows": 32})
    await expect(page.locator("#run")).to_contain_text("32")
    await page.get_by_role("button", name="Start this job").click()
    await expect(page.locator("#state-heading")).to_have_text("State: queued")
    started_run = await stage.take()
    assert not started_run.dry_run
    assert started_run.document == forecast_run.document
    await stage.end(started_run, "done")
    await expect(page.locator("#run")).to_contain_text("2 rows")


@pytest.mark.parametrize("padding", ["", " " * 400_000])
async def test_a_wrong_job_is_refused_and_stays_typed(page: Page, padding: str) -> None:
    await page.goto("/jobs")
    text = f'{padding}{{"kind": "example.count", "spec": {{"</textarea><b>": 1}}}}'
    await page.get_by_role("textbox", name="Job (JSON)").fill(text)
    await page.get_by_role("button", name="Start it").click()
    await expect(page.get_by_role("alert")).to_contain_text("/spec")
    await expect(page.get_by_role("textbox", name="Job (JSON)")).to_have_value(text)
    assert await page.locator("#submit b").count() == 0


async def test_a_cross_site_request_cannot_submit_a_job(stage: Stage) -> None:
    form = {"do": "start", "job": '{"kind": "example.count", "spec": {}}'}
    foreign = {"sec-fetch-site": "cross-site"}
    address = str(stage.admin.base_url.join(f"/jobs/{stage.database}"))
    assert (await stage.admin.post(address, data=form, headers=foreign)).status_code == 403


async def test_a_run_is_cancelled_and_resumed(page: Page, stage: Stage) -> None:
    run = await stage.submit()
    await page.goto(f"/jobs/{stage.database}/{run}")
    await page.get_by_role("button", name="Cancel this run").click()
    await expect(page.locator("#state-heading")).to_have_text("State: cancelled")
    await page.get_by_role("button", name="Resume this run").click()
    await expect(page.locator("#state-heading")).to_have_text("State: queued")
    await stage.end(await stage.take(), "failed", reasons=["<i>no memory</i>"])
    await expect(page.locator("#run")).to_contain_text("<i>no memory</i>")


async def test_a_query_is_explained(page: Page) -> None:
    await page.goto("/data")
    await page.get_by_label("Class").select_option("articles")
    await page.get_by_label("Filter").fill('{"ge": ["hits", 99]}')
    await page.get_by_label("Order").fill("-hits")
    await page.get_by_role("button", name="Show and explain").click()
    plan = page.locator("section", has_text="How it was found")
    await expect(plan).to_contain_text("Queried redis (index of hits)")
    await expect(plan).to_contain_text("the rest of each object from postgres")
    await expect(plan).to_contain_text('{"ge":["hits",99]}, order, limit')
    await expect(
        page.get_by_role("region", name="Objects", exact=True).locator("tbody tr")
    ).to_have_count(1)


async def test_pages_of_objects_follow_one_another(page: Page) -> None:
    await page.goto("/data?class=articles&order=-hits&limit=1")
    await page.get_by_role("link", name="Further objects").click()
    ids = page.get_by_role("region", name="Objects", exact=True).locator("tbody th")
    await expect(ids).to_have_text([HOSTILE_ID])


async def test_a_wrong_query_is_refused_on_the_page(page: Page) -> None:
    await page.goto('/data?class=articles&filter={"<b>":1}')
    await expect(page.get_by_role("alert")).to_contain_text("<b>")


async def test_hostile_values_are_shown_and_do_nothing(page: Page) -> None:
    await page.goto("/data?class=articles&order=-hits&limit=2")
    region = page.get_by_role("region", name="Objects", exact=True)
    await expect(region).to_contain_text("<script>document.title")
    await expect(region).to_contain_text(HOSTILE_ID)
    await expect(region).to_contain_text("… (5,000 characters)")
    assert await region.locator("img, script, b").count() == 0
    assert await page.title() == "Data · Portolan"


async def test_dark_follows_the_system_and_the_switch(page: Page) -> None:
    async def background() -> Any:
        return await page.evaluate("getComputedStyle(document.body).backgroundColor")

    await page.emulate_media(color_scheme="light")
    await page.goto("/")
    light = await background()
    await page.emulate_media(color_scheme="dark")
    dark = await background()
    assert light != dark
    await page.get_by_role("button", name="Light or dark").click()
    assert await background() == light
    await page.goto("/map")
    assert await background() == light


async def test_the_keyboard_reaches_everything_and_focus_is_seen(page: Page) -> None:
    await page.goto("/map")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
    seen = set()
    for _ in range(40):
        await page.keyboard.press("Tab")
        style = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert style == "solid"
        seen.add(await page.evaluate("document.activeElement.textContent.trim().split(/\\s+/)[0]"))
        if "hits" in seen:
            break
    assert {"Portolan", "Overview", "hits"} <= seen


async def test_focus_survives_an_update_of_the_region(page: Page) -> None:
    await page.goto("/")
    link = page.get_by_role("link", name="Map of")
    await link.focus()
    await page.locator("#overview").evaluate("region => region.append('to be replaced')")
    await expect(page.locator("#overview")).not_to_contain_text("to be replaced")
    await expect(link).to_be_focused()


async def test_files_are_kept_for_good_under_the_name_of_their_content(
    page: Page, stage: Stage
) -> None:
    await page.goto("/")
    address = await page.locator("link[rel=stylesheet]").first.get_attribute("href")
    assert address is not None
    answer = await stage.admin.get(stage.admin.base_url.join(address))
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    outdated = re.sub(r"static/\w+/", "static/0123456789abcdef/", address)
    assert (await stage.admin.get(stage.admin.base_url.join(outdated))).status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        *("../../coherence/probe/stop", "systems/redis/calibration", "probes/staleness"),
        *("../../schema", "../../data/object", "../../systems/redis/remove", "../../keys"),
    ],
)
async def test_other_sites_change_nothing(stage: Stage, path: str) -> None:
    for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://paper.example"}):
        answer = await stage.admin.post(path, headers=headers)
        assert answer.status_code == 403, path
