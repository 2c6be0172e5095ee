"""The schema page: edits, dry runs, applying, and former versions, in Chromium."""

from __future__ import annotations

import re
from typing import Any

import orjson
from playwright.async_api import Page, expect

from tests.pages.stage import Stage
from tests.process.service import unique

NOTES: dict[str, Any] = {
    "classes": {"notes": {"fields": {"title": {"type": "string"}, "rank": {"type": "integer"}}}}
}


async def create_draft(stage: Stage, **objects: dict[str, Any]) -> str:
    """Set up a database with notes; return its name."""
    database = unique("draft")
    assert (await stage.admin.put(f"schemas/{database}", json=NOTES)).is_success
    for id_, note in objects.items():
        assert (await stage.data.put(f"{database}/notes/{id_}", json=note)).is_success
    return database


async def edit(page: Page, **fields: Any) -> None:
    """Replace the notes' fields in the editor, and dry-run that."""
    schema = {"classes": {"notes": {"fields": fields}}}
    await page.get_by_label("Schema (JSON").fill(orjson.dumps(schema).decode())
    await page.get_by_role("button", name="Dry run").click()


async def version(stage: Stage, database: str) -> int:
    return int((await stage.admin.get(f"schemas/{database}")).json()["version"])


async def test_a_change_is_tried_and_then_applied(page: Page, stage: Stage) -> None:
    database = await create_draft(stage)
    await page.goto(f"/schema?database={database}")
    text = page.get_by_label("Schema (JSON")
    assert orjson.loads(await text.input_value()) == NOTES
    await expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    await edit(page, title={"type": "string", "index": True}, body={"type": "string"})
    dry_run = page.locator("#tried")
    await expect(dry_run).to_contain_text('notes.body added type: "string"')
    await expect(dry_run).to_contain_text("notes.rank removed")
    await expect(dry_run).to_contain_text("notes.title changed index: false → true")
    await expect(dry_run.get_by_role("row", name="notes.body")).to_contain_text("new")
    assert await version(stage, database) == 1
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("row", name="2 20")).to_contain_text(re.compile(r"\+1 .1 ~1"))
    assert await version(stage, database) == 2


async def test_an_edit_after_the_dry_run_needs_another_one(page: Page, stage: Stage) -> None:
    database = await create_draft(stage)
    await page.goto(f"/schema?database={database}")
    await edit(page, title={"type": "string"})
    await page.get_by_label("Schema (JSON").fill('{"classes": {}}')
    await page.get_by_role("button", name="Apply").click()
    await expect(page.locator("#tried")).to_contain_text("notes removed")
    assert await version(stage, database) == 1


async def test_a_concurrent_change_is_not_overwritten(page: Page, stage: Stage) -> None:
    database = await create_draft(stage)
    await page.goto(f"/schema?database={database}")
    await edit(page, title={"type": "string"})
    await stage.admin.patch(
        f"schemas/{database}", json={"classes": {"notes": {"fields": {"x": {"type": "string"}}}}}
    )
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("alert")).to_contain_text("Somebody else has changed it")
    fields = (await stage.admin.get(f"schemas/{database}")).json()["schema"]["classes"]["notes"]
    assert set(fields["fields"]) == {"title", "rank", "x"}


async def test_mistakes_lead_to_their_lines(page: Page, stage: Stage) -> None:
    await page.goto(f"/schema?database={await create_draft(stage)}")
    text = page.get_by_label("Schema (JSON")
    await text.fill('{"classes": {\n  "notes": {"fields": {\n    "a": {"type": "strin"}}}}}')
    await page.get_by_role("button", name="Dry run").click()
    link = page.get_by_role("alert").get_by_role("link", name="line 3")
    await link.click()
    await expect(text).to_be_focused()
    assert await text.evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)") == (
        '    "a": {"type": "strin"}}}}}'
    )
    await expect(page.locator(".editor li.bad")).to_have_count(1)
    await text.fill('{"classes":\n  {,}}')
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.get_by_role("alert").get_by_role("link", name="line 2")).to_be_visible()
    await expect(page.locator(".editor li.bad")).to_have_count(1)


async def test_violations_forbid_to_apply_and_options_allow_it(page: Page, stage: Stage) -> None:
    database = await create_draft(stage, a={"rank": -3}, b={"rank": 4})
    await page.goto(f"/schema?database={database}")
    await edit(page, title={"type": "string"}, rank={"type": "integer", "minimum": 0})
    row = page.get_by_role("region", name="Violations").get_by_role("row", name="rank")
    await expect(row).to_contain_text(re.compile(r"minimum\s*1\s*2\s*a"))
    await expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    await page.locator("summary", has_text="Effects on existing objects").click()
    await page.get_by_label("do not check objects").check()
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("row", name="2 20")).to_be_visible()
    assert await version(stage, database) == 2


