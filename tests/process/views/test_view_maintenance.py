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
    alone,
    corrupt,
    fields,
    has_ended,
    is_right,
    may_run,
    run_elsewhere,
)


async def test_a_system_that_cannot_hold_copies_is_no_view(mirrored: Service) -> None:
    with pytest.raises(SchemaInvalid) as refused:
        await mirrored.put_schema(
            {"articles": {"fields": fields()}},
            mode="microbatched",
            materialised_view={"system": "redis"},
        )
    assert [location.pointer for location in refused.value.locations] == [
        "/materialised_view/system"
    ]


async def test_verifying_finds_what_is_wrong_and_repairs_it(audited: ViewClient) -> None:
    await corrupt(audited)

    async def all_is_found() -> bool:
        found = await audited.report("verify")
        return found == {**found, "wrong": WRONG, "repaired": 0}

    await eventually(all_is_found)
    found = await audited.report("verify", repair=True)
    assert found["wrong"] == WRONG
    assert found["repaired"] == len(WRONG)
    await is_right(audited)
    assert (await audited.report("verify"))["wrong"] == {}


async def test_rebuilding_makes_everything_good(audited: ViewClient) -> None:
    await corrupt(audited)
    found = await audited.report("rebuild")
    assert found["wrong"] == {}
    await is_right(audited)


@pytest.mark.parametrize("deletes", [False, True], ids=["written", "deleted"])
async def test_a_repair_spares_a_copy_that_changes_meanwhile(
    audited: ViewClient, id_: str, monkeypatch: pytest.MonkeyPatch, deletes: bool
) -> None:
    """The original was read before, at a version that is older than what was found of its copy."""
    await audited.send("PUT", id_, {"title": "old", "hits": 1, "text": "t"})
    await audited.caught_up()
    copy = await audited.held(id_)
    assert copy is not None
    assert audited.route.copy is not None
    ahead = {group: version + 1 for group, version in copy.versions.items()}
    await audited.overwrite(replace(copy, versions=ahead))
    store: Any = audited.service.mediator.systems.get(audited.route.copy.system).store
    replace_copies = store.replace_copies

    async def replace_later(*arguments: Any) -> int:
        new = {"title": "new", "hits": 2, "text": "t"}
        await audited.send(*(("DELETE", id_) if deletes else ("PUT", id_, new)))
        await audited.caught_up()
        return int(await replace_copies(*arguments))

    with monkeypatch.context() as patched:
        patched.setattr(store, "replace_copies", replace_later)
        found = await audited.report("verify", repair=True)
    assert (found["wrong"], found["repaired"]) == ({"ahead": 1}, 0)
    held = await audited.held(id_)
    assert (held and held.values["title"]) == (None if deletes else "new")


async def test_a_rebuild_repairs_what_it_was_interrupted_at(
    audited: ViewClient, id_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view is away for a moment, while the copies that are left over are looked for."""
    stray = Record(id_, 1, {"main": 1, "hits": 1, "text": 1}, {"title": "stray"})
    await audited.mirror(lambda mirror, where: mirror.absorb(where, [stray]))
    read_copies, interrupted = Copier.read_copies, list[str]()

    async def read_after(copier: Copier, route: ClassRoute, ids: Sequence[str]) -> Any:
        if id_ in ids and not interrupted:
            interrupted.append(id_)
            raise Unavailable("The view is away.", system="postgres")
        return await read_copies(copier, route, ids)

    monkeypatch.setattr(Copier, "read_copies", read_after)
    found = await audited.report("rebuild")
    assert interrupted
    assert found["wrong"] == {}
    assert await audited.held(id_) is None


async def test_one_run_goes_on_at_a_time(view: ViewClient) -> None:
    views = view.service.mediator.views
    await views.start_run(view.database, "rebuild")
    with pytest.raises(Conflict):
        await views.start_run(view.database, "verify")

    async def over() -> bool:
        return bool((await views.describe(view.database))["run"]["state"] == "done")

    await eventually(over)


async def test_a_view_is_described(view: ViewClient, id_: str) -> None:
    await view.send("PUT", id_, {"title": "Goal"})
    await view.caught_up()

    async def is_described() -> bool:
        reports = await view.service.mediator.views.describe(view.database)
        partitions = reports["classes"]["articles"]["partitions"]
        # Each of them is reported by itself, now and then.
        return any(partition["written"] for partition in partitions) and all(
            partition["refreshes"] for partition in reports["partitions"]
        )

    await eventually(is_described)
    [reports] = [
        each
        for each in await view.service.mediator.views.overview()
        if each["database"] == view.database
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
    async with alone(redis_config, postgresql_config) as started:
        with pytest.raises(SchemaInvalid) as refused:
            await started.put_schema({"articles": {"fields": {}}}, mode="microbatched")
    assert [location.pointer for location in refused.value.locations] == ["/materialised_view"]


async def test_without_coordination_no_view_is_kept_up(postgresql_config: SystemConfig) -> None:
    classes = {"articles": {"fields": {"title": {"type": "string"}}}}
    async with alone(postgresql_config, postgresql_config) as started:
        control, data = started.mediator.control, started.mediator.data
        document = {"mode": "microbatched", "classes": classes}
        change = await control.set_schema("alone", document)
        assert any("coordination" in note for note in change.notes)
        await started.create("alone", "articles", "a", title="t")
        read = await data.read(Get("alone", "articles", "a"), ReadPreference("bounded"))
        assert read.freshness is None
        with pytest.raises(Conflict):
            await started.mediator.views.describe("alone")


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


async def test_operators_see_views_and_look_after_them(view: ViewClient) -> None:
    mediator = view.service.mediator
    app = create_admin_app(
        mediator.control, CollectorRegistry(), AdminContext(views=mediator.views)
    )
    where = f"/admin/v1/views/{view.database}"
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as admin:
        listed = await admin.get("/admin/v1/views")
        assert view.database in {each["database"] for each in listed.json()["items"]}
        async with run_elsewhere(mediator, view.database_id):
            assert (await admin.post(f"{where}/verify")).status_code == 409
        for work in ("verify?repair=true", "rebuild"):
            await eventually(partial(may_run, mediator, view.database_id))
            accepted = await admin.post(f"{where}/{work}")
            assert accepted.status_code == 202
            assert accepted.json()["run"]["state"] in ("running", "done")
            await eventually(partial(has_ended, admin, where))
            run = (await admin.get(where)).json()["run"]
            assert (run["state"], run["wrong"]) == ("done", 0)
        assert (await admin.get("/admin/v1/views/nothing")).status_code == 404
        assert (await admin.post("/admin/v1/views/nothing/verify")).status_code == 404
