"""The execution of a batch, step by step, within bounds of what one batch may cost.

A batch that costs much ends early, after any of its tuples: what is left of it belongs to the next.
So only a single tuple can cost too much, and then queries are stopped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from mediator.standing.context import MustStop
from mediator.standing.query import StandingQuery
from mediator.standing.results import MOST_RESULTS, LoggedTuple
from mediator.standing.runtime import Result, Runtime

__all__ = ["MOST_PAIRS", "BatchRun"]

_STEPS: Final = 20_000
_RESULTS: Final = 2_000
_BYTES: Final = 2**21
"""After these a batch ends with the tuple at hand."""

MOST_PAIRS: Final = 200_000
"""Pairs that all queries of a database may make of one tuple."""


@dataclass(eq=False)
class BatchRun:
    """A batch under way.

    Attributes:
        taken: The highest number that was taken of each relation.
        accepted: Tuples that were not late.
        results: As JSON, in their order, by query.
    """

    _runtime: Runtime
    _queries: Mapping[str, StandingQuery]
    taken: dict[str, int] = field(default_factory=dict, init=False)
    accepted: list[LoggedTuple] = field(default_factory=list, init=False)
    results: defaultdict[str, list[bytes]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )
    _steps: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _of_tuple: Counter[str] = field(default_factory=Counter, init=False)
    _steps_before: int = field(default=0, init=False)

    def run(self, tuples: Iterable[LoggedTuple]) -> Iterator[None]:
        """Execute the batch; others may run after each step.

        Raises:
            MustStop: A tuple costs too much; the runtime is of no use any more.
        """
        for result in self._runtime.run(self._within_bounds(tuples)):
            if result is not None:
                self._emit(result)
            self._steps += 1
            if self._steps - self._steps_before > MOST_PAIRS:
                raise self._too_many_pairs()
            yield

    def _within_bounds(self, tuples: Iterable[LoggedTuple]) -> Iterator[LoggedTuple]:
        watermark_s = self._runtime.watermark_s
        for each in tuples:
            if self._steps >= _STEPS or self._count >= _RESULTS or self._bytes >= _BYTES:
                return
            self.taken[each.stream] = max(each.number, self.taken.get(each.stream, 0))
            if each.time_s >= watermark_s:
                self.accepted.append(each)
            self._of_tuple.clear()
            self._steps_before = self._steps
            yield each

    def _emit(self, result: Result) -> None:
        query = result.query
        document = orjson.dumps(_shown(result, self._queries[query]))
        self.results[query].append(document)
        self._count += 1
        self._bytes += len(document)
        self._of_tuple[query] += 1
        if self._of_tuple[query] > MOST_RESULTS:
            raise MustStop([query], f"One tuple made more than {MOST_RESULTS:,} results.")

    def _too_many_pairs(self) -> MustStop:
        relation = self.accepted[-1].stream
        reading = [id_ for id_, each in self._queries.items() if relation in each.join.relations]
        detail = (
            f"The queries of the database made more than {MOST_PAIRS:,} pairs of one tuple of"
            f" {relation}, so those that read it were stopped."
        )
        return MustStop(reading, detail)


def _shown(result: Result, query: StandingQuery) -> dict[str, Any]:
    """Return a result as JSON: its tuples under the aliases of the query."""
    tuples = {
        alias: dict(result.tuples[source.relation].values)
        for alias, source in query.sources.items()
    }
    last_s = max(each.time_s for each in result.tuples.values())
    return {"time_s": last_s, "tuples": tuples}