async def test_data_that_would_move_is_listed_and_a_class_can_be_dropped(
    page: Page, stage: Stage
) -> None:
    database = await create_draft(stage, a={"rank": 1})
    await page.goto(f"/schema?database={database}")
    await edit(page, title={"type": "string"}, rank={"type": "string"})
    await expect(page.locator("#tried")).to_contain_text("Data that would move")
    await expect(page.locator("#tried li", has_text="notes.rank").last).to_contain_text(": ")
    await expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    other = {"classes": {"other": {"fields": {"title": {"type": "string"}}}}}
    await page.get_by_label("Schema (JSON").fill(orjson.dumps(other).decode())
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.locator("#tried")).to_contain_text("existing objects”: notes.")
    await page.locator("summary", has_text="Effects on existing objects").click()
    await page.get_by_label("Drop these").fill("notes, nothing")
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.get_by_role("alert")).to_contain_text("nothing")
    await page.get_by_label("Drop these").fill("notes")
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("row", name="2 20")).to_be_visible()
    assert (await stage.data.get(f"{database}/notes/a")).status_code == 404


async def test_a_field_is_renamed_and_keeps_its_values(page: Page, stage: Stage) -> None:
    database = await create_draft(stage, a={"title": "x", "rank": 1})
    await page.goto(f"/schema?database={database}")
    await page.locator("summary", has_text="Effects on existing objects").click()
    await page.get_by_label("Rename these fields").fill("notes.title")
    await edit(page, heading={"type": "string"}, rank={"type": "integer"})
    await expect(page.get_by_role("alert")).to_contain_text("is written as class.old:new")
    await page.get_by_label("Rename these fields").fill("notes.title:heading")
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.locator("#tried")).to_contain_text("notes.heading added")
    await page.get_by_label("Rename these fields").fill("notes.rank:heading")
    await page.get_by_role("button", name="Apply").click()  # another draft: a dry run comes first
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.get_by_label("Rename these fields").fill("notes.title:heading")
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("row", name="2 20")).to_be_visible()
    note = (await stage.data.get(f"{database}/notes/a")).json()
    assert note == {"id": "a", "heading": "x", "rank": 1}


async def test_the_source_of_a_copy_is_dropped_if_no_value_is_lost(
    page: Page, stage: Stage
) -> None:
    database = await create_draft(stage, a={"title": "x"}, b={"title": "y"})
    fields = {"heading": {"type": "string"}}
    patch = {"classes": {"notes": {"fields": fields}}}
    assert (await stage.admin.patch(f"schemas/{database}", json=patch)).is_success
    await stage.data.patch(f"{database}/notes/a", json={"heading": "x"})
    await page.goto(f"/schema?database={database}")
    await page.locator("summary", has_text="Effects on existing objects").click()
    await page.get_by_label("Drop the source of these copies").fill("notes.title:heading")
    await edit(page, **fields, rank={"type": "integer"})
    row = page.get_by_role("region", name="Violations").get_by_role("row", name="title")
    await expect(row).to_contain_text("b")
    await stage.data.patch(f"{database}/notes/b", json={"heading": "y"})
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("row", name="3 20")).to_be_visible()
    notes = [(await stage.data.get(f"{database}/notes/{id_}")).json() for id_ in "ab"]
    assert notes == [{"id": "a", "heading": "x"}, {"id": "b", "heading": "y"}]


async def test_invalid_versions_are_refused(stage: Stage) -> None:
    base = stage.admin.base_url.join("/schema")
    for query in ("from=0&to=1", f"from={10**30}&to=1", "revision=-1", "index=x", "index=a.b"):
        address = f"{base}?database={stage.database}&{query}"
        assert (await stage.admin.get(address)).status_code in (400, 404), query


async def test_former_versions_are_compared_and_edited(page: Page, stage: Stage) -> None:
    database = await create_draft(stage)
    patch = {"classes": {"notes": {"fields": {"rank": {"index": True}}}}}
    assert (await stage.admin.patch(f"schemas/{database}", json=patch)).is_success
    await page.goto(f"/schema?database={database}")
    await page.get_by_role("button", name="Compare").click()
    differences = page.locator("#revisions .differences")
    await expect(differences).to_contain_text("notes.rank changed index: false → true")
    await page.get_by_role("link", name="edit version 1").click()
    assert orjson.loads(await page.get_by_label("Schema (JSON").input_value()) == NOTES


async def test_a_new_database_begins_with_an_example(page: Page, stage: Stage) -> None:
    database = unique("shop")
    await page.goto("/schema?new=true")
    await page.get_by_label("Name of the database").fill(database)
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("heading", name=f"The schema of {database}")).to_be_visible()
    assert await version(stage, database) == 1


async def test_an_address_can_fill_in_an_index(page: Page, stage: Stage) -> None:
    database = await create_draft(stage)
    await page.goto(f"/schema?database={database}&index=notes.rank")
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.locator("#tried")).to_contain_text("notes.rank changed index: false → true")


async def test_an_address_can_fill_in_an_index_of_a_path(page: Page, stage: Stage) -> None:
    database = unique("draft")
    notes = {"fields": {"place": {"type": "document"}}}
    put = await stage.admin.put(f"schemas/{database}", json={"classes": {"notes": notes}})
    assert put.is_success
    await page.goto(f"/schema?database={database}&index=notes.place.a,%22b")
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.locator("#tried")).to_contain_text(
        'notes.place added indexed_paths: ["a,\\"b"]'
    )


async def test_a_long_schema_fits_the_form(page: Page, stage: Stage) -> None:
    await page.goto(f"/schema?database={await create_draft(stage)}")
    await edit(page, **{f"field_{n}": {"type": "string"} for n in range(400)})
    await expect(page.locator("#tried")).to_contain_text("The first 200 of 402 differences.")
