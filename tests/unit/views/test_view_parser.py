"""Views that are accepted, and how others are refused."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.model.filters import Compare, Comparison
from mediator.schema.parse import parse_schema
from mediator.views.parser import MAX_COLUMNS, MAX_JOINS, parse_view
from tests.unit.views.shop import CLASSES, SCHEMA

ORDERS: dict[str, Any] = {"class": "orders"}
CUSTOMER = {"as": "buyer", "reference": "customer"}


def pointers(document: Any) -> list[str]:
    with pytest.raises(Invalid) as error:
        parse_view(document, SCHEMA)
    return [location.pointer for location in error.value.locations]


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (None, ""),
        ([], ""),
        ({}, "/class"),
        ({"class": "order"}, "/class"),
        ({"class": {}}, "/class"),
        ({**ORDERS, "order": []}, "/order"),
        ({**ORDERS, "limit": 5}, "/limit"),
        ({**ORDERS, "name": "n" * 101}, "/name"),
        ({**ORDERS, "fields": []}, "/fields"),
        ({**ORDERS, "fields": ["id"] * (MAX_COLUMNS + 1)}, "/fields"),
        ({**ORDERS, "fields": ["id", "id"]}, "/fields/1"),
        ({**ORDERS, "fields": ["buyer.name"]}, "/fields/0"),
        ({**ORDERS, "fields": [7]}, "/fields/0"),
        ({**ORDERS, "filter": {"eq": ["amount", "1"]}}, "/filter/eq/1"),
        ({**ORDERS, "filter": {"eq": ["nothing", 1]}}, "/filter/eq/0"),
        ({**ORDERS, "fields": ["id"], "aggregate": {}}, "/fields"),
        ({**ORDERS, "aggregate": {"compute": {"s": {"sum": "tags"}}}}, "/aggregate/compute/s/sum"),
        ({**ORDERS, "join": [CUSTOMER] * (MAX_JOINS + 1)}, "/join"),
        ({**ORDERS, "join": [CUSTOMER, CUSTOMER]}, "/join/1/as"),
        ({**ORDERS, "join": {**CUSTOMER, "as": "amount"}}, "/join/as"),
        ({**ORDERS, "join": {"reference": "customer"}}, "/join/as"),
        ({**ORDERS, "join": {**CUSTOMER, "anti": True}}, "/join/as"),
        ({**ORDERS, "join": {**CUSTOMER, "anti": 1}}, "/join/anti"),
        ({**ORDERS, "join": {**CUSTOMER, "limit": 1}}, "/join/limit"),
        ({**ORDERS, "join": {"as": "x", "reference": "amount"}}, "/join/reference"),
        ({**ORDERS, "join": {"as": "x", "class": "returns"}}, "/join/on"),
        ({**ORDERS, "join": {"as": "x", "class": "returns", "on": {}}}, "/join/on"),
        ({**ORDERS, "join": {"as": "x", "class": "nobody", "on": {"id": "id"}}}, "/join/class"),
        (
            {**ORDERS, "join": {"as": "x", "class": "returns", "on": {"count": "tags"}}},
            "/join/on/count",
        ),
        (
            {**ORDERS, "join": {"as": "x", "class": "returns", "on": {"count": "customer"}}},
            "/join/on/count",
        ),
        (
            {**ORDERS, "join": {"as": "x", "class": "returns", "on": {"sum": "id"}}},
            "/join/on/sum",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_location(document: Any, pointer: str) -> None:
    assert pointer in pointers(document)


def test_a_class_whose_objects_expire_is_refused() -> None:
    classes = {**CLASSES, "customers": {**CLASSES["customers"], "ttl_s": 60}}
    schema = parse_schema("shop", {"classes": classes})
    for document, pointer in (
        ({"class": "customers"}, "/class"),
        ({**ORDERS, "join": CUSTOMER}, "/join/reference"),
    ):
        with pytest.raises(Invalid) as error:
            parse_view(document, schema)
        assert [location.pointer for location in error.value.locations] == [pointer]


def test_conditions_on_one_source_are_evaluated_there() -> None:
    filter_ = {
        "and": [
            {"eq": ["amount", 1]},
            {"eq": ["buyer.city", "Rome"]},
            {"or": [{"eq": ["amount", 2]}, {"eq": ["buyer.rank", 2]}]},
        ]
    }
    view = parse_view({**ORDERS, "join": CUSTOMER, "filter": filter_}, SCHEMA)
    orders, buyer = view.sources
    assert orders.filter == Compare(Comparison.EQ, ("amount",), 1)
    assert buyer.filter == Compare(Comparison.EQ, ("city",), "Rome")
    assert set(buyer.values) == {("buyer", "id"), ("buyer", "rank")}


def test_without_fields_a_row_has_the_id_and_all_of_them() -> None:
    assert list(parse_view(ORDERS, SCHEMA).columns) == ["id", *SCHEMA.classes["orders"].fields]


def test_an_antijoin_keeps_only_the_values_that_it_compares() -> None:
    join = {"class": "returns", "on": {"order": "id"}, "filter": {"gt": ["count", 0]}, "anti": True}
    _, returns = parse_view({**ORDERS, "join": join}, SCHEMA).sources
    assert set(returns.values) == {("order",)}
