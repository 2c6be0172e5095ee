"""Totals of queries, over HTTP and real stores: the number of objects on all pages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from mediator.model.operations import Delete
from mediator.query.budget import Limits
from mediator.stores.port import Write, WriteKind
from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import PLACEMENTS, QueryClient, query_client
from tests.process.service import Service, field_on, unique

Json = dict[str, Any]

CLASSES = ("things", "expiring")
OBJECTS = {
    f"t{number}": {
        "kind": "abc"[number % 3],
        "hits": number % 5,
        "note": f"n{number}",
        "like": "t0" if number % 2 else "nothing",
    }
    for number in range(20)
}


def classes_on(systems: tuple[str, ...]) -> Json:
    """Return classes with fields on the first and the last system."""
    first, last = systems[0], systems[-1]
    fields = {
        "kind": field_on(first, index=True),
        "hits": field_on(last, "integer", index=True, group="rest"),
        "note": field_on(last, group="rest"),
        "like": {**field_on(first, "reference"), "to": "things"},
        "count": field_on(first, "integer", index=True),
    }
    expiring = {"ttl_s": 3_600, "fields": {"kind": field_on(first, index=True)}}
    return {"things": {"fields": fields}, "expiring": expiring}


@pytest.fixture(scope="module", params=PLACEMENTS[:-1], ids="+".join)
async def things(
    request: pytest.FixtureRequest, mediator: Service
) -> AsyncIterator[tuple[QueryClient, Service]]:
    """Twenty objects on one or two systems; one was deleted and created again, another deleted."""
    async with AsyncExitStack() as stack:
        database = await mediator.put_schema(classes_on(request.param))
        assert len(mediator.systems_of(database, "things")) == len(request.param)
        client = await stack.enter_async_context(query_client(mediator, database))
        await client.load("things", {**OBJECTS, "gone": {"kind": "a"}})
        for id_ in ("gone", "t1"):
            delete = Delete(database, "things", id_, unique("op"))
            await mediator.mediator.data.write(delete)
        await client.load("things", {"t1": OBJECTS["t1"]})
        yield client, mediator


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"filter": {"eq": ["kind", "a"]}},
        {"filter": {"between": ["hits", 1, 3]}},
        {"filter": {"and": [{"eq": ["kind", "b"]}, {"ge": ["hits", 2]}]}, "order": ["hits"]},
        {"filter": {"like": ["note", "n1%"]}, "allow_scan": True},
        {"filter": {"not": {"exists": "count"}}, "order": [["kind", "desc"]], "allow_scan": True},
        {"filter": {"in": ["id", ["t1", "t2", "gone", "none"]]}},
        {"filter": {"eq": ["kind", "nowhere"]}},
    ],
    ids=str,
)
async def test_the_total_is_the_number_of_objects_on_all_pages(
    things: tuple[QueryClient, Service], query: Json
) -> None:
    client, _ = things
    items = await client.all("things", {**query, "limit": 2})
    page = await client.query("things", {**query, "limit": 2, "count": "exact"})
    assert (page["total"], page["count"]) == (len(items), "exact")
    assert "total" not in await client.query("things", query)


async def test_the_total_of_a_later_page_is_the_same(things: tuple[QueryClient, Service]) -> None:
    client, _ = things
    first = (await client.get("things?count=exact&limit=15")).json()
    assert first["total"] == len(OBJECTS)
    last = (await client.get(f"things?count=exact&limit=15&after={first['next']}")).json()
    assert (len(last["items"]), last["next"], last["total"]) == (5, None, len(OBJECTS))
    uncounted = (await client.get(f"things?limit=15&after={first['next']}")).json()
    assert uncounted["items"] == last["items"]


async def test_an_object_that_is_deleted_on_its_first_system_only_is_not_counted(
    things: tuple[QueryClient, Service],
) -> None:
    """As after the crash of a replica, until its write is resolved: a listing leaves it out."""
    client, mediator = things
    route = mediator.mediator.data.model.databases[client.database].classes["things"]
    await client.load("things", {"torn": {"kind": "torn", "hits": 99}})
    anchor = route.anchor
    store = mediator.mediator.systems.get(anchor.system).store
    groups = tuple(anchor.groups)
    await store.write([Write(anchor, "torn", WriteKind.DELETE, unique("op"), groups)])
    query = {"filter": {"ge": ["hits", 3]}, "limit": 1}
    items = await client.all("things", query)
    assert "torn" not in {item["id"] for item in items}
    assert (await client.query("things", {**query, "count": "exact"}))["total"] == len(items)


async def test_joins_do_not_change_the_total(
    things: tuple[QueryClient, Service],
) -> None:
    client, _ = things
    join = {"as": "liked", "reference": "like", "fields": ["kind"]}
    query: Json = {"join": join, "limit": 1, "count": "exact", "order": ["liked.kind"]}
    page = await client.query("things", {**query, "allow_scan": True})
    assert page["total"] == len(OBJECTS)
    liked = {"filter": {"eq": ["liked.kind", "a"]}, "allow_scan": True}
    assert (await client.query("things", {**query, **liked}))["total"] == len(OBJECTS) // 2


async def test_a_count_states_whether_it_is_estimated_or_exact(
    things: tuple[QueryClient, Service],
) -> None:
    client, _ = things
    for query in ("", "&kind=a", "&hits.ge=2&allow_scan=true"):
        page = (await client.get(f"things?count=estimated&limit=2{query}")).json()
        exact = (await client.get(f"things?count=exact&limit=2{query}")).json()["total"]
        if page["count"] == "exact":
            assert page["total"] == exact
        else:
            assert page["count"] == "estimated"
            assert page["total"] >= 3
    full_page = (await client.get("things?count=estimated&limit=1000")).json()
    assert (full_page["total"], full_page["count"]) == (len(OBJECTS), "exact")


async def test_an_estimate_reads_no_objects(things: tuple[QueryClient, Service]) -> None:
    client, mediator = things
    anchor = mediator.systems_of(client.database, "things")[0]
    response = await client.get("things?count=estimated&limit=2&explain=true")
    explained = response.json()["explain"]
    count_plan = explained["count"]["pushed"]
    assert count_plan["estimate"] is (anchor != "redis")
    assert count_plan["estimate"] or count_plan["aggregate"]
    assert explained["rows"]["moved"] <= 2 * (2 + 1) + 1


async def test_a_system_does_not_count_a_class_with_a_ttl(
    things: tuple[QueryClient, Service],
) -> None:
    """A system would count expired objects that are not removed yet."""
    client, _ = things
    await client.load("expiring", {f"e{number}": {"kind": "a"} for number in range(5)})
    counted_query = {"limit": 2, "count": "exact"}
    response = await client.send("expiring", counted_query)
    assert_problem(response, 422, "needs-scan", "/count")
    full_page = await client.query(
        "expiring", {**counted_query, "allow_scan": True, "explain": True}
    )
    assert full_page["total"] == 5
    assert not full_page["explain"]["count"]["pushed"]["aggregate"]
    filtered = await client.query("expiring", {**counted_query, "filter": {"eq": ["kind", "a"]}})
    assert filtered["total"] == 5
    estimated = await client.query("expiring", {"limit": 2, "count": "estimated"})
    assert estimated["count"] == "estimated"


@pytest.fixture
async def one(mediator: Service) -> AsyncIterator[QueryClient]:
    database = await mediator.put_schema(classes_on(("redis",)))
    async with query_client(mediator, database) as client:
        await client.load("things", OBJECTS)
        yield client


@pytest.mark.parametrize("value", ["planned", "", "EXACT", "true"])
async def test_unknown_count_modes_are_refused(one: QueryClient, value: str) -> None:
    assert_problem(await one.get(f"things?count={value}"), 400, "invalid", "count")
    assert_problem(await one.send("things", {"count": value}), 400, "invalid", "/count")


@pytest.mark.parametrize("value", [None, True, 1, ["exact"], {"exact": 1}])
async def test_a_count_mode_is_a_string(one: QueryClient, value: Any) -> None:
    assert_problem(await one.send("things", {"count": value}), 400, "invalid", "/count")


async def test_queries_that_cannot_be_counted(one: QueryClient) -> None:
    aggregate = {"compute": {"n": {"count": "*"}}}
    response = await one.send("things", {"count": "exact", "aggregate": aggregate})
    assert_problem(response, 400, "invalid", "/count")
    assert_problem(await one.get("things?ids=t1&count=exact"), 400, "invalid", "count")
    response = await one.get("things?count=exact&count=exact")
    assert_problem(response, 400, "invalid", "count")


async def test_a_field_named_count_needs_an_operator(one: QueryClient) -> None:
    await one.load("things", {"c": {"count": 7}})
    page = (await one.get("things?count.eq=7&count=exact")).json()
    assert ([item["id"] for item in page["items"]], page["total"]) == (["c"], 1)


async def test_a_total_that_needs_a_scan_is_refused(
    one: QueryClient,
) -> None:
    response = await one.send("things", {"filter": {"eq": ["note", "n1"]}, "count": "exact"})
    assert_problem(response, 422, "needs-scan", "/filter")


async def test_page_and_total_have_one_budget(
    one: QueryClient, mediator: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = {"filter": {"ge": ["hits", 0]}, "order": ["hits"], "limit": 2}
    counted_query = {
        **query,
        "filter": {"and": [query["filter"], {"exists": "note"}]},
        "count": "exact",
    }
    monkeypatch.setattr(mediator.mediator.data, "limits", Limits(rows=25))
    assert len((await one.query("things", query))["items"]) == 2
    response = await one.send("things", counted_query)
    assert assert_problem(response, 422, "too-costly")["rows"] == 25


async def test_links_lead_from_page_to_page(one: QueryClient) -> None:
    base = one.client.base_url
    address = "things?kind.in=a,b&order=-hits&limit=4&count=exact"
    ids: list[str] = []
    pages = 0
    while address:
        response = await one.get(address)
        assert response.status_code == 200, response.text
        page, pages = response.json(), pages + 1
        ids += [item["id"] for item in page["items"]]
        address = response.links.get("next", {}).get("url", "")
        assert bool(address) is (page["next"] is not None)
        if address:
            assert address.startswith(f"/v1/{one.database}/things?after=")
            address = str(base.join(address))
    expected = [id_ for id_, values in OBJECTS.items() if values["kind"] in ("a", "b")]
    assert sorted(ids) == sorted(expected)
    assert pages == -(-len(expected) // 4)


async def test_a_query_in_a_body_has_no_link(one: QueryClient) -> None:
    response = await one.send("things", {"limit": 1})
    assert response.json()["next"] is not None
    assert "link" not in response.headers


async def test_a_link_too_long_for_proxies_is_left_out(one: QueryClient) -> None:
    ids = ",".join(["t0", "t1", *(f"n{number}" for number in range(600))])
    response = await one.get(f"things?id.in={ids}&limit=1")
    assert response.json()["next"] is not None
    assert "link" not in response.headers
