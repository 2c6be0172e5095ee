"""The requests by which a relay appends what it has read of a system's logs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mediator.base.batches import batches_by_size
from mediator.changes.feed import APPENDED_AT_ONCE, APPENDED_BYTES, LogBatch, LogSource
from mediator.stores.port import LogEntry

__all__ = ["LogRead", "requests_of"]


@dataclass(frozen=True, slots=True)
class LogRead:
    """What was read of a log for one database: the entries from `after`, a cursor, to `upto`."""

    source: LogSource
    after: str
    upto: str
    entries: Sequence[LogEntry]


def requests_of(logs: Iterable[LogRead]) -> Iterator[tuple[Sequence[LogBatch], bool]]:
    """Group what was read into requests; yields also whether a request is the last.

    A log may be divided anywhere: each request moves the cursor over what it appends, and nothing
    else. If a later one fails, the feed has a beginning of the log, and its cursor says which.
    """
    request: list[LogBatch] = []
    count = total = 0
    for log in logs:
        for batch, size in _batches(log):
            entries = len(batch.entries)
            fits = count + entries <= APPENDED_AT_ONCE and total + size <= APPENDED_BYTES
            if request and not fits:
                yield request, False
                request, count, total = [], 0, 0
            request.append(batch)
            count, total = count + entries, total + size
    if request:
        yield request, True


def _batches(log: LogRead) -> Iterator[tuple[LogBatch, int]]:
    """Divide what was read of a log into batches, one at least; yields also their bytes."""
    divided = batches_by_size(log.entries, _size_of, APPENDED_AT_ONCE, APPENDED_BYTES)
    after, batches = log.after, [*divided] or [[]]
    for number, entries in enumerate(batches, 1):
        upto = log.upto if number == len(batches) else entries[-1].position
        changes = [(each.position, each.change) for each in entries if each.change is not None]
        yield LogBatch(log.source, after, upto, changes), sum(map(_size_of, entries))
        after = upto


def _size_of(entry: LogEntry) -> int:
    return entry.size
