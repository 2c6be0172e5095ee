"""The pages of systems, keys, costly queries and the feed, in Chromium."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from playwright.async_api import Page, expect

from tests.faults.conditions import eventually
from tests.pages.stage import HOSTILE, Stage
from tests.process.service import unique

TOMORROW = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M")


async def test_a_system_shows_its_placements_and_capabilities(page: Page, stage: Stage) -> None:
    system = page.locator("#system")
    placement = system.get_by_role("listitem").filter(has_text=f"{stage.database}.articles")

    async def is_counted() -> bool:
        await page.goto("/systems?system=redis")
        return "about 32 objects" in await placement.inner_text()

    await eventually(is_counted)  # a page does not wait for long for an estimate
    metrics = page.get_by_role("region", name="Metrics")
    await expect(metrics.get_by_role("row", name="write throughput")).to_contain_text(
        re.compile(r"40,000/s\s*statement")
    )
    await page.get_by_text("How each was found").click()
    row = page.get_by_role("region", name="Capabilities").get_by_role("row", name="atomic updates")
    await expect(row).to_contain_text(re.compile(r"yes\s*probed"))


async def test_a_metric_is_stated_and_taken_back(page: Page, stage: Stage) -> None:
    await page.goto("/systems?system=mongo")
    await page.get_by_role("combobox", name="Metric").select_option("read_throughput")
    await page.get_by_label("Value, in").fill("1234")
    await page.get_by_role("button", name="State it").click()
    row = page.get_by_role("region", name="Metrics").get_by_role("row", name="read throughput")
    await expect(row).to_contain_text(re.compile(r"1,234/s\s*statement"))
    await page.get_by_role("combobox", name="Metric").select_option("read_throughput")
    await page.get_by_role("button", name="State it").click()
    await expect(row).not_to_contain_text("statement")
    stated_metrics = (await stage.admin.get("systems/mongo")).json()["stated_metrics"]
    assert "read_throughput" not in stated_metrics


async def test_a_system_is_calibrated_again(page: Page, stage: Stage) -> None:
    before = (await stage.admin.get("systems/mongo")).json()["findings"]["calibrated"]
    await page.goto("/systems?system=mongo")
    await page.get_by_role("button", name="Probe and calibrate again").click()
    await page.wait_for_url(re.compile("system=mongo"))
    after = (await stage.admin.get("systems/mongo")).json()["findings"]["calibrated"]
    assert after != before


async def test_a_system_in_use_is_not_removed(stage: Stage) -> None:
    address = stage.admin.base_url.join("/systems/redis/remove")
    answer = await stage.admin.post(address)
    assert answer.status_code == 409
    assert f"{stage.database}.articles" in answer.text


async def test_a_system_is_refused_without_showing_its_url(stage: Stage) -> None:
    base = stage.admin.base_url.join("/systems")
    form = {"name": "other", "kind": "nothing", "url": "redis://:planted-secret@127.0.0.1:1"}
    for kind in ("nothing", "redis"):
        answer = await stage.admin.post(base, data={**form, "kind": kind})
        assert answer.status_code in (400, 503)
        assert "planted-secret" not in answer.text


async def test_a_system_is_drained_and_suspended(page: Page, stage: Stage) -> None:
    await page.goto("/systems?system=mongo")
    system = page.locator("#system")
    await system.get_by_role("button", name="Drain mongo").click()
    await expect(system).to_contain_text("Draining: nothing else is placed here")
    moves = page.get_by_role("region", name="Moves off the system")
    await expect(moves.get_by_role("row").nth(1)).to_contain_text(stage.database)
    danger = system.get_by_role("button", name="Suspend mongo")
    await expect(danger).to_be_hidden()
    await system.get_by_text("Suspend this system").click()
    await danger.click()
    await expect(system).to_contain_text("Suspended: it is not called")
    row = page.get_by_role("region", name="Systems").get_by_role("row", name="mongo")
    await expect(row).to_contain_text("suspended")
    await system.get_by_role("button", name="Resume mongo").click()
    await expect(system.get_by_role("button", name="Drain mongo")).to_be_visible()
    assert (await stage.admin.get("systems/mongo")).json()["use"] == "full"


async def test_a_database_is_dropped_once_its_name_is_typed(page: Page, stage: Stage) -> None:
    database = unique("mistake")
    schema = {"classes": {"notes": {"fields": {"title": {"type": "string"}}}}}
    await stage.admin.put(f"schemas/{database}", json=schema)
    await page.set_viewport_size({"width": 390, "height": 800})
    await page.goto(f"/schema?database={database}")
    await page.get_by_role("link", name=f"Drop {database}").click()
    await expect(page.get_by_role("region", name="Classes")).to_contain_text("notes")
    width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert await page.evaluate(width) == 0
    button = page.get_by_role("button", name=f"Drop {database}")
    await page.get_by_label("Type the name").fill("other")
    await button.click()
    await expect(page.get_by_role("alert")).to_contain_text("nothing was dropped")
    assert (await stage.admin.get(f"schemas/{database}")).status_code == 200
    await page.get_by_label("Type the name").fill(database)
    await button.click()
    await page.wait_for_url("**/schema")
    assert (await stage.admin.get(f"schemas/{database}")).status_code == 404


async def test_a_placement_is_overridden_for_a_while(page: Page, stage: Stage) -> None:
    schema = {"classes": {"notes": {"fields": {"title": {"type": "string"}}}}}
    database = unique("placed")
    placements = (await stage.admin.put(f"schemas/{database}", json=schema)).json()["placements"]
    other = "redis" if placements["notes"]["system"] != "redis" else "mongo"
    await page.goto(f"/map?database={database}&node=notes")
    await page.get_by_text("Choose a system for a while").click()
    await page.get_by_role("combobox", name="System").select_option(other)
    await page.get_by_label("Reason").fill(HOSTILE)
    await page.get_by_label("Until").fill(TOMORROW)
    await page.get_by_role("button", name="Dry run").click()
    row = page.get_by_role("region", name="Placements").get_by_role("row", name="notes").first
    await expect(row).to_contain_text(other)
    assert (await stage.admin.get(f"overrides/{database}")).json()["items"] == []
    await page.get_by_role("button", name="Override it").click()
    await expect(page.locator("#why")).to_contain_text(
        f"overridden until {TOMORROW.replace('T', ' ')}:00"
    )
    await expect(page.locator("#why h2 .system")).to_have_text(other)
    await page.get_by_role("button", name="End the override").click()
    await page.get_by_role("button", name="End it").click()
    await expect(page.locator("#why h2 .system")).to_have_text(placements["notes"]["system"])
    assert (await stage.admin.get(f"overrides/{database}")).json()["items"] == []


async def test_an_override_that_would_move_data_is_refused(page: Page, stage: Stage) -> None:
    await page.goto(f"/map?database={stage.database}&node=articles.hits")
    await page.get_by_text("Choose a system for a while").click()
    await page.get_by_role("combobox", name="System").select_option("postgres")
    await page.get_by_label("Reason").fill("maintenance")
    await page.get_by_label("Until").fill(TOMORROW)
    await page.get_by_role("button", name="Dry run").click()
    await expect(page.get_by_text("Data that would move")).to_be_visible()
    await expect(page.get_by_role("button", name="Override it")).to_have_count(0)


async def test_a_key_is_shown_once_and_works_until_it_is_revoked(page: Page, stage: Stage) -> None:
    tenant = unique("acme")
    await page.goto("/keys")
    await page.get_by_label("Name", exact=True).fill(tenant)
    await page.get_by_role("button", name="Create the tenant").click()
    await page.get_by_label("Subject").fill(HOSTILE[:60])
    await page.get_by_label("Grants").fill("read:shop write:shop/orders")
    await page.get_by_label("Ends on").fill("2999-12-31")
    await page.get_by_role("button", name="Create", exact=True).click()
    secret = await page.locator("#secret").inner_text()
    await page.goto(f"/keys?tenant={tenant}")
    assert secret not in await page.content()
    row = page.get_by_role("region", name="Keys").get_by_role("row").nth(1)
    await expect(row).to_contain_text(HOSTILE[:60])
    await expect(row).to_contain_text("2999-12-31")
    (key,) = (await stage.admin.get(f"tenants/{tenant}/keys")).json()["items"]
    assert key["grants"] == ["read:shop", "write:shop/orders"]
    await row.get_by_text("Revoke", exact=True).click()
    await row.get_by_role("button", name="Revoke for good").click()
    await expect(page.get_by_text("It has none.")).to_be_visible()
    assert (await stage.admin.get(f"tenants/{tenant}/keys")).json()["items"] == []


async def test_a_tenant_gets_limits_and_databases(page: Page, stage: Stage) -> None:
    tenant, database = unique("acme"), unique("owned")
    await stage.admin.put(f"tenants/{tenant}", json={})
    await page.goto(f"/keys?tenant={tenant}")
    await page.get_by_label("Requests in a second.").fill("50")
    await page.get_by_label("Objects that its databases").fill("1000")
    await page.get_by_role("button", name="Set limits").click()
    await page.get_by_role("textbox", name="Database", exact=True).fill(database)
    await page.get_by_role("button", name="Make it the owner").click()
    await expect(page.get_by_role("link", name=database)).to_be_visible()
    description = (await stage.admin.get(f"tenants/{tenant}")).json()
    assert description == {
        "name": tenant,
        "databases": [database],
        "limits": {"rate": 50.0, "objects": 1000},
    }
    await page.get_by_role("button", name="Remove ownership").click()
    await page.get_by_text("Remove this tenant").click()
    await page.get_by_role("button", name=f"Remove {tenant}").click()
    await expect(page.get_by_role("link", name=tenant)).to_have_count(0)


@pytest.mark.usefixtures("failures")
async def test_limits_that_somebody_else_has_set_are_not_overwritten(
    page: Page, stage: Stage
) -> None:
    tenant = unique("acme")
    await stage.admin.put(f"tenants/{tenant}", json={"limits": {"rate": 50}})
    await page.goto(f"/keys?tenant={tenant}")
    theirs = {"limits": {"rate": 50.0, "objects": 7}}
    await stage.admin.put(f"tenants/{tenant}", json=theirs)
    rate = page.get_by_label("Requests in a second.")
    for _ in range(2):
        await rate.fill("60")
        async with page.expect_response(re.compile("/limits$")) as answer:
            await page.get_by_role("button", name="Set limits").click()
        assert (await answer.value).status == 409
        await expect(page.get_by_role("alert")).to_contain_text('Now in force: {"rate":50.0')
        await expect(rate).to_have_value("60")
        assert (await stage.admin.get(f"tenants/{tenant}")).json()["limits"] == theirs["limits"]
    await page.get_by_role("link", name="begin with the limits in force").click()
    await expect(page.get_by_label("Objects that its databases")).to_have_value("7")
    await rate.fill("60")
    await page.get_by_role("button", name="Set limits").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    limits = (await stage.admin.get(f"tenants/{tenant}")).json()["limits"]
    assert limits == {"rate": 60.0, "objects": 7}
    await stage.admin.delete(f"tenants/{tenant}")


@pytest.mark.usefixtures("failures")
async def test_declarations_and_suspensions_of_somebody_else_are_not_overwritten(
    page: Page, stage: Stage
) -> None:
    before = (await stage.admin.get("systems/mongo")).json()["declared"]
    await page.goto("/systems?system=mongo")
    await stage.admin.patch("systems/mongo", json={"declared": ["elasticity"], "use": "draining"})
    declared = page.get_by_label("Declared: what no probe")
    await declared.fill("joins")
    await page.get_by_role("button", name="Declare").click()
    await expect(page.get_by_role("alert")).to_contain_text("Now declared: elasticity")
    await expect(declared).to_have_value("joins")
    await page.goto("/systems?system=mongo")
    await stage.admin.patch("systems/mongo", json={"use": "suspended"})
    await page.get_by_role("button", name="End the drain").click()
    await expect(page.get_by_role("alert")).to_contain_text("Its use is now: suspended")
    system = (await stage.admin.get("systems/mongo")).json()
    assert (system["declared"], system["use"]) == (["elasticity"], "suspended")
    await page.get_by_role("link", name="begin with the system as it is").click()
    await page.get_by_role("button", name="Resume mongo").click()
    await declared.fill(" ".join(before))
    await page.get_by_role("button", name="Declare").click()
    await expect(page.get_by_role("alert")).to_have_count(0)
    system = (await stage.admin.get("systems/mongo")).json()
    assert (system["declared"], system["use"]) == (before, "full")


async def test_wrong_forms_are_refused_with_their_locations(stage: Stage) -> None:
    pages = httpx.AsyncClient(base_url=stage.admin.base_url.join("/"), timeout=60)
    await stage.admin.put("tenants/acme", json={})
    async with pages:
        for path, form, pointer in (
            ("keys", {"tenant": "Acme!"}, "tenant"),
            ("keys/acme/keys", {"subject": "x", "grants": "everything"}, "/grants/0"),
            ("keys/acme/keys", {"subject": "x", "grants": "read", "expires": "soon"}, "expires"),
            ("keys/acme/limits", {"rate": "-1"}, "rate"),
            ("keys/acme/limits", {"speed": "1"}, "speed"),
            ("keys/acme/limits", {"rate": "1"}, "seen"),
            ("keys/acme/limits", {"rate": "1", "seen": "[" * 1_000}, "seen"),
            ("keys/acme/limits", {"rate": "1", "seen": "7"}, "seen"),
            ("keys/acme/revoke", {"key": "../.."}, "key"),
            ("systems/redis/metrics", {"metric": "read_latency", "value": "nan"}, "value"),
            ("systems/redis/metrics", {"metric": "taste", "value": "1"}, "/metrics/taste"),
            ("systems/redis/declared", {"declared": "magic", "seen": ""}, "/declared/0"),
            ("systems/redis/declared", {"declared": "joins"}, "seen"),
            ("systems/redis/use", {"use": "draining"}, "seen"),
            ("systems/redis/use", {"use": "away", "seen": "full"}, "use"),
            ("map/override", {"database": "news", "node": "*"}, "node"),
            ("map/override", {"database": "news", "node": "a", "until": "x"}, "until"),
        ):
            answer = await pages.post(path, data=form)
            assert answer.status_code == 400, path
            assert pointer in answer.text, path
            assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert (await pages.post("keys", data={"tenant": "acme"})).status_code == 409


async def test_a_refused_query_is_listed_with_the_index_that_helps(
    page: Page, stage: Stage
) -> None:
    schema = {"classes": {"notes": {"system": "redis", "fields": {"rank": {"type": "integer"}}}}}
    database = unique("slow")
    await stage.admin.put(f"schemas/{database}", json=schema)
    answer = await stage.data.get(f"{database}/notes?rank.ge=12345")
    assert answer.status_code == 422
    items = (await stage.admin.get("costly-queries")).json()["items"]
    (query,) = [item for item in items if item["database"] == database]
    assert (query["refused"], query["refusal"]) == (1, "needs a scan")
    assert query["without_index"] == ["rank"]
    await page.goto("/queries")
    row = page.get_by_role("row", name=f"{database}.notes")
    await expect(row).to_contain_text('{"filter":{"ge":["rank","?"]}}')
    await expect(row).to_contain_text("needs a scan")
    await expect(row).not_to_contain_text("12345")
    await row.get_by_role("link", name="an index on rank").click()
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("row", name="2 20")).to_be_visible()
    assert (await stage.data.get(f"{database}/notes?rank.ge=12345")).status_code == 200


async def test_an_index_of_several_fields_is_filled_in(page: Page, stage: Stage) -> None:
    fields = {"kind": {"type": "string"}, "rank": {"type": "integer"}}
    database = unique("slow")
    schema = {"classes": {"notes": {"system": "redis", "fields": fields}}}
    await stage.admin.put(f"schemas/{database}", json=schema)
    latest = f"{database}/notes?kind=a&order=-rank"
    assert (await stage.data.get(latest)).status_code == 422
    await page.goto("/queries")
    row = page.get_by_role("row", name=f"{database}.notes")
    await row.get_by_role("link", name="an index on kind and rank").click()
    await page.get_by_role("button", name="Dry run").click()
    await page.get_by_role("button", name="Apply").click()
    await expect(page.get_by_role("row", name="2 20")).to_be_visible()
    assert (await stage.data.get(latest)).status_code == 200


async def test_the_feed_is_followed_paused_and_continued(page: Page, stage: Stage) -> None:
    await page.goto(f"/feed?database={stage.database}&class=people")
    changes = page.locator("#changes li")
    await expect(changes).to_have_count(0)
    address = f"{stage.database}/people/followed"
    await stage.data.put(address, json={"name": HOSTILE})
    await expect(changes).to_have_count(1)
    await expect(changes.first).to_contain_text("create")
    await expect(changes.first).to_contain_text("<script>document.title")
    await stage.data.put(f"{stage.database}/comments/other", json={"text": "of another class"})
    await page.get_by_role("button", name="Pause").click()
    await stage.data.put(address, json={"name": "While it was paused"})
    await page.get_by_role("button", name="Continue").click()
    await expect(changes.first).to_contain_text('→ "While it was paused"')
    await expect(changes).to_have_count(2)
    assert await page.title() == "Feed · Portolan"


async def test_the_last_hour_is_drawn_and_listed(page: Page, stage: Stage) -> None:
    await page.goto("/")
    chart = page.get_by_role("img", name="Requests and failures per second, last hour")
    await expect(chart.locator("canvas")).to_be_visible()
    await page.get_by_text("The last hour as a table").click()
    row = page.locator("#history tr[data-at]").first
    await expect(row).to_be_visible()  # a sample is taken every half minute
    await expect(row.locator("td").first).to_have_text(re.compile(r"\d+\.\d\d"))


async def test_the_overview_counts_objects_and_runs(page: Page, stage: Stage) -> None:
    await page.goto("/")
    database = page.locator(".cards > li", has_text=stage.database)
    await expect(database.locator("li", has_text="articles")).to_contain_text("about 32 objects")
