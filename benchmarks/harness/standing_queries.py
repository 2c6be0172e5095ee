"""Random standing queries over relations with three attributes each, which join by equal names."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from random import Random
from typing import Final

from mediator.standing.model import Attribute, Join, Statistics, Stream, Workload
from mediator.standing.probe_orders import intermediates

__all__ = ["PAPERS_SCHEMA", "drawn_workload", "larger_schema"]

PAPERS_SCHEMA: Final = {
    "Q": "abc",
    "R": "cde",
    "S": "efg",
    "T": "ghi",
    "U": "gjk",
    "V": "glm",
    "W": "aeg",
    "X": "amn",
    "Y": "ano",
    "Z": "opq",
}
"""The ten relations of the paper's experiments, as its authors published them."""

_RATE: Final = 1000.0
_WINDOW_S: Final = 1.0
_PARALLELISM: Final = 5


def drawn_workload(
    schema: Mapping[str, str | tuple[str, ...]], queries: int, size: int, draw: Random
) -> Workload:
    """Draw queries, without duplicates.

    Every relation has the same rate, and joins are as large as their inputs, as in the paper.
    """
    chains = dict.fromkeys(_draw_query(schema, size, draw) for _ in range(queries))
    joins = [join for join in chains if join is not None]
    sizes = {intermediate: _RATE for join in joins for intermediate in [join, *intermediates(join)]}
    streams = {name: Stream(frozenset(attributes), _RATE) for name, attributes in schema.items()}
    rates = dict.fromkeys(schema, _RATE)
    names = {f"q{number}": join for number, join in enumerate(joins, 1)}
    return Workload(streams, names, Statistics(rates, sizes=sizes), _PARALLELISM)


def larger_schema(relations: int) -> dict[str, tuple[str, ...]]:
    """Return repeated copies of the paper's relations, each joined to the previous one."""
    names = {}
    for number in range(relations):
        name, attributes = list(PAPERS_SCHEMA.items())[number % len(PAPERS_SCHEMA)]
        copy = number // len(PAPERS_SCHEMA)
        copied = tuple(f"{attribute}{copy}" for attribute in attributes)
        # The first relation of a copy has an attribute of the last one of the previous copy.
        is_first = copy > 0 and number % len(PAPERS_SCHEMA) == 0
        names[f"{name}{copy}"] = (f"o{copy - 1}", *copied[1:]) if is_first else copied
    return names


def _draw_query(
    schema: Mapping[str, str | tuple[str, ...]], size: int, draw: Random
) -> Join | None:
    """Draw a chain of relations that each join the previous one; None if it ends too early."""
    last = draw.choice(sorted(schema))
    chain = [last]
    while len(chain) < size:
        candidates = [
            name
            for name in sorted(schema)
            if name not in chain and set(schema[name]) & set(schema[last])
        ]
        if not candidates:
            return None
        last = draw.choice(candidates)
        chain.append(last)
    predicates = {
        frozenset([Attribute(left, name), Attribute(right, name)])
        for left, right in combinations(chain, 2)
        for name in set(schema[left]) & set(schema[right])
    }
    return Join(frozenset(chain), frozenset(predicates), _WINDOW_S)
