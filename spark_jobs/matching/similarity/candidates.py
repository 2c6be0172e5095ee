"""Candidates: pairs of objects that share a key, and pass the constraints. Never all pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spark_jobs.matching.similarity.geometry import nearer_than
from spark_jobs.matching.similarity.objects import MatchObject
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit

__all__ = ["MOST_NEIGHBOURS", "Constraints", "candidates", "neighbours"]

MOST_NEIGHBOURS: Final = 32
"""Neighbours that count, the least ids first: the work for an object does not grow with a hub."""


def candidates(
    left: Sequence[MatchObject], right: Sequence[MatchObject], spec: SimilaritySpec
) -> Iterator[tuple[int, int]]:
    """Yield the positions of objects that share a key, each pair once.

    Raises:
        InputUnfit: So many segments lie close to each other that comparing them costs too much.
    """
    count = _Comparisons(spec.limits.pairs)
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for at, each in enumerate(right):
        for key in each.keys:
            by_key[key].append(at)
    for at, each in enumerate(left):
        found = {other for key in each.keys for other in by_key.get(key, ())}
        yield from (
            (at, other) for other in sorted(found) if _near(each, right[other], spec, count)
        )


class _Comparisons:
    """Counts pairs of pieces of lines: one pair of lines may have a million of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0

    def __call__(self) -> None:
        self._done += 1
        if self._done > self._most:
            raise InputUnfit(
                "Lines of many points lie so close to each other in a partition that more than "
                f"{self._most:,} pairs of their pieces are compared; limits.pairs is exceeded."
            )


def _near(left: MatchObject, right: MatchObject, spec: SimilaritySpec, count: _Comparisons) -> bool:
    if spec.buffer is None:
        return True
    return bool(left.line and right.line and nearer_than(left.line, right.line, spec.buffer, count))


def neighbours(objects: Sequence[MatchObject]) -> list[tuple[int, ...]]:
    """For each object the positions of those with a common joint, `MOST_NEIGHBOURS` at most.

    The objects are sorted by their ids.
    """
    by_joint: defaultdict[str, list[int]] = defaultdict(list)
    for at, each in enumerate(objects):
        for joint in each.joints:
            if len(by_joint[joint]) <= MOST_NEIGHBOURS:
                by_joint[joint].append(at)
    found = ({n for joint in each.joints for n in by_joint[joint]} for each in objects)
    return [tuple(sorted(near - {at})[:MOST_NEIGHBOURS]) for at, near in enumerate(found)]


class Constraints(NamedTuple):
    """Which objects are never linked: by their types, or by a person."""

    types: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, spec: SimilaritySpec) -> Constraints:
        return cls(frozenset() if spec.types is None else frozenset(spec.types.cannot))

    def allow(self, left: MatchObject, right: MatchObject) -> bool:
        if right.id in left.cannot or left.id in right.cannot:
            return False
        return (left.type, right.type) not in self.types
