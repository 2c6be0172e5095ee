"""Which queries can be divided by value, and into which partitions values fall."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from mediator.standing.co_partitioning import NotCoPartitioned, partition_attributes, partition_of
from tests.unit.standing.papers_queries import EXAMPLE_1, document, query, workload


def attributes_of(*queries: dict[str, str]) -> dict[str, str]:
    attributes = partition_attributes(workload(document(*queries)).joins)
    return {name: attribute.name for name, attribute in attributes.items()}


def test_one_class_of_equal_attributes_has_to_cover_all_relations() -> None:
    assert attributes_of({"A": "k", "B": "k", "C": "k"}) == {"A": "k", "B": "k", "C": "k"}
    # Other attributes can be compared as well.
    assert attributes_of({"A": "kx", "B": "kx", "C": "k"}) == {"A": "k", "B": "k", "C": "k"}
    with pytest.raises(NotCoPartitioned):
        attributes_of({"A": "x", "B": "xy", "C": "y"})
    with pytest.raises(NotCoPartitioned):
        partition_attributes(workload(EXAMPLE_1).joins)


def test_queries_that_share_a_relation_have_to_agree() -> None:
    with pytest.raises(NotCoPartitioned):
        attributes_of({"A": "x", "B": "x"}, {"B": "y", "C": "y"})
    # Of two choices the one that suits the other query is made, in either order.
    assert attributes_of({"A": "xy", "B": "xy"}, {"B": "y", "C": "y"})["A"] == "y"
    assert attributes_of({"B": "y", "C": "y"}, {"A": "xy", "B": "xy"})["A"] == "y"
    assert attributes_of({"A": "x", "B": "x"}, {"C": "y", "D": "y"}) == {
        "A": "x",
        "B": "x",
        "C": "y",
        "D": "y",
    }


def test_attributes_of_one_relation_that_are_equal_by_others_are_one_class() -> None:
    queries = document({"A": "xy", "B": "x"})
    queries["queries"]["q1"]["predicates"] = [["A.x", "B.x"], ["B.x", "A.y"]]
    attributes = partition_attributes(workload(queries).joins)
    assert {str(attribute) for attribute in attributes.values()} == {"A.x", "B.x"}


def test_many_queries_take_no_exponential_time() -> None:
    relations = {f"R{number}": "xyz" for number in range(60)}
    names = list(relations)
    queries = document(relations)
    queries["queries"] = {f"q{i}": query({names[i]: "xyz", names[i + 1]: "xyz"}) for i in range(59)}
    assert len(partition_attributes(workload(queries).joins)) == 60


def test_equal_values_are_in_one_partition_in_every_process() -> None:
    values: list[Any] = ["a", "ä", "", 7, -3, 2**70, 0.5, True]
    expected = [partition_of((type(value) is bool, value), 1024) for value in values]
    code = (
        "from mediator.standing.co_partitioning import partition_of;"
        f"print([partition_of((type(each) is bool, each), 1024) for each in {values!r}])"
    )
    for seed in ("1", "2"):
        process = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert process.stdout.strip() == str(expected)
    assert partition_of((False, 1), 64) == partition_of((False, 1.0), 64)
    assert partition_of(None, 64) is None
