"""The queries of the paper's examples."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from mediator.standing.model import Join, Workload
from mediator.standing.parser import parse_workload
from mediator.standing.probe_orders import ProbeOrder, StoreLayout

Relations = dict[str, str]
"""The attributes of each relation, one letter each; equal letters join."""


def query(relations: Relations, window_s: float = 1.0) -> dict[str, Any]:
    predicates = [
        [f"{one}.{attribute}", f"{other}.{attribute}"]
        for one, other in combinations(relations, 2)
        for attribute in relations[one]
        if attribute in relations[other]
    ]
    return {"relations": list(relations), "predicates": predicates, "window_s": window_s}


def document(*queries: Relations, rate: float = 100.0, **members: Any) -> dict[str, Any]:
    attributes: dict[str, set[str]] = {}
    for relations in queries:
        for name, letters in relations.items():
            attributes.setdefault(name, set()).update(letters)
    streams = {
        name: {"attributes": sorted(letters), "rate": rate} for name, letters in attributes.items()
    }
    query_documents = {
        f"q{number}": query(relations) for number, relations in enumerate(queries, 1)
    }
    return {"streams": streams, "queries": query_documents, **members}


EXAMPLE_1: dict[str, Any] = {
    "streams": {
        "R": {"attributes": ["a"], "rate": 100},
        "S": {"attributes": ["a", "b"], "rate": 100},
        "T": {"attributes": ["b", "c"], "rate": 100},
        "U": {"attributes": ["c"], "rate": 100},
    },
    "queries": {
        "q1": {
            "relations": ["R", "S", "T"],
            "predicates": [["R.a", "S.a"], ["S.b", "T.b"]],
            "window_s": 1,
        },
        "q2": {
            "relations": ["S", "T", "U"],
            "predicates": [["S.b", "T.b"], ["T.c", "U.c"]],
            "window_s": 1,
        },
    },
    "sizes": [
        {"predicates": [["R.a", "S.a"]], "window_s": 1, "size": 100},
        {"predicates": [["S.b", "T.b"]], "window_s": 1, "size": 150},
        {"predicates": [["T.c", "U.c"]], "window_s": 1, "size": 100},
    ],
}
"""Two queries, each of which costs 475 alone."""

EXAMPLE_2 = document(
    {"R": "b", "S": "bc", "T": "c"}, {"S": "c", "T": "cd", "U": "d"}, parallelism=5
)
"""The queries of figure 3."""


def workload(queries: dict[str, Any]) -> Workload:
    return parse_workload(queries)


def order(join: Join, start: str, *steps: StoreLayout) -> ProbeOrder:
    return ProbeOrder(start, steps, join)
