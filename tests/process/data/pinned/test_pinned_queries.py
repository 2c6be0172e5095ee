"""Requests that are pinned to a version of the schema: queries of every form."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.query.parameters import parse_parameters
from mediator.query.parser import ParsedQuery
from tests.process.caching.newspaper import assert_problem
from tests.process.data.pinned.shop import Shop
from tests.process.service import Service

INTEGER = {"type": "integer", "index": True}
TEXT = {"type": "string", "index": True}
BEFORE: dict[str, Any] = {
    "goods": {
        "fields": {
            "name": TEXT,
            "price": INTEGER,
            "stock": INTEGER,
            "maker": {"type": "reference", "to": "makers", "index": True},
        }
    },
    "makers": {"fields": {"name": TEXT, "town": TEXT}},
}
AFTER: dict[str, Any] = {
    "goods": {
        "fields": {
            # The names of before mean other fields: name and town are taken, price is stock.
            "label": TEXT,
            "price": INTEGER,
            "cost": INTEGER,
            "by": {"type": "reference", "to": "makers", "index": True},
            "total": INTEGER,
            "maker": TEXT,
        }
    },
    "makers": {"fields": {"town": TEXT, "place": TEXT}},
}


@pytest.fixture
async def shop(mediator: Service) -> Shop:
    shop = Shop.of(mediator)
    await shop.change(BEFORE)
    for id_, town in (("m", "Ulm"), ("n", "Bonn")):
        await shop.send("PUT", f"makers/{id_}", json={"name": id_.upper(), "town": town})
    for index, maker in enumerate("mnm"):
        body = {"name": f"thing {index}", "price": index, "stock": 10 - index, "maker": maker}
        await shop.send("PUT", f"goods/g{index}", json=body)
    steps: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
        (("label", "cost", "stock", "by"), ("name", "town")),
        (("label", "cost", "price", "by"), ("name", "place")),
        (("label", "cost", "price", "by"), ("town", "place")),
    ]
    renames = [
        ["goods.name:label", "goods.price:cost", "goods.maker:by"],
        ["goods.stock:price", "makers.town:place"],
        ["makers.name:town"],
    ]
    for (goods, makers), names in zip(steps, renames, strict=True):
        classes = {
            "goods": {
                "fields": {name: AFTER["goods"]["fields"].get(name, INTEGER) for name in goods}
            },
            "makers": {"fields": dict.fromkeys(makers, TEXT)},
        }
        await shop.change(classes, *names)
    await shop.change(AFTER)
    for index in range(3):
        await shop.send("PATCH", f"goods/g{index}", json={"total": 100, "maker": "hidden"})
    return shop


async def send_pinned(shop: Shop, path: str, body: Any = None) -> tuple[Any, Any]:
    """Send a request of version 1; return its document and the response."""
    method = "GET" if body is None else "POST"
    request = {} if body is None else {"json": body}
    answer = await shop.send(method, path, 1, **request)
    assert answer.status_code == 200, answer.text
    return answer.json(), answer


async def test_filters_orders_and_fields(shop: Shop) -> None:
    document, answer = await send_pinned(shop, "goods?price.ge=1&order=-stock&fields=price,stock")
    assert document["items"] == [
        {"id": "g1", "price": 1, "stock": 9},
        {"id": "g2", "price": 2, "stock": 8},
    ]
    assert answer.headers["cache-control"] == "no-store"
    document, _ = await send_pinned(shop, "goods?ids=g0,g1&fields=name")
    assert document["items"] == [{"id": "g0", "name": "thing 0"}, {"id": "g1", "name": "thing 1"}]
    assert document["missing"] == []
    unknown = await shop.send("GET", "goods?cost.ge=1", 1)
    assert_problem(unknown, 400, "invalid")
    query = {"filter": {"not": {"or": [{"eq": ["price", 0]}, {"lt": ["stock", 9]}]}}}
    document, _ = await send_pinned(shop, "goods/query", query)
    assert document["items"] == [
        {"id": "g1", "maker": "n", "name": "thing 1", "price": 1, "stock": 9}
    ]


async def test_joins_along_references_and_back(shop: Shop) -> None:
    query = {
        "filter": {"eq": ["maker_.town", "Ulm"]},
        "join": {"as": "maker_", "reference": "maker", "fields": ["town"]},
        "order": [["price", "desc"]],
        "fields": ["price"],
    }
    document, _ = await send_pinned(shop, "goods/query", query)
    assert document["items"] == [
        {"id": "g2", "price": 2, "maker_": {"id": "m", "town": "Ulm"}},
        {"id": "g0", "price": 0, "maker_": {"id": "m", "town": "Ulm"}},
    ]
    back = {
        "join": {
            "as": "made",
            "class": "goods",
            "reference": "maker",
            "filter": {"ge": ["stock", 9]},
            "order": ["price"],
            "fields": ["stock"],
        },
        "fields": ["name"],
    }
    document, _ = await send_pinned(shop, "makers/query", back)
    assert document["items"] == [
        {"id": "m", "name": "M", "made": [{"id": "g0", "stock": 10}]},
        {"id": "n", "name": "N", "made": [{"id": "g1", "stock": 9}]},
    ]


async def test_an_alias_may_be_the_present_name_of_another_field(shop: Shop) -> None:
    """`price` is called `cost` now, which is also the alias of the join."""
    query = {
        "join": {"as": "cost", "reference": "maker"},
        "filter": {"and": [{"ge": ["price", 1]}, {"eq": ["cost.name", "N"]}]},
        "order": ["price"],
        "fields": ["price"],
    }
    document, _ = await send_pinned(shop, "goods/query", query)
    assert document["items"] == [
        {"id": "g1", "price": 1, "cost": {"id": "n", "name": "N", "town": "Bonn"}}
    ]


async def test_a_result_may_have_the_present_name_of_its_group(shop: Shop) -> None:
    """`maker` is called `by` now, which is also the name of a result."""
    query = {
        "aggregate": {
            "group": ["maker"],
            "compute": {"total": {"sum": "price"}, "by": {"count": "*"}},
            "filter": {"and": [{"ge": ["total", 1]}, {"ge": ["by", 1]}]},
        },
        "order": ["maker"],
    }
    document, _ = await send_pinned(shop, "goods/query", query)
    assert document["items"] == [
        {"maker": "m", "total": 2, "by": 2},
        {"maker": "n", "total": 1, "by": 1},
    ]


async def test_cursors_belong_to_the_version(shop: Shop) -> None:
    document, _ = await send_pinned(shop, "goods?order=price&limit=1")
    assert document["items"][0]["id"] == "g0"
    document, answer = await send_pinned(
        shop, f"goods?order=price&limit=1&after={document['next']}"
    )
    assert document["items"][0]["id"] == "g1"
    assert 'rel="next"' in answer.headers["link"]
    foreign = await shop.send("GET", f"goods?order=price&limit=1&after={document['next']}")
    assert_problem(foreign, 400, "invalid")


async def test_writes_to_all_objects_that_meet_a_condition(shop: Shop) -> None:
    answer = await shop.send("PATCH", "goods?price.ge=1", 1, json={"stock": 0})
    assert answer.json()["written"] == 2, answer.text
    present = await shop.shown("goods?fields=cost,price&order=cost")
    assert [item["price"] for item in present["items"]] == [10, 0, 0]
    answer = await shop.send("DELETE", "goods?stock=10", 1)
    assert answer.json()["written"] == 1, answer.text


async def test_other_queries_are_not_parsed_again_after_a_pinned_one(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def record(*args: Any, **kwargs: Any) -> ParsedQuery:
        calls.append(args)
        return parse_parameters(*args, **kwargs)

    monkeypatch.setattr("app.api.queries.parse_parameters", record)
    for version in (None, 1, None, 1, None):
        path = "goods?price.ge=1" if version else "goods?cost.ge=1"
        assert len((await shop.shown(path, version))["items"]) == 2
    assert len(calls) == 3, "the present query once, and each pinned one"
