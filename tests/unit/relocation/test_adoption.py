"""A receiver adopts a partition group: the paper's figures 2 and 4 (oracles E1, E2)."""

from __future__ import annotations

from typing import Any

from mediator.relocation.join_states import Adopted, JoinStates, adopt
from mediator.relocation.messages import Group, Routed
from mediator.standing.model import Workload
from tests.unit.standing.papers_queries import document, query, workload

_WINDOW_S = 10.0


def workload_of(relations: str) -> Workload:
    queries = document(dict.fromkeys(relations, "k"))
    queries["queries"] = {"q": query(dict.fromkeys(relations, "k"), _WINDOW_S)}
    return workload(queries)


def states(relations: str, order: str) -> JoinStates:
    return JoinStates(workload_of(relations), {"q": list(order)})


def fill(target: JoinStates, partition: int, relations: str) -> list[Any]:
    """Insert two tuples of each relation, not all within one window; return the results."""
    results = []
    for number, time_s in ((1, 0.0), (2, 8.0)):
        for position, relation in enumerate(relations):
            routed = Routed(relation, number, time_s + position, {"k": 1}, partition)
            results += list(target.insert(partition, routed))
    return results


def names(ids: Any) -> list[str]:
    return sorted(id_.partition("|")[0] for id_ in ids)


def group(sender: JoinStates, partition: int) -> Group:
    return Group(partition, sender.export(partition), {}, {})


def numbers(owner: JoinStates, partition: int) -> dict[str, list[Any]]:
    states = owner.export(partition)
    return {
        name.partition("|")[0]: sorted(sorted(row) for row in rows)
        for name, rows in states.items()
        if "|" in name
    }


def test_a_group_of_another_plan_is_matched_discarded_and_recomputed() -> None:
    sender, receiver = states("ABC", "ABC"), states("ABC", "BCA")
    fill(sender, 2, "ABC")
    fill(receiver, 4, "ABC")
    assert names(sender.ids) == ["A", "A⋈B", "B", "C"]
    assert names(receiver.ids) == ["A", "B", "B⋈C", "C"]
    shipped_group = group(sender, 2)
    expected = states("ABC", "BCA")
    fill(expected, 2, "ABC")
    pairs = {name: len(rows) for name, rows in (numbers(sender, 2) | numbers(expected, 2)).items()}
    assert adopt(receiver, shipped_group) == Adopted(6, pairs["A⋈B"], pairs["B⋈C"])
    # As if it had always been there: the pairs within the window, and no others.
    assert numbers(receiver, 2) == numbers(expected, 2)
    assert receiver.rows(4) == expected.rows(2)


def test_states_are_recomputed_bottom_up() -> None:
    sender, receiver = states("ABCD", "ABCD"), states("ABCD", "BCDA")
    fill(sender, 0, "ABCD")
    expected = states("ABCD", "BCDA")
    fill(expected, 0, "ABCD")
    shipped_group = group(sender, 0)
    assert names(shipped_group.states) == ["A", "A⋈B", "A⋈B⋈C", "B", "C", "D"]
    adoption = adopt(receiver, shipped_group)
    assert names(receiver.ids) == ["A", "B", "B⋈C", "B⋈C⋈D", "C", "D"]
    assert numbers(receiver, 0) == numbers(expected, 0)
    assert adoption.moved == 8
    assert adoption.discarded == sum(
        len(rows) for state, rows in shipped_group.states.items() if "⋈" in state
    )
    assert adoption.recomputed == sum(len(rows) for rows in numbers(expected, 0).values()) > 0


def test_equal_plans_ship_everything_and_recompute_nothing() -> None:
    sender, receiver = states("ABC", "ABC"), states("ABC", "ABC")
    fill(sender, 1, "ABC")
    adoption = adopt(receiver, group(sender, 1))
    assert adoption == Adopted(sum(sender.rows(1).values()), 0, 0)
    assert numbers(receiver, 1) == numbers(sender, 1)


def test_a_state_of_another_window_does_not_match() -> None:
    queries = document(dict.fromkeys("AB", "k"))
    queries["queries"] = {
        "short": query(dict.fromkeys("AB", "k"), 1),
        "long": query(dict.fromkeys("AB", "k"), 2),
    }
    queries["streams"]["C"] = {"attributes": ["k"], "rate": 1}
    queries["queries"]["three"] = query(dict.fromkeys("ABC", "k"), 2)
    orders = {"short": "AB", "long": "AB", "three": "ABC"}
    join_states = JoinStates(workload(queries), orders)
    (derived,) = [id_ for id_ in join_states.ids if "⋈" in id_]
    assert derived.endswith("|2.0")


def test_results_with_an_expired_tuple_are_dropped_with_it() -> None:
    sender, receiver = states("ABC", "ABC"), states("ABC", "ABC")
    fill(sender, 0, "ABC")
    sender.purge(0, 10.5)
    # The first tuple of A began at 0, and so did all pairs with it.
    pairs = numbers(sender, 0)["A⋈B"]
    assert pairs
    assert all(["A", 1] not in row for row in pairs)
    adopt(receiver, group(sender, 0))
    assert numbers(receiver, 0) == numbers(sender, 0)
