"""The pair, the partitions and the amount; the protocol; and plans as lists of names."""

from __future__ import annotations

import pytest

from mediator.relocation.choice import Pair, choose_pair, choose_partitions, choose_strategy
from mediator.relocation.cluster import make_cluster
from mediator.relocation.messages import Relocate
from mediator.relocation.plans import cheapest_order, left_deep_plan
from mediator.standing.model import Statistics
from mediator.standing.planning import PlanOptions, make_plans
from tests.unit.standing.papers_queries import document, workload

_ABC = workload(document({"A": "k", "B": "k", "C": "k"}))


def test_the_largest_gives_to_the_smallest_half_of_the_difference() -> None:
    rows = {"a": 100, "b": 500, "c": 300}
    assert choose_pair(rows, "", "") == Pair("b", "a", 200)
    assert choose_pair(rows, "", "c") == Pair("b", "c", 100)
    assert choose_pair(rows, "c", "") == Pair("c", "a", 100)
    # A request can move from a smaller one, if it has an amount.
    assert choose_pair(rows, "a", "b") == Pair("a", "b", 0)


def test_nearly_balanced_workers_are_left_alone() -> None:
    assert choose_pair({"a": 81, "b": 100}, "", "").amount == 0
    assert choose_pair({"a": 79, "b": 100}, "", "").amount == 10
    assert choose_pair({"a": 0, "b": 0}, "", "").amount == 0


def test_partitions_come_close_to_the_amount() -> None:
    rows = {1: 50, 2: 40, 3: 30, 4: 10}
    assert choose_partitions(rows, 80) == [1, 3]
    assert choose_partitions(rows, 130) == [1, 2, 3, 4]
    # One partition is nearer than none above half of its rows.
    assert choose_partitions({1: 50}, 26) == [1]
    assert choose_partitions({1: 50}, 25) == []


def test_large_states_with_little_input_are_left_to_expire() -> None:
    rows = {"A": 100, "B": 100, "AB": 50}
    assert choose_strategy(rows, ["A", "B", "AB"], repeated=250) == "mslb"
    assert choose_strategy(rows, ["A", "B", "AB"], repeated=249) == "ptlb"
    # A recomputed state costs as much as the one that is discarded for it.
    assert choose_strategy(rows, ["A", "B", "BC"], repeated=250) == "mslb"
    assert choose_strategy(rows, ["A", "B"], repeated=200) == "mslb"


def test_a_plan_of_a_list_is_one_that_the_planner_knows() -> None:
    plan = left_deep_plan(_ABC, {"q1": "ABC"})
    assert [str(store) for store in plan.stores] == ["A", "A⋈B", "B", "C"]
    orders = {(str(join), start): str(order) for (join, start), order in plan.choice.items()}
    assert orders["A⋈B⋈C", "C"] == "⟨C, A⋈B⟩"
    assert orders["A⋈B⋈C", "A"] == "⟨A, B, C⟩"
    assert orders["A⋈B", "B"] == "⟨B, A⟩"
    (best,) = make_plans(_ABC, "shared", PlanOptions())
    assert plan.cost >= best.cost > 0


@pytest.mark.parametrize("order", ["AB", "ABCD", "ABB", "CAB"])
def test_an_order_that_does_not_fit_is_refused(order: str) -> None:
    chain = workload(document({"A": "x", "B": "xy", "C": "y"}))
    with pytest.raises(ValueError, match="order"):
        left_deep_plan(chain, {"q1": order})


def test_slow_streams_are_joined_first() -> None:
    (query,) = _ABC.joins
    statistics = Statistics({"A": 100, "B": 5, "C": 5})
    assert cheapest_order(query, statistics) == ("B", "C", "A")
    assert cheapest_order(query, Statistics({"A": 5, "B": 100, "C": 5})) == ("A", "C", "B")


def test_refusals_do_not_remove_the_present_relocation() -> None:
    manager = make_cluster(_ABC, [0, 1], 2).manager()
    manager.handle(Relocate("mslb"))
    for _ in range(150):
        manager.handle(Relocate("ptlb"))
    assert manager.present is not None
    assert manager.present.id == 1
    restored = make_cluster(_ABC, [0, 1], 2).manager()
    restored.restore(manager.record())
    assert restored.present == manager.present
    assert len(restored.relocations) <= 101
