"""What a stream has of tuples or changes, as offsets and ranges, and the rows of a range.

An event stream has an offset of one number. A class has the position of its database's feed, of
which each partition is read on its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import orjson
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from mediator.base.errors import Invalid, NotFound
from mediator.changes.document import change_from
from mediator.changes.feed import PARTITIONS, Event, Feed, PositionGone
from mediator.changes.naming import named_as
from mediator.changes.position import FeedPosition, order_of
from mediator.changes.subscriptions import Subscriptions
from mediator.event_streams.port import EventStreams, StoredTuple, StreamKey
from spark_jobs.runner.port import InputUnfit

__all__ = [
    "CHANGES",
    "TUPLES",
    "ChangesOfClass",
    "ChangesRange",
    "Offset",
    "StreamLost",
    "StreamSide",
    "TuplesOfStream",
    "TuplesRange",
    "changes_in",
    "tuples_in",
]

Offset: TypeAlias = dict[str, Any]
"""As Spark keeps it."""

PAGE: Final = 2_000
_NUMBER: Final = re.compile(r"[0-9]{1,15}", re.ASCII)
LEAST: Final = 1_000
"""The least number of tuples for which a further partition is worth its cost."""

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
    """What a query has not read yet is not kept any more; says what to do."""

    def __init__(self, stream: str, reason: str) -> None:
        super().__init__(
            f"{stream}: {reason} To go on with what is kept, set the option failOnLoss to false; to"
            " begin anew, choose another checkpoint and set startingAt to earliest, latest or an"
            " offset. A longer retention keeps more for a query that stands still."
        )


@dataclass
class TuplesRange(InputPartition):
    """Numbers beyond one and up to another, of the stream of a database given by its id."""

    database: str
    stream: str
    after: int
    last: int


@dataclass
class ChangesRange(InputPartition):
    """Stream ids beyond one and up to another, of a partition of the feed.

    Attributes:
        names: The name of each field by its stored name; None: they are the same.
    """

    database: str
    class_name: str
    names: Mapping[str, str] | None
    partition: int
    after: str
    last: str


class StreamSide(Protocol):
    """The two kinds of streams, as the reader of a query sees them."""

    async def earliest(self) -> Offset:
        """Return the offset before everything that is kept."""

    async def latest(self) -> Offset:
        """Return the offset of what came last."""

    def parse(self, text: str) -> Offset:
        """Read an offset of a user; raises `InputUnfit`."""

    async def bounded(self, start: Offset, most: int) -> Offset:
        """Return the offset so many tuples or changes after one, or that of the last."""

    async def ranges(
        self, start: Offset, end: Offset, parts: int, *, fail_on_loss: bool
    ) -> Sequence[InputPartition]:
        """Divide what is between two offsets; raises `StreamLost`."""


class TuplesOfStream:
    """Implements `StreamSide` for an event stream."""

    def __init__(self, streams: EventStreams, key: StreamKey) -> None:
        self._streams = streams
        self._key = key

    async def earliest(self) -> Offset:
        return {"number": (await self._streams.report(self._key)).first - 1}

    async def latest(self) -> Offset:
        return {"number": (await self._streams.report(self._key)).last}

    def parse(self, text: str) -> Offset:
        if not _NUMBER.fullmatch(text):
            raise InputUnfit("startingAt must be earliest, latest or the number of a tuple.")
        return {"number": int(text)}

    async def bounded(self, start: Offset, most: int) -> Offset:
        last = (await self.latest())["number"]
        return {"number": max(start["number"], min(last, start["number"] + most))}

    async def ranges(
        self, start: Offset, end: Offset, parts: int, *, fail_on_loss: bool
    ) -> Sequence[InputPartition]:
        report = await self._streams.report(self._key)
        after, last = start["number"], end["number"]
        if after < report.first - 1 or last > report.last:
            reason = (
                f"tuples from {after + 1:,} to {last:,} are due, and those from {report.first:,} to"
                f" {report.last:,} are kept."
            )
            if fail_on_loss:
                raise StreamLost(self._key.stream, reason)
            after, last = max(after, report.first - 1), min(last, report.last)
        size = max(LEAST, -(-(last - after) // parts))
        cuts = range(after, last, size)
        return [TuplesRange(*self._key, cut, min(cut + size, last)) for cut in cuts]


class ChangesOfClass:
    """Implements `StreamSide` for the changes of a class.

    Args:
        names: The name of each field by its stored name; None: they are the same.
    """

    def __init__(
        self,
        feed: Feed,
        subscriptions: Subscriptions,
        database: str,
        class_name: str,
        names: Mapping[str, str] | None,
    ) -> None:
        self._feed = feed
        self._subscriptions = subscriptions
        self._database = database
        self._class_name = class_name
        self._names = names

    async def earliest(self) -> Offset:
        return {"position": (await self._subscriptions.beginning(self._database)).text}

    async def latest(self) -> Offset:
        return {"position": (await self._subscriptions.now(self._database)).text}

    def parse(self, text: str) -> Offset:
        try:
            return {"position": FeedPosition.parse(text, "startingAt").text}
        except Invalid as error:
            detail = "startingAt must be earliest, latest or a position of the feed."
            raise InputUnfit(detail) from error

    async def bounded(self, start: Offset, most: int) -> Offset:
        position = _position(start)
        if position.generation != await self._feed.generation(self._database):
            return await self.latest()
        for partition, id_ in enumerate(position.ids):
            oldest = await self._feed.oldest(self._database, partition)
            after = max(id_, oldest, key=order_of)
            last = await self._following(partition, after, max(1, most // PARTITIONS))
            position = position.advanced(partition, last)
        return {"position": position.text}

    async def _following(self, partition: int, after: str, most: int) -> str:
        """Return the stream id so many changes after one, or the last."""
        while most > 0:
            events = await self._feed.events(self._database, partition, after, min(most, PAGE))
            if not events:
                break
            after, most = events[-1].id, most - len(events)
        return after

    async def ranges(
        self,
        start: Offset,
        end: Offset,
        parts: int,  # noqa: ARG002 - the feed has its own
        *,
        fail_on_loss: bool,
    ) -> Sequence[InputPartition]:
        first, last = _position(start), _position(end)
        generation = await self._feed.generation(self._database)
        after = [*first.ids]
        for partition in range(PARTITIONS):
            oldest = await self._feed.oldest(self._database, partition)
            if first.generation != generation or order_of(after[partition]) < order_of(oldest):
                if fail_on_loss:
                    raise StreamLost(self._class_name, "changes that are due are not kept.")
                after[partition] = oldest
        if last.generation != generation:
            return []
        return [
            ChangesRange(self._database, self._class_name, self._names, partition, *ids)
            for partition, ids in enumerate(zip(after, last.ids, strict=True))
            if order_of(ids[0]) < order_of(ids[1])
        ]


def _position(offset: Offset) -> FeedPosition:
    return FeedPosition.parse(offset["position"], "offset")


async def tuples_in(
    streams: EventStreams, range_: TuplesRange, *, fail_on_loss: bool
) -> AsyncIterator[pa.RecordBatch]:
    """Yield the rows of a range, page by page; raises `StreamLost`."""
    key, after = StreamKey(range_.database, range_.stream), range_.after
    while after < range_.last:
        limit = min(PAGE, range_.last - after)
        try:
            page = await streams.read(key, after, limit)
        except PositionGone as error:
            if fail_on_loss:
                raise StreamLost(key.stream, error.detail) from error
            after = (await streams.report(key)).first - 1
            continue
        except NotFound as error:
            raise StreamLost(key.stream, error.detail) from error
        if not page:  # an earlier end of what is kept: the stream was lost meanwhile
            return
        yield _rows_of_tuples(range_.stream, page)
        after = page[-1].number


def _rows_of_tuples(stream: str, page: Sequence[StoredTuple]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [stream] * len(page),
        [each.number for each in page],
        [each.time_s for each in page],
        [orjson.dumps(each.values).decode() for each in page],
    ]
    return _batch(columns, TUPLES)


async def changes_in(
    feed: Feed, range_: ChangesRange, *, fail_on_loss: bool
) -> AsyncIterator[pa.RecordBatch]:
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
        named = event if names is None else named_as(event, names)
        change = change_from(named.data, range_.database)
        head = (range_.class_name, range_.partition, event.id, change.time_us / 1e6)
        what = (change.object_id, change.version, change.kind, change.group)
        rows.append((*head, *what, _image(change.before), _image(change.after)))
    columns = [[row[index] for row in rows] for index in range(len(CHANGES))]
    return _batch(columns, CHANGES)


def _image(values: Mapping[str, Any] | None) -> str | None:
    return None if values is None else orjson.dumps(dict(values)).decode()


def _batch(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(each, at.type) for each, at in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
