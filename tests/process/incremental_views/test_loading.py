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
    async with shop_in(shop.service, database) as new_shop:
        await new_shop.write("things", "a", text="old", hits=1)
        _interrupt(monkeypatch, new_shop, moment, write)
        view = await new_shop.ready({"class": "things"})
        result = await new_shop.result(view)
        items = (await new_shop.client.get("things")).json()["items"]
        # As soon as the view is ready, it shows every write acknowledged by then.
        assert _sorted([item["row"] for item in result["items"]]) == _sorted(items)
        assert {item["count"] for item in result["items"]} <= {1}
        # No change of it comes after its position.
        page = await new_shop.client.get("changes", params={"after": result["position"], "wait": 0})
        assert page.json()["changes"] == []
        await new_shop.write("things", "a", text="last", hits=9)

        async def has_followed() -> bool:
            return {"id": "a", "text": "last", "hits": 9} in [
                row for row, _ in await new_shop.rows(view)
            ]

        await eventually(has_followed)


async def test_reads_of_a_view_that_is_building_are_refused(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await shop.service.put_schema(CLASSES)
    answers: list[httpx.Response] = []

    async def read(new_shop: Shop) -> None:
        [view] = (await new_shop.client.get("incremental-views")).json()["items"]
        assert view["state"] == "building"
        path = f"incremental-views/{view['id']}"
        answers.append(await new_shop.client.get(f"{path}/result"))
        answers.append(await new_shop.client.get(f"{path}/deltas"))

    async with shop_in(shop.service, database) as new_shop:
        _interrupt(monkeypatch, new_shop, "before the read", read)
        await new_shop.ready({"class": "things"})
    assert [(answer.status_code, answer.headers["retry-after"]) for answer in answers] == [
        (503, "1")
    ] * 2


def _interrupt(monkeypatch: pytest.MonkeyPatch, new_shop: Shop, moment: str, write: Write) -> None:
    """Write at a moment of the first load of the database."""
    pending = [write]

    async def interrupt() -> None:
        if pending:
            await pending.pop()(new_shop)
            await _wait_until_relayed(new_shop)

    async def interrupted_pages(*arguments: Any) -> AsyncIterator[Any]:
        if arguments[1] == new_shop.database and moment == "before the read":
            await interrupt()
        async for page in pages(*arguments):
            yield page
        if arguments[1] == new_shop.database and moment == "after the read":
            await interrupt()

    now = Subscriptions.now

    async def before_position(self: Subscriptions, database: str) -> Any:
        id_ = new_shop.service.mediator.data.model.databases[new_shop.database].id
        if database == id_ and moment == "before the position":
            await interrupt()
        return await now(self, database)

    monkeypatch.setattr(holder, "pages", interrupted_pages)
    monkeypatch.setattr(Subscriptions, "now", before_position)


async def _wait_until_relayed(new_shop: Shop) -> None:
    """Wait until the feed has all writes."""
    mediator = new_shop.service.mediator
    assert mediator.coordination is not None
    feed, id_ = mediator.coordination.feed, mediator.data.model.databases[new_shop.database].id
    tick = await feed.tick()

    async def is_relayed() -> bool:
        until = await feed.relayed_until(id_)
        return all(until.get(name, 0) >= tick for name in ("postgres", "redis"))

    await eventually(is_relayed)


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row["id"]))
