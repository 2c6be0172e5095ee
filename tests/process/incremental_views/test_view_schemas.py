"""Views of a schema that their evaluating process has not seen yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from mediator.base.clock import SystemClock
from mediator.data_plane.port import DataPlane
from mediator.views.holder import HolderContext, ViewHolder
from tests.faults.conditions import eventually
from tests.process.incremental_views.shop import Shop, shop_in
from tests.process.late_plane import LatePlane, holding
from tests.process.service import field_on

OLD = {"things": {"fields": {"text": field_on("postgres")}}}
NEW = {
    "things": {"fields": {**OLD["things"]["fields"], "size": field_on("postgres", "integer")}},
    "parts": {"fields": {"text": field_on("postgres")}},
}


@asynccontextmanager
async def hold_views(shop: Shop, plane: LatePlane, database_id: str) -> AsyncIterator[None]:
    """Hold the views of a database by that plane before it has any."""
    mediator = shop.service.mediator
    shared, subscriptions = mediator.coordination, mediator.changes.subscriptions
    assert shared is not None
    assert subscriptions is not None
    context = HolderContext(
        cast(DataPlane, plane),
        shared.feed,
        subscriptions,
        shared.view_results,
        shared.leases,
        "late",
        SystemClock(),
    )
    run = ViewHolder(context, database_id).run()
    async with holding(shared.leases, f"views:{database_id}", run):
        yield


async def test_a_view_of_a_class_and_of_a_field_that_are_new_is_not_stopped(shop: Shop) -> None:
    service = shop.service
    database = await service.put_schema(OLD)
    plane = LatePlane(service.mediator.data)
    id_ = plane.model.databases[database].id
    async with shop_in(service, database) as new_shop, hold_views(new_shop, plane, id_):
        await new_shop.ready({"class": "things"})
        plane.answers = False
        await service.mediator.control.set_schema(database, {"classes": NEW})
        views = [await new_shop.create({"class": "parts"})]
        views.append(await new_shop.create({"class": "things", "fields": ["size"]}))
        await new_shop.write("things", "a", text="t", size=3)
        await new_shop.write("parts", "b", text="u")
        plane.answers = True
        for view in views:
            await eventually(lambda view=view: new_shop.has_state(view, "ready"))  # type: ignore[misc]
        await new_shop.wait_for_rows(views[0], ({"id": "b", "text": "u"}, 1))
        await new_shop.wait_for_rows(views[1], ({"size": 3}, 1))
