"""The execution of a batch, step by step, within bounds of its cost.

An expensive batch ends early, after any of its tuples: the remaining tuples belong to the next.
Only a single tuple can therefore cost too much, and then queries are stopped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from mediator.standing.context import MustStop
from mediator.standing.query import StandingQuery
from mediator.standing.results import MAX_RESULTS, LoggedTuple
from mediator.standing.runtime import Result, Runtime

__all__ = ["MAX_PAIRS", "BatchRun"]

_BATCH_STEPS: Final = 20_000
_BATCH_RESULTS: Final = 2_000
_BATCH_BYTES: Final = 2**21
"""Bounds after which a batch ends with the current tuple."""

MAX_PAIRS: Final = 200_000
"""Maximum pairs that all queries of a database can make of one tuple."""


@dataclass(eq=False)
class BatchRun:
    """A running batch.

    Attributes:
        last_numbers: The highest number taken of each relation.
        accepted: Tuples that were not late.
        results: As JSON, in order, by query.
    """

    _runtime: Runtime
    _queries: Mapping[str, StandingQuery]
    last_numbers: dict[str, int] = field(default_factory=dict, init=False)
    accepted: list[LoggedTuple] = field(default_factory=list, init=False)
    results: defaultdict[str, list[bytes]] = field(
        default_factory=lambda: defaultdict(list), init=False
    )
    _steps: int = field(default=0, init=False)
    _count: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _results_of_tuple: Counter[str] = field(default_factory=Counter, init=False)
    _steps_before: int = field(default=0, init=False)

    def run(self, tuples: Iterable[LoggedTuple]) -> Iterator[None]:
        """Execute the batch; the caller can run other tasks after each step.

        Raises:
            MustStop: A tuple costs too much; the runtime is no longer usable.
        """
        for result in self._runtime.run(self._within_bounds(tuples)):
            if result is not None:
                self._emit(result)
            self._steps += 1
            if self._steps - self._steps_before > MAX_PAIRS:
                raise self._too_many_pairs()
            yield

    def _within_bounds(self, tuples: Iterable[LoggedTuple]) -> Iterator[LoggedTuple]:
        watermark_s = self._runtime.watermark_s
        for item in tuples:
            if (
                self._steps >= _BATCH_STEPS
                or self._count >= _BATCH_RESULTS
                or self._bytes >= _BATCH_BYTES
            ):
                return
            self.last_numbers[item.stream] = max(item.number, self.last_numbers.get(item.stream, 0))
            if item.time_s >= watermark_s:
                self.accepted.append(item)
            self._results_of_tuple.clear()
            self._steps_before = self._steps
            yield item

    def _emit(self, result: Result) -> None:
        query = result.query
        document = orjson.dumps(_document_of(result, self._queries[query]))
        self.results[query].append(document)
        self._count += 1
        self._bytes += len(document)
        self._results_of_tuple[query] += 1
        if self._results_of_tuple[query] > MAX_RESULTS:
            raise MustStop([query], f"One tuple made more than {MAX_RESULTS:,} results.")

    def _too_many_pairs(self) -> MustStop:
        relation = self.accepted[-1].stream
        readers = [id_ for id_, query in self._queries.items() if relation in query.join.relations]
        detail = (
            f"The queries of the database made more than {MAX_PAIRS:,} pairs of one tuple of"
            f" {relation}, so those that read it were stopped."
        )
        return MustStop(readers, detail)


def _document_of(result: Result, query: StandingQuery) -> dict[str, Any]:
    """Return a result as JSON: its tuples under the aliases of the query."""
    tuples = {
        alias: dict(result.tuples[source.relation].values)
        for alias, source in query.sources.items()
    }
    last_s = max(item.time_s for item in result.tuples.values())
    return {"time_s": last_s, "tuples": tuples}
