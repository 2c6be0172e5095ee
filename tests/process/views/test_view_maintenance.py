"""Maintenance and description of views: audits, rebuilding, states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from mediator.base.errors import Conflict, SchemaInvalid, Unavailable
from mediator.base.lease import Lease, LeaseLost
from mediator.coordination.connecting import Coordination
from mediator.materialisation.copier import Copier
from mediator.materialisation.state import CopyState, CopyStep, ViewPartition
from mediator.model.operations import Get
from mediator.routing.freshness import ReadPreference
from mediator.routing.model import ClassRoute
from mediator.stores.port import Mirror, Record, SystemConfig
from tests.faults.conditions import eventually
from tests.process.service import Service, field_on, unique
from tests.process.views.views import (
    BOUND_S,
    WRONG,
    ViewClient,
    corrupt,
    fields,
    has_ended,
    is_right,
    may_run,
    run_elsewhere,
    uncoordinated,
)


async def test_a_system_that_cannot_hold_copies_is_no_view(mirrored: Service) -> None:
    with pytest.raises(SchemaInvalid) as error:
        await mirrored.put_schema(
            {"articles": {"fields": fields()}},
            mode="microbatched",
            materialised_view={"system": "redis"},
        )
    assert [location.pointer for location in error.value.locations] == ["/materialised_view/system"]


async def test_verification_finds_and_repairs_wrong_copies(audited: ViewClient) -> None:
    await corrupt(audited)

    async def all_are_found() -> bool:
        findings = await audited.report("verify")
        return findings == {**findings, "wrong": WRONG, "repaired": 0}

    await eventually(all_are_found)
    findings = await audited.report("verify", repair=True)
    assert findings["wrong"] == WRONG
    assert findings["repaired"] == len(WRONG)
    await is_right(audited)
    assert (await audited.report("verify"))["wrong"] == {}


async def test_a_rebuild_repairs_every_copy(audited: ViewClient) -> None:
    await corrupt(audited)
    findings = await audited.report("rebuild")
    assert findings["wrong"] == {}
    await is_right(audited)


@pytest.mark.parametrize("deletes", [False, True], ids=["written", "deleted"])
async def test_a_repair_spares_a_copy_that_changes_meanwhile(
    audited: ViewClient, id_: str, monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    """The original was read before, at an older version than its copy's."""
    await audited.send("PUT", id_, {"title": "old", "hits": 1, "text": "t"})
    await audited.wait_until_caught_up()
    copy = await audited.read_copy(id_)
    assert copy is not None
    assert audited.route.copy is not None
    ahead = {group: version + 1 for group, version in copy.versions.items()}
    await audited.overwrite(replace(copy, versions=ahead))
    store: Any = audited.service.mediator.systems.get(audited.route.copy.system).store
    replace_copies = store.replace_copies

    async def replace_later(*arguments: Any) -> int:
        new = {"title": "new", "hits": 2, "text": "t"}
        await audited.send(*(("DELETE", id_) if deletes else ("PUT", id_, new)))
        await audited.wait_until_caught_up()
        return int(await replace_copies(*arguments))

    with monkeypatch.context() as patched:
        patched.setattr(store, "replace_copies", replace_later)
        findings = await audited.report("verify", repair=True)
    assert (findings["wrong"], findings["repaired"]) == ({"ahead": 1}, 0)
    current = await audited.read_copy(id_)
    assert (current and current.values["title"]) == (None if deletes else "new")


