"""Candidates: pairs of objects that share a key, without comparing all pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from spark_jobs.matching.similarity.geometry import nearer_than
from spark_jobs.matching.similarity.objects import MatchObject
from spark_jobs.matching.similarity.spec import SimilaritySpec
from spark_jobs.runner.port import InputUnfit

__all__ = ["MAX_NEIGHBOURS", "Constraints", "candidates", "neighbours"]

MAX_NEIGHBOURS: Final = 32
"""Maximum neighbours of an object, the least ids first: hubs do not increase the work."""


def candidates(
    left: Sequence[MatchObject], right: Sequence[MatchObject], spec: SimilaritySpec
) -> Iterator[tuple[int, int]]:
    """Yield the positions of objects that share a key, each pair once.

    Raises:
        InputUnfit: Too many close segments would be compared.
    """
    count = _Comparisons(spec.limits.pairs)
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for at, obj in enumerate(right):
        for key in obj.keys:
            by_key[key].append(at)
    for at, obj in enumerate(left):
        partners = {other for key in obj.keys for other in by_key.get(key, ())}
        yield from (
            (at, other) for other in sorted(partners) if _near(obj, right[other], spec, count)
        )


class _Comparisons:
    """Counts compared pairs of pieces of lines: one pair of lines can have a million of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    def __call__(self) -> None:
        self._count += 1
        if self._count > self._limit:
            raise InputUnfit(
                "Lines of many points lie so close to each other in a partition that more than "
                f"{self._limit:,} pairs of their pieces are compared; limits.pairs is exceeded."
            )


def _near(left: MatchObject, right: MatchObject, spec: SimilaritySpec, count: _Comparisons) -> bool:
    if spec.buffer is None:
        return True
    return bool(left.line and right.line and nearer_than(left.line, right.line, spec.buffer, count))


def neighbours(objects: Sequence[MatchObject]) -> list[tuple[int, ...]]:
    """Return for each object at most `MAX_NEIGHBOURS` positions of objects with a common joint.

    The objects are sorted by their ids.
    """
    by_joint: defaultdict[str, list[int]] = defaultdict(list)
    for at, obj in enumerate(objects):
        for joint in obj.joints:
            if len(by_joint[joint]) <= MAX_NEIGHBOURS:
                by_joint[joint].append(at)
    positions = ({n for joint in obj.joints for n in by_joint[joint]} for obj in objects)
    return [tuple(sorted(near - {at})[:MAX_NEIGHBOURS]) for at, near in enumerate(positions)]


class Constraints(NamedTuple):
    """Objects that are never linked: by their types, or by a user's decision."""

    types: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, spec: SimilaritySpec) -> Constraints:
        return cls(frozenset() if spec.types is None else frozenset(spec.types.cannot))

    def allow(self, left: MatchObject, right: MatchObject) -> bool:
        if right.id in left.cannot or left.id in right.cannot:
            return False
        return (left.type, right.type) not in self.types
