"""Published results of standing queries, and the expected ones: a join of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from mediator.base.errors import Unavailable
from mediator.base.lease import Lease
from mediator.coordination.connecting import Coordination
from mediator.standing.model import Join
from mediator.standing.results import READY, LoggedTuple, Progress, Publication
from mediator.standing.state import StreamTuple
from tests.unit.standing.batch_join import batch_join

__all__ = ["Fault", "Recorder"]

Fault: TypeAlias = Callable[[int], str]
"""Returns the failure of a call to publish, by its number: none (''), before, after or lease."""

ResultCounts: TypeAlias = Counter[tuple[tuple[str, Any], ...]]
"""Results, each as the `n` of its tuples by relation."""


@dataclass
class Recorder:
    """Records publications to one database, and lets calls fail.

    Each tuple has one position, at which it was taken. History comes before everything, at
    positions below zero.
    """

    _shared: Coordination
    _database: str
    fault: Fault = field(default=lambda _: "")
    log: dict[int, StreamTuple] = field(default_factory=dict)
    ready: dict[str, int] = field(default_factory=dict)
    results: dict[str, list[bytes]] = field(default_factory=dict)
    sequences: list[int] = field(default_factory=list)
    calls: int = 0
    calls_under_way: int = 0
    _recorded_keys: set[tuple[str, int]] = field(default_factory=set)
    _progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self._publish = self._shared.standing_results.publish
        self._shared.standing_results.publish = self.publish  # type: ignore[method-assign]

    def stop(self) -> None:
        self._shared.standing_results.publish = self._publish  # type: ignore[method-assign]

    async def publish(
        self, database: str, lease: Lease, sequence: int, publication: Publication
    ) -> None:
        if database != self._database:
            return await self._publish(database, lease, sequence, publication)
        self.calls += 1
        self.calls_under_way += 1
        try:
            await self._publish_with_fault(self.fault(self.calls), lease, sequence, publication)
        finally:
            self.calls_under_way -= 1
        return None

    async def is_complete(self) -> bool:
        """Whether every publication is recorded: readers see it before the publisher does."""
        return not self.calls_under_way

    async def _publish_with_fault(
        self, fault: str, lease: Lease, sequence: int, publication: Publication
    ) -> None:
        if fault == "before":
            raise Unavailable("It went down before.", system="coordination")
        if fault == "lease":
            await self._shared.redis.delete(lease.key)
        await self._publish(self._database, lease, sequence, publication)
        self._record(sequence, publication)
        if fault == "after":
            raise Unavailable("It went down after.", system="coordination")

    def _record(self, sequence: int, publication: Publication) -> None:
        assert sequence not in self.sequences
        self.sequences.append(sequence)
        for logged in publication.tuples:
            if (logged.stream, logged.number) not in self._recorded_keys:
                self._recorded_keys.add((logged.stream, logged.number))
                self.log[self._position(logged)] = logged
        self._progress = publication.progress
        for query, state in publication.states.items():
            if state.name == READY:
                self.ready.setdefault(query, self.end)  # a query becomes ready again after a pause
        for query, results in publication.results.items():
            self.results.setdefault(query, []).extend(results)

    @property
    def end(self) -> int:
        return max(self.log, default=-1) + 1

    def _position(self, logged: LoggedTuple) -> int:
        before = self._progress.offsets.get(logged.stream)
        if before is None or logged.number <= before.number:
            return min([0, *self.log]) - 1
        return self.end

    def published(self, query: str) -> ResultCounts:
        """Return the published results of a query."""
        documents = map(orjson.loads, self.results.get(query, ()))
        return Counter(
            tuple(
                sorted((name.lower(), values["n"]) for name, values in document["tuples"].items())
            )
            for document in documents
        )

    def expected(self, query: str, join: Join) -> ResultCounts:
        """Join the log: results whose last tuple came after the query was ready."""
        log = list(self.log.items())
        results = batch_join(query, join, log, self.ready[query], self.end)
        return Counter(
            {
                tuple((name, self.log[position].values["n"]) for name, position in members): count
                for (_, members), count in results.items()
            }
        )
