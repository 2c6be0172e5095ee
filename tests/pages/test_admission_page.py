"""The page of admission control, in Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Page, expect

from tests.pages.stage import HOSTILE, Stage

RULES = """\
-- sheds what matters least
SET timer = 1
ON EVENT Timer e IF serviceMemoryLoad() > 0 THEN refuseBelow(0, 1)
"""


@pytest.fixture(autouse=True)
async def without_rules(stage: Stage) -> AsyncIterator[None]:
    """Remove the rules, because other tests share the service."""
    yield
    plain_text = {"content-type": "text/plain"}
    assert (await stage.admin.put("admission/rules", headers=plain_text)).status_code == 200


async def test_rules_are_checked_set_and_seen_to_fire(page: Page, stage: Stage) -> None:
    await page.goto("/admission")
    await page.get_by_label("Rules (docs").fill(RULES)
    await page.get_by_role("button", name="Check").click()
    row = page.get_by_role("region", name="Rules").get_by_role("row", name="1, line 3")
    await expect(row).to_contain_text("refuseBelow(0, 1)")
    assert (await stage.admin.get("admission/rules")).json()["rules"] == []
    await page.get_by_role("button", name="Put in force").click()
    await expect(page.get_by_label("Rules (docs")).to_have_value(RULES)
    assert (await stage.admin.get("admission/rules")).json()["text"] == RULES
    log = page.get_by_role("region", name="Log")
    await expect(log.get_by_role("row").nth(1)).to_contain_text("refuseBelow(0, 1)")


async def test_a_mistake_leads_to_its_line(page: Page, stage: Stage) -> None:
    await page.goto("/admission")
    await page.get_by_label("Rules (docs").fill(RULES.replace("refuseBelow", "refuseBelo"))
    await page.get_by_role("button", name="Put in force").click()
    alert = page.get_by_role("alert")
    await expect(alert).to_contain_text('did you mean "refuseBelow"?')
    await expect(page.locator(".editor li.bad")).to_have_text([""])
    await alert.get_by_role("link", name="line 3").click()
    selection = "(text) => text.value.slice(text.selectionStart, text.selectionEnd)"
    selected = await page.get_by_label("Rules (docs").evaluate(selection)
    assert selected.startswith("ON EVENT Timer")
    assert (await stage.admin.get("admission/rules")).json()["rules"] == []


async def test_rules_are_tried_out(page: Page) -> None:
    await page.goto("/admission")
    await page.get_by_label("Rules (docs").fill(RULES)
    await page.get_by_text("Try them out").click()
    events = page.get_by_label("Events and what")
    await events.fill('{"events": [{"event": "Timer"}], "snapshot": {"figures": {}}}')
    await page.get_by_role("button", name="Dry run").click()
    row = page.get_by_role("region", name="Decisions").get_by_role("row", name="1, line 3")
    await expect(row).to_contain_text("unknown")
    await events.fill(HOSTILE)
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.get_by_role("alert")).to_contain_text("The events cannot be read.")
    await expect(events).to_have_value(HOSTILE)


async def test_rules_that_somebody_else_has_set_are_not_overwritten(
    page: Page, stage: Stage
) -> None:
    await page.goto("/admission")
    plain_text = {"content-type": "text/plain"}
    await stage.admin.put("admission/rules", content=b"-- mine", headers=plain_text)
    await page.get_by_label("Rules (docs").fill(RULES)
    await page.get_by_role("button", name="Put in force").click()
    await expect(page.get_by_role("alert")).to_contain_text("Somebody else has set rules")
    await expect(page.get_by_label("Rules (docs")).to_have_value(RULES)
    assert (await stage.admin.get("admission/rules")).json()["text"] == "-- mine"
