"""The holder's view of the log of batches: it publishes batches and forgets old entries."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from mediator.base.lease import Lease
from mediator.standing.results import (
    LogEntry,
    LoggedBatch,
    LoggedTuple,
    Progress,
    Publication,
    QueryState,
    StandingResults,
)

__all__ = ["BatchLog", "Reach"]

_MAX_FORGOTTEN: Final = 1_000
"""Maximum entries forgotten with a batch, as a long pause may leave many."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The tuples of the log that are still needed.

    Attributes:
        watermark_s: Earlier tuples will not come.
        window_s: The longest window, which reaches back from the watermark.
        missed: Relations whose tuples are all needed: a query has not executed some of them.
    """

    watermark_s: float = float("-inf")
    window_s: float = 0.0
    missed: frozenset[str] = frozenset()


class _Entry(NamedTuple):
    """The tuples of a relation in a batch: the batch, and their latest time."""

    sequence: int
    newest_s: float


@dataclass(eq=False)
class BatchLog:
    """Publishes the batches of one database, one after the other.

    The tuples of a relation in a batch are forgotten once no window reaches back to them from the
    watermark, strictly in the order of batches: a later entry costs little and goes in its turn.
    """

    _results: StandingResults
    _database: str
    _lease: Lease
    sequence: int = field(default=0, init=False)
    revision: int = field(default=-1, init=False)
    progress: Progress = field(default_factory=Progress, init=False)
    _entries: defaultdict[str, deque[_Entry]] | None = field(default=None, init=False)
    """Kept entries by relation; None: unknown, and nothing is forgotten."""

    async def open(self) -> None:
        """Continue after the last published batch."""
        published = await self._results.published(self._database)
        self.sequence, self.revision, self.progress = published

    async def read(self) -> AsyncIterator[LoggedBatch]:
        """Yield the kept batches."""
        self._entries = defaultdict(deque)
        async for batch in self._results.batches(self._database):
            self._note(batch)
            yield batch

    async def clear(self) -> None:
        """Forget everything: nothing is read any more."""
        self._entries = defaultdict(deque)
        await self.publish(progress=Progress())

    async def publish(
        self,
        tuples: Sequence[LoggedTuple] = (),
        *,
        progress: Progress | None = None,
        reach: Reach | None = None,
        states: Mapping[str, QueryState] | None = None,
        results: Mapping[str, Sequence[bytes]] | None = None,
    ) -> None:
        """Publish a batch.

        Args:
            tuples: Tuples that were not late.
            progress: The progress after the batch; None: unchanged.
            reach: The tuples still needed, others are forgotten; None: nothing is forgotten.
            states: The next states of queries.
            results: New results by query.

        Raises:
            LeaseLost: Another holder has published since.
        """
        progress = progress or self.progress
        keep_from, forgotten = self._forget(reach or Reach())
        publication = Publication(
            tuples, progress, keep_from, forgotten, states or {}, results or {}
        )
        await self._results.publish(self._database, self._lease, self.sequence, publication)
        self.sequence, self.progress = self.sequence + 1, progress
        if tuples:
            self._note(LoggedBatch(self.sequence, tuples))

    def _forget(self, reach: Reach) -> tuple[int, Sequence[LogEntry]]:
        """Return the first needed batch, and the entries from it on that are not needed."""
        if self._entries is None:
            return 0, ()
        forgotten: list[LogEntry] = []
        for relation in self._entries.keys() - reach.missed:
            entries = self._entries[relation]
            while entries and len(forgotten) < _MAX_FORGOTTEN:
                if reach.watermark_s - entries[0].newest_s <= reach.window_s:
                    break
                forgotten.append(LogEntry(entries.popleft().sequence, relation))
        first_batches = (entries[0].sequence for entries in self._entries.values() if entries)
        keep_from = min(first_batches, default=self.sequence + 1)
        return keep_from, [entry for entry in forgotten if entry.sequence >= keep_from]

    def _note(self, batch: LoggedBatch) -> None:
        if self._entries is None:
            return
        newest: dict[str, float] = {}
        for item in batch.tuples:
            newest[item.stream] = max(item.time_s, newest.get(item.stream, item.time_s))
        for relation, newest_s in newest.items():
            self._entries[relation].append(_Entry(batch.sequence, newest_s))
