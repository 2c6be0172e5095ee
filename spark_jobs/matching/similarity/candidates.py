"""Candidates: pairs of objects that share a key, and pass the constraints. Never all pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spark_jobs.matching.similarity.geometry import nearer_than
from spark_jobs.matching.similarity.objects import MatchObject
from spark_jobs.matching.similarity.spec import SimilaritySpec

__all__ = ["MOST_NEIGHBOURS", "Constraints", "candidates", "neighbours"]

MOST_NEIGHBOURS: Final = 32
"""Neighbours that count, the least ids first: the work for an object does not grow with a hub."""


def candidates(
    left: Sequence[MatchObject], right: Sequence[MatchObject], spec: SimilaritySpec
) -> Iterator[tuple[int, int]]:
    """Yield the positions of objects that share a key, each pair once."""
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for at, each in enumerate(right):
        for key in each.keys:
            by_key[key].append(at)
    for at, each in enumerate(left):
        found = {other for key in each.keys for other in by_key.get(key, ())}
        yield from ((at, other) for other in sorted(found) if _near(each, right[other], spec))


def _near(left: MatchObject, right: MatchObject, spec: SimilaritySpec) -> bool:
    if spec.buffer is None:
        return True
    return bool(left.line and right.line and nearer_than(left.line, right.line, spec.buffer))


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
