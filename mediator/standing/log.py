"""The log of batches as its holder sees it: what is published next, and what may be forgotten."""

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

_MOST_FORGOTTEN: Final = 1_000
"""Entries that are forgotten with a batch, as a long pause may leave many."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What of the log is still needed.

    Attributes:
        watermark_s: Tuples from before will not come.
        window_s: The longest one, in which tuples are reached from the watermark.
        missed: Relations of which everything is needed: a query has not executed some of it.
    """

    watermark_s: float = float("-inf")
    window_s: float = 0.0
    missed: frozenset[str] = frozenset()


class _Kept(NamedTuple):
    """The tuples of a relation in a batch: the batch, and their latest time."""

    sequence: int
    newest_s: float


@dataclass(eq=False)
class BatchLog:
    """Publishes the batches of one database, one after the other.

    The tuples of a relation in a batch are forgotten when they are further back than any window
    reaches from the watermark. Only those before all others of the relation: a later one costs
    little, and goes in its turn.
    """

    _results: StandingResults
    _database: str
    _lease: Lease
    sequence: int = field(default=0, init=False)
    revision: int = field(default=-1, init=False)
    progress: Progress = field(default_factory=Progress, init=False)
    _kept: defaultdict[str, deque[_Kept]] | None = field(default=None, init=False)
    """What is kept of each relation; None: not known, and nothing is forgotten."""

    async def open(self) -> None:
        """Continue after the last batch that was published."""
        published = await self._results.published(self._database)
        self.sequence, self.revision, self.progress = published

    async def read(self) -> AsyncIterator[LoggedBatch]:
        """Go through the batches that are kept."""
        self._kept = defaultdict(deque)
        async for batch in self._results.batches(self._database):
            self._note(batch)
            yield batch

    async def clear(self) -> None:
        """Forget everything: nothing is read any more."""
        self._kept = defaultdict(deque)
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
            tuples: Those that were not late.
            progress: With the batch; None: it stays.
            reach: What is needed: the rest is forgotten; None: nothing is.
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
        """Return the first batch that is needed, and what of it and later ones is not."""
        if self._kept is None:
            return 0, ()
        forgotten: list[LogEntry] = []
        for relation in self._kept.keys() - reach.missed:
            kept = self._kept[relation]
            while kept and len(forgotten) < _MOST_FORGOTTEN:
                if reach.watermark_s - kept[0].newest_s <= reach.window_s:
                    break
                forgotten.append(LogEntry(kept.popleft().sequence, relation))
        firsts = (kept[0].sequence for kept in self._kept.values() if kept)
        keep_from = min(firsts, default=self.sequence + 1)
        return keep_from, [each for each in forgotten if each.sequence >= keep_from]

    def _note(self, batch: LoggedBatch) -> None:
        if self._kept is None:
            return
        newest: dict[str, float] = {}
        for each in batch.tuples:
            newest[each.stream] = max(each.time_s, newest.get(each.stream, each.time_s))
        for relation, newest_s in newest.items():
            self._kept[relation].append(_Kept(batch.sequence, newest_s))
