"""The log of batches as its holder sees it: what is published next, and what may be forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from mediator.base.lease import Lease
from mediator.standing.results import (
    LoggedBatch,
    LoggedTuple,
    Progress,
    Publication,
    QueryState,
    StandingResults,
)

__all__ = ["BatchLog"]


@dataclass(eq=False)
class BatchLog:
    """Publishes the batches of one database, one after the other.

    A batch is forgotten when its tuples are further back than any window reaches from the
    watermark. Only those before all others: a later one costs little, and goes in its turn.
    """

    _results: StandingResults
    _database: str
    _lease: Lease
    sequence: int = field(default=0, init=False)
    revision: int = field(default=-1, init=False)
    progress: Progress = field(default_factory=Progress, init=False)
    _newest: deque[tuple[int, float]] | None = field(default=None, init=False)
    """Of each batch that is kept, its sequence and the latest time of its tuples; None: not known,
    and nothing is forgotten."""

    async def open(self) -> None:
        """Continue after the last batch that was published."""
        published = await self._results.published(self._database)
        self.sequence, self.revision, self.progress = published

    async def read(self) -> AsyncIterator[LoggedBatch]:
        """Go through the batches that are kept."""
        self._newest = deque()
        async for batch in self._results.batches(self._database):
            self._note(batch)
            yield batch

    async def clear(self) -> None:
        """Forget everything: nothing is read any more."""
        self._newest = deque()
        await self.publish(progress=Progress())

    async def publish(
        self,
        tuples: Sequence[LoggedTuple] = (),
        *,
        progress: Progress | None = None,
        watermark_s: float = float("-inf"),
        window_s: float = 0.0,
        states: Mapping[str, QueryState] | None = None,
        results: Mapping[str, Sequence[bytes]] | None = None,
    ) -> None:
        """Publish a batch.

        Args:
            tuples: Those that were not late.
            progress: With the batch; None: it stays.
            watermark_s: Tuples from before will not come.
            window_s: The longest one, in which tuples are reached from the watermark.
            states: The next states of queries.
            results: New results by query.

        Raises:
            LeaseLost: Another holder has published since.
        """
        progress = progress or self.progress
        keep_from = self._keep_from(watermark_s, window_s)
        publication = Publication(tuples, progress, keep_from, states or {}, results or {})
        await self._results.publish(self._database, self._lease, self.sequence, publication)
        self.sequence, self.progress = self.sequence + 1, progress
        if tuples:
            self._note(LoggedBatch(self.sequence, tuples))

    def _keep_from(self, watermark_s: float, window_s: float) -> int:
        if self._newest is None:
            return 0
        while self._newest and watermark_s - self._newest[0][1] > window_s:
            self._newest.popleft()
        return self._newest[0][0] if self._newest else self.sequence + 1

    def _note(self, batch: LoggedBatch) -> None:
        if self._newest is not None:
            newest_s = max(each.time_s for each in batch.tuples)
            self._newest.append((batch.sequence, newest_s))
