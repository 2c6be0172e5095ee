"""The oracle of the runtime: a nested-loop join of all logged tuples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product

from mediator.standing.model import Join
from mediator.standing.runtime import Result
from mediator.standing.state import StreamTuple

Logged = tuple[int, StreamTuple]
"""A tuple that was not late, and its position in the feed."""

Found = Counter[tuple[str, tuple[tuple[str, int], ...]]]
"""Results: a query, and the position of the tuple of each relation."""


def found(results: Sequence[Result], log: Sequence[Logged]) -> Found:
    position = {id(tuple_): number for number, tuple_ in log}
    return Counter(
        (
            result.query,
            tuple(sorted((name, position[id(tuple_)]) for name, tuple_ in result.tuples.items())),
        )
        for result in results
    )


def batch_join(query: str, join: Join, log: Sequence[Logged], since: int, until: int) -> Found:
    """Return the results whose last tuple came at a position from `since` to before `until`."""
    names = sorted(join.relations)
    inputs = [[entry for entry in log if entry[1].stream == name] for name in names]
    return Counter(
        (query, tuple((name, entry[0]) for name, entry in zip(names, entries, strict=True)))
        for entries in product(*inputs)
        if since <= max(position for position, _ in entries) < until
        and _is_result(join, {tuple_.stream: tuple_ for _, tuple_ in entries})
    )


def _is_result(join: Join, tuples: dict[str, StreamTuple]) -> bool:
    times = [tuple_.time_s for tuple_ in tuples.values()]
    if max(times) - min(times) > join.window_s:
        return False
    for predicate in join.predicates:
        one, other = (
            tuples[attribute.relation].values.get(attribute.name) for attribute in predicate
        )
        if one is None or one != other or isinstance(one, bool) != isinstance(other, bool):
            return False
    return True
