"""Incremental views over HTTP, on real stores."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mediator.control.port import ChangeOptions
from tests.faults.conditions import eventually
from tests.process.incremental_views.shop import CLASSES, TOTALS, Follower, Shop, shop_in
from tests.process.service import field_on, unique


async def test_a_view_shows_existing_objects_and_follows_every_write(shop: Shop) -> None:
    city = unique("city")
    document = {"class": "customers", "filter": {"eq": ["city", city]}, "fields": ["name"]}
    await shop.write("customers", "a", name="Ada", city=city)
    view = await shop.ready(document)
    assert await shop.rows(view) == [({"name": "Ada"}, 1)]
    await shop.write("customers", "b", name="Ada", city=city)
    await shop.wait_for_rows(view, ({"name": "Ada"}, 2))
    await shop.write("customers", "a", name="Bob", city=city)
    await shop.wait_for_rows(view, ({"name": "Ada"}, 1), ({"name": "Bob"}, 1))
    await shop.write("customers", "a", name="Bob", city="elsewhere")
    await shop.wait_for_rows(view, ({"name": "Ada"}, 1))
    await shop.delete("customers", "b")
    await shop.wait_for_rows(view)


async def test_joins_antijoins_and_aggregates_equal_queries(shop: Shop) -> None:
    lonely = {
        "class": "customers",
        "join": {"class": "orders", "on": {"customer": "id"}, "anti": True},
        "fields": ["id"],
    }
    totals, unmatched = await shop.ready(TOTALS), await shop.ready(lonely)
    follower = Follower(shop, totals)
    await follower.start()
    for number in range(20):
        customer = f"c{number % 3}"
        if number < 3:
            await shop.write("customers", customer, name=customer, city=f"city{number % 2}")
        price = f"{number}.25"
        await shop.write("orders", f"o{number}", customer=customer, amount=number, price=price)
        if number % 4 == 3:
            await shop.delete("orders", f"o{number - 2}")
        if number % 7 == 6:
            await shop.write("customers", customer, name=customer, city="city9")
    await shop.write("customers", "lonely", name="n", city="city0")
    expected = await shop.totals()

    async def has_followed() -> bool:
        await follower.poll()
        return follower.rows == expected

    await eventually(has_followed)

    async def is_unmatched() -> bool:
        # It is nobody's buyer, so the totals can be complete before its write arrives.
        return "lonely" in {row["id"] for row, _ in await shop.rows(unmatched)}

    await eventually(is_unmatched)
    assert not {row["id"] for row, _ in await shop.rows(unmatched)} & {"c0", "c1", "c2"}


async def test_the_position_of_a_result_is_one_of_the_feed(shop: Shop) -> None:
    view = await shop.ready({"class": "customers", "fields": ["id", "name"]})
    id_ = unique("c")
    await shop.write("customers", id_, name="n")

    async def is_visible() -> bool:
        # With the groups of both systems.
        return {"id": id_, "name": "n"} in [row for row, _ in await shop.rows(view)]

    await eventually(is_visible)
    position = (await shop.result(view))["position"]
    later_id = unique("c")
    await shop.write("customers", later_id, name="n")
    changes: list[Any] = []

    async def are_there() -> bool:
        page = await shop.client.get("changes", params={"after": position, "limit": 100})
        changes[:] = page.json()["changes"]
        return later_id in [change["object"] for change in changes]

    await eventually(are_there)
    assert id_ not in [change["object"] for change in changes]


async def test_a_view_is_listed_shown_and_dropped(shop: Shop) -> None:
    document = {"name": "all", "class": "customers"}
    view = await shop.ready(document)
    items = (await shop.client.get("incremental-views")).json()["items"]
    assert {"id": view, "name": "all", "state": "ready"} in items
    description = (await shop.client.get(f"incremental-views/{view}")).json()
    assert description == {"id": view, "name": "all", "state": "ready", "view": document}
    assert (await shop.client.delete(f"incremental-views/{view}")).status_code == 204
    for path in ("", "/result", "/deltas"):
        answer = await shop.client.get(f"incremental-views/{view}{path}")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
    assert (await shop.client.delete(f"incremental-views/{view}")).status_code == 404


async def test_an_invalid_view_is_refused_with_the_location(shop: Shop) -> None:
    answer = await shop.client.post("incremental-views", json={"class": "orders", "order": ["id"]})
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == ["/order"]


@pytest.mark.parametrize("after", ["x", "1-2-3", "1" * 17 + "-1"])
async def test_an_invalid_delta_id_is_refused(shop: Shop, after: str) -> None:
    view = await shop.ready({"class": "customers"})
    path = f"incremental-views/{view}/deltas"
    for options in ({"params": {"after": after}}, {"headers": {"last-event-id": after}}):
        answer = await shop.client.get(path, **options)  # type: ignore[arg-type]
        assert answer.status_code == 400


async def test_a_delta_that_is_not_kept_is_gone(shop: Shop) -> None:
    view = await shop.ready({"class": "customers"})
    path = f"incremental-views/{view}/deltas"
    answer = await shop.client.get(path, params={"after": "1-1"})
    assert (answer.status_code, answer.json()["type"]) == (410, "/problems/gone")


async def test_server_sent_events_resume_after_the_last_one_that_was_seen(shop: Shop) -> None:
    city = unique("city")
    view = await shop.ready({"class": "customers", "filter": {"eq": ["city", city]}})
    first, expected = (await shop.result(view))["delta"], []
    for id_ in ("e1", "e2", "e3"):
        await shop.write("customers", id_, city=city)
        expected.append(({"id": id_, "city": city}, 1))
        await shop.wait_for_rows(view, *expected)
    last = (await shop.result(view))["delta"]
    events = await shop.events(view, first, last)
    assert [row["row"]["id"] for event in events for row in event["rows"]] == ["e1", "e2", "e3"]
    assert await shop.events(view, events[1]["id"], last) == events[2:]


async def test_a_view_that_outgrows_its_bound_is_stopped_and_its_stream_reports_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = unique("city")
    view = await shop.ready({"class": "customers", "filter": {"eq": ["city", city]}})
    other = await shop.ready({"class": "customers", "filter": {"eq": ["city", "none"]}})
    monkeypatch.setattr("mediator.views.nodes.MAX_ROWS", 1)
    delta = (await shop.result(view))["delta"]
    for id_ in ("l1", "l2"):
        await shop.write("customers", id_, city=city)
    event = (await shop.events(view, delta, "event: stopped"))[-1]
    assert "more than 1 rows" in event["detail"]
    answer = await shop.client.get(f"incremental-views/{view}/result")
    assert answer.status_code == 409
    assert "more than 1 rows" in answer.json()["detail"]
    assert await shop.has_state(other, "ready")


async def test_a_page_without_a_delta_starts_now(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = unique("city")
    view = await shop.ready({"class": "customers", "filter": {"eq": ["city", city]}})
    path = f"incremental-views/{view}/deltas"
    page = (await shop.client.get(path)).json()
    assert page == {"deltas": [], "delta": (await shop.result(view))["delta"]}
    views, called = shop.service.mediator.incremental_views, asyncio.Event()
    assert views is not None
    deltas = views.deltas

    async def note_call(*arguments: Any) -> Any:
        called.set()
        return await deltas(*arguments)

    monkeypatch.setattr(views, "deltas", note_call)
    poll = asyncio.create_task(shop.client.get(path, params={"wait": 30}))
    await called.wait()
    await shop.write("customers", unique("c"), city=city)
    [delta] = (await poll).json()["deltas"]
    assert [row["count"] for row in delta["rows"]] == [1]


async def test_a_view_goes_on_when_the_feed_or_publications_were_lost(shop: Shop) -> None:
    mediator = shop.service.mediator
    assert mediator.coordination is not None
    id_, city = mediator.data.model.databases[shop.database].id, unique("city")
    view = await shop.ready({"class": "customers", "filter": {"eq": ["city", city]}})
    await shop.write("customers", "lost1", city=city)
    await shop.wait_for_rows(view, ({"id": "lost1", "city": city}, 1))
    await mediator.coordination.feed.start_generation(id_)
    await shop.write("customers", "lost2", city=city)
    both = [({"id": name, "city": city}, 1) for name in ("lost1", "lost2")]
    await shop.wait_for_rows(view, *both)
    # As after a rollback of the server; in one step, as the holder publishes.
    base = f"{{portolan:views:{id_}}}:"
    async with mediator.coordination.redis.pipeline(transaction=True) as pipe:
        pipe.hset(f"{base}published", "sequence", 1)
        pipe.delete(f"{base}rows:{view}")
        await pipe.execute()
    await shop.write("customers", "lost3", city=city)
    await shop.wait_for_rows(view, *both, ({"id": "lost3", "city": city}, 1))


async def test_a_schema_change_that_drops_a_field_stops_the_view(shop: Shop) -> None:
    database = await shop.service.put_schema(CLASSES)
    control = shop.service.mediator.control
    async with shop_in(shop.service, database) as new_shop:
        await new_shop.write("customers", "a", name="Ada", city="Rome")
        name_view = await new_shop.ready({"class": "customers", "fields": ["name"]})
        city_view = await new_shop.ready({"class": "customers", "fields": ["city"]})
        fields = CLASSES["customers"]["fields"]
        customers = {"fields": {"city": fields["city"]}}
        await control.set_schema(
            database,
            {"classes": {**CLASSES, "customers": customers}},
            options=ChangeOptions(drop=frozenset({"customers.name"})),
        )
        await eventually(lambda: new_shop.has_state(name_view, "stopped"))
        answer = await new_shop.client.get(f"incremental-views/{name_view}/result")
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict")
        await new_shop.write("customers", "b", city="Oslo")
        await new_shop.wait_for_rows(city_view, ({"city": "Rome"}, 1), ({"city": "Oslo"}, 1))


async def test_a_dropped_database_takes_its_views_along(shop: Shop) -> None:
    database = await shop.service.put_schema({"things": {"fields": {"text": field_on("redis")}}})
    mediator = shop.service.mediator
    assert mediator.coordination is not None
    async with shop_in(shop.service, database) as new_shop:
        view = await new_shop.ready({"class": "things"})
        id_ = mediator.data.model.databases[database].id
        await mediator.control.delete_schema(database)
        await mediator.clearing.run()
        results = mediator.coordination.view_results
        assert id_ not in await results.databases()
        assert view not in await results.ids(id_)
