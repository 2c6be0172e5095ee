"""The oracle of the runtime: a join of all tuples that were logged, by nested loops."""

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
    position = {id(each): number for number, each in log}
    return Counter(
        (
            result.query,
            tuple(sorted((name, position[id(each)]) for name, each in result.tuples.items())),
        )
        for result in results
    )


def batch_join(query: str, join: Join, log: Sequence[Logged], since: int, until: int) -> Found:
    """Return the results whose last tuple came at a position from `since` to before `until`."""
    names = sorted(join.relations)
    inputs = [[each for each in log if each[1].stream == name] for name in names]
    return Counter(
        (query, tuple((name, each[0]) for name, each in zip(names, some, strict=True)))
        for some in product(*inputs)
        if since <= max(position for position, _ in some) < until
        and _is_result(join, {each.stream: each for _, each in some})
    )


def _is_result(join: Join, tuples: dict[str, StreamTuple]) -> bool:
    times = [each.time_s for each in tuples.values()]
    if max(times) - min(times) > join.window_s:
        return False
    for predicate in join.predicates:
        one, other = (tuples[at.relation].values.get(at.name) for at in predicate)
        if one is None or one != other or isinstance(one, bool) != isinstance(other, bool):
            return False
    return True
