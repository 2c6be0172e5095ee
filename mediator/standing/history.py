"""The history of streams: tuples from before a query's creation that its window reaches.

It is written to the log of batches once, page by page backwards from the latest tuple, so that the
next holder can complete the log if one dies on the way. Tuples can be in any order of time, but
ranges of tuples have time bounds, and ranges that no window reaches are not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from mediator.changes.feed import PositionGone
from mediator.changes.subscriptions import Subscriptions
from mediator.event_streams.port import EventStreams, StoredTuple, StreamKey, TupleRange
from mediator.standing.log import BatchLog
from mediator.standing.needs import Needs
from mediator.standing.query import Source
from mediator.standing.results import LoggedTuple, Offset

__all__ = ["complete_history", "is_present"]

_PAGE_TUPLES: Final = 1_000
"""Tuples that are read or logged at a time."""


async def complete_history(
    log: BatchLog,
    needs: Needs,
    database: str,
    streams: EventStreams,
    subscriptions: Subscriptions,
) -> None:
    """Log the tuples that windows reach and the log lacks; drop streams that nobody reads.

    A class has no history, as former states of objects are not kept: it starts at the current
    position of the feed.
    """
    if not needs.queries:
        if log.progress.offsets:
            await log.clear()
        return
    await _reduce_reach(log, needs)
    offsets = log.progress.offsets
    current = {source.relation: offsets.get(source.relation) for source in needs.sources}
    first_numbers = await _first_numbers(log, current)
    for source in sorted(needs.sources):
        relation, offset = source.relation, current[source.relation]
        if source.kind == "class":
            if not log.progress.feed:
                feed = (await subscriptions.now(database)).text
                await log.publish(progress=replace(log.progress, feed=feed))
            offset = offset or Offset(0, log.sequence + 1, 0.0)
            await _log_offset(log, relation, offset)
        elif offset is None or offset.reach_s < needs.reach_s:
            key = StreamKey(database, source.name)
            if offset is None:
                offset = Offset(await streams.last(key), log.sequence + 1, 0.0)
            first = first_numbers.get(relation, offset.number + 1)
            history = _History(streams, key, _upper_bound(needs, relation, first))
            await _log_history(log, needs, history, source, offset)
    if offsets.keys() - current.keys():
        remaining = {name: at for name, at in log.progress.offsets.items() if name in current}
        feed = log.progress.feed if any(other.kind == "class" for other in needs.sources) else ""
        await log.publish(progress=replace(log.progress, offsets=remaining, feed=feed))


async def _reduce_reach(log: BatchLog, needs: Needs) -> None:
    """Record that the log reaches less far, before it forgets tuples: the widest query is gone.

    Whoever needs more later, including the successor of a dead holder, completes it again.
    """
    former = log.progress.offsets
    offsets = {
        name: offset._replace(reach_s=min(offset.reach_s, needs.reach_s))
        for name, offset in former.items()
    }
    if offsets != former:
        await log.publish(progress=replace(log.progress, offsets=offsets))


def _upper_bound(needs: Needs, relation: str, first: int) -> int:
    """Return the number below which a stream has tuples that the log, from `first` on, may lack.

    The log has all tuples that a query has missed, except late ones, which stay late.
    """
    numbers = (state.numbers for state in needs.behind.values())
    return min([first, *(lasts[relation] + 1 for lasts in numbers if relation in lasts)])


async def _first_numbers(log: BatchLog, offsets: Mapping[str, Offset | None]) -> dict[str, int]:
    """Return the lowest number in the log of each relation, for relations already read."""
    firsts: dict[str, int] = {}
    async for batch in log.read():
        for item in batch.tuples:
            if is_present(batch.sequence, offsets.get(item.stream)):
                firsts[item.stream] = min(item.number, firsts.get(item.stream, item.number))
    return firsts


def is_present(sequence: int, offset: Offset | None) -> bool:
    """Whether the tuples of a batch are for the current readers of their relation."""
    return offset is not None and sequence >= offset.since


async def _log_history(
    log: BatchLog, needs: Needs, history: _History, source: Source, offset: Offset
) -> None:
    ranges = await history.ranges()
    latest_s = await history.latest_s(ranges, log.progress.latest_s)
    watermark_s = latest_s - needs.lateness_s
    reachable = [range_ for range_ in ranges if watermark_s - range_.latest_s <= needs.window_s]
    for first, last in (page for range_ in reversed(reachable) for page in history.pages(range_)):
        tuples = [
            LoggedTuple(source.relation, item.time_s, item.values, item.number)
            for item in await history.read(first, last)
            if watermark_s - item.time_s <= needs.window_s
            # Nearer tuples that the log lacks were late, and older queries must not join them.
            and latest_s - item.time_s >= offset.reach_s
        ]
        if tuples:
            offsets = {**log.progress.offsets, source.relation: offset}
            progress = replace(log.progress, latest_s=latest_s, offsets=offsets)
            await log.publish(tuples, progress=progress)
    await _log_offset(log, source.relation, offset._replace(reach_s=needs.reach_s))


async def _log_offset(log: BatchLog, relation: str, offset: Offset) -> None:
    if log.progress.offsets.get(relation) != offset:
        offsets = {**log.progress.offsets, relation: offset}
        await log.publish(progress=replace(log.progress, offsets=offsets))


@dataclass(frozen=True, slots=True)
class _History:
    """A stream's tuples below a number, of which one page at a time is in memory."""

    streams: EventStreams
    key: StreamKey
    before: int

    async def ranges(self) -> list[TupleRange]:
        return [
            range_ for range_ in await self.streams.ranges(self.key) if range_.first < self.before
        ]

    def pages(self, tuples: TupleRange) -> Iterator[tuple[int, int]]:
        """Yield the first and last numbers of a range's pages, from its end on."""
        for last in range(min(tuples.last, self.before - 1), tuples.first - 1, -_PAGE_TUPLES):
            yield max(tuples.first, last - _PAGE_TUPLES + 1), last

    async def read(self, first: int, last: int) -> list[StoredTuple]:
        """Return tuples in order, without those that the stream has removed meanwhile."""
        tuples: list[StoredTuple] = []
        with suppress(PositionGone):
            # In several steps, as large tuples come a few at a time.
            while page := (await self.streams.read(self.key, first - 1, last - first + 1)).tuples:
                tuples += page
                if (first := page[-1].number + 1) > last:
                    break
        return tuples

    async def latest_s(self, ranges: Sequence[TupleRange], min_s: float) -> float:
        """Return the latest time of all tuples, or `min_s` if none is later.

        Bounds are whole seconds, and include tuples from the number on. Ranges are therefore read,
        latest bounds first, until no other can have a later tuple.
        """
        latest_s = min_s
        for range_ in sorted(ranges, key=lambda tuples: tuples.latest_s, reverse=True):
            if range_.latest_s <= latest_s:
                break
            for first, last in self.pages(range_):
                times = [item.time_s for item in await self.read(first, last)]
                latest_s = max([latest_s, *times])
        return latest_s