async def test_a_rebuild_repairs_the_copies_at_which_it_was_interrupted(
    audited: ViewClient, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is down for a moment, during the search for left-over copies."""
    stray = Record(id_, 1, {"main": 1, "hits": 1, "text": 1}, {"title": "stray"})
    await audited.mirror(lambda mirror, fragment: mirror.absorb(fragment, [stray]))
    read_copies, interruptions = Copier.read_copies, list[str]()

    async def read_after(copier: Copier, route: ClassRoute, ids: Sequence[str]) -> Any:
        if id_ in ids and not interruptions:
            interruptions.append(id_)
            raise Unavailable("The view is away.", system="postgres")
        return await read_copies(copier, route, ids)

    monkeypatch.setattr(Copier, "read_copies", read_after)
    findings = await audited.report("rebuild")
    assert interruptions
    assert findings["wrong"] == {}
    assert await audited.read_copy(id_) is None


async def test_one_run_goes_on_at_a_time(view: ViewClient) -> None:
    views = view.service.mediator.views
    await views.start_run(view.database, "rebuild")
    with pytest.raises(Conflict):
        await views.start_run(view.database, "verify")

    async def is_over() -> bool:
        return bool((await views.describe(view.database))["run"]["state"] == "done")

    await eventually(is_over)


async def test_a_view_is_described(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.wait_until_caught_up()

    async def is_described() -> bool:
        reports = await view.service.mediator.views.describe(view.database)
        partitions = reports["classes"]["articles"]["partitions"]
        # Each partition is reported separately, now and then.
        return any(partition["written"] for partition in partitions) and all(
            partition["refreshes"] for partition in reports["partitions"]
        )

    await eventually(is_described)
    [reports] = [
        report
        for report in await view.service.mediator.views.overview()
        if report["database"] == view.database
    ]
    articles = reports["classes"]["articles"]
    assert articles["system"] == "postgres"
    assert {partition["state"] for partition in articles["partitions"]} == {"complete"}
    assert 0 <= articles["age_s"] < BOUND_S
    assert all(
        partition["refreshes"] > 0 and partition["error"] == ""
        for partition in reports["partitions"]
    )


async def test_the_view_is_a_system_that_can_hold_copies(mirrored: Service) -> None:
    only_redis = {"articles": {"fields": {"hits": field_on("redis", "integer")}}}
    database = await mirrored.put_schema(only_redis, mode="microbatched")
    copy = mirrored.mediator.data.model.databases[database].classes["articles"].copy
    assert copy is not None
    assert isinstance(mirrored.mediator.systems.get(copy.system).store, Mirror)


async def test_a_microbatched_database_needs_a_view(
    redis_config: SystemConfig, postgresql_config: SystemConfig
) -> None:
    async with uncoordinated(redis_config, postgresql_config) as instance:
        with pytest.raises(SchemaInvalid) as error:
            await instance.put_schema({"articles": {"fields": {}}}, mode="microbatched")
    assert [location.pointer for location in error.value.locations] == ["/materialised_view"]


async def test_without_coordination_no_view_is_maintained(postgresql_config: SystemConfig) -> None:
    classes = {"articles": {"fields": {"title": {"type": "string"}}}}
    async with uncoordinated(postgresql_config, postgresql_config) as instance:
        control, data = instance.mediator.control, instance.mediator.data
        document = {"mode": "microbatched", "classes": classes}
        change = await control.set_schema("alone", document)
        assert any("coordination" in note for note in change.notes)
        await instance.create("alone", "articles", "a", title="t")
        outcome = await data.read(Get("alone", "articles", "a"), ReadPreference("bounded"))
        assert outcome.freshness is None
        with pytest.raises(Conflict):
            await instance.mediator.views.describe("alone")


async def test_a_view_state_is_advanced_only_by_the_holder_from_its_cursor(
    redis_config: SystemConfig,
) -> None:
    coordination = Coordination(redis_config.url)
    state, database = coordination.view_state, unique("db")
    lease, other = Lease(f"materialise:{database}:0", "me"), Lease(f"x:{database}", "you")
    complete, later = CopyState(5), CopyState(7, "", ("a",), more_stuck=True)
    try:
        assert await coordination.leases.acquire(lease.name, lease.token, 60)
        await state.advance(database, 0, (None, "l/1"), [CopyStep("c", None, complete)], lease)
        assert await state.load(database, 0) == ViewPartition("l/1", {"c": complete})
        assert await state.load(database, 1) == ViewPartition()
        for cursor, holder in ((("l/0", "l/2"), lease), (("l/1", "l/2"), other)):
            with pytest.raises(LeaseLost):
                await state.advance(database, 0, cursor, [CopyStep("c", complete, later)], holder)
        await state.advance(database, 0, ("l/1", "l/2"), [CopyStep("c", None, later)], lease)
        assert await state.load(database, 0) == ViewPartition("l/2", {"c": complete})
        await state.advance(database, 0, ("l/2", "l/2"), [CopyStep("c", complete, later)], lease)
        assert await state.load(database, 0) == ViewPartition("l/2", {"c": later})
        watermarks = await state.watermarks(database)
        assert watermarks.until_tick == {(database, "c"): [7, None, None, None]}
        await state.retract(database, ["c"])
        await state.advance(database, 0, ("l/2", "l/3"), [CopyStep("c", later, complete)], lease)
        assert await state.load(database, 0) == ViewPartition("l/3", {})
    finally:
        await state.retract(database)
        await coordination.leases.release(lease.name, lease.token)
        await coordination.close()


async def test_operators_see_and_maintain_views(view: ViewClient) -> None:
    mediator = view.service.mediator
    app = create_admin_app(
        mediator.control, CollectorRegistry(), AdminContext(views=mediator.views)
    )
    path = f"/admin/v1/views/{view.database}"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as admin:
        answer = await admin.get("/admin/v1/views")
        assert view.database in {item["database"] for item in answer.json()["items"]}
        async with run_elsewhere(mediator, view.database_id):
            assert (await admin.post(f"{path}/verify")).status_code == 409
        for work in ("verify?repair=true", "rebuild"):
            await eventually(partial(may_run, mediator, view.database_id))
            accepted = await admin.post(f"{path}/{work}")
            assert accepted.status_code == 202
            assert accepted.json()["run"]["state"] in ("running", "done")
            await eventually(partial(has_ended, admin, path))
            run = (await admin.get(path)).json()["run"]
            assert (run["state"], run["wrong"]) == ("done", 0)
        assert (await admin.get("/admin/v1/views/nothing")).status_code == 404
        assert (await admin.post("/admin/v1/views/nothing/verify")).status_code == 404
