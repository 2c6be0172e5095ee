"""Evaluating views: the cost of a change, and views that are stopped while others go on."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import orjson
import pytest

from mediator.model.change import Change
from mediator.schema.types import Values
from mediator.views import evaluation, network, nodes
from mediator.views.evaluation import Evaluation
from mediator.views.network import Network
from mediator.views.parser import parse_view
from tests.unit.views.shop import SCHEMA, changes_of, routes


def evaluate(**documents: dict[str, Any]) -> Evaluation:
    evaluator = Evaluation(routes())
    for id_, document in documents.items():
        for _ in evaluator.add(id_, parse_view(document, SCHEMA)):
            pass
    return evaluator


def put(evaluator: Evaluation, class_name: str, id_: str, version: int = 1, **values: Any) -> None:
    for change in changes_of(class_name, id_, None, values, version):
        evaluator.apply(change)


def rows(evaluator: Evaluation, id_: str) -> list[tuple[dict[str, Any], int]]:
    return [(orjson.loads(row), count) for row, count in evaluator.rows(id_).items()]


def test_a_change_reaches_only_the_views_it_may_touch(monkeypatch: pytest.MonkeyPatch) -> None:
    updated_views: list[Any] = []

    def update(self: Network, *_: Any) -> None:
        updated_views.append(self.view.name)

    documents = {
        f"v{number}": {
            "name": str(number),
            "class": "customers",
            "filter": {"eq": ["city", f"c{number}"]},
        }
        for number in range(1_000)
    }
    evaluator = evaluate(**documents)
    monkeypatch.setattr(Network, "update", update)
    put(evaluator, "customers", "a", city="c7")
    put(evaluator, "customers", "a", 2, city="c8")
    put(evaluator, "orders", "a", amount=1)
    assert updated_views == ["7", "7", "8"]


@pytest.mark.parametrize(
    ("module", "bound", "document", "detail"),
    [
        (nodes, "MAX_ROWS", {"class": "customers"}, "3 rows"),
        (nodes, "MAX_RESULT_BYTES", {"class": "customers"}, "3 bytes"),
        (
            nodes,
            "MAX_GROUPS",
            {"class": "customers", "aggregate": {"group": ["id"]}},
            "3 groups",
        ),
        (
            network,
            "MAX_TUPLES",
            {"class": "customers", "join": {"as": "x", "class": "orders", "on": {"id": "id"}}},
            "3 tuples",
        ),
    ],
)
def test_a_view_that_grows_too_large_is_stopped_and_others_go_on(
    module: Any, bound: str, document: dict[str, Any], detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, bound, 3)
    small = {"class": "customers", "filter": {"eq": ["name", "m"]}}
    evaluator = evaluate(large=document, small=small)
    for number in range(5):
        put(evaluator, "customers", f"c{number}", name="n")
        evaluator.take()
    assert detail in evaluator.stopped["large"]
    assert list(evaluator.views) == ["small"]


def test_a_change_that_concerns_too_many_tuples_stops_the_view(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(network, "MAX_CHANGE_TUPLES", 3)
    join = {"as": "o", "class": "orders", "on": {"customer": "id"}}
    evaluator = evaluate(view={"class": "customers", "join": join, "fields": ["o.id"]})
    for number in range(5):
        put(evaluator, "orders", f"o{number}", customer="a")
    put(evaluator, "customers", "a", city="Rome")
    assert evaluator.take() == {}  # and no row that was computed until then
    assert "more than 3 tuples" in evaluator.stopped["view"]


def test_views_that_no_index_finds_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_UNINDEXED", 1)
    indexed = {"class": "orders", "filter": {"eq": ["amount", 1]}}
    evaluator = evaluate(one={"class": "orders"}, two={"class": "orders"}, three=indexed)
    assert list(evaluator.views) == ["one", "three"]
    assert "1 conditions on orders" in evaluator.stopped["two"]


def test_objects_beyond_the_bound_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_OBJECTS", 2)
    evaluator = evaluate(view={"class": "customers"})
    for number in range(3):
        put(evaluator, "customers", f"c{number}", name="n")
    assert evaluator.oversized() == "customers"
    monkeypatch.setattr(evaluation, "MAX_OBJECTS", 3)
    assert evaluator.oversized() is None
    monkeypatch.setattr(evaluation, "MAX_BYTES", 2)
    assert evaluator.oversized() == "customers"


def test_a_sum_beyond_its_range_stops_the_view() -> None:
    total = {"class": "orders", "aggregate": {"compute": {"s": {"sum": "price"}}}}
    evaluator = evaluate(view=total)
    put(evaluator, "orders", "a", price=1.7e308)
    assert "view" in evaluator.take()
    put(evaluator, "orders", "b", price=1.7e308)
    evaluator.take()
    assert "range" in evaluator.stopped["view"]


def test_a_sum_of_decimals_with_too_many_digits_stops_its_view_only() -> None:
    def view_with(function: str) -> dict[str, Any]:
        return {"class": "orders", "aggregate": {"compute": {"r": {function: "total"}}}}

    evaluator = evaluate(sum=view_with("sum"), avg=view_with("avg"), count=view_with("count"))
    for id_, total in (("a", "1E+6144"), ("b", "1E-6143")):
        put(evaluator, "orders", id_, total=Decimal(total))
        evaluator.take()
    assert "34 digits" in evaluator.stopped["sum"]
    assert rows(evaluator, "avg") == [({"r": "5E+6143"}, 1)]
    assert rows(evaluator, "count") == [({"r": 2}, 1)]


def test_a_value_that_the_schema_does_not_allow_stops_the_views_of_its_class() -> None:
    evaluator = evaluate(orders={"class": "orders"}, customers={"class": "customers"})
    head = ("op", "shop", "orders", "a", "main", 1, "create", None)
    evaluator.apply(Change(*head, {"amount": "many"}, 0, "shop"))
    evaluator.take()
    assert list(evaluator.views) == ["customers"]
    assert "orders cannot be read" in evaluator.stopped["orders"]


@pytest.mark.parametrize("order", [("main", "prices"), ("prices", "main")])
def test_an_object_exists_if_its_anchor_has_a_group_of_it(order: Iterable[str]) -> None:
    """Groups of other systems can come earlier or later than those of the anchor."""
    evaluator = evaluate(view={"class": "orders", "fields": ["id", "amount", "price"]})
    values: Values = {"amount": 1, "price": 0.5}
    changes = {change.group: change for change in changes_of("orders", "a", None, values, 1)}
    for group in order:
        evaluator.apply(changes[group])
    evaluator.take()
    assert rows(evaluator, "view") == [({"id": "a", "amount": 1, "price": 0.5}, 1)]


def test_equal_rows_are_counted_and_null_is_not_missing() -> None:
    evaluator = evaluate(view={"class": "customers", "fields": ["city"]})
    for id_, city in {"a": "Rome", "b": "Rome", "c": None}.items():
        put(evaluator, "customers", id_, city=city)
    put(evaluator, "customers", "d", name="n")
    evaluator.take()
    assert rows(evaluator, "view") == [({"city": "Rome"}, 2), ({"city": None}, 1), ({}, 1)]


def test_a_condition_on_several_sources_selects_joined_rows() -> None:
    either = {"or": [{"eq": ["amount", 1]}, {"eq": ["buyer.city", "Rome"]}]}
    join = {"as": "buyer", "reference": "customer"}
    evaluator = evaluate(view={"class": "orders", "join": join, "filter": either, "fields": ["id"]})
    put(evaluator, "customers", "r", city="Rome")
    put(evaluator, "customers", "o", city="Oslo")
    for id_, customer, amount in (("a", "r", 2), ("b", "o", 1), ("c", "o", 2), ("d", None, 1)):
        put(evaluator, "orders", id_, customer=customer, amount=amount)
    evaluator.take()
    assert rows(evaluator, "view") == [({"id": "a"}, 1), ({"id": "b"}, 1)]


def test_rows_are_counted_as_often_as_joins_make_them() -> None:
    join = {"as": "o", "class": "orders", "on": {"customer": "id"}}
    evaluator = evaluate(view={"class": "customers", "join": join, "fields": ["city"]})
    for number in range(3):
        put(evaluator, "orders", f"o{number}", customer="a")
    put(evaluator, "customers", "a", city="Rome")
    evaluator.take()
    assert rows(evaluator, "view") == [({"city": "Rome"}, 3)]
    for change in changes_of("orders", "o1", {"customer": "a"}, None, 2):
        evaluator.apply(change)
    evaluator.take()
    assert rows(evaluator, "view") == [({"city": "Rome"}, 2)]


def test_a_sum_of_floats_becomes_one_of_integers_when_the_last_float_is_gone() -> None:
    total = {"class": "orders", "aggregate": {"compute": {"s": {"sum": "note.k"}}}}
    evaluator = evaluate(view=total)
    put(evaluator, "orders", "a", note={"k": 0.5})
    put(evaluator, "orders", "b", note={"k": 2**60})
    put(evaluator, "orders", "a", 2, note={"k": 1})
    evaluator.take()
    assert rows(evaluator, "view") == [({"s": 2**60 + 1}, 1)]


def test_a_replaced_object_has_no_field_of_before() -> None:
    """Even if its change has no before image."""
    evaluator = evaluate(view={"class": "customers", "fields": ["city", "rank"]})
    put(evaluator, "customers", "a", city="Rome", rank=1)
    put(evaluator, "customers", "a", 2, rank=2)
    evaluator.take()
    assert rows(evaluator, "view") == [({"rank": 2}, 1)]
