"""The history of streams: what arrived before a query was there that its window still reaches.

It is written into the log of batches once, from the latest tuple back, so that a holder that dies
on the way leaves a log that the next one completes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mediator.changes.subscriptions import Subscriptions
from mediator.event_streams.port import EventStreams, StreamKey
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
        elif offset is None or offset.reach_s < needs.window_s:
            key = StreamKey(database, source.name)
            if offset is None:
                offset = Offset(await streams.last(key), log.sequence + 1, 0.0)
            before = firsts.get(relation, offset.number + 1)
            await _log_history(log, needs, streams, key, source, offset, before)
    if known.keys() - present.keys():
        left = {name: at for name, at in log.progress.offsets.items() if name in present}
        feed = log.progress.feed if any(each.kind == "class" for each in needs.sources) else ""
        await log.publish(progress=replace(log.progress, offsets=left, feed=feed))


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
    log: BatchLog,
    needs: Needs,
    streams: EventStreams,
    key: StreamKey,
    source: Source,
    offset: Offset,
    before: int,
) -> None:
    found = await _read_until(streams, key, source.relation, before)
    latest_s = max((each.time_s for each in found), default=float("-inf"))
    latest_s = max(latest_s, log.progress.latest_s)
    watermark_s = latest_s - needs.lateness_s
    found = [each for each in found if watermark_s - each.time_s <= needs.window_s]
    for end in range(len(found), 0, -_PAGE):
        chunk = found[max(0, end - _PAGE) : end]
        offsets = {**log.progress.offsets, source.relation: offset}
        await log.publish(chunk, progress=replace(log.progress, latest_s=latest_s, offsets=offsets))
    await _log_offset(log, source.relation, offset._replace(reach_s=needs.window_s))


async def _log_offset(log: BatchLog, relation: str, offset: Offset) -> None:
    if log.progress.offsets.get(relation) != offset:
        offsets = {**log.progress.offsets, relation: offset}
        await log.publish(progress=replace(log.progress, offsets=offsets))


async def _read_until(
    streams: EventStreams, key: StreamKey, relation: str, before: int
) -> Sequence[LoggedTuple]:
    """Return the tuples that are kept below a number, in their order."""
    found: list[LoggedTuple] = []
    after: int | None = None
    while after is None or after < before - 1:
        page = await streams.read(key, after, _PAGE)
        found += [
            LoggedTuple(relation, each.time_s, each.values, each.number)
            for each in page
            if each.number < before
        ]
        if not page:
            break
        after = page[-1].number
    return found
