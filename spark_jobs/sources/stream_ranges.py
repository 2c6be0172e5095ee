"""Ranges of streams, each read by a separate task, and their rows."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from mediator.base.errors import NotFound
from mediator.changes.document import change_from
from mediator.changes.feed import Event, Feed, PositionGone
from mediator.changes.naming import named_as
from mediator.changes.position import order_of
from mediator.event_streams.port import EventStreams, StoredTuple, StreamKey

__all__ = [
    "CHANGES",
    "PAGE",
    "TUPLES",
    "ChangesRange",
    "StreamLost",
    "TuplesRange",
    "changes_in",
    "tuples_in",
]

PAGE: Final = 2_000
"""Tuples, or changes of all classes, read at once."""

TUPLES: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("number", pa.int64()),
        ("time_s", pa.float64()),
        ("values", pa.string()),
    ]
)
CHANGES: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("partition", pa.int32()),
        ("position", pa.string()),
        ("time_s", pa.float64()),
        ("id", pa.string()),
        ("version", pa.int64()),
        ("kind", pa.string()),
        ("group", pa.string()),
        ("before", pa.string()),
        ("after", pa.string()),
    ]
)


class StreamLost(Exception):
    """Unread data of a query is no longer stored; says what to do."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(
            f"{stream}: {reason} To go on with what is kept, set the option failOnLoss to false; to"
            " start again, choose another checkpoint and set startingAt to earliest, latest or an"
            " offset. A longer retention keeps more for a query that is stopped."
        )


@dataclass
class TuplesRange(InputPartition):
    """Numbers after `after` and up to `last`, of a stream of a database given by its id."""

    database: str
    stream: str
    after: int
    last: int


@dataclass
class ChangesRange(InputPartition):
    """Stream ids after `after` and up to `last`, of a partition of the feed.

    Attributes:
        names: The name of each field by its stored name; None: names are equal.
    """

    database: str
    class_name: str
    names: Mapping[str, str] | None
    partition: int
    after: str
    last: str


async def tuples_in(
    streams: EventStreams, range_: TuplesRange, *, fail_on_loss: bool
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the rows of a range, page by page; raises `StreamLost`."""
    key, after = StreamKey(range_.database, range_.stream), range_.after
    while after < range_.last:
        limit = min(PAGE, range_.last - after)
        try:
            page, _ = await streams.read(key, after, limit)
        except PositionGone as error:
            if fail_on_loss:
                raise StreamLost(key.stream, error.detail) from error
            report = await streams.report(key)
            if report.last < after:  # it went back: its earlier numbers are not due
                return
            after = report.first - 1
            continue
        except NotFound as error:
            raise StreamLost(key.stream, error.detail) from error
        if not page:  # an earlier end: the stream went back meanwhile
            if fail_on_loss:
                reason = f"tuples up to {range_.last:,} are due, and it has got to {after:,} only."
                raise StreamLost(key.stream, reason)
            return
        yield _rows_of_tuples(range_.stream, page)
        after = page[-1].number


def _rows_of_tuples(stream: str, page: Sequence[StoredTuple]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [stream] * len(page),
        [tuple_.number for tuple_ in page],
        [tuple_.time_s for tuple_ in page],
        [orjson.dumps(tuple_.values).decode() for tuple_ in page],
    ]
    return pa.record_batch(columns, schema=TUPLES)


async def changes_in(
    feed: Feed, range_: ChangesRange, *, fail_on_loss: bool
) -> AsyncGenerator[pa.RecordBatch, None]:
    """Yield the changes of the class in a range, page by page; raises `StreamLost`."""
    after, last = range_.after, order_of(range_.last)
    while order_of(after) < last:
        try:
            page = await feed.events(range_.database, range_.partition, after, PAGE)
        except PositionGone as error:
            if fail_on_loss:
                raise StreamLost(range_.class_name, error.detail) from error
            after = await feed.oldest(range_.database, range_.partition)
            continue
        if not page:
            return
        after = page[-1].id
        due = [
            event
            for event in page
            if event.class_name == range_.class_name and order_of(event.id) <= last
        ]
        if due:
            yield _rows_of_changes(range_, due)


def _rows_of_changes(range_: ChangesRange, events: Sequence[Event]) -> pa.RecordBatch:
    names = range_.names
    rows: list[tuple[Any, ...]] = []
    for event in events:
        renamed = event if names is None else named_as(event, names)
        change = change_from(renamed.data, range_.database)
        head = (range_.class_name, range_.partition, event.id, change.time_us / 1e6)
        identity = (change.object_id, change.version, change.kind, change.group)
        rows.append((*head, *identity, _image(change.before), _image(change.after)))
    return pa.record_batch(list(zip(*rows, strict=True)), schema=CHANGES)


def _image(values: Mapping[str, Any] | None) -> str | None:
    return None if values is None else orjson.dumps(dict(values)).decode()
