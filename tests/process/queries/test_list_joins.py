"""Joins that add lists, over HTTP and real stores: by lists of references, and in reverse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.process.caching.newspaper import assert_problem
from tests.process.queries.querying import PLACEMENTS, QueryClient, query_client
from tests.process.service import Service, field_on

Json = dict[str, Any]

PRODUCTS: Json = {
    "lamp": {"name": "Lamp", "similar": ["table", "gone", "lamp"], "maker": "acme"},
    "table": {"name": "Table", "similar": [], "maker": "acme"},
    "sofa": {"name": "Sofa", "similar": ["table", "table"]},
    "rug": {"name": "Rug", "maker": "nobody"},
}
REVIEWS: Json = {
    **{f"r{n:02}": {"of": "lamp", "stars": n % 5, "text": f"t{n}"} for n in range(25)},
    "s1": {"of": "table", "stars": 5, "text": "good"},
    "s2": {"of": "table", "stars": 1, "text": "bad"},
    "s3": {"of": None, "stars": 3},
    "s4": {"of": "gone", "stars": 3},
    "s5": {"stars": 3},
}
MAKERS: Json = {"acme": {"best": ["sofa", "lamp"]}}


def classes_on(systems: tuple[str, ...]) -> Json:
    """Return classes with fields on the first and the last system."""
    first, last = systems[0], systems[-1]
    reference = field_on(first, "reference", index=True)
    products = {
        "name": field_on(first, index=True),
        "similar": {**field_on(last, "list", group="more"), "items": "reference", "to": "products"},
        "maker": {**field_on(last, "reference", group="more"), "to": "makers"},
    }
    reviews = {
        "of": {**reference, "to": "products"},
        "stars": field_on(last, "integer", index=True, group="more"),
        "text": field_on(last, group="more"),
    }
    best = {**field_on(last, "list"), "items": "reference", "to": "products"}
    return {
        "products": {"fields": products},
        "reviews": {"fields": reviews},
        "makers": {"fields": {"best": best}},
    }


@pytest.fixture(scope="module", params=PLACEMENTS, ids="+".join)
async def shop(request: pytest.FixtureRequest, mediator: Service) -> AsyncIterator[QueryClient]:
    async with AsyncExitStack() as stack:
        database = await mediator.put_schema(classes_on(request.param))
        client = await stack.enter_async_context(query_client(mediator, database))
        for name, objects in {"products": PRODUCTS, "reviews": REVIEWS, "makers": MAKERS}.items():
            await client.load(name, objects)
        yield client


async def products(shop: QueryClient, join: Any, **query: Any) -> dict[str, Json]:
    """Return products with a join, by id."""
    page = await shop.query("products", {"join": join, **query})
    return {item["id"]: item for item in page["items"]}


def reviews_of(product: str, **conditions: Any) -> list[str]:
    """Return the ids of the reviews of a product, sorted."""
    return sorted(
        id_
        for id_, review in REVIEWS.items()
        if review.get("of") == product
        and all(review.get(name) == value for name, value in conditions.items())
    )


async def test_a_list_of_references_joins_existing_objects(shop: QueryClient) -> None:
    join = {"as": "like", "reference": "similar", "fields": ["name"]}
    items = await products(shop, join, fields=["name"])
    table, lamp = {"id": "table", "name": "Table"}, {"id": "lamp", "name": "Lamp"}
    assert items["lamp"] == {"id": "lamp", "name": "Lamp", "like": [table, lamp]}
    assert items["sofa"]["like"] == [table, table]
    assert [items[id_]["like"] for id_ in ("table", "rug")] == [[], []]


async def test_a_list_of_a_joined_object_is_joined(shop: QueryClient) -> None:
    joins = [
        {"as": "by", "reference": "maker", "fields": ["id"]},
        {"as": "bestsellers", "reference": "by.best", "fields": ["name"]},
    ]
    items = await products(shop, joins, fields=["id"])
    best = [{"id": "sofa", "name": "Sofa"}, {"id": "lamp", "name": "Lamp"}]
    assert items["table"] == {"id": "table", "by": {"id": "acme"}, "bestsellers": best}
    assert items["rug"] == {"id": "rug", "by": None, "bestsellers": []}
    assert items["sofa"] == {"id": "sofa", "by": None, "bestsellers": []}


@pytest.mark.parametrize("limit", [1, 3, 10, 100])
async def test_a_reverse_join_adds_the_first_referring_objects(
    shop: QueryClient, limit: int
) -> None:
    join = {"as": "reviews", "class": "reviews", "reference": "of", "limit": limit}
    items = await products(shop, {**join, "fields": ["id"]}, fields=["id"])
    for id_ in PRODUCTS:
        expected = [{"id": review} for review in reviews_of(id_)[:limit]]
        assert items[id_] == {"id": id_, "reviews": expected}


async def test_a_reverse_join_has_a_condition_and_an_order(shop: QueryClient) -> None:
    join = {
        "as": "worst",
        "class": "reviews",
        "reference": "of",
        "filter": {"le": ["stars", 3]},
        "order": [["stars", "desc"], "id"],
        "limit": 7,
        "fields": ["stars"],
    }
    items = await products(shop, join)
    matching_ids = [r for r in reviews_of("lamp") if REVIEWS[r]["stars"] <= 3]
    matching_ids.sort(key=lambda id_: (-REVIEWS[id_]["stars"], id_))
    expected = [{"id": id_, "stars": REVIEWS[id_]["stars"]} for id_ in matching_ids[:7]]
    assert items["lamp"]["worst"] == expected
    assert items["table"]["worst"] == [{"id": "s2", "stars": 1}]
    assert items["sofa"]["worst"] == items["rug"]["worst"] == []
    assert items["lamp"]["name"] == "Lamp"


async def test_whole_objects_are_joined_without_fields(shop: QueryClient) -> None:
    join = {"as": "reviews", "class": "reviews", "reference": "of"}
    items = await products(shop, join, filter={"eq": ["name", "Table"]})
    expected = [{"id": id_, **REVIEWS[id_]} for id_ in ("s1", "s2")]
    assert items["table"]["reviews"] == expected
    address = 'products?name=Table&join={"as":"reviews","class":"reviews","reference":"of"}'
    response = await shop.get(address)
    assert response.json()["items"] == [items["table"]]
    # Writes to reviews do not invalidate a query of products.
    assert "no-cache" in response.headers["cache-control"]


async def test_pages_include_the_lists_of_their_objects(shop: QueryClient) -> None:
    join = {"as": "reviews", "class": "reviews", "reference": "of", "limit": 2, "fields": ["id"]}
    query = {"join": join, "limit": 1, "count": "exact"}
    items = await shop.all("products", query)
    assert [len(item["reviews"]) for item in items] == [2, 0, 0, 2]
    assert (await shop.query("products", query))["total"] == len(PRODUCTS)


async def test_lists_take_few_round_trips(shop: QueryClient) -> None:
    join = {"as": "reviews", "class": "reviews", "reference": "of", "limit": 2, "fields": ["id"]}
    query = {"join": join, "explain": True}
    explained = (await shop.query("products", query))["explain"]
    assert explained["reverse_joins"] == [{"as": "reviews", "class": "reviews", "reference": "of"}]
    # Many reviews refer to one of the four products: two searches, on any system.
    assert max(explained["round_trips"].values()) <= 2 * len(PRODUCTS)


@pytest.mark.parametrize(
    ("join", "location"),
    [
        ({"class": "reviews", "reference": "text"}, "/join/reference"),
        ({"class": "nowhere", "reference": "of"}, "/join/reference"),
        ({"class": 1, "reference": "of"}, "/join/reference"),
        ({"class": "reviews", "reference": ["of"]}, "/join/reference"),
        ({"class": "reviews", "reference": "of", "limit": 101}, "/join/limit"),
        ({"class": "reviews", "reference": "of", "filter": {"eq": ["x", 1]}}, "/join/filter/eq/0"),
        ({"class": "reviews", "reference": "of", "order": ["x"]}, "/join/order/0"),
        ({"class": "reviews", "reference": "of", "fields": ["x"]}, "/join/fields/0"),
        ({"class": "reviews", "reference": "of", "join": {}}, "/join/join"),
        ({"as": "name", "class": "reviews", "reference": "of"}, "/join/as"),
        ({"reference": "name"}, "/join/reference"),
    ],
    ids=str,
)
async def test_mistakes_are_named(shop: QueryClient, join: Json, location: str) -> None:
    response = await shop.send("products", {"join": {"as": "more", **join}})
    errors = assert_problem(response, 400, "invalid")["errors"]
    assert [error["pointer"] for error in errors] == [location]
    assert "did you mean" not in response.text


async def test_lists_have_no_conditions_and_no_aggregate(shop: QueryClient) -> None:
    join = {"as": "reviews", "class": "reviews", "reference": "of"}
    aggregate = {"compute": {"n": {"count": "*"}}}
    for query, location in (
        ({"filter": {"eq": ["reviews.stars", 1]}}, "/filter/eq/0"),
        ({"order": ["reviews.stars"]}, "/order/0"),
        ({"aggregate": aggregate, "allow_scan": True}, "/join"),
    ):
        response = await shop.send("products", {"join": join, **query})
        errors = assert_problem(response, 400, "invalid")["errors"]
        assert [error["pointer"] for error in errors] == [location]
    twice = {"join": [join, {"as": "reviews", "reference": "similar"}]}
    errors = assert_problem(await shop.send("products", twice), 400, "invalid")["errors"]
    assert errors[0]["pointer"] == "/join/1/as"


async def test_an_object_with_very_many_references_does_not_crowd_out_the_others(
    shop: QueryClient,
) -> None:
    """One search is not enough: references to the first object fill it."""
    extra_reviews = {f"a{n:03}": {"of": "rug", "stars": 0} for n in range(4 * 30 + 5)}
    await shop.load("reviews", extra_reviews)
    try:
        join = {"as": "r", "class": "reviews", "reference": "of", "limit": 30, "fields": ["id"]}
        items = await products(shop, join, fields=["id"])
        assert len(items["rug"]["r"]) == 30
        assert [len(items[id_]["r"]) for id_ in ("lamp", "table", "sofa")] == [25, 2, 0]
    finally:
        for id_ in extra_reviews:
            await shop.client.delete(f"reviews/{id_}")
