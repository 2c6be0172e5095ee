"""Bounds of a view: it is stopped while it grows, and not when it has grown."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.base.errors import Invalid
from mediator.views import nodes
from mediator.views.evaluation import Evaluation
from mediator.views.nodes import ProductionNode
from mediator.views.parser import parse_view
from tests.unit.views.shop import SCHEMA, changes_of, routes

SELF_JOIN = {
    "class": "customers",
    "join": {"as": "other", "class": "customers", "on": {"city": "city"}},
    "fields": ["id", "other.id"],
}
WITHOUT_ORDER = {
    "class": "customers",
    "join": {"class": "orders", "anti": True, "on": {"customer": "id"}},
    "fields": ["id"],
}


def put(evaluator: Evaluation, class_name: str, id_: str, version: int = 1, **values: Any) -> None:
    for change in changes_of(class_name, id_, None, values, version):
        evaluator.apply(change)


def customers(count: int) -> Evaluation:
    evaluator = Evaluation(routes())
    for number in range(count):
        put(evaluator, "customers", f"c{number}", city="Rome", rank=number)
    return evaluator


def add(evaluator: Evaluation, document: dict[str, Any]) -> int:
    """Evaluate a view; return the number of objects of its sources that were read."""
    return sum(1 for _ in evaluator.add("view", parse_view({"name": "view", **document}, SCHEMA)))


def test_a_join_that_makes_too_many_rows_is_stopped_before_all_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "MAX_ROWS", 10)
    evaluator = customers(30)
    assert add(evaluator, SELF_JOIN) < 35, "hardly any of the second source"
    assert "more than 10 rows" in evaluator.stopped["view"]


def test_changes_that_make_too_many_rows_stop_a_view_before_they_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "MAX_ROWS", 10)
    evaluator = customers(0)
    add(evaluator, SELF_JOIN)
    for number in range(10):
        put(evaluator, "customers", f"c{number}", city="Rome")
    assert "more than 10 rows" in evaluator.stopped["view"]


def test_rows_that_come_and_go_between_two_takes_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "MAX_ROWS", 10)
    evaluator = customers(3)
    add(evaluator, {**SELF_JOIN, "fields": ["id", "other.id", "city"]})
    for version in range(2, 100):
        put(evaluator, "customers", "c0", version, city=f"city {version}")
        put(evaluator, "customers", "c1", version, city=f"city {version}")
    put(evaluator, "customers", "c0", 100, city="Rome")
    put(evaluator, "customers", "c1", 100, city="Rome")
    assert evaluator.take() == {}
    assert not evaluator.stopped
    assert len(evaluator.rows("view")) == 9


def test_rows_that_an_antijoin_excludes_are_not_counted_at_the_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "MAX_ROWS", 2)
    monkeypatch.setattr(nodes, "MAX_GROUPS", 2)
    evaluator = customers(50)
    for number in range(1, 50):
        put(evaluator, "orders", f"o{number}", customer=f"c{number}")
    add(evaluator, WITHOUT_ORDER)
    assert evaluator.rows("view") == {b'{"id":"c0"}': 1}
    evaluator.discard("view")
    antijoin = {name: WITHOUT_ORDER[name] for name in ("class", "join")}
    add(evaluator, {**antijoin, "aggregate": {"group": ["id"]}})
    assert not evaluator.stopped
    assert len(evaluator.rows("view")) == 1


def test_rows_beyond_the_bound_on_bytes_are_not_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "MAX_RESULT_BYTES", 1_000)
    encoded: list[Any] = []

    def encode(row: Any) -> bytes:
        encoded.append(row)
        return b"x" * 100

    node = ProductionNode(encode)
    node.apply(((number,), 1) for number in range(10))
    assert len(node.take()) == 10
    # All rows change: added ones are counted before removed ones.
    node.apply(((number,), 1) for number in range(10, 20))
    node.apply(((number,), -1) for number in range(10))
    assert len(node.take()) == 20
    encoded.clear()
    node.apply(((number,), 1) for number in range(20, 1_000))
    with pytest.raises(Invalid, match="too large"):
        node.take()
    assert len(encoded) < 15


def test_extremes_over_joined_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "MAX_VALUES", 50)
    evaluator = customers(30)
    highest = {"group": ["id"], "compute": {"most": {"max": "other.rank"}}}
    self_join = {name: SELF_JOIN[name] for name in ("class", "join")}
    assert add(evaluator, {**self_join, "aggregate": highest}) < 35
    assert "more than 50 values" in evaluator.stopped["view"]


def test_extremes_forget_the_values_of_groups_that_are_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "MAX_VALUES", 50)
    evaluator = customers(0)
    add(
        evaluator,
        {"class": "customers", "aggregate": {"group": ["id"], "compute": {"m": {"max": "rank"}}}},
    )
    for number in range(200):
        put(evaluator, "customers", f"c{number}", rank=number)
        for change in changes_of("customers", f"c{number}", {"rank": number}, None, 2):
            evaluator.apply(change)
    assert not evaluator.stopped
