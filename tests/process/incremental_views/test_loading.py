"""Loading a view while its objects are written: every order of docs/incremental-views.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from mediator.changes.subscriptions import Subscriptions
from mediator.data_plane.port import pages
from mediator.views import holder
from tests.faults.conditions import eventually
from tests.process.incremental_views.shop import Shop, shop_in
from tests.process.service import field_on

CLASSES = {
    "things": {
        "fields": {
            "text": field_on("postgres"),
            "hits": field_on("redis", "integer", group="hits"),
        }
    }
}
Write = Callable[[Shop], Awaitable[None]]


async def update(shop: Shop) -> None:
    await shop.write("things", "a", text="new", hits=2)


async def delete(shop: Shop) -> None:
    await shop.delete("things", "a")


async def create_again(shop: Shop) -> None:
    await shop.delete("things", "a")
    await shop.write("things", "a", text="again", hits=3)


async def create(shop: Shop) -> None:
    await shop.write("things", "b", text="other", hits=4)


@pytest.mark.parametrize("write", [update, delete, create_again, create])
@pytest.mark.parametrize("moment", ["before the position", "before the read", "after the read"])
async def test_a_write_during_the_load_is_in_the_result_once(
    shop: Shop, write: Write, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await shop.service.put_schema(CLASSES)
    async with shop_in(shop.service, database) as own:
        await own.write("things", "a", text="old", hits=1)
        _interrupt(monkeypatch, own, moment, write)
        view = await own.ready({"class": "things"})
        result = await own.result(view)
        items = (await own.client.get("things")).json()["items"]
        # What is shown as soon as the view is ready has all that was acknowledged by then.
        assert _sorted([item["row"] for item in result["items"]]) == _sorted(items)
        assert {item["count"] for item in result["items"]} <= {1}
        # And no change of it comes after its position.
        page = await own.client.get("changes", params={"after": result["position"], "wait": 0})
        assert page.json()["changes"] == []
        await own.write("things", "a", text="last", hits=9)

        async def has_followed() -> bool:
            return {"id": "a", "text": "last", "hits": 9} in [
                row for row, _ in await own.rows(view)
            ]

        await eventually(has_followed)


async def test_a_view_that_is_building_is_not_answered(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await shop.service.put_schema(CLASSES)
    answers: list[httpx.Response] = []

    async def ask(own: Shop) -> None:
        [view] = (await own.client.get("incremental-views")).json()["items"]
        assert view["state"] == "building"
        path = f"incremental-views/{view['id']}"
        answers.append(await own.client.get(f"{path}/result"))
        answers.append(await own.client.get(f"{path}/deltas"))

    async with shop_in(shop.service, database) as own:
        _interrupt(monkeypatch, own, "before the read", ask)
        await own.ready({"class": "things"})
    assert [(each.status_code, each.headers["retry-after"]) for each in answers] == [(503, "1")] * 2


def _interrupt(monkeypatch: pytest.MonkeyPatch, own: Shop, moment: str, write: Write) -> None:
    """Write at a moment of the first load of the database."""
    left = [write]

    async def interrupt() -> None:
        if left:
            await left.pop()(own)
            await _relayed(own)

    async def interrupted(*arguments: Any) -> AsyncIterator[Any]:
        if arguments[1] == own.database and moment == "before the read":
            await interrupt()
        async for page in pages(*arguments):
            yield page
        if arguments[1] == own.database and moment == "after the read":
            await interrupt()

    now = Subscriptions.now

    async def before_position(self: Subscriptions, database: str) -> Any:
        id_ = own.service.mediator.data.model.databases[own.database].id
        if database == id_ and moment == "before the position":
            await interrupt()
        return await now(self, database)

    monkeypatch.setattr(holder, "pages", interrupted)
    monkeypatch.setattr(Subscriptions, "now", before_position)


async def _relayed(own: Shop) -> None:
    """Wait until the feed has what was written."""
    mediator = own.service.mediator
    assert mediator.coordination is not None
    feed, id_ = mediator.coordination.feed, mediator.data.model.databases[own.database].id
    tick = await feed.tick()

    async def is_there() -> bool:
        until = await feed.relayed_until(id_)
        return all(until.get(name, 0) >= tick for name in ("postgres", "redis"))

    await eventually(is_there)


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["id"]))
