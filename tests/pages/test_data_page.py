"""The data page: conditions, sorting, and objects that are edited, created and deleted."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import orjson
from playwright.async_api import Locator, Page, ViewportSize, expect

from tests.pages.stage import HOSTILE, HOSTILE_ID, Stage
from tests.process.service import unique

PHONE: ViewportSize = {"width": 390, "height": 800}


def objects(page: Page) -> Locator:
    return page.get_by_role("region", name="Objects", exact=True)


async def read(stage: Stage, id_: str) -> dict[str, Any]:
    answer = await stage.data.get(f"{stage.database}/people/{quote(id_, safe='')}")
    document: dict[str, Any] = answer.json()
    return document


async def test_conditions_make_an_address_that_can_be_read(page: Page, stage: Stage) -> None:
    await page.goto("/data?class=articles")
    await page.get_by_label("Field").fill("hits")
    await page.get_by_label("Operator").select_option("ge")
    await page.get_by_label("Value").fill("99")
    await page.get_by_role("button", name="Show and explain").click()
    await expect(objects(page).locator("tbody th")).to_have_text(["hostile"])
    assert "hits.ge=99" in page.url
    request_line = f"GET /v1/{stage.database}/articles?hits.ge=99&limit=20"
    await expect(page.get_by_text("Request:")).to_contain_text(request_line)
    await page.get_by_label("Field").nth(1).fill("title")
    await page.get_by_label("Operator").nth(1).select_option("like")
    await page.get_by_label("Value").nth(1).fill("nothing%")
    await page.get_by_role("button", name="Show and explain").click()
    await expect(page.get_by_text("None meets these conditions")).to_be_visible()
    await page.get_by_label("Field").nth(1).fill("")
    await page.get_by_role("button", name="Show and explain").click()
    await expect(objects(page).locator("tbody th")).to_have_text(["hostile"])


async def test_headers_sort_and_show_the_system_of_the_column(page: Page) -> None:
    await page.goto("/data?class=articles&limit=2")
    header = objects(page).locator("thead th", has_text="hits")
    await expect(header.locator(".system")).to_have_text("redis")
    title = objects(page).locator("thead th", has_text="title")
    await expect(title.locator(".system")).to_have_text("postgres")
    await header.get_by_role("link").click()
    await expect(objects(page).locator("tbody th")).to_have_text(["hostile", HOSTILE_ID])
    await expect(header).to_have_attribute("aria-sort", "descending")


async def test_a_query_that_no_index_serves_says_what_helps(page: Page, stage: Stage) -> None:
    await page.goto("/data?class=articles&order=-hits&limit=3")
    await objects(page).locator("thead th", has_text="hits").get_by_role("link").click()
    await expect(page.get_by_role("alert")).to_contain_text("Index required")
    await page.get_by_role("link", name="Only objects with hits").click()
    await expect(objects(page).locator("tbody tr")).to_have_count(3)
    assert "hits.exists=true" in page.url
    await page.goto("/data?class=articles&order=hits&limit=3")
    await page.get_by_role("link", name="Read all objects this time").click()
    await expect(objects(page).locator("tbody tr")).to_have_count(3)


async def test_a_missing_index_leads_to_the_schema(page: Page, stage: Stage) -> None:
    schema = {"classes": {"notes": {"system": "redis", "fields": {"rank": {"type": "integer"}}}}}
    database = unique("ranks")
    assert (await stage.admin.put(f"schemas/{database}", json=schema)).is_success
    await page.goto(f"/data?database={database}&class=notes&rank.ge=1")
    await page.get_by_role("link", name="Give rank an index").click()
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.locator("#tried")).to_contain_text("notes.rank changed index: false → true")


async def test_an_object_is_replaced_and_changed(page: Page, stage: Stage) -> None:
    await stage.data.put(f"{stage.database}/people/edited", json={"name": "Before"})
    await page.goto("/data?class=people&id=edited")
    await objects(page).get_by_role("link", name="edited").click()
    text = page.get_by_label("Object (JSON)")
    assert orjson.loads(await text.input_value()) == {"name": "Before"}
    await text.fill('{"name": "After"}')
    await page.get_by_role("button", name="Replace the object").click()
    await expect(page.get_by_role("row", name="name")).to_contain_text("After")
    await text.fill('{"name": "Later"}')
    await page.get_by_role("button", name="Change these fields only").click()
    await expect(page.get_by_role("row", name="name")).to_contain_text("Later")
    assert (await read(stage, "edited"))["name"] == "Later"


async def test_a_conflict_is_shown_and_overwrites_nothing(page: Page, stage: Stage) -> None:
    address = f"{stage.database}/people/contended"
    await stage.data.put(address, json={"name": "Before"})
    await page.goto(f"/data/object?database={stage.database}&class=people&id=contended")
    await stage.data.put(address, json={"name": "Theirs"})
    for button in ("Replace the object", "Change these fields only"):
        await page.get_by_label("Object (JSON)").fill('{"name": "Mine"}')
        await page.get_by_role("button", name=button).click()
        await expect(page.get_by_role("alert")).to_contain_text("was changed since you read it")
        await expect(page.get_by_label("Object (JSON)")).to_have_value('{"name": "Mine"}')
        await expect(page.get_by_role("row", name="name")).to_contain_text("Theirs")
    await page.get_by_text("Delete this object").click()
    await page.get_by_role("button", name="Delete it for good").click()
    await expect(page.get_by_role("alert")).to_contain_text("was changed since you read it")
    assert (await read(stage, "contended"))["name"] == "Theirs"


async def test_typed_text_is_kept_if_the_object_is_gone(page: Page, stage: Stage) -> None:
    address = f"{stage.database}/people/leaver"
    await stage.data.put(address, json={"name": "Before"})
    await page.goto(f"/data/object?database={stage.database}&class=people&id=leaver")
    assert (await stage.data.delete(address)).is_success
    editor = page.get_by_label("Object (JSON)")
    await editor.fill('{"name": "A long text"}')
    await page.get_by_role("button", name="Replace the object").click()
    await expect(page.get_by_role("alert")).to_contain_text("Precondition Failed")
    await expect(page.get_by_text("It cannot be read:")).to_be_visible()
    await expect(editor).to_have_value('{"name": "A long text"}')
    assert (await read(stage, "leaver"))["status"] == 404


async def test_typed_text_is_kept_if_its_class_or_id_is_invalid(stage: Stage) -> None:
    base, form = stage.admin.base_url, {"database": "nowhere", "class": "people"}
    edit = {"object": '{"name": "A long text"}', "etag": '"x"', "do": "replace"}
    for path, fields in (
        ("/data/object", {"id": "x", **edit}),
        ("/data/new", {"id": "x", "object": edit["object"]}),
        ("/data/new", {"id": "a/b", "object": edit["object"]}),
    ):
        answer = await stage.admin.post(base.join(path), data=form | fields)
        assert "A long text" in answer.text
        assert 'role="alert"' in answer.text


async def test_an_object_is_created_and_deleted(page: Page, stage: Stage) -> None:
    await page.goto("/data?class=people")
    await page.get_by_role("link", name="New object").click()
    text = page.get_by_label("Object (JSON)")
    assert orjson.loads(await text.input_value()) == {"name": ""}
    await page.get_by_label("Id", exact=True).fill(HOSTILE_ID)
    await text.fill(orjson.dumps({"name": HOSTILE}).decode())
    await page.get_by_role("button", name="Create").click()
    await expect(page.locator("h1")).to_have_text(HOSTILE_ID)
    await expect(page.get_by_role("row", name="name")).to_contain_text(HOSTILE)
    assert (await read(stage, HOSTILE_ID))["name"] == HOSTILE
    await page.get_by_text("Delete this object").click()
    await page.get_by_role("button", name="Delete it for good").click()
    await expect(page).to_have_url(re.compile(r"/data\?"))
    assert (await read(stage, HOSTILE_ID))["status"] == 404


async def test_a_new_object_does_not_replace_another(page: Page, stage: Stage) -> None:
    await stage.data.put(f"{stage.database}/people/taken", json={"name": "First"})
    await page.goto(f"/data/new?database={stage.database}&class=people")
    await page.get_by_label("Id", exact=True).fill("taken")
    await page.get_by_label("Object (JSON)").fill('{"name": "Second"}')
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert (await read(stage, "taken"))["name"] == "First"
    await page.get_by_label("Object (JSON)").fill('{"nam": "x"}')
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("alert")).to_contain_text("nam")


async def test_parameters_other_than_conditions_are_refused(stage: Stage) -> None:
    for name in ("aggregate", "count", "explain", "fields", "ids", "join"):
        address = stage.admin.base_url.join(f"/data?class=people&{name}=x")
        answer = await stage.admin.get(address)
        assert (answer.status_code, name in answer.text) == (400, True)


async def test_hostile_forms_write_nothing(stage: Stage) -> None:
    await stage.data.put(f"{stage.database}/people/kept", json={"name": "Kept"})
    base = stage.admin.base_url
    good = {"database": stage.database, "class": "people", "id": "kept", "etag": '"x"'}
    good |= {"object": '{"name": "Other"}', "do": "replace"}
    for wrong in (
        *({"etag": ""}, {"etag": '"ä"'}, {"etag": '"a"\r\nX-Y: z'}, {"do": ""}),
        *({"id": ".."}, {"id": "a/b"}, {"id": ""}, {"class": "../jobs"}, {"database": "A"}),
        {"more": "1"},
    ):
        answer = await stage.admin.post(base.join("/data/object"), data=good | wrong)
        assert answer.status_code == 400, wrong
    assert (await stage.admin.post(base.join("/data/object"), data=good)).status_code == 200
    assert (await stage.admin.post(base.join("/data/new"), data={})).status_code == 400
    assert (await read(stage, "kept"))["name"] == "Kept"


async def test_objects_are_cards_on_a_phone(page: Page) -> None:
    await page.set_viewport_size(PHONE)
    await page.goto("/data?class=articles&order=-hits")
    heights = (
        await objects(page)
        .locator("tbody tr")
        .evaluate_all("rows => rows.map((row) => row.getBoundingClientRect().height)")
    )
    assert len(heights) == 20
    assert max(heights) < 260
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
