"""The history of streams: what arrived before a query was there that its window still reaches.

It is written into the log of batches once, page by page from the latest tuple back, so that a
holder that dies on the way leaves a log that the next one completes. Tuples may have any order of
times, of which ranges of them have bounds: ranges that no window reaches are not read.
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

_PAGE: Final = 1_000
"""Tuples that are read, or logged as history, at a time."""


async def complete_history(
    log: BatchLog,
    needs: Needs,
    database: str,
    streams: EventStreams,
    subscriptions: Subscriptions,
) -> None:
    """Log what windows reach and the log does not have; streams that nobody reads are left out.

    A class has no history, as what its objects were is not kept: it begins at the present position
    of the feed.
    """
    if not needs.queries:
        if log.progress.offsets:
            await log.clear()
        return
    await _note_less(log, needs)
    known = log.progress.offsets
    present = {source.relation: known.get(source.relation) for source in needs.sources}
    firsts = await _first_numbers(log, present)
    for source in sorted(needs.sources):
        relation, offset = source.relation, present[source.relation]
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
            first = firsts.get(relation, offset.number + 1)
            history = _History(streams, key, _before(needs, relation, first))
            await _log_history(log, needs, history, source, offset)
    if known.keys() - present.keys():
        left = {name: at for name, at in log.progress.offsets.items() if name in present}
        feed = log.progress.feed if any(each.kind == "class" for each in needs.sources) else ""
        await log.publish(progress=replace(log.progress, offsets=left, feed=feed))


async def _note_less(log: BatchLog, needs: Needs) -> None:
    """Note that the log reaches less far, before anything is forgotten: the widest query is gone.

    Whoever needs more later, a holder that follows one that died included, completes it again.
    """
    known = log.progress.offsets
    offsets = {
        name: offset._replace(reach_s=min(offset.reach_s, needs.reach_s))
        for name, offset in known.items()
    }
    if offsets != known:
        await log.publish(progress=replace(log.progress, offsets=offsets))


def _before(needs: Needs, relation: str, first: int) -> int:
    """Return the number below which a stream has what the log, from `first` on, may lack.

    Of what a query has missed the log has everything but what was late, which stays late.
    """
    numbers = (each.numbers for each in needs.behind.values())
    return min([first, *(each[relation] + 1 for each in numbers if relation in each)])


async def _first_numbers(log: BatchLog, offsets: Mapping[str, Offset | None]) -> dict[str, int]:
    """Return the lowest number in the log of each relation that is read already."""
    firsts: dict[str, int] = {}
    async for batch in log.read():
        for each in batch.tuples:
            if is_present(batch.sequence, offsets.get(each.stream)):
                firsts[each.stream] = min(each.number, firsts.get(each.stream, each.number))
    return firsts


def is_present(sequence: int, offset: Offset | None) -> bool:
    """Whether the tuples of a batch are for those who read their relation now."""
    return offset is not None and sequence >= offset.since


async def _log_history(
    log: BatchLog, needs: Needs, history: _History, source: Source, offset: Offset
) -> None:
    ranges = await history.ranges()
    latest_s = await history.latest_s(ranges, log.progress.latest_s)
    watermark_s = latest_s - needs.lateness_s
    reached = [each for each in ranges if watermark_s - each.latest_s <= needs.window_s]
    for first, last in (page for each in reversed(reached) for page in history.pages(each)):
        tuples = [
            LoggedTuple(source.relation, each.time_s, each.values, each.number)
            for each in await history.read(first, last)
            if watermark_s - each.time_s <= needs.window_s
            # What is nearer and not in the log was late, and older queries must not join it.
            and latest_s - each.time_s >= offset.reach_s
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
    """What a stream keeps below a number, of which a page at a time is in memory."""

    streams: EventStreams
    key: StreamKey
    before: int

    async def ranges(self) -> list[TupleRange]:
        return [each for each in await self.streams.ranges(self.key) if each.first < self.before]

    def pages(self, tuples: TupleRange) -> Iterator[tuple[int, int]]:
        """Go through pages of a range from its end on: their first and last numbers."""
        for last in range(min(tuples.last, self.before - 1), tuples.first - 1, -_PAGE):
            yield max(tuples.first, last - _PAGE + 1), last

    async def read(self, first: int, last: int) -> list[StoredTuple]:
        """Return tuples in their order, without those that the stream has removed meanwhile."""
        found: list[StoredTuple] = []
        with suppress(PositionGone):
            # In several steps, as large tuples come a few at a time.
            while page := (await self.streams.read(self.key, first - 1, last - first + 1)).tuples:
                found += page
                if (first := page[-1].number + 1) > last:
                    break
        return found

    async def latest_s(self, ranges: Sequence[TupleRange], at_least_s: float) -> float:
        """Return the latest time of all tuples, or another one if none is later.

        Bounds are whole seconds, and of tuples from the number on, too. So ranges are read, those
        of the latest bounds first, until no further one can have a later tuple.
        """
        latest_s = at_least_s
        for each in sorted(ranges, key=lambda tuples: tuples.latest_s, reverse=True):
            if each.latest_s <= latest_s:
                break
            for first, last in self.pages(each):
                times = [one.time_s for one in await self.read(first, last)]
                latest_s = max([latest_s, *times])
        return latest_s
